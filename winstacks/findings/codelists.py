# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory in which runtimes keep the code that they make, by the lists that the runtimes keep themselves.

Code of 32 bits has no function tables, and some runtimes register none. What these lists are:

* HotSpot: `jvm` exports gHotSpotVMStructs, by which debuggers find its variables: CodeCache::_low_bound and
  _high_bound since JDK 9, before that CodeCache::_heap (described: OpenJDK, `vmStructs.hpp` and `.cpp`).
* CLR: `ExecutionManager::m_CodeRangeList` leads to RangeSections, which begin with LowAddress, HighAddress
  and a pointer to the code manager. That is the runtime's own, so that its virtual functions lie in the
  runtime's image (described: dotnet/runtime, `vm/codeman.h`, up to .NET 7; that .NET Framework has the same
  is inferred). Any variable of the runtime that leads to such a record is followed, whatever its name is.
* V8: a variable `process_wide_code_range_` leads to a CodeRange, which has address and size (described: V8,
  `heap/code-range.cc`). Only symbols tell where it is: V8 is linked into programs.

A range counts where one VAD holds all of it, and no image is mapped there: to put code into a range means to
write into the runtime's own memory, or to change the list.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..memory.decode import ranges
from ..memory.decode.memory import Memory
from ..memory.decode.structure import integers
from ..names.symbolizer import KnownModule, SpaceNames
from ..names.usermodules import vad_at
from ..process.regions import Region
from .functiontables import Range

HOTSPOT = ("jvm",)
CLR = ("clr", "coreclr", "mscorwks")

MAX_RANGES = 1 << 14
"""The most ranges that are taken of a runtime."""
MAX_STRUCTS = 1 << 13
"""The most rows of gHotSpotVMStructs that are read: a JVM has some 1,000."""
MAX_VARIABLES = 1 << 20
"""Bytes of a runtime's writable sections in which records are looked for."""

_TABLE = "gHotSpotVMStructs"
_ROW = "gHotSpotVMStructEntry"
_LAYOUT = ("TypeNameOffset", "FieldNameOffset", "OffsetOffset", "AddressOffset", "ArrayStride")
VARIABLES = (_TABLE, *(_ROW + each for each in _LAYOUT))
"""What HotSpot exports for debuggers."""
_MOST_STRIDE = 0x80
_NAME = 0x40
_BOUNDS = ("CodeCache", "_low_bound"), ("CodeCache", "_high_bound")
_HEAP, _MEMORY = ("CodeCache", "_heap"), ("CodeHeap", "_memory")
_LIMITS = ("VirtualSpace", "_low_boundary"), ("VirtualSpace", "_high_boundary")

_SECTION = 8
"""Words at the start of a RangeSection that are read; behind the third one of them leads to the next."""
_PROGRAM = ".exe"
_V8 = "process_wide_code_range_"
_CAGE = 16
"""Words of a CodeRange in which its address and size are looked for."""
_WRITABLE = 1 << 31
"""IMAGE_SCN_MEM_WRITE."""


class _Field(NamedTuple):
    """A row of gHotSpotVMStructs: offset of a member, and address of a static one."""

    offset: int
    address: int


def code_cache(memory: Memory, variables: Mapping[str, int]) -> Optional[Tuple[int, int]]:
    """Returns the limits of HotSpot's code cache, the second exclusive; None if these cannot be read.

    Args:
        memory: of the process
        variables: the addresses of VARIABLES, as far as the JVM exports them
    """
    fields = _fields(memory, variables)
    if all(each in fields for each in _BOUNDS):
        low, high = (memory.pointer(fields[each].address) for each in _BOUNDS)
    elif all(each in fields for each in (_HEAP, _MEMORY, *_LIMITS)):
        heap = memory.pointer(fields[_HEAP].address)
        start = (heap or 0) + fields[_MEMORY].offset
        low, high = (memory.pointer(start + fields[each].offset) if heap else None for each in _LIMITS)
    else:
        return None
    return (low, high) if low and high else None


def _fields(memory: Memory, variables: Mapping[str, int]) -> Dict[Tuple[str, str], _Field]:
    """Returns the rows of gHotSpotVMStructs that matter, by type and member."""
    if any(name not in variables for name in VARIABLES):
        return {}
    row = memory.pointer(variables[_TABLE])
    layout = [memory.number(variables[_ROW + each], 8) for each in _LAYOUT]
    if not row or any(each is None or each > _MOST_STRIDE for each in layout) or not layout[-1]:
        return {}
    type_at, name_at, offset_at, address_at, stride = (each or 0 for each in layout)
    wanted = {*_BOUNDS, _HEAP, _MEMORY, *_LIMITS}
    found: Dict[Tuple[str, str], _Field] = {}
    for at in range(row, row + MAX_STRUCTS * stride, stride):
        kind, name = _text(memory, at + type_at), _text(memory, at + name_at)
        if not kind or not name:
            break
        offset, address = memory.number(at + offset_at, 8), memory.pointer(at + address_at)
        if (kind, name) in wanted and offset is not None and address is not None:
            found[kind, name] = _Field(offset, address)
    return found


def _text(memory: Memory, place: int) -> str:
    """Returns the start of the text to which a pointer leads, empty if it cannot be read."""
    address = memory.pointer(place)
    for size in (_NAME, _NAME // 2, _NAME // 4) if address else ():
        data = memory.read(address or 0, size)
        if data is not None:
            return data.partition(b"\0")[0].decode("ascii", "replace")
    return ""


class CodeLists:
    """Reads the lists of the runtimes of a process.

    Args:
        memory: of the process, with pointers of the size that the code has which is asked for
        names: of the process
        vads: of the process, ascending
        programs: modules into which V8 may be linked, by their files without extension
    """

    def __init__(
        self, memory: Memory, names: SpaceNames, vads: Sequence[Region], programs: Sequence[str]
    ) -> None:
        self._wanted = {*HOTSPOT, *CLR, *programs}
        self._memory = memory
        self._names = names
        self._vads = vads
        self._size = memory.pointer_size

    def ranges(self) -> List[Range]:
        """Returns the ranges, ascending and disjoint; `list` of each says whose it is."""
        found: List[Tuple[int, int, str]] = []
        process = self._names.process
        for module in () if process is None else process.modules:
            if module.stem in self._wanted or module.file.lower().endswith(_PROGRAM):
                known = self._names.module_at(module.base)
                found += () if known is None else self._of_module(known)
        made = {(start, end): said for start, end, said in found}
        flat = ranges.flatten([(start, end, number) for number, (start, end) in enumerate(made)])
        said = list(made.values())
        return [Range(start, end, 0, said[number]) for start, end, number in flat]

    def _of_module(self, known: KnownModule) -> Iterator[Tuple[int, int, str]]:
        name, file = known.module.stem, known.module.file
        if name in HOTSPOT:
            for low, high in self._hotspot(known):
                yield low, high, f"the code cache of {file}"
        elif name in CLR:
            for low, high in self._clr(known):
                yield low, high, f"the code ranges of {file}"
        else:
            for low, high in self._v8(known):
                yield low, high, f"the code range of V8 in {file}"

    def _own(self, low: int, high: int) -> bool:
        """Returns whether a range lies within one VAD, which is no image's."""
        vad = vad_at(self._vads, low)
        return vad is not None and not vad.image and low < high <= vad.end

    def _words(self, address: int, count: int) -> Tuple[int, ...]:
        """Returns words at an address, or none unless all are in memory."""
        data = self._memory.read(address, count * self._size)
        return () if data is None else integers(data, self._size)

    def _hotspot(self, known: KnownModule) -> Iterator[Tuple[int, int]]:
        rva_of, base = known.image.names.rva_of, known.module.base
        places = {name: rva_of(name) for name in VARIABLES}
        found = {name: base + rva for name, rva in places.items() if rva is not None}
        low, high = code_cache(self._memory, found) or (0, 0)
        if self._own(low, high):
            yield low, high

    def _clr(self, known: KnownModule) -> Iterator[Tuple[int, int]]:
        module = known.module
        seen: Set[int] = set()
        todo = self._variables(known)
        for _ in range(MAX_VARIABLES):
            address = next(todo, None)
            if address is None or len(seen) >= MAX_RANGES:
                return
            yield from self._chain(address, range(module.base, module.base + module.size), seen)

    def _variables(self, known: KnownModule) -> Iterator[int]:
        """Yields what the variables of a module hold that may be an address of memory of its own."""
        headers, left = known.image.headers, MAX_VARIABLES
        for section in () if headers is None else headers.sections:
            length = min(section.end - section.start, left)
            if not section.characteristics & _WRITABLE or length <= 0:
                continue
            left -= length
            for _, data in self._memory.load(known.module.base + section.start, length).runs:
                yield from (each for each in integers(bytes(data), self._size) if self._is_place(each))

    def _is_place(self, value: int) -> bool:
        vad = vad_at(self._vads, value) if value and not value % self._size else None
        return vad is not None and not vad.image

    def _chain(self, address: int, image: range, seen: Set[int]) -> Iterator[Tuple[int, int]]:
        """Yields the ranges of a RangeSection and of those that it leads to."""
        todo = [address]
        while todo and len(seen) < MAX_RANGES:
            at = todo.pop()
            words = () if at in seen else self._words(at, _SECTION) or self._words(at, _SECTION // 2)
            low, high, manager = words[:3] or (0, 0, 0)
            if not low < high or not self._is_place(manager) or not self._own(low, high):
                continue
            if self._memory.pointer(manager) in image:
                seen.add(at)
                yield low, high
                todo += [each for each in words[3:] if self._is_place(each)]

    def _v8(self, known: KnownModule) -> Iterator[Tuple[int, int]]:
        symbols = {} if known.image.symbols is None else known.image.symbols.by_name
        for name in (each for each in symbols if each.endswith(_V8)):
            place = self._memory.pointer(known.module.base + int(symbols[name]["address"]))
            words = self._words(place, _CAGE) if place else ()
            for low, size in zip(words, words[1:]):
                vad = vad_at(self._vads, low)
                if vad is not None and size and self._own(low, low + size) and 2 * size > vad.end - vad.start:
                    yield low, low + size
                    return
