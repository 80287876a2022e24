# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The layouts of heap structures: from the kernel's symbols where it has the process's bitness, else ours."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

from volatility3.framework import constants, interfaces

from ..base import members as fields
from ..base import tables
from ..base.decode.types import MissingMemberError, offset
from ..base.spaces import AddressSpace
from .decode.find import Layouts
from .decode.layout import heap_layout
from .decode.page import page_heap_layout
from .decode.pageinfo import PageInfoLayout, page_info_layout
from .decode.segmentheap import SegmentHeapLayout, segment_heap_layout

# Windows 8 did away with PointerKey; nothing that is read here has moved since.
NEWEST = "6.2"
_GENERATIONS = {"x64": (NEWEST, "6.0", "5.2"), "x86": (NEWEST, "6.0", "5.1")}


class HeapTypes(NamedTuple):
    """What it takes to read the heaps of a bitness.

    Attributes:
        layouts: of the heaps
        page_info: of what light page heap puts into a block
        heap_count, heaps: offsets of NumberOfHeaps and ProcessHeaps in the PEB
        process_heap: offset of ProcessHeap
    """

    layouts: Layouts
    page_info: PageInfoLayout
    heap_count: int
    heaps: int
    process_heap: int


class SymbolTypes:
    """Symbol tables as layouts' builders want them: of each type, the first table that has it counts.

    Args:
        context: the context whose symbol space holds the tables
        table_names: the tables, the one to be preferred first
    """

    def __init__(self, context: interfaces.context.ContextInterface, table_names: Sequence[str]) -> None:
        self._context = context
        self._table_names = table_names

    def offset(self, type_name: str, *members: str) -> Optional[int]:
        """Returns the offset of the first of members that the type has, or None."""
        table = self._table(type_name)
        found = fields.find(self._context, table, type_name, *members) if table else None
        return None if found is None else found.offset

    def size(self, type_name: str) -> Optional[int]:
        """Returns the size of a type in bytes, or None."""
        table = self._table(type_name)
        return fields.size_of(self._context, table, type_name) if table else None

    def _table(self, type_name: str) -> Optional[str]:
        space = self._context.symbol_space
        names = (name for name in self._table_names if space.has_type(name + constants.BANG + type_name))
        return next(names, None)


def load(
    context: interfaces.context.ContextInterface,
    config_path: str,
    kernel_symbol_table: str,
    space: AddressSpace,
) -> HeapTypes:
    """Loads the layouts for a half of a process.

    Args:
        context: the context whose symbol space takes our tables
        config_path: where their configuration goes
        kernel_symbol_table: the kernel's table, which describes the heaps of native processes
        space: the half of a process

    Raises:
        tables.MissingTableError: when one of our symbol tables is missing
    """

    def types(name: str, native: bool) -> SymbolTypes:
        ours = tables.load(context, config_path, f"heap-{name}-{space.arch}")
        return SymbolTypes(context, [kernel_symbol_table, ours] if native else [ours])

    native = not space.wow64
    generations = _GENERATIONS[space.arch]
    kernel = SymbolTypes(context, [kernel_symbol_table])
    layouts: List[SymbolTypes] = [types(name, False) for name in generations]
    if native and kernel.size("_HEAP") is not None:
        layouts.insert(0, types(_generation(kernel, space.arch), True))
    page = types("page", False)
    peb = types(NEWEST, native)
    return HeapTypes(
        Layouts(
            tuple(heap_layout(each, space.pointer_size) for each in layouts),
            page_heap_layout(page, space.pointer_size),
            _segment(types("segment", native), space.pointer_size),
        ),
        page_info_layout(page, space.pointer_size),
        offset(peb, "_PEB", "NumberOfHeaps"),
        offset(peb, "_PEB", "ProcessHeaps"),
        offset(peb, "_PEB", "ProcessHeap"),
    )


def _generation(kernel: SymbolTypes, arch: str) -> str:
    """Returns which of our tables goes with the kernel's symbols, by the members that its _HEAP has."""
    newest, older, oldest = _GENERATIONS[arch]
    if kernel.offset("_HEAP", "Encoding") is None:
        return oldest
    return newest if kernel.offset("_HEAP", "PointerKey") is None else older


def _segment(types: SymbolTypes, pointer_size: int) -> Optional[SegmentHeapLayout]:
    """Returns the segment heap's layout, or None for a kernel whose symbols have it differently."""
    try:
        return segment_heap_layout(types, pointer_size)
    except MissingMemberError:
        return None
