# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The first two ways to the entries of a database: the index array and the hash chains.

The index array grows downwards: the slot of index i is at EntryIndexArray - i * pointer size, and i begins
with 1.
"""

from __future__ import annotations

import bisect
import functools
from itertools import compress
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import unsigned
from . import blocks as stdblocks
from .blocks import Blocks, Heads, ReadBytes, read_entry
from .header import Bounds, Header

UNREADABLE = -1
"""The depth of an entry whose head is not in the image."""


class Slots(NamedTuple):
    """Adjacent index slots that are present. `pointers` are addresses of entries that the slots hold, by
    index."""

    first: int
    pointers: Tuple[int, ...]


class Chain:
    """The state of a bucket's chain: how far it can be followed."""

    UNREADABLE = 0  # its head, or the head of one of its entries, is not in the image
    WHOLE = 1
    BROKEN = 2  # it leads to no entry, into another chain, or back into itself


class Links:
    """The entries to which chains and index slots lead.

    An entry is identified by its row in the columns of `blocks`. Entries that the block walk did not find,
    but to which a chain or a slot leads, are appended to these columns.

    Attributes:
        blocks: all entries; the entries of the block walk come first, by address
        buckets: for each entry, the bucket in whose chain it was found, or -1
        chains: for each bucket, the state of its chain (`Chain`)
        entries: for each run of slots, the entry to which each slot leads, or None
        linked: for each entry, 1 if a slot leads to it
        strays: number of slots that lead to no entry
    """

    def __init__(
        self,
        header: Header,
        used: Bounds,
        read: ReadBytes,
        blocks: Blocks,
        heads: Sequence[Heads],
        slots: List[Slots],
    ) -> None:
        self._layout = header.layout.entry
        self._header = header
        self._used = used
        self._read = read
        self.blocks = blocks
        self.walked = len(blocks.addresses)
        self._sure_end = used.lower_end
        if not used.lower_known:
            self._sure_end = self._end_of(self.walked - 1) if self.walked else used.first_entry
        self.buckets = [-1] * self.walked
        self.chains = bytearray(header.bucket_count)
        self.slots = slots
        self._following: List[Optional[int]] = []
        self._follow_chains(heads)
        if used.upper_known and [run.pointers for run in slots] == [tuple(blocks.addresses)]:
            # The slots lead to the entries in the order of memory: each trace got its index when it was
            # logged.
            self.entries: List[List[Optional[int]]] = [list(range(len(blocks.addresses)))]
            self.linked = bytearray(b"\1" * len(blocks.addresses))
            self.strays = 0
            return
        self.entries = [self._resolve(run) for run in slots]
        if not used.upper_known:
            truncate(self.slots, self.entries)
        self.linked = self._mark_linked()
        self.strays = sum(entries.count(None) for entries in self.entries)

    @functools.cached_property
    def by_address(self) -> Dict[int, int]:
        """Entries by address, including entries to which only a chain or a slot leads."""
        return dict(zip(self.blocks.addresses, range(len(self.blocks.addresses))))

    def slot_present(self, index: int) -> bool:
        return any(run.first <= index < run.first + len(run.pointers) for run in self.slots)

    def _follow_chains(self, heads: Sequence[Heads]) -> None:
        """Sets `buckets` and `chains`: follows the chains of all buckets."""
        for run in heads:
            self.chains[run.first : run.first + len(run.addresses)] = bytes((Chain.WHOLE,)) * len(
                run.addresses
            )
        entry_buckets = in_order(self.blocks, heads)
        if entry_buckets is not None:
            self.buckets = entry_buckets
            return
        following = self._following = list(map(self.by_address.get, self.blocks.chains))
        for bucket, address in stdblocks.first_entries(heads):
            self._follow_chain(bucket, address, following)

    def _follow_chain(self, bucket: int, address: int, following: List[Optional[int]]) -> None:
        """Follows the chain of a bucket, and marks its entries and its state. `following` has for each entry
        the next entry of its chain; None if that is unknown or the end."""
        buckets, links = self.buckets, self.blocks.chains
        entry, last = self.by_address.get(address), -1
        while address:
            if entry is None or buckets[entry] >= 0:
                entry = self._claim(address, bucket)
                if entry is None:
                    self.chains[bucket] = Chain.BROKEN
                    break
                buckets[entry] = -1
            while entry is not None and buckets[entry] < 0:
                buckets[entry] = bucket
                last, entry = entry, following[entry]
            address = links[last]
        if last >= 0 and self.blocks.depths[last] == UNREADABLE:
            self.chains[bucket] = Chain.UNREADABLE

    def _claim(self, address: int, bucket: int) -> Optional[int]:
        """Returns the entry at an address if it may belong to the chain of a bucket, else None.

        An entry to which two chains lead belongs to the chain that its hash selects.
        """
        entry = self.by_address.get(address)
        if entry is None:
            return self._admit(address, self._hashes_to, bucket)
        if self.buckets[entry] < 0:
            return entry
        return entry if self.buckets[entry] != bucket and self._hashes_to(address, bucket) else None

    def _resolve(self, run: Slots) -> List[Optional[int]]:
        """Returns the entry to which each slot leads.

        If the end of the used slots is not known, a slot counts only if its entry holds the slot's index.
        """
        entries = list(map(self.by_address.get, run.pointers))
        if self._used.upper_known and None not in entries:
            return entries
        for place, (entry, address) in enumerate(zip(entries, run.pointers)):
            index = run.first + place
            if entry is None and address:
                entries[place] = self.by_address.get(address)
                if entries[place] is None:
                    entries[place] = self._admit(address, self._has_index, index)
            elif entry is not None and not self._used.upper_known and not self._has_index(address, index):
                entries[place] = None
        return entries

    def _mark_linked(self) -> bytearray:
        """Returns `linked`. If several slots lead to one entry, the others in `entries` are set to None.

        The slot that counts is the slot whose index the entry holds, or else the first slot.
        """
        linked, doubled = bytearray(len(self.buckets)), set()
        for entries in self.entries:
            for entry in entries:
                if entry is not None:
                    if linked[entry]:
                        doubled.add(entry)
                    linked[entry] = 1
        index_of_entry: Dict[int, int] = {}
        if doubled:
            for index, entry in self._numbered():
                if entry in doubled and self._has_index(self.blocks.addresses[entry], index):
                    index_of_entry.setdefault(entry, index)
        for run, entries in zip(self.slots, self.entries) if doubled else ():
            for place, entry in enumerate(entries):
                if (
                    entry in doubled
                    and index_of_entry.setdefault(entry, run.first + place) != run.first + place
                ):
                    entries[place] = None
        return linked

    def _numbered(self) -> Iterator[Tuple[int, int]]:
        """Yields (index, entry) of the slots that lead to an entry."""
        for run, entries in zip(self.slots, self.entries):
            yield from ((index, entry) for index, entry in enumerate(entries, run.first) if entry is not None)

    def _admit(self, address: int, agrees: Callable[[int, int], bool], number: int) -> Optional[int]:
        """Adds an entry that the block walk did not find, and returns it; None if it is not credible.

        Beyond the known end of the entries, or within a block of the walk, an entry is credible only if it
        agrees with the chain or slot that leads to it. Elsewhere its place and its alignment are enough.
        `agrees` returns whether the entry at an address belongs to a bucket or an index.
        """
        used, layout = self._used, self._layout
        ceiling = used.upper_start if used.upper_known else used.upper_end
        if not used.first_entry <= address < ceiling or (address - used.first_entry) % layout.alignment:
            return None
        doubtful = address >= self._sure_end or self._enclosed(address)
        head = self._read(address, layout.head_size)
        if head is None:
            chain = unsigned(self._read(address + layout.chain.offset, layout.chain.size)) or 0
            return None if doubtful else self._append(address, chain, UNREADABLE)
        if doubtful and not agrees(address, number):
            return None
        chain, _, depth = layout.scan(head, 0)
        return self._append(address, chain, depth)

    def _append(self, address: int, chain: int, depth: int) -> int:
        """Appends a row to all columns, and returns its number."""
        self.blocks.append(address, chain, depth)
        self.buckets.append(-1)
        self._following.append(None)
        self.by_address[address] = len(self.buckets) - 1
        return len(self.buckets) - 1

    def _enclosed(self, address: int) -> bool:
        """Returns whether an address lies within a block of the walk."""
        entry = bisect.bisect_right(self.blocks.addresses, address, 0, self.walked) - 1
        return entry >= 0 and address < self._end_of(entry)

    def _end_of(self, entry: int) -> int:
        """Returns the end of an entry's block; its start if the head of the entry is missing."""
        address = self.blocks.addresses[entry]
        head = self._read(address, self._layout.head_size)
        if head is None:
            return address
        layout = self._layout
        _, word, depth = layout.scan(head, 0)
        return address + layout.sizes[word >> layout.shift if layout.shift else min(depth, layout.max_depth)]

    def _hashes_to(self, address: int, bucket: int) -> bool:
        """Returns whether the frames of the entry at an address have a hash that belongs in a bucket."""
        entry = read_entry(self._layout, self._read, address)
        return entry is not None and self._header.bucket_of(entry.frames) == bucket

    def _has_index(self, address: int, index: int) -> bool:
        """Returns whether the entry at an address holds an index."""
        entry = read_entry(self._layout, self._read, address)
        return entry is not None and self._layout.is_index(entry.number, index)


def index_slots(memory: Extents, used: Bounds, size: int) -> List[Slots]:
    """Returns the index slots that are present, by index."""
    runs = []
    for low, high in memory.covered(used.upper_start, used.upper_end):
        last = (used.upper_end - low) // size
        first = -(-(used.upper_end - high) // size) + 1
        if first <= last:
            start = used.upper_end - last * size
            runs.append(Slots(first, stdblocks.pointers(memory, start, last - first + 1, size)[::-1]))
    return runs[::-1]


def truncate(slots: List[Slots], entries: List[List[Optional[int]]]) -> None:
    """Drops the slots after the last slot that leads to an entry. Used if the end of the slots is unknown.
    `entries` has for each run the entry to which each slot leads, or None."""
    while slots:
        while entries[-1] and entries[-1][-1] is None:
            entries[-1].pop()
        if entries[-1]:
            slots[-1] = Slots(slots[-1].first, slots[-1].pointers[: len(entries[-1])])
            return
        slots.pop()
        entries.pop()


def in_order(blocks: Blocks, heads: Sequence[Heads]) -> Optional[List[int]]:
    """Returns for each entry the bucket in whose chain it is, found in one pass through memory.

    Windows 6.0 and later put a new entry at the start of its chain, 5.x at the end. So every chain leads
    through memory in one direction, unless a block was released and used again. Returns for each entry its
    bucket, or -1 if it is in no chain. None if the chains do not all go in one direction, or if a link does
    not lead to an entry, or if two links lead to the same entry.
    """
    pending: Dict[int, int] = {address: bucket for bucket, address in stdblocks.first_entries(heads)}
    chain_count = sum(len(run.addresses) - run.addresses.count(0) for run in heads)
    addresses, links = blocks.addresses, blocks.chains
    upwards = next((link > address for address, link in zip(addresses, links) if link), True)
    entry_buckets: List[int] = []
    pop = pending.pop
    for address, link in zip(addresses, links) if upwards else zip(reversed(addresses), reversed(links)):
        bucket = pop(address, -1)
        entry_buckets.append(bucket)
        if bucket >= 0:
            pending[link] = bucket
    if not upwards:
        entry_buckets.reverse()
    pending.pop(0, None)
    chain_links = links if -1 not in entry_buckets else compress(links, map((-1).__ne__, entry_buckets))
    chain_ends = sum(not link for link in chain_links)
    # If two links lead to the same entry, one chain has no end, and the numbers differ.
    return entry_buckets if not pending and chain_ends == chain_count else None
