# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handle tables of processes: looks up the object of a handle, and lists all handles."""

from __future__ import annotations

import functools
from typing import Dict, Iterator, Optional, Set, Tuple

from ..memory.decode import links
from ..memory.decode.machine import Machine
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import Extents
from ..memory.decode.records import NamedTuple
from ..memory.image import Image
from . import globalflag
from .decode import globalflags, handletable
from .decode.handletable import Entry, EntryDecoder
from .kernelobjects import process_type

MAX_TABLES = 1 << 16

_KERNEL_HANDLE = 0x80000000


class HandleTable(NamedTuple):
    """The table of a process. `address` is 0 if the process has none or no longer has one; `debug_info` is 0
    if its handles are not traced; `pid` is the process ID in the table, None if the table has none."""

    address: int
    code: int
    debug_info: int
    pid: Optional[int] = None


def handle_tables(image: Image) -> Optional[HandleTables]:
    """Returns the reader of handle tables, None if the symbols lack a needed member: a warning names it."""
    return image.attempt(lambda: image.service(HandleTables))


class HandleTables:
    """Reads handle tables. All addresses are canonical. Made as `image.service(HandleTables)`. Raises
    MissingMemberError if the kernel's symbols do not describe the tables."""

    def __init__(self, image: Image) -> None:
        types = image.types
        table = types["_HANDLE_TABLE"]
        self._memory = image.memory(image.kernel)
        self._object_table = process_type(image).offset("ObjectTable")
        self._code = table.field("TableCode")
        self._debug_info = table.offset("DebugInfo")
        self._pid = table.first_member("UniqueProcessId")
        # Before Vista entries have 16-bit trace indices, and with +kst the granted access is an index, too.
        # This holds for 32-bit kernels only: entries of 5.2 x64 hold the whole access (measured on 3790 with
        # +kst).
        wide = types.find("_RTL_CRITICAL_SECTION_DEBUG").has("CreatorBackTraceIndexHigh")
        flags = globalflag.read(image, image.kernel) or 0
        index_kept = image.machine is Machine.I386 and not wide
        creators = index_kept and bool(flags & globalflags.FLG_KERNEL_STACK_TRACE_DB)
        self._links = table.first_member("HandleTableList")
        self._quota = table.first_member("QuotaProcess")
        self._head = image.require_symbol("HandleTableListHead")
        self._decoder = EntryDecoder(types, image.pointer_size, creators)
        self.has_creators = self._decoder.has_creators

    def table_of(self, eprocess: int) -> Optional[HandleTable]:
        """Returns the table of a process, None if it cannot be read."""
        address = self._memory.pointer(eprocess + self._object_table)
        if not address:
            return None if address is None else HandleTable(0, 0, 0)
        return self.table_at(address)

    def listed_table(self, eprocess: int) -> Optional[HandleTable]:
        """Returns the table that the kernel's list of all tables has for a process; None if there is none."""
        address = self._by_process.get(eprocess)
        return None if address is None else self.table_at(address)

    @functools.cached_property
    def _by_process(self) -> Dict[int, int]:
        return {owner: table for table, owner in self.owners()}

    def owners(self) -> Iterator[Tuple[int, int]]:
        """Yields the address of each table in the kernel's list, and the _EPROCESS of the table's process."""
        return ((table, owner) for table, owner in self.all_listed.items() if owner)

    @functools.cached_property
    def all_listed(self) -> Dict[int, int]:
        """The _EPROCESS of each table in the kernel's list (0 if it has none), by table address."""
        return dict(self._walk())

    def _walk(self) -> Iterator[Tuple[int, int]]:
        if self._head is None or self._links is None or self._quota is None:
            return
        for link in links.walk(self._head, self._memory.links, MAX_TABLES).nodes:
            table = link - self._links.offset
            yield table, self._memory.member(table, self._quota) or 0

    def table_at(self, address: int) -> Optional[HandleTable]:
        """Returns the table at an address, None if it cannot be read."""
        code = self._memory.number(address + self._code.offset, self._code.size)
        debug_info = self._memory.pointer(address + self._debug_info)
        if code is None or debug_info is None:
            return None
        return HandleTable(address, code, debug_info, self._memory.member(address, self._pid))

    def lookup(self, table: HandleTable, handle: int) -> Tuple[Optional[Entry], bool]:
        """Looks a handle up. Returns the entry, None if it is free; and False if the table cannot be read
        there, so that the entry is unknown. `handle` is the handle as the process uses it; the bit that marks
        a kernel handle may be missing."""
        decoder = self._decoder
        number = (handle & _KERNEL_HANDLE - 1) // handletable.HANDLE_STEP
        index, slot = divmod(number, decoder.per_page)
        page: Optional[int] = handletable.address_of(table.code)
        for level in range(min(handletable.level_of(table.code), handletable.MAX_LEVEL), 0, -1):
            span = decoder.per_directory ** (level - 1)
            if index // span >= decoder.per_directory:
                return None, True
            page = self._memory.pointer(page + index // span * decoder.pointer_size)
            if not page:
                return None, page is not None
            index %= span
        if index or not slot:
            return None, True
        data = self._memory.read(page + slot * decoder.size, decoder.size) if page else None
        return (None, False) if data is None else (decoder.entry(data, handle), True)

    def entries(self, table: HandleTable) -> Iterator[Optional[Entry]]:
        """Yields the used entries of a table, and None for each page that is not completely readable.

        This covers pages of entries and pages of pointers. Each page is read once, so that a forged table
        cannot be endless.
        """
        level = min(handletable.level_of(table.code), handletable.MAX_LEVEL)
        for leaf in self._leaves(handletable.address_of(table.code), level, 0, set()):
            if leaf is None:
                yield None
                continue
            index, page = leaf
            extents = self._memory.load(page, PAGE_SIZE)
            if _incomplete(extents, page):
                yield None
            if extents.runs:
                yield from self._decoder.page(extents, page, self._decoder.page_base(index))

    def _leaves(
        self, page: int, level: int, first: int, seen: Set[int]
    ) -> Iterator[Optional[Tuple[int, int]]]:
        """Yields (number, address) of the pages of entries below a page, None for an unreadable page."""
        decoder = self._decoder
        if page in seen or first * decoder.per_page >= handletable.MAX_HANDLES:
            return
        seen.add(page)
        if not level:
            yield first, page
            return
        span = decoder.per_directory ** (level - 1)
        extents = self._memory.load(page, PAGE_SIZE)
        if _incomplete(extents, page):
            yield None
        for run_start, data in extents.runs:
            number = (run_start - page) // decoder.pointer_size
            for pointer in handletable.decode_pointers(data, decoder.pointer_size):
                if pointer:
                    yield from self._leaves(pointer, level - 1, first + number * span, seen)
                number += 1


def _incomplete(extents: Extents, page: int) -> bool:
    return extents.missing(page, page + PAGE_SIZE) > 0
