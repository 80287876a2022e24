# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ranges for which an x64 process registered function tables, as runtimes do for generated code.

RtlGetFunctionTableListHead, an export of ntdll, returns the head of the list of tables: it consists of one
instruction that loads the address, and a return. RtlAddFunctionTable, RtlInstallFunctionTableCallback and
RtlAddGrowableFunctionTable add an element to the list (described: Microsoft's documentation of these
functions).
"""

from __future__ import annotations

import bisect
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from ...memory.decode import links, ranges
from ...memory.decode.machine import Machine
from ...memory.decode.memory import Memory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.image import Image
from ...names.decode import exports, pe
from ...names.imagereader import ImageReader
from ...names.symbolizer import AddressNamer, KnownModule
from ...names.usermodules import vad_at
from ...process.regions import Region

MAX_TABLES = 1 << 16
"""The most function tables of a process that are read."""

_GETTER = "RtlGetFunctionTableListHead"
_LOAD = bytes.fromhex("488d05")
"""lea rax, [rip + disp32] (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""
_LENGTH = len(_LOAD) + 4
_RETURN = 0xC3
_EXPORTS = "the exports of ntdll"
_UNREAD = (StatusCode.HEADERS_UNREADABLE, StatusCode.EXPORTS_UNREADABLE, StatusCode.EXPORTS_INCOMPLETE)


class CodeRange(NamedTuple):
    """Addresses of a process that hold generated code of a runtime, `end` exclusive.

    Attributes:
        start, end: limits of the range, canonical addresses
        table: address of the element of its registered function table; 0 if it has none
        list: name of the runtime's own list that contains the range; empty if it has a function table
        beyond: whether the range of a function table ends in other memory than it begins in: one altered
            limit covers other code
    """

    start: int
    end: int
    table: int
    list: str = ""
    beyond: bool = False

    @property
    def describe(self) -> str:
        """The text for Innocent."""
        if self.list:
            return f"{self.list}, {self.start:#x}-{self.end - 1:#x}, by its own list"
        beyond = ", which ends in other memory than it begins in" if self.beyond else ""
        return f"function table registered for {self.start:#x}-{self.end - 1:#x}{beyond}"


class FunctionTables(NamedTuple):
    """The function tables of a process.

    Attributes:
        ranges: ranges that could be read, disjoint and ascending; none reaches over a mapped image, because a
            runtime generates code in private memory
        missing: data missing from the image, in words; empty if nothing is missing. Data that was read but is
            no such code or list was changed, and does not count as missing
    """

    ranges: List[CodeRange]
    missing: str


def registered(
    memory: Memory,
    image: Image,
    names: AddressNamer,
    vads: Sequence[Region],
    original: Callable[[int], Optional[ImageReader]],
) -> FunctionTables:
    """Returns the function tables that a process registered.

    Args:
        memory: memory of the process
        image: the image
        names: names of the process
        vads: VADs of the process, ascending
        original: function that returns a reader of the section of the image mapped at an address

    Raises:
        tables.MissingTableError: if the user-mode symbol table of this library is missing
    """
    table = image.process_types(Machine.AMD64)["_DYNAMIC_FUNCTION_TABLE"]
    low, high = table.field("MinimumAddress"), table.field("MaximumAddress")
    images = [vad.start for vad in vads if vad.image]
    found_ranges: List[Tuple[int, int, int]] = []
    missing: List[str] = []
    for ntdll in names.modules("ntdll"):
        head, lacks = _head(ntdll, memory, original(ntdll.module.base))
        missing += [lacks] if lacks else []
        if head is None:
            continue
        walk = links.walk(head, memory.links, MAX_TABLES)
        for range_ in walk.gap or ():
            if range_.reason == links.HEAD or (not range_.link and _zeros(memory, head)):
                missing.append(f"the head of their list at {head:#x}")
            elif range_.reason == links.UNREADABLE and vad_at(vads, range_.link) is not None:
                missing.append(f"the element at {range_.link:#x}")
        for node in walk.nodes:
            start, end = memory.member(node, low), memory.member(node, high)
            if (start is None or end is None) and vad_at(vads, node + high.offset) is not None:
                missing.append(f"the element at {node:#x}")
            if start and end and start < end and not _reaches(start, end, images):
                found_ranges.append((start, end, node))
    code = [CodeRange(*range_) for range_ in ranges.flatten(found_ranges)]
    code = [range_._replace(beyond=_ends_elsewhere(range_, vads)) for range_ in code]
    return FunctionTables(code, next(iter(missing), ""))


def _ends_elsewhere(range_: CodeRange, vads: Sequence[Region]) -> bool:
    """Returns whether a range reaches over the end of the VAD in which it begins."""
    vad = vad_at(vads, range_.start)
    return vad is None or vad.end < range_.end


def _reaches(start: int, end: int, images: Sequence[int]) -> bool:
    """Returns whether an image begins within a range; `images` ascend."""
    place = bisect.bisect_left(images, start)
    return place < len(images) and images[place] < end


def _zeros(memory: Memory, address: int) -> bool:
    """Returns whether the page of an address is all zeros, as tools write for an unreadable page."""
    data = memory.read(address - address % PAGE_SIZE, PAGE_SIZE)
    return data is not None and not any(data)


def _head(ntdll: KnownModule, memory: Memory, section: Optional[ImageReader]) -> Tuple[Optional[int], str]:
    """Returns the address of the list's head, None if unknown, and the missing data, empty if nothing.

    The section of ntdll comes first, because no process can write it.
    """
    base = ntdll.module.base
    rva = ntdll.image.names.rva_of(_GETTER)
    if ntdll.image.status and section is not None:
        rva = _exported(section) or rva
    if rva is None:
        zeros = has_status(ntdll.image.status, StatusCode.HEADERS_INVALID) and _zeros(memory, base)
        return None, _EXPORTS if zeros or has_status(ntdll.image.status, *_UNREAD) else ""
    code = None if section is None else section.read(rva, _LENGTH + 1)
    if code is None:
        code = memory.read(base + rva, _LENGTH + 1)
    if code is None or (not any(code) and _zeros(memory, base + rva)):
        return None, f"the code of {_GETTER}"
    if not code.startswith(_LOAD) or code[_LENGTH] != _RETURN:
        return None, ""
    distance = int.from_bytes(code[len(_LOAD) : _LENGTH], "little", signed=True)
    head = base + rva + _LENGTH + distance
    return (head if base <= head < base + ntdll.module.size else None), ""


def _exported(section: ImageReader) -> Optional[int]:
    """Returns the RVA of the getter from the section's export table, None if the table is not in memory."""
    try:
        headers = pe.read_headers(section.read)
    except pe.HeaderError:
        return None
    for rva, label in exports.read_exports(section.load, headers, exports.MAX_EXPORTS).entries:
        if label == _GETTER:
            return rva
    return None
