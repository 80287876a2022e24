# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory in which runtimes store generated code, from the lists that the runtimes keep themselves.

32-bit code has no function tables, and some runtimes register none. The lists are:

* HotSpot: `jvm` exports gHotSpotVMStructs, with which debuggers find its variables: CodeCache::_low_bound and
  _high_bound since JDK 9, before that CodeCache::_heap (described: OpenJDK, `vmStructs.hpp` and `.cpp`).
* CLR: `ExecutionManager::m_CodeRangeList` leads to RangeSections, which begin with LowAddress, HighAddress
  and a pointer to the code manager. The code manager is an object of the runtime, so its virtual functions
  lie in the runtime's image (described: dotnet/runtime, `vm/codeman.h`, up to .NET 7; that .NET Framework has
  the same is inferred). Any variable of the runtime that leads to such a record is followed, whatever its
  name is.
* V8: a variable `process_wide_code_range_` leads to a CodeRange, which has address and size (described: V8,
  `heap/code-range.cc`). Only symbols show its address, because V8 is linked into programs.

A range counts if one VAD holds all of it and no image is mapped there: to put code into such a range, an
attacker must write into the runtime's own memory, or change the list.
"""

from __future__ import annotations

import itertools
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ...memory.decode import ranges
from ...memory.decode.memory import Memory
from ...memory.decode.ranges import span_at
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode, words_that
from ...memory.decode.statusmeanings import Means
from ...memory.decode.structure import integers
from ...names.decode.pe import MEM_WRITE
from ...names.registeredtables import CodeRange
from ...names.symbolizer import AddressNamer, KnownModule
from ...process.regions import Region

HOTSPOT = ("jvm",)
CLR = ("clr", "coreclr", "mscorwks")

MAX_RANGES = 1 << 14
"""The most ranges that are read of a runtime."""
MAX_STRUCTS = 1 << 13
"""The most rows of gHotSpotVMStructs that are read: a JVM has some 1,000."""
MAX_VARIABLES = 1 << 20
"""The most bytes of a runtime's writable sections in which records are searched for."""

_TABLE = "gHotSpotVMStructs"
_ROW = "gHotSpotVMStructEntry"
_LAYOUT = ("TypeNameOffset", "FieldNameOffset", "OffsetOffset", "AddressOffset", "ArrayStride")
VARIABLES = (_TABLE, *(_ROW + member for member in _LAYOUT))
"""The variables that HotSpot exports for debuggers."""
_MOST_STRIDE = 0x80
_NAME = 0x40
_BOUNDS = ("CodeCache", "_low_bound"), ("CodeCache", "_high_bound")
_HEAP, _MEMORY = ("CodeCache", "_heap"), ("CodeHeap", "_memory")
_LIMITS = ("VirtualSpace", "_low_boundary"), ("VirtualSpace", "_high_boundary")

_LOST_EXPORTS = words_that(Means.EXPORTS_LOST)
_SECTION = 8
"""Number of words read at the start of a RangeSection; one of the words after the third leads to the next."""
_PROGRAM = ".exe"
_V8 = "process_wide_code_range_"
_CAGE = 16
"""Number of words of a CodeRange in which its address and size are searched for."""


class _Field(NamedTuple):
    """A row of gHotSpotVMStructs: offset of a member, and address of a static member."""

    offset: int
    address: int


def code_cache(memory: Memory, variables: Mapping[str, int]) -> Optional[Tuple[int, int]]:
    """Returns the limits of HotSpot's code cache, the second exclusive; None if they cannot be read.
    `variables` are addresses of VARIABLES, as far as the JVM exports them."""
    fields = _fields(memory, variables)
    if all(name in fields for name in _BOUNDS):
        low, high = (memory.pointer(fields[name].address) for name in _BOUNDS)
    elif all(name in fields for name in (_HEAP, _MEMORY, *_LIMITS)):
        heap = memory.pointer(fields[_HEAP].address)
        start = (heap or 0) + fields[_MEMORY].offset
        low, high = (memory.pointer(start + fields[name].offset) if heap else None for name in _LIMITS)
    else:
        return None
    return (low, high) if low and high else None


def _fields(memory: Memory, variables: Mapping[str, int]) -> Dict[Tuple[str, str], _Field]:
    """Returns the needed rows of gHotSpotVMStructs, by type and member."""
    if any(name not in variables for name in VARIABLES):
        return {}
    row = memory.pointer(variables[_TABLE])
    layout = [memory.number(variables[_ROW + member], 8) for member in _LAYOUT]
    if not row or any(member is None or member > _MOST_STRIDE for member in layout) or not layout[-1]:
        return {}
    type_at, name_at, offset_at, address_at, stride = (member or 0 for member in layout)
    needed = {*_BOUNDS, _HEAP, _MEMORY, *_LIMITS}
    fields: Dict[Tuple[str, str], _Field] = {}
    for at in range(row, row + MAX_STRUCTS * stride, stride):
        kind, name = _text(memory, at + type_at), _text(memory, at + name_at)
        if not kind or not name:
            break
        offset, address = memory.number(at + offset_at, 8), memory.pointer(at + address_at)
        if (kind, name) in needed and offset is not None and address is not None:
            fields[kind, name] = _Field(offset, address)
    return fields


def _text(memory: Memory, place: int) -> str:
    """Returns the start of the text to which a pointer leads; empty if it cannot be read."""
    address = memory.pointer(place)
    for size in (_NAME, _NAME // 2, _NAME // 4) if address else ():
        data = memory.read(address or 0, size)
        if data is not None:
            return data.partition(b"\0")[0].decode("ascii", "replace")
    return ""


class CodeLists:
    """Reads the lists of the runtimes of a process. `lost` are bases of the modules of CLR and HotSpot whose
    lists are not all in the image; `ranges` fills it.

    Args:
        memory: memory of the process, with the pointer size of the code in question
        vads: VADs of the process, ascending
        programs: names of files, without extension, into which V8 may be linked
    """

    def __init__(
        self, memory: Memory, names: AddressNamer, vads: Sequence[Region], programs: Sequence[str]
    ) -> None:
        self.lost: Set[int] = set()
        self._programs = {*HOTSPOT, *CLR, *programs}
        self._memory = memory
        self._names = names
        self._vads = vads
        self._size = memory.pointer_size

    def ranges(self) -> List[CodeRange]:
        """Returns the ranges, ascending and disjoint; `list` of each names the runtime."""
        labelled: List[Tuple[int, int, str]] = []
        for module in self._names.process.modules:
            if module.stem in self._programs or module.file.lower().endswith(_PROGRAM):
                known = self._names.module_at(module.base)
                labelled += () if known is None else self._of_module(known)
        labels = {(start, end): texts for start, end, texts in labelled}
        disjoint = ranges.flatten([(start, end, number) for number, (start, end) in enumerate(labels)])
        texts = list(labels.values())
        return [CodeRange(start, end, 0, texts[number]) for start, end, number in disjoint]

    def _of_module(self, known_module: KnownModule) -> Iterator[Tuple[int, int, str]]:
        name, file = known_module.module.stem, known_module.module.file
        if name in HOTSPOT:
            for low, high in self._hotspot(known_module):
                yield low, high, f"the code cache of {file}"
        elif name in CLR:
            for low, high in self._clr(known_module):
                yield low, high, f"the code ranges of {file}"
        else:
            for low, high in self._v8(known_module):
                yield low, high, f"the code range of V8 in {file}"

    def _own(self, low: int, high: int) -> bool:
        """Returns whether a range lies within one VAD that maps no image."""
        vad = span_at(self._vads, low)
        return vad is not None and not vad.image and low < high <= vad.end

    def _words(self, address: int, count: int) -> Tuple[int, ...]:
        """Returns the words at an address; empty unless all of them are in memory."""
        data = self._memory.read(address, count * self._size)
        return () if data is None else integers(data, self._size)

    def _hotspot(self, known: KnownModule) -> Iterator[Tuple[int, int]]:
        rva_of, base = known.image.names.rva_of, known.module.base
        places = {name: rva_of(name) for name in VARIABLES}
        addresses = {name: base + rva for name, rva in places.items() if rva is not None}
        values = [self._memory.pointer(address) for address in addresses.values()]
        if None in values or has_status(known.image.status, *_LOST_EXPORTS):
            self.lost.add(base)
        low, high = code_cache(self._memory, addresses) or (0, 0)
        if self._own(low, high):
            yield low, high

    def _clr(self, known_module: KnownModule) -> Iterator[Tuple[int, int]]:
        module = known_module.module
        seen: Set[int] = set()
        # Without headers the variables are at no known place.
        headerless = has_status(known_module.image.status, StatusCode.HEADERS_UNREADABLE)
        absent: Set[int] = {module.base} if headerless else set()
        for address in itertools.islice(self._variables(known_module, absent), MAX_VARIABLES):
            if len(seen) >= MAX_RANGES:
                break
            yield from self._chain(address, range(module.base, module.base + module.size), seen, absent)
        # CLR always has a list. Without any of it, one of the absent places may have held it.
        if absent and not seen:
            self.lost.add(module.base)

    def _variables(self, known_module: KnownModule, absent: Set[int]) -> Iterator[int]:
        """Yields values in a module's writable sections that may be addresses of private memory."""
        remaining, base = MAX_VARIABLES, known_module.module.base
        for section in known_module.image.sections:
            length = min(section.end - section.start, remaining)
            if not section.characteristics & MEM_WRITE or length <= 0:
                continue
            remaining -= length
            start = base + section.start
            extents = self._memory.load(start, length)
            if extents.missing(start, start + length):
                absent.add(start)
            for _, data in extents.runs:
                yield from (value for value in integers(bytes(data), self._size) if self._is_place(value))

    def _is_place(self, value: int) -> bool:
        vad = span_at(self._vads, value) if value and not value % self._size else None
        return vad is not None and not vad.image

    def _chain(
        self, address: int, image: range, seen: Set[int], absent: Set[int]
    ) -> Iterator[Tuple[int, int]]:
        """Yields the ranges of a RangeSection and of the RangeSections that follow it.

        Args:
            image: the addresses of CLR's module
            seen: RangeSections that were read; new ones are added
            absent: addresses of what is not in the image; new ones are added
        """
        todo = [address]
        while todo and len(seen) < MAX_RANGES:
            at = todo.pop()
            if at in seen:
                continue
            words = self._words(at, _SECTION) or self._words(at, _SECTION // 2)
            low, high, manager = words[:3] or (0, 0, 0)
            if not words:
                absent.add(at)
                if at != address:
                    self.lost.add(image.start)
            if not low < high or not self._is_place(manager) or not self._own(low, high):
                continue
            functions = self._memory.pointer(manager)
            if functions is None:
                absent.add(manager)
            elif functions in image:
                seen.add(at)
                yield low, high
                todo += [word for word in words[3:] if self._is_place(word)]

    def _v8(self, known_module: KnownModule) -> Iterator[Tuple[int, int]]:
        symbols = {} if known_module.image.symbols is None else known_module.image.symbols.by_name
        for name in (symbol for symbol in symbols if symbol.endswith(_V8)):
            place = self._memory.pointer(known_module.module.base + int(symbols[name]["address"]))
            words = self._words(place, _CAGE) if place else ()
            for low, size in zip(words, words[1:]):
                vad = span_at(self._vads, low)
                if vad is not None and size and self._own(low, low + size) and 2 * size > vad.end - vad.start:
                    yield low, low + size
                    return
