# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Addresses of virtual memory in the layer below, read from whole page tables.

Volatility translates each page separately, which takes as long as all other work on the page. This module
reads whole page tables and takes the pages that they mark as present. For all other pages (transition,
prototype, paged out) it asks Volatility.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from volatility3.framework import exceptions, interfaces
from volatility3.framework.layers import intel, linear

from .decode import pagetable
from .decode.memo import Kept, Memo
from .decode.pagetable import PAGE_SHIFT, PAGE_SIZE

_FEW = 8 * PAGE_SIZE
"""Ranges up to this size are translated by Volatility: reading their page table would take longer."""

MAX_TABLES = 512
"""Page tables kept for all address spaces of an image together: 2 MB. If one more is read, all are
dropped."""

_FIRST = 32
"""Pages of a layer that Volatility translates before the layer's page tables are read."""

_MOST_FOUND = 16
"""Page tables kept at hand for one address space: kernel stacks, user stacks, TEBs and others."""

_LARGE = -1
"""The level that stands for a large page in place of a page table."""

Piece = Tuple[int, int, int, str]
"""Offset in the layer, size, offset in the layer below, name of the layer below."""


def mapping(
    context: interfaces.context.ContextInterface,
    layer: linear.LinearlyMappedLayer,
    start: int,
    length: int,
    tables: Optional[PageTables] = None,
) -> Iterator[Piece]:
    """Returns the present pieces of a range of a layer, in order.

    Args:
        start: first address in the layer's own form
        tables: the layer's page tables, with those that are kept; None: all are read
    """
    if length <= _FEW or not isinstance(layer, intel.Intel):
        return _with_gaps(layer, start, length)
    return _in_a_row(_by_table(tables or PageTables(context, layer), layer, start, length))


def _by_table(tables: PageTables, layer: intel.Intel, start: int, length: int) -> Iterator[Piece]:
    """Yields the pieces that are present according to the page tables."""
    end = start + length
    while start < end:
        stop = min(end, (start // tables.span + 1) * tables.span)
        table = tables.find_table(start)
        if table is None:
            yield from _with_gaps(layer, start, stop - start)
        elif table:
            yield from tables.pieces(table, start, stop)
        else:
            yield from _ask_volatility(layer, start, stop - start)
        start = stop


def _in_a_row(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Joins adjacent pieces that are also adjacent in the layer below."""
    last: Optional[Piece] = None
    for piece in pieces:
        if last is not None:
            offset, size, mapped, below = last
            if piece[0] - offset == size == piece[2] - mapped and piece[3] == below:
                last = offset, size + piece[1], mapped, below
                continue
            yield last
        last = piece
    if last is not None:
        yield last


def may_execute(
    context: interfaces.context.ContextInterface, layer: interfaces.layers.DataLayerInterface, address: int
) -> bool:
    """Returns whether the page that holds an address may be executed; True if no page table maps it.

    Only the page's own entry counts, not the entries of the tables above it: a kernel that hides its page
    tables from user mode disables execution there for all of user mode. `address` is an address in the
    layer's own form.
    """
    if not isinstance(layer, intel.Intel):
        return True
    entry = PageTables(context, layer).entry(address)
    return entry is None or pagetable.executable(*entry)


def _ask_volatility(layer: linear.LinearlyMappedLayer, start: int, length: int) -> Iterator[Piece]:
    """Yields the pages that Volatility finds."""
    for offset, size, mapped, _, below in layer.mapping(start, length, ignore_errors=True):
        yield offset, size, mapped, below


def _with_gaps(layer: linear.LinearlyMappedLayer, start: int, length: int) -> Iterator[Piece]:
    """Yields the pages that Volatility finds in a range, and the pages that it finds one by one in the gaps.

    Volatility skips a whole large page if one byte of it is missing from the image.
    """
    if length <= PAGE_SIZE - start % PAGE_SIZE:
        yield from _ask_volatility(layer, start, length)
        return
    end = start
    for piece in _ask_volatility(layer, start, length):
        yield from _one_by_one(layer, end, piece[0])
        yield piece
        end = piece[0] + piece[1]
    yield from _one_by_one(layer, end, start + length)


def _one_by_one(layer: linear.LinearlyMappedLayer, start: int, end: int) -> Iterator[Piece]:
    if getattr(layer, "page_size", 0) != PAGE_SIZE:
        return
    while start < end:
        size = min(PAGE_SIZE - start % PAGE_SIZE, end - start)
        yield from _ask_volatility(layer, start, size)
        start += size


def mapped(
    context: interfaces.context.ContextInterface,
    layer: interfaces.layers.DataLayerInterface,
    ranges: Sequence[Tuple[int, int]],
) -> Tuple[List[Tuple[int, int]], int]:
    """Returns the parts of ranges that page tables map; the ranges may be terabytes long.

    Each page table is followed once, however often other tables lead to it: Windows maps each table at one
    address, and forged tables map the same few pages over and over. Returns the (start, end) of the present
    parts, in the layer's own form; and how many tables were met again. `ranges` are (start, end), disjoint
    and ascending, in the layer's own form.
    """
    if not isinstance(layer, intel.Intel):
        return list(ranges), 0
    tables = PageTables(context, layer)
    parts: List[Tuple[int, int]] = []
    for start, end in ranges:
        for low, high in tables.leaves(start, end):
            for offset, size, _, _ in mapping(context, layer, low, high - low):
                if parts and parts[-1][1] == offset:
                    parts[-1] = (parts[-1][0], offset + size)
                else:
                    parts.append((offset, offset + size))
    return parts, tables.repeated


class PageTables:
    """The page tables of a layer. `kept` has the tables that were read before, by (layer, physical address,
    bits), because address spaces share the tables of the kernel's half; None keeps no tables.

    Attributes:
        span: bytes that one page table maps
        repeated: how often `leaves` met a table or a large page at a second address
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        layer: intel.Intel,
        kept: Optional[Kept[Tuple[str, int, int], bytes]] = None,
    ) -> None:
        self._layer = layer
        self._tables = kept
        self._lookups = 0
        self._found: Memo[int, Optional[bytes]] = Memo(self._numbered, _MOST_FOUND)
        self.below = context.layers[layer.config["memory_layer"]]
        *self._upper, self._bits = (bits for _, bits, _ in layer.structure)
        self.entry_size = PAGE_SIZE >> self._bits
        self.span = PAGE_SIZE << self._bits
        self.repeated = 0
        self._met: Dict[Tuple[int, int], int] = {}

    def _numbered(self, number: int) -> Optional[bytes]:
        return self.find_table(number * self.span)

    def find_table(self, address: int) -> Optional[bytes]:
        """Returns the page table that maps an address, empty if there is none; None in a large page."""
        return self._descend(address)[0]

    def physical(self, address: int) -> Optional[int]:
        """Returns the physical address of an address by the page tables, None if it has no present page.

        The image may lack the page: imaging tools do not have to read the memory of devices.
        """
        table, large = self._descend(address)
        if table is None:
            return large
        entry = self._cut(table, address) if table else 0
        if not entry & pagetable.PRESENT:
            return None
        return pagetable.target(entry, self.entry_size) + address % PAGE_SIZE

    def _descend(self, address: int) -> Tuple[Optional[bytes], int]:
        """Returns the page table that maps an address; None and the physical address in a large page."""
        base = self._layer.config["page_map_offset"]
        shift = sum(self._upper) + self._bits + PAGE_SHIFT
        for bits in self._upper:
            shift -= bits
            table = self._table(base, bits)
            offset = (address >> shift & (1 << bits) - 1) * self.entry_size
            entry = int.from_bytes(table[offset : offset + self.entry_size], "little")
            if not entry & pagetable.PRESENT:
                return b"", 0
            if entry & pagetable.LARGE:
                within = address & (1 << shift) - 1
                return None, (pagetable.target(entry, self.entry_size) >> shift << shift) + within
            base = pagetable.target(entry, self.entry_size)
        return self._table(base, self._bits), 0

    def place(self, address: int) -> Optional[int]:
        """Returns the address in the layer below, None unless a page table has a present page there.

        The first few addresses of a layer are left to Volatility (None): for most processes no more are read.
        """
        self._lookups += 1
        if self._lookups <= _FIRST:
            return None
        table = self._found[address // self.span]
        entry = self._cut(table, address) if table else 0
        if not entry & pagetable.PRESENT:
            return None
        return pagetable.target(entry, self.entry_size) + address % PAGE_SIZE

    def leaves(self, start: int, end: int) -> Iterator[Tuple[int, int]]:
        """Yields the parts of a range that a page table or a large page maps, in order.

        A table that was met before, at another address, is counted in `repeated` and not followed again.
        """
        width = sum(self._upper) + self._bits + PAGE_SHIFT
        tables = [(0, self._layer.config["page_map_offset"], 0, width)]
        while tables:
            level, base, first, width = tables.pop()
            if level in (_LARGE, len(self._upper)):
                # A large page may reach beyond the end of the layer below.
                available = self.below.maximum_address + 1 - base if level == _LARGE else self.span
                low, high = max(first, start), min(first + min(1 << width, available), end)
                if low < high:
                    yield low, high
                continue
            bits, may_be_large = self._upper[level], self._layer.structure[level][2]
            width -= bits
            followed = []
            numbers = slice(max(start - first, 0) >> width, ((end - 1 - first) >> width) + 1)
            entries = pagetable.entries(self._read(base, bits), self.entry_size)[numbers]
            for number, entry in enumerate(entries, numbers.start):
                low = first + (number << width)
                if not pagetable.leads(entry):
                    continue
                target = pagetable.target(entry, self.entry_size)
                large = may_be_large and bool(entry & pagetable.LARGE)
                next_level = _LARGE if large else level + 1
                if self._met.setdefault((next_level, target), low) != low:
                    self.repeated += 1
                    continue
                followed.append((next_level, target, low, width))
            tables += reversed(followed)

    def entries(self, address: int) -> Tuple[Optional[bytes], bool]:
        """Returns the page table of an address as it is stored, even if none of its entries is present.

        Returns:
            The table, and whether the processor can follow its entries: all tables above mark it as present.
            Empty
            bytes: no page table exists, as no page in its range was ever touched. None: the table is not in
                the
            image, or a large page is in its place.
        """
        present = True
        base = self._layer.config["page_map_offset"]
        shift = sum(self._upper) + self._bits + PAGE_SHIFT
        for bits in self._upper:
            shift -= bits
            location = (base & -(self.entry_size << bits)) + (
                address >> shift & (1 << bits) - 1
            ) * self.entry_size
            try:
                entry = int.from_bytes(self.below.read(location, self.entry_size), "little")
            except exceptions.InvalidAddressException:
                return None, False
            if not entry:
                return b"", present
            target = None if entry & pagetable.LARGE else pagetable.in_section(entry, self.entry_size)
            if target is None:
                return None, False
            present = present and bool(entry & pagetable.PRESENT)
            base = target
        try:
            return self.below.read(base, self.entry_size << self._bits), present
        except exceptions.InvalidAddressException:
            return None, False

    def entry(self, address: int) -> Optional[Tuple[int, int]]:
        """Returns the entry of the page that holds an address, and the entry's size; None without one."""
        table = self.find_table(address)
        return (self._cut(table, address), self.entry_size) if table else None

    def pieces(self, table: bytes, start: int, stop: int) -> Iterator[Piece]:
        """Yields the present pieces of a part of the range that a table maps."""
        first, last = start // PAGE_SIZE, (stop - 1) // PAGE_SIZE
        page = first
        number = first & (1 << self._bits) - 1
        for count, frame in pagetable.runs(table, self.entry_size, number, last - first + 1):
            low, high = max(page * PAGE_SIZE, start), min((page + count) * PAGE_SIZE, stop)
            mapped = None if frame is None else frame + low - page * PAGE_SIZE
            if mapped is not None and self.below.is_valid(mapped, high - low):
                yield low, high - low, mapped, self.below.name
            else:
                yield from _ask_volatility(self._layer, low, high - low)
            page += count

    def _cut(self, table: bytes, address: int) -> int:
        """Returns the entry of the page that holds an address from the page table that maps the page."""
        (entry,) = pagetable.entries(table, self.entry_size, address // PAGE_SIZE & (1 << self._bits) - 1, 1)
        return entry

    def _table(self, base: int, bits: int) -> bytes:
        """Returns a page table as `_read` does; a kept table is not read again."""
        if self._tables is None:
            return self._read(base, bits)
        key = (self.below.name, base, bits)
        table = self._tables.get(key)
        return self._tables.keep(key, self._read(base, bits)) if table is None else table

    def _read(self, base: int, bits: int) -> bytes:
        """Returns a page table; empty if there is none, or if all entries are equal (as in Volatility)."""
        size = self.entry_size << bits
        try:
            table = self.below.read(base & ~(size - 1), size)
        except exceptions.InvalidAddressException:
            return b""
        return b"" if table == table[: self.entry_size] * (1 << bits) else table
