# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`_DPH_BLOCK_INFORMATION`: what page heap puts right before the caller's bytes (7 and later).

Light page heap does so within a block of an ordinary heap, full page heap in pages of the block's own.
It names the entry of a stack trace database.

Source: public symbols of ntdll 7 SP1 and 10.0.1904x; the stamps from public documentation. Not measured.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from ...base.decode.types import Types, offset, size
from .memory import HeapMemory

# StartStamp: (EndStamp, full page heap, freed)
_STAMPS: Dict[int, Tuple[int, bool, bool]] = {
    0xABCDBBBB: (0xDCBABBBB, True, False),
    0xABCDBBBA: (0xDCBABBBA, True, True),
    0xABCDAAAA: (0xDCBAAAAA, False, False),
    0xABCDAAA9: (0xDCBAAAA9, False, True),
}


class PageInfoLayout(NamedTuple):
    """Where the members of _DPH_BLOCK_INFORMATION lie."""

    pointer_size: int
    size: int
    start_stamp: int
    heap: int
    requested_size: int
    actual_size: int
    stack_trace: int
    end_stamp: int


class Information(NamedTuple):
    """A _DPH_BLOCK_INFORMATION whose stamps are right.

    Attributes:
        user: address of the caller's bytes
        heap: the page heap that the block belongs to
        size: bytes that the caller asked for
        actual: bytes with all that page heap adds
        trace: address of a database entry, 0 for none
        full: whether full page heap wrote it, not light
        freed: its stamps say so
    """

    user: int
    heap: int
    size: int
    actual: int
    trace: int
    full: bool
    freed: bool


def page_info_layout(types: Types, pointer_size: int) -> PageInfoLayout:
    """Builds the layout from a symbol table.

    Raises:
        symboltypes.MissingMemberError: when the table lacks the type
    """
    info = "_DPH_BLOCK_INFORMATION"
    return PageInfoLayout(
        pointer_size=pointer_size,
        size=size(types, info),
        start_stamp=offset(types, info, "StartStamp"),
        heap=offset(types, info, "Heap"),
        requested_size=offset(types, info, "RequestedSize"),
        actual_size=offset(types, info, "ActualSize"),
        stack_trace=offset(types, info, "StackTrace"),
        end_stamp=offset(types, info, "EndStamp"),
    )


def read_information(memory: HeapMemory, address: int, layout: PageInfoLayout) -> Optional[Information]:
    """Reads the _DPH_BLOCK_INFORMATION at an address, or returns None when its stamps are not there."""
    start = memory.number(address + layout.start_stamp, 4)
    if start is None or start not in _STAMPS:
        return None
    end, full, freed = _STAMPS[start]
    data = memory.read(address, layout.size)
    if data is None or int.from_bytes(data[layout.end_stamp : layout.end_stamp + 4], "little") != end:
        return None
    heap, requested, actual, trace = (
        int.from_bytes(data[at : at + layout.pointer_size], "little")
        for at in (layout.heap, layout.requested_size, layout.actual_size, layout.stack_trace)
    )
    return Information(address + layout.size, heap, requested, actual, trace, full, freed)
