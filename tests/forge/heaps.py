# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forges NT heaps, as ntdll lays them out from XP to 11, block by block.

heap = heaps.NtHeap(0x10000, heap_layouts.LAYOUTS["6.2-x86"], interceptor=1)
user = heap.extended(100, record=0x50000)      # a block of 100 bytes and the record that it names
heap.plain(20); heap.free(64)
heap.virtual(0x200000, 0x180000, record=0x50000, index=7)
for address, data in heap.regions(): ...
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from .heap_layouts import Layout

PAGE = 0x1000
CAPTURE = 0x08000002  # HEAP_CAPTURE_STACK_BACKTRACES | HEAP_GROWABLE
CHECKED = 0x40000060  # what +htc +hfc +hpc make of ForceFlags
BUSY, EXTRA = 1, 2


class Segment:
    """The memory of a segment while it is being filled: blocks follow one another from `next` on.

    `header` is the address of its _HEAP_SEGMENT, `before` the size of the block before `next`.
    """

    def __init__(self, base: int, pages: int, header: int, reserved: int) -> None:
        self.base, self.header = base, header
        self.data = bytearray(pages * PAGE)
        self.next = base + reserved
        self.before = reserved


class NtHeap:
    """A heap with one segment; `segment` begins another one, which then takes the blocks.

    Args:
        base: where its _HEAP lies
        layout: of its generation
        pages: of the first segment
        key: the 8 bytes that headers are XORed with, as a number; 5.x has none
        interceptor: index of the routine that extends blocks
        flags: HEAP.Flags
        creator: AllocatorBackTraceIndex of the heap
        segment_creator: the same of its first segment
        force_flags: HEAP.ForceFlags, behind Flags (5.x)
    """

    def __init__(
        self,
        base: int,
        layout: Layout,
        pages: int = 16,
        key: int = 0x0000_8D3A_5C21_77F1,
        interceptor: int = 2,
        flags: int = CAPTURE,
        creator: int = 0,
        segment_creator: int = 1,
        force_flags: int = CHECKED,
    ) -> None:
        self.base, self.layout = base, layout
        self.key = key if layout.encoding is not None else 0
        self.segments: List[Segment] = []
        self.virtual_blocks: List[Tuple[int, bytearray]] = []
        self._add(base, pages, layout.heap_size, segment_creator)
        self.put(base + layout.signature, 4, 0xEEFFEEFF)
        self.put(base + layout.flags, 4, flags)
        self.put(base + layout.creator, 2, creator)
        if layout.encoding is None:
            self.put(base + layout.flags + 4, 4, force_flags)
        if layout.encoding is not None and layout.encode_mask is not None and layout.interceptor is not None:
            self.put(base + layout.encode_mask, 4, 0x100000)
            self.put(base + layout.encoding + layout.unit - 8, 8, self.key)
            self.put(base + layout.interceptor, 4, interceptor)
        self.interceptor = interceptor

    def segment(self, base: int, pages: int = 16, creator: int = 0) -> None:
        """Begins another segment."""
        self._add(base, pages, self.layout.segment_size, creator)

    def extended(self, size: int, record: int, inline: bytes = b"", context: int = 0) -> int:
        """Adds a block that an interceptor extended; returns the address of its caller's bytes.

        Args:
            size: bytes asked for
            record: what lies behind the header, unless `inline` does
            inline: the interceptor's own data instead, such as a trace
            context: ContextValue
        """
        unit = self.layout.unit
        held = inline or record.to_bytes(self.layout.pointer, "little")
        offset = -(-len(held) // unit) + 1
        whole = self._round((offset + 1) * unit + size)
        header = self._header(whole, BUSY, 0x40 | offset)
        self.write(header + unit, held)
        self.extension(header + (offset + 1) * unit, offset, whole - size, context)
        return header + (offset + 1) * unit

    def extension(self, user: int, offset: int, unused: int, context: int = 0) -> None:
        """Writes the second header of an extended block, right before its caller's bytes."""
        code = self.interceptor | context << 16 | unused << 32 | offset << 48 | 5 << 56
        self.put(user - 8, 8, code)

    def plain(
        self, size: int, contents: bytes = b"", index: Optional[int] = None, unused: Optional[int] = None
    ) -> int:
        """Adds a block that names no trace or (index) has a _HEAP_ENTRY_EXTRA that names one by its index.

        UnusedBytes is `unused`, or counts what the block has beyond the caller's bytes.
        """
        unit, extra = self.layout.unit, 2 * self.layout.pointer
        # What follows the caller's bytes in the block keeps them out of the next block's header.
        whole = self._round(unit + size + (extra + unit - 8 if index is not None else 0))
        if unused is None:
            unused = min(whole - size, 0x3F if self.key else 0xFF)
        header = self._header(whole, BUSY | (EXTRA if index is not None else 0), unused)
        self.write(header + unit, contents)
        if index is not None:
            self.put(header + whole - extra, 2, index)
        return header + unit

    def free(self, size: int, contents: bytes = b"", index: Optional[int] = None) -> int:
        """Adds a free block; in 5.x (index) one that names who freed it. Returns its header's address."""
        whole = self._round(self.layout.unit + size)
        header = self._header(whole, EXTRA if index is not None else 0, 0)
        self.write(header + self.layout.unit, contents)
        if index is not None:
            self.put(header + whole - 2, 2, index)
        return header

    def virtual(self, base: int, size: int, record: int = 0, index: int = 0) -> int:
        """Adds a block with pages of its own; returns the address of its caller's bytes."""
        pointer, unit = self.layout.pointer, self.layout.unit
        entry = 4 * pointer + 2 * pointer
        offset = 2 if record and self.layout.interceptor is not None else 0
        start = entry + (offset + 1) * unit
        commit = -(-(start + size) // PAGE) * PAGE
        data = bytearray(start + 8)
        self.virtual_blocks.append((base, data))
        self.put(base + 2 * pointer, 2, index)
        self.put(base + 4 * pointer, pointer, commit)
        self.put(base + 5 * pointer, pointer, commit)
        self.put(base + entry + unit - 8, 8, self._virtual_code(commit - size, offset, index))
        if offset:
            self.put(base + entry + unit, pointer, record)
            self.extension(base + start, offset, commit - size + offset * unit)
        return base + start

    def write(self, address: int, data: bytes) -> None:
        """Writes into the heap's memory."""
        for base, held in self.held():
            if base <= address and address + len(data) <= base + len(held):
                held[address - base : address - base + len(data)] = data
                return
        raise ValueError(f"{address:#x} is not in this heap")

    def put(self, address: int, size: int, value: int) -> None:
        """Writes a number into the heap's memory."""
        self.write(address, value.to_bytes(size, "little"))

    def regions(self) -> List[Tuple[int, bytes]]:
        """Closes segments and lists; returns what is committed (address, bytes)."""
        self._close_lists()
        committed = [(segment.base, bytes(segment.data[: self._close(segment)])) for segment in self.segments]
        return committed + [(base, bytes(data)) for base, data in self.virtual_blocks]

    def held(self) -> Iterator[Tuple[int, bytearray]]:
        """Yields (address, bytes) of all that the heap has, as it stands."""
        yield from ((segment.base, segment.data) for segment in self.segments)
        yield from self.virtual_blocks

    def _round(self, size: int) -> int:
        """Bytes of a block: in x64 it reaches 8 bytes into the next one's header."""
        unit = self.layout.unit
        return max(-(-(size - (unit - 8)) // unit) * unit, 2 * unit)

    def _header(self, whole: int, flags: int, unused: int, segment: Optional[Segment] = None) -> int:
        segment = segment or self.segments[-1]
        header = segment.next
        self._entry(header, whole, segment.before, flags, unused)
        segment.before = whole
        segment.next += whole
        return header

    def _entry(self, header: int, whole: int, before: int, flags: int, unused: int) -> None:
        unit = self.layout.unit
        self.put(header + unit - 8, 8, self.code(whole // unit, before // unit, flags, unused))

    def code(self, size: int, before: int, flags: int, unused: int) -> int:
        """The 8 bytes of a header, encoded; sizes in units."""
        if self.layout.encoding is None:
            return size | before << 16 | flags << 40 | unused << 48
        tag = size & 0xFF ^ size >> 8 ^ flags
        return (size | flags << 16 | tag << 24 | before << 32 | unused << 56) ^ self.key

    def _virtual_code(self, unused: int, offset: int, index: int) -> int:
        flags = BUSY | (EXTRA if index else 0)
        if self.layout.encoding is None:
            return self.code(unused, 0, flags | 8, 0)
        return self.code(unused, 0, flags, 4) ^ self.key & 0xFFFF << 32 | offset << 48

    def _add(self, base: int, pages: int, header: int, creator: int) -> None:
        layout = self.layout
        unit = layout.unit
        size = -(-header // unit) * unit
        # 5.x: the first segment's header follows the _HEAP; later it is the _HEAP's beginning.
        at = base
        if layout.segment_links is None and not self.segments:
            at, size = base + size, size + -(-layout.segment_size // unit) * unit
        self.segments.append(Segment(base, pages, at, size))
        if layout.segment_links is None:
            place = self.base + layout.segments + layout.pointer * (len(self.segments) - 1)
            self.put(place, layout.pointer, at)
        self.put(at + layout.segment_signature, 4, 0xFFEEFFEE)
        self.put(at + layout.segment_heap, layout.pointer, self.base)
        self.put(at + layout.segment_base, layout.pointer, base)
        self.put(at + layout.segment_pages, 4, pages)
        self.put(at + layout.segment_first, layout.pointer, base + size)
        self.put(at + layout.segment_last, layout.pointer, base + pages * PAGE)
        self.put(at + layout.segment_creator, 2, creator)

    def _close(self, segment: Segment) -> int:
        """Describes the rest of a segment as uncommitted; returns how much is committed.

        What describes it lies in a last block, whose UnusedBytes say so (3).
        """
        layout, at = self.layout, segment.header
        pointer, unit = layout.pointer, layout.unit
        whole = unit + 6 * pointer
        end = -(-(segment.next + whole) // PAGE) * PAGE
        if segment.next < end - whole:
            self._header(end - whole - segment.next, 0, 0, segment)
        descriptor = self._header(whole, BUSY, 3, segment) + unit
        rest = segment.base + len(segment.data) - end
        if layout.segment_links is None:
            self.put(at + layout.segment_ranges, pointer, descriptor)
            self.put(descriptor + pointer, pointer, end)
            self.put(descriptor + 2 * pointer, pointer, rest)
        else:
            self.ring(at + layout.segment_ranges, [descriptor + 2 * pointer])
            self.put(descriptor + 4 * pointer, pointer, end)
            self.put(descriptor + 5 * pointer, pointer, rest)
        return end - segment.base

    def _close_lists(self) -> None:
        layout = self.layout
        self.ring(self.base + layout.virtual, [base for base, _ in self.virtual_blocks])
        if layout.segment_links is not None:
            links = layout.segment_links
            self.ring(self.base + layout.segments, [segment.header + links for segment in self.segments])

    def ring(self, head: int, entries: List[int]) -> None:
        """Joins _LIST_ENTRY structures to a ring."""
        nodes = [head, *entries]
        pointer = self.layout.pointer
        for number, node in enumerate(nodes):
            self.put(node, pointer, nodes[(number + 1) % len(nodes)])
            self.put(node + pointer, pointer, nodes[number - 1])


def prefix(slots: List[int], pointer: int) -> bytes:
    """A trace within a block: as many slots as the heap was told to keep frames, the last ones perhaps 0."""
    words = [len(slots), sum(slots) % (1 << 8 * pointer), *slots]
    return b"".join(word.to_bytes(pointer, "little") for word in words)


def record(frames: List[int], pointer: int) -> bytes:
    """A record of the heap's log."""
    code = (0).to_bytes(pointer, "little") + (sum(frames) & 0xFFFFFFFF).to_bytes(4, "little")
    code += len(frames).to_bytes(4, "little")
    return code + b"".join(frame.to_bytes(pointer, "little") for frame in frames)
