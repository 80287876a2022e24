# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The handles of a minidump, the handle operations recorded by Application Verifier, and the tokens.

Source: "minidumpapiset.h" (MINIDUMP_HANDLE_DESCRIPTOR, MINIDUMP_HANDLE_DESCRIPTOR_2,
MINIDUMP_HANDLE_OPERATION_LIST, MINIDUMP_TOKEN_INFO_LIST), "avrfsdk.h" (AVRF_HANDLE_OPERATION,
AVRF_BACKTRACE_INFORMATION).
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from ...memory.decode.status import Status, StatusItem, status
from ...memory.decode.statuscodes import StatusCode
from .dumpfile import FixedStruct, Minidump, read_headed_list, read_list_header

_HANDLE_DATA, _HANDLE_OPERATION_LIST, _TOKEN = 12, 18, 19

MAX_HANDLES = 0x100000
MAX_OPERATIONS = 0x100000
MAX_TOKENS = 0x10000
MAX_TRACES = 32
"""AVRF_MAX_TRACES."""

OPERATIONS = {0: "OperationDbUnused", 1: "OperationDbOPEN", 2: "OperationDbCLOSE", 3: "OperationDbBADREF"}
"""eHANDLE_TRACE_OPERATIONS."""

HANDLE_HEADER = FixedStruct("IIII")
HANDLE = FixedStruct("QIIIIIIII", 32)
_OPERATION = FixedStruct("QIIIIII32Q")
_TOKEN_LIST = FixedStruct("IIII")
_TOKEN_HEADER = FixedStruct("IIQ")


class HandleDescriptor(NamedTuple):
    """MINIDUMP_HANDLE_DESCRIPTOR; a name is None if the handle has none, or if it cannot be read."""

    Handle: int
    TypeName: Optional[str]
    ObjectName: Optional[str]
    Attributes: int
    GrantedAccess: int
    HandleCount: int
    PointerCount: int


class HandleOperation(NamedTuple):
    """AVRF_HANDLE_OPERATION.

    Attributes:
        OperationType: see OPERATIONS
        ReturnAddresses: return addresses, the newest call first; Depth of them, at most 32
    """

    Handle: int
    ProcessId: int
    ThreadId: int
    OperationType: int
    Depth: int
    Index: int
    ReturnAddresses: Tuple[int, ...]
    status: Status


class TokenInfo(NamedTuple):
    """MINIDUMP_TOKEN_INFO_HEADER: the owner of a token, and the length of the structure that follows."""

    TokenSize: int
    TokenId: int
    TokenHandle: int


def handle_data(dump: Minidump) -> Tuple[List[HandleDescriptor], Status]:
    """Returns the handles of HandleDataStream, and the status of the stream."""
    found, faults = read_headed_list(
        dump, _HANDLE_DATA, HANDLE_HEADER, HANDLE, MAX_HANDLES, "NumberOfDescriptors"
    )
    handles = [
        HandleDescriptor(handle, dump.string(type_rva), dump.string(name_rva), *rest[:4])
        for handle, type_rva, name_rva, *rest in found
    ]
    return handles, status(faults, dump.text_status)


def handle_operation_list(dump: Minidump) -> Tuple[List[HandleOperation], Status]:
    """Returns the operations of HandleOperationListStream in its order, and the status of the stream."""
    found, faults = read_headed_list(
        dump, _HANDLE_OPERATION_LIST, HANDLE_HEADER, _OPERATION, MAX_OPERATIONS, "NumberOfEntries"
    )
    return [_operation(row) for row in found], faults


def token_info_list(dump: Minidump) -> Tuple[List[TokenInfo], Status]:
    """Returns the headers of the tokens of TokenStream, and the status of the stream."""
    members, rva, end, stream = read_list_header(dump, _TOKEN, _TOKEN_LIST)
    if not members:
        return [], stream
    _, count, list_header, element_header = members
    if list_header < _TOKEN_LIST.size or element_header < _TOKEN_HEADER.size:
        return [], status(
            stream, StatusItem(StatusCode.HEADER, None, ("ListHeaderSize", "ElementHeaderSize"))
        )
    found: List[TokenInfo] = []
    position = rva + list_header
    while len(found) < min(count, MAX_TOKENS) and position + element_header <= end:
        row = dump.read(position, _TOKEN_HEADER.size)
        if row is None:
            break
        found.append(TokenInfo(*_TOKEN_HEADER.decode(row)))
        position += element_header + found[-1].TokenSize
    rest, fewer = count > len(found), count == len(found) and position + element_header <= end
    return found, status(
        stream,
        StatusItem(StatusCode.FEWER_THAN_THE_STREAM, None, ("TokenListEntries",)) if fewer else None,
        StatusCode.LIMIT if rest and len(found) == MAX_TOKENS else None,
        StatusItem(StatusCode.MORE_THAN_THE_STREAM, None, ("TokenListEntries",)) if rest else None,
    )


def _operation(row: Tuple[int, ...]) -> HandleOperation:
    handle, process, thread, kind, _, depth, index, *addresses = row
    return HandleOperation(
        handle,
        process,
        thread,
        kind,
        depth,
        index,
        tuple(addresses[:depth]),
        status(
            StatusItem(StatusCode.UNKNOWN_TYPE, kind) if kind not in OPERATIONS else None,
            StatusCode.DEPTH if depth > MAX_TRACES else None,
        ),
    )
