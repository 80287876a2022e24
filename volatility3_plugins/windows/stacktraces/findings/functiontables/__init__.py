# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ranges for which a process of x64 registered function tables, as runtimes do for the code they make.

RtlGetFunctionTableListHead, an export of ntdll, returns the head of their list: it is one instruction that
loads the address, and a return. RtlAddFunctionTable, RtlInstallFunctionTableCallback and
RtlAddGrowableFunctionTable put an element on it (described: Microsoft's documentation of these functions).
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

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


class FunctionTables(Record):
    """The function tables of a process.

    Attributes:
        ranges: those that could be read, disjoint and ascending
        whole: nothing of them is missing from the image. What was read and is no such code or list counts as
            whole: it was changed, and is not missing
    """

    ranges: List[Range]
    whole: bool


def registered(
    memory: Memory, image: Image, names: SpaceNames, known: Callable[[int], bool]
) -> FunctionTables:
    """Returns the function tables that a process registered.

    Args:
        memory: that of the process
        image: the image
        names: the names of the process
        known: tells whether an address is in a range of the process

    Raises:
        tables.MissingTableError: when our symbol table of user mode is missing
    """
    table = image.process_types(8)["_DYNAMIC_FUNCTION_TABLE"]
    low, high = table.field("MinimumAddress"), table.field("MaximumAddress")
    found: List[Tuple[int, int, int]] = []
    whole = True
    for ntdll in names.modules("ntdll"):
        head, told = _head(ntdll)
        whole = whole and told
        if head is None:
            continue
        walk = links.walk(head, memory.links, MAX_TABLES)
        if walk.gap is not None:
            whole = whole and not any(_missing(each, known) for each in walk.gap)
        for node in walk.nodes:
            start, end = memory.member(node, low), memory.member(node, high)
            whole = whole and start is not None and end is not None
            if start and end and start < end:
                found.append((start, end, node))
    return FunctionTables([Range(*each) for each in ranges.flatten(found)], whole)


def _missing(end: links.Break, known: Callable[[int], bool]) -> bool:
    """Tells whether a walk ended where the process has memory that is not in the image.

    Tools that acquire memory write zeros for what they cannot read, and no link of such a list is 0.
    """
    return end.reason in (links.UNREADABLE, links.HEAD) and (not end.link or known(end.link))


def _head(ntdll: KnownModule) -> Tuple[Optional[int], bool]:
    """Returns the address of the list's head, None if nothing tells, and whether all could be read."""
    rva = ntdll.image.names.rva_of(_GETTER)
    if rva is None or ntdll.open is None:
        return None, not ntdll.image.status
    code = ntdll.open().read(rva, _LENGTH + 1)
    if code is None or not any(code):
        return None, False
    if not code.startswith(_LOAD) or code[_LENGTH] != _RETURN:
        return None, True
    distance = int.from_bytes(code[len(_LOAD) : _LENGTH], "little", signed=True)
    return ntdll.module.base + rva + _LENGTH + distance, True
