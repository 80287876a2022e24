# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ranges for which a process of x64 registered function tables, as runtimes do for the code they make.

RtlGetFunctionTableListHead, an export of ntdll, returns the head of their list: it is one instruction that
loads the address, and a return. RtlAddFunctionTable, RtlInstallFunctionTableCallback and
RtlAddGrowableFunctionTable put an element on it (described: Microsoft's documentation of these functions).
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ...base.decode import links, ranges
from ...base.decode.memory import Memory
from ...base.decode.record import Record
from ...base.image import Image
from ...names.symbolizer import KnownModule, SpaceNames

MAX_TABLES = 1 << 16
"""The most function tables of a process that are read."""

_GETTER = "RtlGetFunctionTableListHead"
_LOAD = bytes.fromhex("488d05")
"""lea rax, [rip + disp32] (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""
_LENGTH = len(_LOAD) + 4
_RETURN = 0xC3


class Range(Record):
    """Addresses of a process with a registered function table, `end` exclusive; `table` is its element."""

    start: int
    end: int
    table: int

    @property
    def said(self) -> str:
        """What Innocent says of it."""
        return f"function table registered for {self.start:#x}-{self.end - 1:#x}"


def registered(memory: Memory, image: Image, names: SpaceNames) -> List[Range]:
    """Returns the ranges, disjoint and ascending; none if the list cannot be found.

    Args:
        memory: that of the process
        image: the image
        names: the names of the process

    Raises:
        tables.MissingTableError: when our symbol table of user mode is missing
    """
    table = image.process_types(8)["_DYNAMIC_FUNCTION_TABLE"]
    low, high = table.field("MinimumAddress"), table.field("MaximumAddress")
    found: List[Tuple[int, int, int]] = []
    for head in _heads(memory, names):
        for node in links.walk(head, memory.links, MAX_TABLES).nodes:
            start, end = memory.member(node, low), memory.member(node, high)
            if start and end and start < end:
                found.append((start, end, node))
    return [Range(*each) for each in ranges.flatten(found)]


def _heads(memory: Memory, names: SpaceNames) -> Iterator[int]:
    """Yields the address of the list's head, of each ntdll that tells."""
    for ntdll in names.modules("ntdll"):
        head = _head(memory, ntdll)
        if head is not None:
            yield head


def _head(memory: Memory, ntdll: KnownModule) -> Optional[int]:
    rva = ntdll.image.names.rva_of(_GETTER)
    code = None if rva is None else memory.read(ntdll.module.base + rva, _LENGTH + 1)
    if rva is None or code is None or not code.startswith(_LOAD) or code[_LENGTH] != _RETURN:
        return None
    distance = int.from_bytes(code[len(_LOAD) : _LENGTH], "little", signed=True)
    return ntdll.module.base + rva + _LENGTH + distance
