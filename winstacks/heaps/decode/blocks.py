# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The blocks of an NT heap and the traces that they name.

Source: see the modules that this one puts together (`nt`, `entry`, `extended`, `lfh`, `page`, `trace`).
"""

from __future__ import annotations

from typing import Iterator, Optional, Tuple, Union

from ...memory.decode.memory import Memory
from ...memory.decode.status import NOTHING, Status, status
from .block import (
    BLOCK,
    CONTAINER,
    DAMAGED,
    LFH,
    LIGHT,
    OF_THE_FREE,
    UNKNOWN_SIZE,
    UNPROVEN,
    VIRTUAL,
    Block,
    sized,
)
from .entry import BUSY, EXTRA_PRESENT, INTERNAL, BlockHeader, Coder, Lost, walk
from .extended import Extension, carve, read_extension, trace_of, units_before
from .lfh import LFH_BLOCK, hides_blocks, read_user_blocks
from .nt import Heap
from .page import PageHeapTypes, read_information
from .trace import UNREADABLE, BlockTrace, Traces

# 6.0 and later: UnusedBytes that did not fit, how many there are is elsewhere; and the least that is a number
# of bytes: ntdll's own blocks may have 1, whatever was asked for (measured: 7601.17514, 19044.1766).
_LONG_UNUSED = 0x3F
_LEAST_UNUSED = 8


class HeapWalker:
    """Walks the blocks of NT heaps.

    Args:
        memory: the process's
        traces: what the blocks' traces are read with
        page: the structures of page heap, for what its light form puts into blocks; None where not known
    """

    def __init__(
        self,
        memory: Memory,
        traces: Traces,
        page: Optional[PageHeapTypes] = None,
    ) -> None:
        self._memory = memory
        self._traces = traces
        self._page = page

    def blocks(self, heap: Heap) -> Iterator[Union[Block, Lost]]:
        """Yields a heap's blocks, segment by segment, then the virtual-alloc ones.

        Where headers are broken, the range that they were lost in comes first and then the blocks in it
        that are known by the record they name. A block of the form CONTAINER comes before the blocks in it.
        """
        types, coder = heap.types, Coder(heap.types, heap.key)
        memory, unit, lfh = self._memory, types.unit, types.lfh
        for segment in heap.segments:
            for item in walk(self._memory, segment, coder):
                if isinstance(item, Lost):
                    yield item
                    yield from self._carved(heap, coder, item.start, item.end, False)
                elif not item.flags & BUSY:
                    yield from self._freed(heap, coder, item)
                elif item.address + unit not in segment.descriptors:
                    # Under an interceptor a block that holds others is an extended one itself.
                    offset, inner = 0, None
                    if lfh is not None:
                        offset = units_before(item.unused, item.segment)
                        contents = item.address + (offset + 1) * unit
                        inner = read_user_blocks(memory, contents, item.address + item.size, lfh)
                    if inner is not None:
                        yield self._block(heap, item, CONTAINER, offset)
                        yield from self._inner(heap, coder, inner)
                    elif lfh is not None and item.flags & INTERNAL:
                        yield from self._own(heap, coder, item, offset)
                    else:
                        yield self._block(heap, item, BLOCK, offset)
        for address in heap.virtual_blocks:
            yield self._virtual(heap, address)

    def _own(self, heap: Heap, coder: Coder, entry: BlockHeader, offset: int) -> Iterator[Union[Block, Lost]]:
        """Yields a block of the heap's own, with what is left of the blocks in it if there may be some."""
        types, start = heap.types, entry.address + (offset + 1) * heap.types.unit
        if types.lfh is None or not hides_blocks(self._memory, start, types.lfh):
            yield self._block(heap, entry, BLOCK, offset)
            return
        container, end = self._block(heap, entry, CONTAINER, offset), entry.address + entry.size
        yield container._replace(status=status(container.status, UNREADABLE))
        yield Lost(start, end)
        yield from self._carved(heap, coder, start, end, False)

    def _inner(self, heap: Heap, coder: Coder, inner: range) -> Iterator[Union[Block, Lost]]:
        """Yields the blocks that the low-fragmentation heap has in one block."""
        unused = coder.code + heap.types.unused
        for header in inner:
            mark = self._memory.number(header + unused, 1)
            if mark is None:
                yield Lost(header, header + inner.step)
            if mark is None or mark == LFH_BLOCK:
                yield from self._carved(heap, coder, header, header + inner.step, True, LFH)
            else:
                mark &= ~LFH_BLOCK
                entry = BlockHeader(header, inner.step, 0, 0, 0, mark)
                yield self._block(heap, entry, LFH, units_before(mark, 0))

    def _block(self, heap: Heap, entry: BlockHeader, form: str, offset: int) -> Block:
        """Returns a busy block; `offset` is its EntryOffset, 0 when it has none."""
        unused: Optional[int] = entry.unused
        if offset:
            user, unused, trace, said = self._extended(heap, entry.address, offset)
        else:
            user, trace, said = entry.address + heap.types.unit, None, NOTHING
            if entry.flags & EXTRA_PRESENT:
                trace = self._extra(heap, entry)
            if heap.types.extended is not None:
                if entry.unused == _LONG_UNUSED:
                    unused = heap.types.unit
                elif entry.unused < _LEAST_UNUSED:
                    unused = None
        size, overhead, said = sized(entry.size, unused, said)
        return self._light(Block(heap.address, user, size, overhead, form, False, trace, 0, said))

    def _extended(
        self, heap: Heap, header: int, offset: int
    ) -> Tuple[int, Optional[int], Optional[BlockTrace], Status]:
        """Returns address, bytes that are not the caller's, trace and status of an extended block.

        Its second header may be in a page that is gone; the record then still says whose it is.
        """
        memory, types, unit = self._memory, heap.types.extended, heap.types.unit
        extension = read_extension(memory, header, offset, types) if types is not None else None
        if types is not None and extension is not None:
            return extension.user, extension.unused, trace_of(memory, extension, types, self._traces), NOTHING
        user = header + (offset + 1) * unit
        record = memory.pointer(header + unit)
        named = self._traces.record(record) if record else None
        said = UNREADABLE if memory.read(user - unit, unit) is None else DAMAGED
        return user, None, None if named is None or named.status else named, said

    def _light(self, block: Block) -> Block:
        """Returns the block that light page heap made of one."""
        if self._page is None:
            return block
        found = read_information(self._memory, block.user, self._page)
        whole = block.size + block.overhead
        if found is None or found.full or found.size > whole:
            return block
        trace = self._traces.entry(found.trace) if found.trace else block.trace
        return block._replace(
            user=found.user,
            size=found.size,
            overhead=whole - found.size,
            form=LIGHT,
            freed=found.freed,
            trace=trace,
            status=status(block.status, UNPROVEN) if found.freed and trace else block.status,
        )

    def _extra(self, heap: Heap, entry: BlockHeader) -> Optional[BlockTrace]:
        """Returns the trace that a block's _HEAP_ENTRY_EXTRA names, in the block's last bytes."""
        index = self._memory.member(entry.address + entry.size, heap.types.index)
        return self._traces.index(index) if index else None

    def _freed(self, heap: Heap, coder: Coder, entry: BlockHeader) -> Iterator[Block]:
        """Yields what a free block says of who freed it (5.x), or what is left of blocks in it."""
        types = heap.types
        end = entry.address + entry.size
        if types.freed_index is not None and entry.flags & EXTRA_PRESENT:
            index = self._memory.member(end, types.freed_index)
            if index:
                user = entry.address + types.unit
                size = entry.size - types.unit
                trace = self._traces.index(index)
                yield Block(heap.address, user, size, types.unit, BLOCK, True, trace, 0, OF_THE_FREE)
            return
        yield from self._carved(heap, coder, entry.address, end, True)

    def _carved(
        self, heap: Heap, coder: Coder, start: int, end: int, freed: bool, form: str = BLOCK
    ) -> Iterator[Block]:
        types = heap.types.extended
        if types is None:
            return
        for extension, trace in carve(self._memory, start, end, types, self._traces):
            if form == LFH:
                whole: Optional[int] = end - start
            else:
                whole = self._whole(coder, extension, end)
            size = UNKNOWN_SIZE if whole is None else whole - extension.unused
            overhead = 0 if whole is None else extension.unused
            said = OF_THE_FREE if freed else DAMAGED
            yield Block(heap.address, extension.user, size, overhead, form, freed, trace, 0, said)

    def _whole(self, coder: Coder, extension: Extension, end: int) -> Optional[int]:
        """Returns the size that a carved block's own header still gives, with the header, or None."""
        entry = coder.read(self._memory, extension.header)
        if entry is None or entry.size < extension.unused or extension.header + entry.size > end:
            return None
        return entry.size

    def _virtual(self, heap: Heap, address: int) -> Block:
        """Returns a virtual-alloc block: CommitSize less its Size is what the caller asked for."""
        types, memory = heap.types, self._memory
        header = address + types.virtual_block
        commit = memory.member(address, types.virtual_commit)
        code = memory.number(header + types.code, types.unit - types.code)
        if commit is None or code is None:
            return Block(heap.address, 0, UNKNOWN_SIZE, 0, VIRTUAL, False, None, 0, UNREADABLE)
        unused, offset = self._virtual_code(heap, code)
        index = memory.member(address, types.virtual_index) or 0
        user, trace, said = header + types.unit, None, NOTHING
        if offset:
            user, _, trace, said = self._extended(heap, header, offset)
        if trace is None and index:
            trace = self._traces.index(index)
        size, overhead, said = sized(commit, unused, said)
        return Block(heap.address, user, size, overhead, VIRTUAL, False, trace, index, said)

    def _virtual_code(self, heap: Heap, code: int) -> Tuple[int, int]:
        """Returns the bytes that a virtual-alloc block wastes, and its EntryOffset; only the header's first
        half is encoded."""
        types = heap.types
        plain = (code ^ heap.key & 0xFFFFFFFF).to_bytes(types.unit - types.code, "little")
        unused = plain[0] | plain[1] << 8
        if types.extended is None:
            return unused, 0
        return unused, units_before(plain[types.unused], plain[types.segment_offset])
