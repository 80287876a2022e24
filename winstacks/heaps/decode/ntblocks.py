# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The blocks of an NT heap (`_HEAP_ENTRY`) in order; reading goes on after damaged headers.

Source: public symbols of ntoskrnl (XP to 11). The encoding was measured on 7601.24384 and 19044.1766: 8 bytes
XORed with `_HEAP.Encoding`, SmallTagIndex being the XOR of the three bytes before it; INTERNAL on
7601.17514 and 19044.1766. For the stacks of blocks see `blockstack`.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple, Union

from ...columns.words import BLOCK, CONTAINER, LFH, LIGHT, VIRTUAL
from ...memory.decode.memory import Memory
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, status
from ...memory.decode.structure import Buffer, Field
from ...tracedb.decode.recorded import RecordedStack
from .block import DAMAGED, OF_THE_FREE, UNKNOWN_SIZE, UNPROVEN, UNREADABLE, Block, sized
from .blockstack import Extension, Traces, units_before
from .layout import HeapLayout, PageHeapLayout
from .lfh import LFH_BLOCK, hides_blocks, read_user_blocks
from .ntheap import Heap, HeapSegment
from .pageheap import read_information

BUSY = 0x01
EXTRA_PRESENT = 0x02
INTERNAL = 0x08  # 6.0 and later: the heap allocated it for itself

# UnusedBytes counts bytes if it is one of these, 6.0 and later. 3Fh means that the number is stored
# elsewhere; this module does not read it there. ntdll's own blocks may have 1, whatever size was asked for
# (measured: 7601.17514, 19044.1766). The size of such blocks is unknown.
_COUNTS = range(8, 0x3F)


class BlockHeader(NamedTuple):
    """A block's header, decoded. Sizes are bytes and count the header.

    Attributes:
        segment: SegmentOffset (5.x: SegmentIndex), which a virtual-alloc block uses as EntryOffset
        unused: UnusedBytes, with its flags
    """

    address: int
    size: int
    previous: int
    flags: int
    segment: int
    unused: int


class LostBlocks(NamedTuple):
    """A range within a segment in which no block was recognised; the end is exclusive.

    The range is empty if a header contradicts the one before it and no block is lost.
    """

    start: int
    end: int


def heap_blocks(
    memory: Memory, heap: Heap, traces: Traces, page: Sequence[PageHeapLayout] = ()
) -> Iterator[Union[Block, LostBlocks]]:
    """Yields a heap's blocks, segment by segment, then the virtual-alloc ones.

    A range of broken headers comes before the blocks in it, which records of the log prove. A block of the
    form CONTAINER comes before the blocks in it. `page` has the layouts of page heap, for the data that light
    page heap puts into blocks; the first layout whose stamps are there is used.
    """
    return _Walker(memory, heap, traces, page).blocks()


class BlockHeaders:
    """The headers of an NT heap's blocks. `key` is the XOR key of a header from its member Size on; 0 if
    headers are plain and have no checksum."""

    def __init__(self, memory: Memory, layout: HeapLayout, key: int) -> None:
        self._memory = memory
        self._unit, self._code = layout.unit, layout.code
        self._length = layout.unit - layout.code
        self._key = key
        self._previous, self._flags, self._tag = layout.previous, layout.block_flags, layout.tag
        self._segment, self._unused = layout.segment_offset, layout.unused

    def read(self, address: int) -> Optional[BlockHeader]:
        """Returns the header at an address, None if it is not present or is invalid."""
        code = self._memory.read(address + self._code, self._length)
        return None if code is None else self._decode(address, code)

    def walk(self, segment: HeapSegment) -> Iterator[Union[BlockHeader, LostBlocks]]:
        """Yields the headers of a segment's blocks in order, and the ranges without a valid header.

        A header is valid if its checksum holds and the block before or after confirms it. After an invalid
        one the search goes on to the next two headers that confirm each other. If a block reaches over
        others, these are found from its end backwards.
        """
        for start, end in segment.committed():
            yield from self._walk_range(start, end)

    def _decode(self, address: int, code: Buffer) -> Optional[BlockHeader]:
        """Returns a header, None if its checksum fails or its size is 0."""
        plain = (int.from_bytes(code, "little") ^ self._key).to_bytes(self._length, "little")
        if self._key and plain[0] ^ plain[1] ^ plain[2] != plain[self._tag]:
            return None
        units = plain[0] | plain[1] << 8
        if not units:
            return None
        previous, unit = self._previous, self._unit
        return BlockHeader(
            address,
            units * unit,
            (plain[previous] | plain[previous + 1] << 8) * unit,
            plain[self._flags],
            plain[self._segment],
            plain[self._unused],
        )

    def _follows(self, entry: BlockHeader, end: int) -> bool:
        """Returns whether the block after an entry, or the end of the range, confirms its size."""
        following = entry.address + entry.size
        if following >= end:
            return following == end
        after = self.read(following)
        return after is not None and after.previous == entry.size

    def _walk_range(self, start: int, end: int) -> Iterator[Union[BlockHeader, LostBlocks]]:
        position = start
        last: Optional[BlockHeader] = None
        while position < end:
            entry = self.read(position)
            linked = entry is not None and (
                position == start or (last is not None and entry.previous == last.size)
            )
            if entry is not None and position + entry.size <= end and (linked or self._follows(entry, end)):
                if last is not None and not linked:
                    yield from self._reaching_over(last, entry)
                elif last is not None:
                    yield last
                position, last = position + entry.size, entry
                continue
            if last is not None:
                yield last
            next_entry = self._resume(position + self._unit, end)
            resumed = end if next_entry is None else next_entry
            yield LostBlocks(position, resumed)
            position, last = resumed, None
        if last is not None:
            yield last

    def _reaching_over(
        self, entry: BlockHeader, after: BlockHeader
    ) -> Iterator[Union[BlockHeader, LostBlocks]]:
        """Yields a block whose header and successor disagree about its size, then the blocks found inside it.

        Backwards from the successor, each PreviousSize must agree with the Size of the block before it, up to
        the block itself. If this chain does not reach the block, the block stays as it is.
        """
        inner: List[BlockHeader] = []
        position, previous = after.address, after.previous
        while previous and position - previous > entry.address:
            position -= previous
            header = self.read(position)
            if header is None or header.size != previous:
                break
            inner.append(header)
            previous = header.previous
        if inner and position - previous == entry.address:
            yield entry._replace(size=previous)
            yield from reversed(inner)
        else:
            yield entry
        yield LostBlocks(after.address, after.address)

    def _resume(self, start: int, end: int) -> Optional[int]:
        """Returns the address of the first header that its successor confirms."""
        unit, code = self._unit, self._code
        for low, data in self._memory.pages(start, end):
            for offset in range(-low % unit, len(data) - unit + 1, unit):
                entry = self._decode(low + offset, data[offset + code : offset + unit])
                if entry is not None and self._follows(entry, end):
                    return entry.address
        return None


class _Walker:
    """Reads the blocks of a heap: see `heap_blocks`."""

    def __init__(self, memory: Memory, heap: Heap, traces: Traces, page: Sequence[PageHeapLayout]) -> None:
        self._memory, self._heap, self._layout, self._address = memory, heap, heap.layout, heap.address
        self._traces, self._page = traces, page
        self._headers = BlockHeaders(memory, heap.layout, heap.key)

    def blocks(self) -> Iterator[Union[Block, LostBlocks]]:
        memory, layout, unit = self._memory, self._layout, self._layout.unit
        for segment in self._heap.segments:
            for item in self._headers.walk(segment):
                if isinstance(item, LostBlocks):
                    yield item
                    yield from self._carved(item.start, item.end, False)
                elif not item.flags & BUSY:
                    yield from self._freed(item)
                elif item.address + unit not in segment.descriptors:
                    # Under an interceptor, a block that holds others is itself an extended block.
                    offset = units_before(item.unused, item.segment) if layout.extended else 0
                    contents = item.address + (offset + 1) * unit
                    inner = read_user_blocks(memory, contents, item.address + item.size, layout)
                    if inner is not None:
                        yield self._block(item, CONTAINER, offset)
                        yield from self._inner(inner)
                    elif layout.front and item.flags & INTERNAL:
                        yield from self._own(item, offset)
                    else:
                        yield self._block(item, BLOCK, offset)
        for address in self._heap.virtual_blocks:
            yield self._virtual(address)

    def _own(self, entry: BlockHeader, offset: int) -> Iterator[Union[Block, LostBlocks]]:
        """Yields one of the heap's own blocks, and blocks carved from it if it may hold some."""
        layout, start = self._layout, entry.address + (offset + 1) * self._layout.unit
        if not hides_blocks(self._memory, start, layout):
            yield self._block(entry, BLOCK, offset)
            return
        container, end = self._block(entry, CONTAINER, offset), entry.address + entry.size
        yield container._replace(status=status(container.status, UNREADABLE))
        yield LostBlocks(start, end)
        yield from self._carved(start, end, False)

    def _inner(self, inner: range) -> Iterator[Union[Block, LostBlocks]]:
        """Yields the blocks of the low-fragmentation heap in one block."""
        for header in inner:
            mark = self._memory.member(header, self._layout.unused_bytes)
            if mark is None:
                yield LostBlocks(header, header + inner.step)
            if mark is None or mark == LFH_BLOCK:
                yield from self._carved(header, header + inner.step, True, LFH)
            else:
                mark &= ~LFH_BLOCK
                entry = BlockHeader(header, inner.step, 0, 0, 0, mark)
                yield self._block(entry, LFH, units_before(mark, 0))

    def _block(self, entry: BlockHeader, form: str, offset: int) -> Block:
        """Returns a busy block; `offset` is its EntryOffset, 0 for none."""
        unused: Optional[int] = entry.unused
        if offset:
            user, unused, trace, statuses = self._traces.extended(entry.address, offset, self._layout)
        else:
            user, trace, statuses = entry.address + self._layout.unit, None, NOTHING
            if entry.flags & EXTRA_PRESENT:
                trace = self._extra(entry, self._layout.index)
            if self._layout.extended is not None:
                unused = entry.unused if entry.unused in _COUNTS else None
        size, overhead, statuses = sized(entry.size, unused, statuses)
        block = Block(self._address, user, size, overhead, form, False, trace, 0, statuses)
        return self._light(block, entry.size)

    def _light(self, block: Block, room: int) -> Block:
        """Returns a block with the size and trace that light page heap stored in it."""
        read = (read_information(self._memory, block.user, layout) for layout in self._page)
        information = next((candidate for candidate in read if candidate is not None), None)
        if information is None or information.full or information.size > room:
            return block
        trace = self._traces.entry(information.trace) if information.trace else block.trace
        return block._replace(
            user=information.user,
            size=information.size,
            overhead=room - information.size,
            form=LIGHT,
            freed=information.freed,
            trace=trace,
            status=status(block.status, UNPROVEN) if information.freed and trace else block.status,
        )

    def _extra(self, entry: BlockHeader, index: Field) -> Optional[RecordedStack]:
        """Returns the trace that a block's last bytes name: _HEAP_ENTRY_EXTRA or _HEAP_FREE_ENTRY_EXTRA."""
        trace_index = self._memory.member(entry.address + entry.size, index)
        return self._traces.index(trace_index) if trace_index else None

    def _freed(self, entry: BlockHeader) -> Iterator[Block]:
        """Yields a free block with the trace of who freed it (5.x), or earlier blocks carved from it."""
        layout = self._layout
        if layout.freed_index is not None and entry.flags & EXTRA_PRESENT:
            trace = self._extra(entry, layout.freed_index)
            if trace is not None:
                user, size = entry.address + layout.unit, entry.size - layout.unit
                yield Block(self._address, user, size, layout.unit, BLOCK, True, trace, 0, OF_THE_FREE)
            return
        yield from self._carved(entry.address, entry.address + entry.size, True)

    def _carved(self, start: int, end: int, freed: bool, form: str = BLOCK) -> Iterator[Block]:
        for extension in self._traces.carve(start, end, self._layout):
            room = end - start if form == LFH else self._whole(extension, end)
            size = UNKNOWN_SIZE if room is None else room - extension.unused
            overhead = 0 if room is None else extension.unused
            statuses = OF_THE_FREE if freed else DAMAGED
            yield Block(
                self._address, extension.user, size, overhead, form, freed, extension.trace, 0, statuses
            )

    def _whole(self, extension: Extension, end: int) -> Optional[int]:
        """Returns the size, header included, that the header of a carved block still gives, or None."""
        entry = self._headers.read(extension.header)
        if entry is None or entry.size < extension.unused or extension.header + entry.size > end:
            return None
        return entry.size

    def _virtual(self, address: int) -> Block:
        """Returns a virtual-alloc block: the caller asked for CommitSize minus Size bytes."""
        layout, memory = self._layout, self._memory
        header = address + layout.virtual_block
        commit = memory.member(address, layout.virtual_commit)
        code = memory.number(header + layout.code, layout.unit - layout.code)
        if commit is None or code is None:
            return Block(self._address, 0, UNKNOWN_SIZE, 0, VIRTUAL, False, None, 0, UNREADABLE)
        unused, offset = self._virtual_code(code)
        index = memory.member(address, layout.virtual_index) or 0
        user, trace, statuses = header + layout.unit, None, NOTHING
        if offset:
            user, _, trace, statuses = self._traces.extended(header, offset, self._layout)
        if trace is None and index:
            trace = self._traces.index(index)
        size, overhead, statuses = sized(commit, unused, statuses)
        return Block(self._address, user, size, overhead, VIRTUAL, False, trace, index, statuses)

    def _virtual_code(self, code: int) -> Tuple[int, int]:
        """Returns the unused bytes of a virtual-alloc block, and its EntryOffset.

        Only the first half of the header is encoded.
        """
        layout = self._layout
        plain = (code ^ self._heap.key & 0xFFFFFFFF).to_bytes(layout.unit - layout.code, "little")
        unused = plain[0] | plain[1] << 8
        if layout.extended is None:
            return unused, 0
        return unused, units_before(plain[layout.unused], plain[layout.segment_offset])
