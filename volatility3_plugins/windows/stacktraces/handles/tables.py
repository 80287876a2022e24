# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handle tables of processes: the object that a handle names, and all handles."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Set, Tuple, Union

from volatility3.framework import interfaces

from ..base import bulk, globalflag, members
from ..base.decode import globalflags
from ..base.decode.extents import Extents
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from .decode import handletable
from .decode.handletable import Entry, EntryLayout

_TABLE, _ENTRY = "_HANDLE_TABLE", "_HANDLE_TABLE_ENTRY"
_KERNEL_HANDLE = 0x80000000


class HandleTable(NamedTuple):
    """The table of a process. `address` is 0 where it has none (any more), `debug_info` where its handles are
    not traced."""

    address: int
    code: int
    debug_info: int


class MissingPage(NamedTuple):
    """A page of a table, of pointers or of entries, that cannot be read or not all of it."""

    address: int


class Lookup(NamedTuple):
    """What a handle is now: its entry, None for a free one; `readable` is False where that is not known."""

    entry: Optional[Entry]
    readable: bool


class HandleTables:
    """Reads handle tables.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
        kernel_space: the kernel's address space
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        kernel_space: AddressSpace,
    ) -> None:
        kernel = context.modules[kernel_module_name]
        table = kernel.symbol_table_name
        self._context = context
        self._layer = context.layers[kernel.layer_name]
        self._peek = Peek(context, kernel.layer_name, kernel_space.pointer_size)
        self._object_table = members.need(context, table, "_EPROCESS", "ObjectTable")
        self._code = members.need(context, table, _TABLE, "TableCode")
        self._debug_info = members.need(context, table, _TABLE, "DebugInfo")
        packed = members.find(context, table, _ENTRY, "ObjectPointerBits")
        # Trace indices of 16 bits: before Vista. There, with +kst, the granted access is an index too.
        wide = members.find(context, table, "_RTL_CRITICAL_SECTION_DEBUG", "CreatorBackTraceIndexHigh")
        creator = members.find(context, table, _ENTRY, "CreatorBackTraceIndex")
        flags = globalflag.read(context, kernel_module_name, kernel_space) or 0
        has_creators = wide is None and flags & globalflags.FLG_KERNEL_STACK_TRACE_DB
        self.layout = EntryLayout(
            pointer_size=kernel_space.pointer_size,
            size=members.size_of(context, table, _ENTRY),
            object=packed or members.need(context, table, _ENTRY, "Object"),
            packed=packed is not None,
            creator=creator if has_creators else None,
        )

    def of(self, eprocess: interfaces.objects.ObjectInterface) -> Optional[HandleTable]:
        """Returns the table of a process, None if it cannot be read."""
        start = bulk.canonical(self._layer, eprocess.vol.offset)
        address = self._peek.pointer(start + self._object_table.offset)
        if not address:
            return None if address is None else HandleTable(0, 0, 0)
        code = self._peek.read(address + self._code.offset, self._code.size)
        debug_info = self._peek.pointer(address + self._debug_info.offset)
        if code is None or debug_info is None:
            return None
        return HandleTable(address, int.from_bytes(code, "little"), debug_info)

    def lookup(self, table: HandleTable, handle: int) -> Lookup:
        """Looks a handle up.

        Args:
            table: of the process
            handle: as the process uses it; a kernel handle with or without the bit that marks one
        """
        number = (handle & _KERNEL_HANDLE - 1) // handletable.HANDLE_STEP
        index, slot = divmod(number, self.layout.per_page)
        page: Optional[int] = handletable.address_of(table.code)
        for level in range(min(handletable.level_of(table.code), handletable.MAX_LEVEL), 0, -1):
            span = self.layout.per_directory ** (level - 1)
            if index // span >= self.layout.per_directory:
                return Lookup(None, True)
            page = self._peek.pointer(page + index // span * self.layout.pointer_size)
            if not page:
                return Lookup(None, page is not None)
            index %= span
        if index or not slot:
            return Lookup(None, True)
        data = self._peek.read(page + slot * self.layout.size, self.layout.size) if page else None
        if data is None:
            return Lookup(None, False)
        return Lookup(handletable.decode_entry(data, handle, self.layout), True)

    def entries(self, table: HandleTable) -> Iterator[Union[Entry, MissingPage]]:
        """Yields the used entries of a table, and the pages that hide some.

        Each page counts once, so that a table cannot be endless.
        """
        level = min(handletable.level_of(table.code), handletable.MAX_LEVEL)
        seen: Set[int] = set()
        for each in self._leaves(handletable.address_of(table.code), level, 0, seen):
            if isinstance(each, MissingPage):
                yield each
                continue
            index, page = each
            found = self._page(page)
            if _incomplete(found, page):
                yield MissingPage(page)
            if found.runs:
                base = handletable.page_base(index, self.layout)
                yield from handletable.decode_page(found, page, base, self.layout)

    def _leaves(
        self, page: int, level: int, first: int, seen: Set[int]
    ) -> Iterator[Union[Tuple[int, int], MissingPage]]:
        """Yields (number, address) of the pages of entries below a page, and missing pages of pointers."""
        if page in seen or first * self.layout.per_page >= handletable.MAX_HANDLES:
            return
        seen.add(page)
        if not level:
            yield first, page
            return
        span = self.layout.per_directory ** (level - 1)
        found = self._page(page)
        if _incomplete(found, page):
            yield MissingPage(page)
        for run_start, data in found.runs:
            number = (run_start - page) // self.layout.pointer_size
            for pointer in handletable.decode_pointers(data, self.layout.pointer_size):
                if pointer:
                    yield from self._leaves(pointer, level - 1, first + number * span, seen)
                number += 1

    def _page(self, address: int) -> Extents:
        return bulk.read_extents(self._context, self._layer.name, address, handletable.PAGE_SIZE)


def _incomplete(found: Extents, page: int) -> bool:
    return found.missing(page, page + handletable.PAGE_SIZE) > 0
