# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forges segment heaps (10.0.17763 to 19041) as far as their structures are known.

    heap = segmentheaps.SegmentHeap(0x700000, "x64", interceptor=1)
    heap.segment(0x800000)
    heap.extra(0x800000 + 0x1230, record)                 # behind a block of the segment
    user = heap.large(0x1000000, 0x54321, record)         # a block with pages of its own

The offsets are from the public symbols of ntoskrnl (x64) and wntdll (x86).
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

PAGE = 0x1000
SIGNATURE = 0xDDEEDDEE
CAPTURE = 0x20000000
TAIL = 0x10000000
SEGMENT = 0x100000


class _Form(NamedTuple):
    pointer: int
    size: int
    signature: int
    flags: int
    interceptor: int
    root: int
    contexts: int
    context_size: int
    list: int
    large_size: int
    large_address: int
    extra_size: int


_FORMS = {
    "x64": _Form(8, 0x800, 0x10, 0x14, 0x18, 0x48, 0x100, 0xC0, 0x48, 0x28, 0x18, 0x10),
    "x86": _Form(4, 0x580, 0x08, 0x0C, 0x10, 0x44, 0x100, 0x80, 0x44, 0x14, 0x0C, 0x08),
}


class SegmentHeap:
    """A segment heap; its metadata of large blocks lie in a page behind its _SEGMENT_HEAP.

    Args:
        base: where its _SEGMENT_HEAP lies
        arch: `x64` or `x86`
        interceptor: index of the routine that extends blocks
        flags: GlobalFlags
    """

    def __init__(self, base: int, arch: str, interceptor: int = 1, flags: int = CAPTURE) -> None:
        self.base, self.form, self.interceptor, self.flags = base, _FORMS[arch], interceptor, flags
        self.memory: Dict[int, bytearray] = {base: bytearray(2 * PAGE)}
        self._segments: List[int] = []
        self._nodes: List[int] = []
        form = self.form
        self.put(base + form.signature, 4, SIGNATURE)
        self.put(base + form.flags, 4, flags)
        self.put(base + form.interceptor, 4, interceptor)

    def segment(self, base: int) -> None:
        """Adds a segment, of which a page is committed for each 64 KB; `base` must be aligned to its size."""
        self.memory[base] = bytearray(SEGMENT)
        self._segments.append(base)

    def extra(self, address: int, record: int, interceptor: int = 0) -> None:
        """Writes what follows a block's bytes: a _SEGMENT_HEAP_EXTRA and the record's address."""
        form = self.form
        self.put(address + 2, 1, interceptor or self.interceptor)
        self.put(address + 3, 1, 2)
        self.put(address + form.extra_size, form.pointer, record)

    def large(self, base: int, size: int, record: int = 0, unit: int = 16) -> int:
        """Adds a large block, with an extra if it names a record; returns its address.

        The extra is at a multiple of a unit, and so long is the pattern behind the bytes.
        """
        form = self.form
        tail = unit if self.flags & TAIL else 0
        end = -(-(base + size + tail) // unit) * unit
        whole = -(-(end + 2 * form.extra_size - base) // PAGE) * PAGE
        node = self.base + PAGE + form.large_size * len(self._nodes)
        self.put(node + form.large_address, form.pointer, base | whole - size)
        self.put(node + form.large_address + form.pointer, form.pointer, whole | (1 if record else 0))
        self._nodes.append(node)
        if record:
            self.memory[end - end % PAGE] = bytearray(2 * PAGE)
            self.extra(end, record)
        return base

    def put(self, address: int, size: int, value: int) -> None:
        """Writes a number into the heap's memory."""
        for base, held in self.memory.items():
            if base <= address and address + size <= base + len(held):
                held[address - base : address - base + size] = value.to_bytes(size, "little")
                return
        raise ValueError(f"{address:#x} is not in this heap")

    def regions(self) -> List[Tuple[int, bytes]]:
        """Closes the lists; returns what is in memory (address, bytes)."""
        form = self.form
        for number in range(2):
            context = self.base + form.contexts + number * form.context_size
            top = 1 << 8 * form.pointer
            self.put(context, form.pointer, top - (SEGMENT << number))
            self._ring(context + form.list, [] if number else self._segments)
        self.put(self.base + form.root, form.pointer, self._subtree(self._nodes))
        return [(base, bytes(data)) for base, data in self.memory.items()]

    def _subtree(self, nodes: List[int]) -> int:
        if not nodes:
            return 0
        middle = len(nodes) // 2
        pointer = self.form.pointer
        self.put(nodes[middle], pointer, self._subtree(nodes[:middle]))
        self.put(nodes[middle] + pointer, pointer, self._subtree(nodes[middle + 1 :]))
        return nodes[middle]

    def _ring(self, head: int, entries: List[int]) -> None:
        nodes = [head, *entries]
        for number, node in enumerate(nodes):
            self.put(node, self.form.pointer, nodes[(number + 1) % len(nodes)])
            self.put(node + self.form.pointer, self.form.pointer, nodes[number - 1])
