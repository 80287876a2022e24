# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The function tables that an x64 process registered, as runtimes do for generated code.

    tables = registered(memory, image, names, vads)

RtlAddFunctionTable, RtlInstallFunctionTableCallback and RtlAddGrowableFunctionTable add an element to a list
(described: Microsoft's documentation of these functions). Its head is RtlpDynamicFunctionTable in a symbol
table of ntdll. RtlGetFunctionTableListHead, an export of ntdll, returns the head, too: it consists of one
instruction that loads the address, and a return. Wine's ntdll has neither. There the head is found by proof:
a pointer in the writable data of ntdll begins a ring of elements that are function tables.
"""

from __future__ import annotations

import bisect
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

from ..memory.decode import links, ranges
from ..memory.decode.machine import Machine
from ..memory.decode.memory import Memory
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.structure import Field, Structure, integers
from ..memory.image import AddressSpace, Image
from ..process.dynamictables import DynamicTable, dynamic_tables
from ..process.regions import Region
from .decode import exports, pe
from .decode.unwindinfo import RUNTIME_FUNCTION_SIZE
from .imagereader import ImageReader
from .symbolizer import AddressNamer, KnownModule

MAX_TABLES = 1 << 16
"""The most function tables of a process that are read."""

MAX_ENTRIES = 1 << 21
"""The most entries of a process's function tables that are read: large programs have 100,000 methods."""

MAX_DATA = 1 << 21
"""The most bytes of ntdll's writable data that are searched for the head of the list: it has 0.1 MB."""

MAX_PROVEN = 1 << 18
"""The most elements of rings that are examined in this search."""

_SYMBOL = "RtlpDynamicFunctionTable"
_GETTER = "RtlGetFunctionTableListHead"
_LOAD = bytes.fromhex("488d05")
"""lea rax, [rip + disp32] (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""
_LENGTH = len(_LOAD) + 4
_RETURN = 0xC3
_EXPORTS = "the exports of ntdll"
_HANDLERS = 3
"""UNW_FLAG_EHANDLER and UNW_FLAG_UHANDLER (Microsoft, "x64 exception handling")."""
_POINTER = 8
_LONGEST = 1 << 32
"""RVAs have 32 bits."""
_UNREAD = words_that(Means.EXPORTS_LOST)


class CodeRange(NamedTuple):
    """Addresses of a process that hold generated code of a runtime, `end` exclusive.

    Attributes:
        start, end: limits of the range, canonical addresses
        table: address of the element of its registered function table; 0 if none is in memory
        list: name of the runtime's own list that contains the range; empty if it has a function table
        beyond: whether the range of a function table ends in other memory than it begins in: one altered
            limit covers other code
        callback: name of the function that returns the entries of the table; empty if the table has them
    """

    start: int
    end: int
    table: int
    list: str = ""
    beyond: bool = False
    callback: str = ""

    @property
    def describe(self) -> str:
        """The text for Innocent."""
        if self.list:
            return f"{self.list}, {self.start:#x}-{self.end - 1:#x}, by its own list"
        beyond = ", which ends in other memory than it begins in" if self.beyond else ""
        called = f" with the callback {self.callback}" if self.callback else ""
        return f"function table{called} registered for {self.start:#x}-{self.end - 1:#x}{beyond}"


class RegisteredTable(NamedTuple):
    """An element of the list of function tables. Addresses are canonical. `callback` is the address of the
    function that returns the entry of an address, 0 if the table has entries."""

    element: int
    start: int
    end: int
    base: int
    entries: int
    entry_count: int
    callback: int


class FunctionTables(NamedTuple):
    """The function tables of a process.

    Attributes:
        ranges: ranges that could be read, disjoint and ascending; none reaches over a mapped image, because a
            runtime generates code in private memory
        missing: data missing from the image, in words; empty if nothing is missing. Data that was read but is
            no such code or list was changed, and does not count as missing
        tables: the elements of these ranges, in the order of the list
    """

    ranges: List[CodeRange]
    missing: str
    tables: List[RegisteredTable]


class _Layout(NamedTuple):
    """The members of an element that have the values of `RegisteredTable`."""

    start: Field
    end: Field
    base: Field
    entries: Field
    entry_count: Field
    callback: Field

    @classmethod
    def of(cls, structure: Structure, *names: str) -> _Layout:
        return cls(*map(structure.field, names))

    def read(self, memory: Memory, element: int) -> Optional[RegisteredTable]:
        """Returns an element, None if a part of it is not in memory."""
        values = [memory.member(element, field) for field in self]
        known = [value for value in values if value is not None]
        return None if len(known) < len(values) else RegisteredTable(element, *known)


def _windows(image: Image) -> _Layout:
    names = "MinimumAddress", "MaximumAddress", "BaseAddress", "FunctionTable", "EntryCount", "Callback"
    return _Layout.of(image.process_types(Machine.AMD64)["_DYNAMIC_FUNCTION_TABLE"], *names)


def _wine(image: Image) -> _Layout:
    names = "base", "end", "base", "table", "count", "callback"
    return _Layout.of(image.process_types(Machine.AMD64)["dynamic_unwind_entry"], *names)


def registered(
    memory: Memory,
    image: Image,
    names: AddressNamer,
    vads: Sequence[Region],
    listed: Sequence[DynamicTable] = (),
    original: Callable[[int], Optional[ImageReader]] = lambda base: None,
) -> FunctionTables:
    """Returns the function tables that a process registered.

    Args:
        listed: the tables that the input lists: the writer of a dump asked Windows for all of them
        original: function that returns a reader of the section of the image mapped at an address
    """
    images = [vad.start for vad in vads if vad.image]
    tables: List[RegisteredTable] = []
    missing: List[str] = []
    for ntdll in names.modules("ntdll"):
        head, lacks = _head(ntdll, memory, original(ntdll.module.base))
        layout = _windows(image)
        if head is None and (lacks or ntdll.image.names.rva_of(_GETTER) is None):
            proven = ((_proven(ntdll, memory, vads, known), known) for known in (layout, _wine(image)))
            head, layout = next((pair for pair in proven if pair[0] is not None), (None, layout))
            lacks = lacks if head is None else ""
        missing += [lacks] if lacks else []
        if head is None:
            continue
        walk = links.walk(head, memory.links, MAX_TABLES)
        for range_ in walk.gap or ():
            if range_.reason == links.HEAD or (not range_.link and memory.is_zero_page(head)):
                missing.append(f"the head of their list at {head:#x}")
            elif range_.reason == links.UNREADABLE and span_at(vads, range_.link) is not None:
                missing.append(f"the element at {range_.link:#x}")
        for node in walk.nodes:
            table = layout.read(memory, node)
            if table is None and span_at(vads, node + layout.end.offset) is not None:
                missing.append(f"the element at {node:#x}")
            if table and 0 < table.start < table.end and not _reaches(table.start, table.end, images):
                tables.append(table)
    spans = [
        (table.start, table.end, CodeRange(table.start, table.end, table.element, "", False, called))
        for table in tables
        for called in (_callback(table, names),)
    ]
    spans += [
        (table.start, table.end, CodeRange(table.start, table.end, 0))
        for table in listed
        if not _reaches(table.start, table.end, images)
    ]
    code = [code_range._replace(start=start, end=end) for start, end, code_range in ranges.flatten(spans)]
    code = [code_range._replace(beyond=_ends_elsewhere(code_range, vads)) for code_range in code]
    return FunctionTables(code, "" if listed else next(iter(missing), ""), tables)


def unwind_tables(image: Image, space: AddressSpace, names: AddressNamer) -> List[DynamicTable]:
    """Returns the function tables of an x64 process for walks; if tables share addresses, the first counts.

    First come the tables that the input lists, then those in the memory of the process. A table that shows
    nothing about frames is left out.
    """
    if space.kernel or space.machine is Machine.I386 or not space.layer_name:
        return []
    memory = image.memory(space)
    listed = image.service(dynamic_tables).list_tables(space)
    own = registered(memory, image, names, names.process.vads).tables
    return [table for table in (*listed, *_entries(memory, own)) if not _tells_nothing(memory, table)]


def _entries(memory: Memory, tables: Sequence[RegisteredTable]) -> Iterator[DynamicTable]:
    """Yields the tables whose entries are all in memory, up to MAX_ENTRIES entries."""
    total = 0
    for table in tables:
        total += table.entry_count
        if total > MAX_ENTRIES:
            return
        if table.callback or not table.entry_count:
            continue
        data = memory.read(table.entries, table.entry_count * RUNTIME_FUNCTION_SIZE)
        if data is not None:
            yield DynamicTable(table.start, table.end, table.base, data)


def _tells_nothing(memory: Memory, table: DynamicTable) -> bool:
    """Returns whether a table has one entry, with an exception handler and no unwind codes.

    HotSpot registers such a table for all of its code, to be called at exceptions (described: OpenJDK,
    `os_windows_x86.cpp`). A function that calls has a frame, which such an entry denies.
    """
    if len(table.entries) != RUNTIME_FUNCTION_SIZE:
        return False
    unwind = int.from_bytes(table.entries[8:], "little")
    head = memory.read(table.base + unwind, 3)
    return head is not None and bool(head[0] >> 3 & _HANDLERS) and not head[1] and not head[2]


def _callback(table: RegisteredTable, names: AddressNamer) -> str:
    """Returns the name of a table's callback, empty without one."""
    return names.name(table.callback, return_address=False).symbol if table.callback else ""


def _proven(ntdll: KnownModule, memory: Memory, vads: Sequence[Region], layout: _Layout) -> Optional[int]:
    """Returns the head of the list in the writable data of ntdll to which a ring of tables leads, or None.

    At most MAX_DATA bytes are searched, and rings with MAX_PROVEN elements together are walked.
    """
    left = MAX_PROVEN
    for head, link in _pointers(ntdll, memory):
        vad = span_at(vads, link)
        if vad is None or vad.image or (memory.links(link) or (0, 0))[1] != head:
            continue
        walk = links.walk(head, memory.links, min(MAX_TABLES, left))
        left -= len(walk.nodes) + 1
        whole = walk.nodes and not walk.gap and not walk.altered
        if whole and all(_is_table(memory, vads, layout, node) for node in walk.nodes):
            return head
        if left <= 0:
            return None
    return None


def _pointers(ntdll: KnownModule, memory: Memory) -> Iterator[Tuple[int, int]]:
    """Yields the address and the value of each aligned pointer in the writable data of ntdll, 0 left out."""
    base, left = ntdll.module.base, MAX_DATA
    for section in ntdll.image.sections:
        if not section.characteristics & pe.MEM_WRITE:
            continue
        size = max(min(section.end, ntdll.module.size) - section.start, 0)
        extent = memory.load(base + section.start, min(size, left))
        left -= min(size, left)
        for start, data in extent.runs:
            for place, link in enumerate(integers(bytes(data), _POINTER)):
                if link and link % _POINTER == 0:
                    yield start + place * _POINTER, link


def _is_table(memory: Memory, vads: Sequence[Region], layout: _Layout, node: int) -> bool:
    """Returns whether memory is an element: the process has its code, and its entries or callback."""
    table = layout.read(memory, node)
    if table is None or not 0 < table.start < table.end <= table.start + _LONGEST:
        return False
    code, names = span_at(vads, table.start), span_at(vads, table.callback or table.entries)
    if code is None or names is None or table.entry_count > MAX_ENTRIES:
        return False
    if table.callback or not table.entry_count:
        return table.base == table.start
    first = memory.read(table.entries, RUNTIME_FUNCTION_SIZE) or b""
    begin, end = (table.base + value for value in integers(first[:8].ljust(8, b"\0"), 4))
    return table.start <= begin < end <= table.end


def _ends_elsewhere(range_: CodeRange, vads: Sequence[Region]) -> bool:
    """Returns whether a range reaches over the end of the VAD in which it begins."""
    vad = span_at(vads, range_.start)
    return vad is None or vad.end < range_.end


def _reaches(start: int, end: int, images: Sequence[int]) -> bool:
    """Returns whether an image begins within a range; `images` ascend."""
    place = bisect.bisect_left(images, start)
    return place < len(images) and images[place] < end


def _head(ntdll: KnownModule, memory: Memory, section: Optional[ImageReader]) -> Tuple[Optional[int], str]:
    """Returns the address of the list's head, None if unknown, and the missing data, empty if nothing.

    The section of ntdll comes first, because no process can write it.
    """
    base = ntdll.module.base
    variable = ntdll.image.names.rva_of(_SYMBOL)
    if variable is not None:
        return base + variable, ""
    rva = ntdll.image.names.rva_of(_GETTER)
    if ntdll.image.status and section is not None:
        rva = _exported(section) or rva
    if rva is None:
        lost = has_status(ntdll.image.status, *_UNREAD)
        return None, _EXPORTS if lost else ""
    code = None if section is None else section.read(rva, _LENGTH + 1)
    if code is None:
        code = memory.read(base + rva, _LENGTH + 1)
    if code is None or (not any(code) and memory.is_zero_page(base + rva)):
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
