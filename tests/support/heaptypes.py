# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The layouts of heap structures for tests of the decoders, from our symbol tables, without Volatility."""

from __future__ import annotations

import pathlib
from typing import Optional

from volatility3.plugins.windows.stacktraces.heaps.decode import layout, page, pageinfo, segmentheap
from volatility3.plugins.windows.stacktraces.tracedb.decode.layout import EntryLayout, HeapLogLayout, Member

from tests.forge import isf

TABLES = pathlib.Path(__file__).resolve().parents[2] / "symbols" / "windows" / "stacktraces"


LOG = {
    "x64": HeapLogLayout(8, 0x1920, 8, 0x10, 401, next=0, hash=8, depth=0xC, frames=0x10, max_depth=32),
    "x86": HeapLogLayout(4, 0xC90, 4, 8, 401, next=0, hash=4, depth=8, frames=0xC, max_depth=32),
}


def _entry(pointer: int) -> EntryLayout:
    names = ("TraceCount", "IndexHigh", "Index", "Depth")
    members = tuple(Member(name, pointer + 2 * number, 2) for number, name in enumerate(names))
    return EntryLayout(members, 11, 11, pointer + 8, 32, None, 0)


ENTRY = {"x64": _entry(8), "x86": _entry(4)}


class TableTypes:
    """One of our symbol tables as the layouts' builders want it."""

    def __init__(self, name: str) -> None:
        self.table = isf.load(TABLES / f"{name}.json")

    def offset(self, type_name: str, *members: str) -> Optional[int]:
        known = self.table.first(type_name, *members)
        return None if known is None else self.table.offset(type_name, known)

    def size(self, type_name: str) -> Optional[int]:
        return self.table.size(type_name) if self.table.has_type(type_name) else None


def heap(name: str) -> layout.HeapLayout:
    """The layout of the NT heap, by the part of the table's name behind `heap-` (`6.2-x64`)."""
    return layout.heap_layout(TableTypes(f"heap-{name}"), pointer_size(name))


def page_heap(arch: str) -> page.PageHeapLayout:
    return page.page_heap_layout(TableTypes(f"heap-page-{arch}"), pointer_size(arch))


def page_info(arch: str) -> pageinfo.PageInfoLayout:
    return pageinfo.page_info_layout(TableTypes(f"heap-page-{arch}"), pointer_size(arch))


def segment_heap(arch: str) -> segmentheap.SegmentHeapLayout:
    return segmentheap.segment_heap_layout(TableTypes(f"heap-segment-{arch}"), pointer_size(arch))


def pointer_size(name: str) -> int:
    return 8 if name.endswith("x64") else 4
