# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The handles of a minidump, the handle operations recorded by Application Verifier, and the tokens.

Source: "minidumpapiset.h" (MINIDUMP_HANDLE_DESCRIPTOR, MINIDUMP_HANDLE_DESCRIPTOR_2,
MINIDUMP_HANDLE_OPERATION_LIST, MINIDUMP_TOKEN_INFO_LIST), "avrfsdk.h" (AVRF_HANDLE_OPERATION,
AVRF_BACKTRACE_INFORMATION).
"""

from __future__ import annotations

from typing import Annotated, List, Tuple

from ...memory.decode.declared import STRING, ULONG, ULONGLONG, Declared
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, StatusItem, naming, status
from ...memory.decode.statuscodes import StatusCode
from .dumpfile import Minidump
from .lists import HEADER_OF_16, read_headed_list, read_list_header

_HANDLE_DATA, _HANDLE_OPERATION_LIST, _TOKEN = 12, 18, 19

MAX_HANDLES = 0x100000
MAX_OPERATIONS = 0x100000
MAX_TOKENS = 0x10000
MAX_TRACES = 32
"""AVRF_MAX_TRACES."""

OPERATIONS = {0: "OperationDbUnused", 1: "OperationDbOPEN", 2: "OperationDbCLOSE", 3: "OperationDbBADREF"}
"""eHANDLE_TRACE_OPERATIONS."""


class HandleDescriptor(NamedTuple):
    """MINIDUMP_HANDLE_DESCRIPTOR_2; a name is None if the handle has none, or if it cannot be read."""

    Handle: ULONGLONG
    TypeName: STRING
    ObjectName: STRING
    Attributes: ULONG
    GrantedAccess: ULONG
    HandleCount: ULONG
    PointerCount: ULONG
    ObjectInfoRva: ULONG = 0


class HandleOperation(NamedTuple):
    """AVRF_HANDLE_OPERATION. `ReturnAddresses` has room for the most return addresses."""

    Handle: ULONGLONG
    ProcessId: ULONG
    ThreadId: ULONG
    OperationType: ULONG
    Depth: Annotated[int, "ULONG @0x18"]
    Index: ULONG
    ReturnAddresses: Annotated[Tuple[int, ...], "ULONGLONG[32]"]

    @property
    def addresses(self) -> Tuple[int, ...]:
        """The return addresses, the newest call first: Depth of them, at most 32."""
        return self.ReturnAddresses[: self.Depth]

    @property
    def status(self) -> Status:
        """Faults of the operation."""
        known = self.OperationType in OPERATIONS
        return status(
            None if known else StatusItem(StatusCode.UNKNOWN_TYPE, self.OperationType),
            StatusCode.DEPTH if self.Depth > MAX_TRACES else None,
        )


class TokenInfoList(NamedTuple):
    """MINIDUMP_TOKEN_INFO_LIST."""

    TokenListSize: ULONG
    TokenListEntries: ULONG
    ListHeaderSize: ULONG
    ElementHeaderSize: ULONG


class TokenInfo(NamedTuple):
    """MINIDUMP_TOKEN_INFO_HEADER: the owner of a token, and the length of the structure that follows."""

    TokenSize: ULONG
    TokenId: ULONG
    TokenHandle: ULONGLONG


HANDLE, _OPERATION = Declared(HandleDescriptor, size=40, least=32), Declared(HandleOperation)
_TOKEN_LIST, _TOKEN_HEADER = Declared(TokenInfoList), Declared(TokenInfo)


def handle_data(dump: Minidump) -> Tuple[List[HandleDescriptor], Status]:
    """Returns the handles of HandleDataStream, and the status of the stream."""
    handles, faults = read_headed_list(
        dump, _HANDLE_DATA, HEADER_OF_16, HANDLE, MAX_HANDLES, "NumberOfDescriptors"
    )
    return handles, status(faults, dump.text_status)


def handle_operation_list(dump: Minidump) -> Tuple[List[HandleOperation], Status]:
    """Returns the operations of HandleOperationListStream in its order, and the status of the stream."""
    return read_headed_list(
        dump, _HANDLE_OPERATION_LIST, HEADER_OF_16, _OPERATION, MAX_OPERATIONS, "NumberOfEntries"
    )


def token_info_list(dump: Minidump) -> Tuple[List[TokenInfo], Status]:
    """Returns the headers of the tokens of TokenStream, and the status of the stream."""
    header, rva, end, stream = read_list_header(dump, _TOKEN, _TOKEN_LIST)
    if header is None:
        return [], stream
    _, count, list_header, element_header = header
    if list_header < _TOKEN_LIST.size or element_header < _TOKEN_HEADER.size:
        return [], status(stream, naming(StatusCode.HEADER, "ListHeaderSize", "ElementHeaderSize"))
    found: List[TokenInfo] = []
    position = rva + list_header
    while len(found) < min(count, MAX_TOKENS) and position + element_header <= end:
        row = dump.read(position, _TOKEN_HEADER.size)
        if row is None:
            break
        found.append(_TOKEN_HEADER.decode(row))
        position += element_header + found[-1].TokenSize
    rest, limited = count > len(found), len(found) == MAX_TOKENS
    fewer = count == len(found) and position + element_header <= end
    return found, status(
        stream,
        naming(StatusCode.FEWER_THAN_THE_STREAM, "TokenListEntries") if fewer else None,
        StatusCode.LIMIT if rest and limited else None,
        naming(StatusCode.MORE_THAN_THE_STREAM, "TokenListEntries") if rest and not limited else None,
    )
