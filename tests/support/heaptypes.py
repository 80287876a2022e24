# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The structures of heaps for tests of the decoders, from our symbol tables, without Volatility."""

from __future__ import annotations

import functools
import pathlib
from typing import Optional

from tests.forge import isf
from winstacks.heaps.decode.layout import HeapLayout, HeapLayouts, PageHeapLayout, SegmentHeapLayout
from winstacks.memory.decode.structure import Field, Structure, Structures
from winstacks.tracedb.decode.layout import HeapLogLayout, StdLayout

TABLES = pathlib.Path(__file__).resolve().parents[2] / "symbols" / "windows" / "stacktraces"
GENERATIONS = {"x64": ("6.2", "6.0", "5.2"), "x86": ("6.2", "6.0", "5.1")}


def structures(table: isf.Isf) -> Structures:
    """The structures of a symbol table."""

    def make(name: str) -> Optional[Structure]:
        if not table.has_type(name):
            return None
        lookup = functools.partial(_field, table, name)
        return Structure(name, table.size(name), lookup, tuple(table.types[name]["fields"]))

    return Structures(make)


def _field(table: isf.Isf, name: str, path: str) -> Optional[Field]:
    if not table.has(name, path):
        return None
    place = table.place(name, path)
    shift, width = place.bits or (0, 0)
    return Field(place.offset, place.size, shift, (1 << width) - 1 if width else -1)


def ours(name: str) -> Structures:
    """The structures of one of our tables."""
    return structures(isf.load(TABLES / f"{name}.json"))


def heap(name: str) -> HeapLayout:
    """Those of the NT heap, by the part of the table's name behind `heap-` (`6.2-x64`)."""
    return HeapLayout(ours(f"heap-{name}"), pointer_size(name))


def page_heap(arch: str) -> PageHeapLayout:
    return PageHeapLayout(ours(f"heap-page-6.1-{arch}"))


def segment_heap(arch: str) -> SegmentHeapLayout:
    return SegmentHeapLayout(ours(f"heap-segment-10.0.17763-{arch}"), pointer_size(arch))


def layouts(arch: str) -> HeapLayouts:
    """All that a process's heaps are tried with."""
    nt = tuple(heap(f"{name}-{arch}") for name in GENERATIONS[arch])
    return HeapLayouts(nt, [page_heap(arch)], [segment_heap(arch)])


def pointer_size(name: str) -> int:
    return 8 if name.endswith("x64") else 4


LOG = {arch: HeapLogLayout(ours(f"heaplog-6.1-{arch}"), pointer_size(arch)) for arch in GENERATIONS}
ENTRY = {arch: StdLayout("6.1", ours(f"std-6.1-{arch}"), pointer_size(arch)).entry for arch in GENERATIONS}
