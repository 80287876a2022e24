# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The lists in which runtimes keep the ranges of the code that they make, as their sources describe them."""

from __future__ import annotations

import struct
from typing import Callable, List, Tuple

from .host64 import Program
from .libraries import DATA, DATA_RVA
from .narrow import Narrow

Writer = Callable[[Narrow, int, int], None]

V8_VARIABLE = "v8::internal::process_wide_code_range_"
"""A function of this name stands for the variable: forged symbols are those of functions."""

_EXPORTED = {
    "TypeNameOffset": 0,
    "FieldNameOffset": 4,
    "OffsetOffset": 16,
    "AddressOffset": 24,
    "ArrayStride": 32,
}
"""Of 32 bits: a VMStructEntry has typeName, fieldName, typeString, isStatic, offset (8 bytes) and address."""


def _table(narrow: Narrow, rows: List[Tuple[str, str, int, int]]) -> None:
    """Writes gHotSpotVMStructs: (type, member, offset, address) of each row."""
    space = narrow.space
    for name, value in _EXPORTED.items():
        space.write_int(narrow.at(f"jvm!gHotSpotVMStructEntry{name}"), value, 8)
    table = space.allocate(32 * (len(rows) + 1))
    space.write_int(narrow.at("jvm!gHotSpotVMStructs"), table)
    for number, (kind, member, offset, address) in enumerate(rows):
        texts = []
        for text in (kind, member):
            texts.append(space.allocate(0x20))
            space.write(texts[-1], text.encode() + b"\0")
        space.write(table + 32 * number, struct.pack("<IIII QI", *texts, texts[0], 1, offset, address))


def hotspot(program: Narrow, low: int, high: int) -> None:
    """HotSpot since JDK 9."""
    places = program.space.allocate(8)
    program.space.write(places, struct.pack("<II", low, high))
    rows = [("Klass", "_super", 8, 0), ("CodeCache", "_low_bound", 0, places)]
    _table(program, [*rows, ("CodeCache", "_high_bound", 0, places + 4)])


def older_hotspot(program: Narrow, low: int, high: int) -> None:
    """HotSpot up to JDK 8: CodeCache::_heap, its VirtualSpace, and the limits of that."""
    place, heap = program.space.allocate(8), program.space.allocate(0x40)
    program.space.write_int(place, heap)
    program.space.write(heap + 4 + 8, struct.pack("<II", low, high))
    rows = [("CodeCache", "_heap", 0, place), ("CodeHeap", "_memory", 4, 0)]
    limits = [("VirtualSpace", "_low_boundary", 8, 0), ("VirtualSpace", "_high_boundary", 12, 0)]
    _table(program, [*rows, *limits])


def clr(program: Narrow, low: int, high: int) -> None:
    """CLR: a variable leads to a RangeSection, and that to another one."""
    first = program.space.allocate(0x100)
    _sections(program, "clr", [(first, first + 0x100), (low, high)])


def foreign_clr(program: Narrow, low: int, high: int) -> None:
    """The same with a code manager of another image."""
    _sections(program, "kernelbase", [(low, high)])


def no_clr(program: Narrow) -> None:
    """CLR whose variables are in the image, and lead nowhere."""
    program.space.write(program.modules["clr"][0].base + DATA_RVA, bytes(DATA))


def _sections(program: Narrow, owner: str, ranges: List[Tuple[int, int]]) -> None:
    space = program.space
    manager = space.allocate(0x10)
    space.write_int(manager, program.modules[owner][0].base + 0x1000)
    following = 0
    for low, high in reversed(ranges):
        section = space.allocate(0x20)
        space.write(section, struct.pack("<IIII", low, high, manager, following))
        following = section
    space.write_int(program.modules["clr"][0].base + DATA_RVA + 0x40, following)


def v8(program: Program, base: int, size: int) -> None:
    """V8: the variable leads to a CodeRange: a virtual table, address and size."""
    space = program.process.space
    cage = space.allocate(0x80)
    space.write(cage, struct.pack("<QQQ", 0x1234, base, size))
    space.write_int(program.at(V8_VARIABLE), cage, 8)
