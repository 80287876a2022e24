# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A virtual address space that can be written: pages come into being where bytes are put."""

from __future__ import annotations

import copy
from typing import Callable, Iterator, Optional

from .paging import PageTables, State
from .phys import PAGE, PhysicalMemory

_LARGE_PAGE = 0x200000


class Space:
    """Virtual memory of the kernel or of one process; addresses are canonical.

    Args:
        phys: the image's frames.
        bits: 64 or 32.
        kernel: the kernel's space for a process' (addresses of the kernel half are written
            there), None for the kernel's own.
        arena, ranges: where `allocate` and `reserve` begin, each with room above.
    """

    def __init__(
        self, phys: PhysicalMemory, bits: int, arena: int, ranges: int, kernel: Optional[Space] = None
    ) -> None:
        self.phys = phys
        self.bits = bits
        self.pointer_size = bits // 8
        self.tables = PageTables(phys, bits, kernel is None)
        self._kernel = kernel
        self._frames: dict[int, int] = {}
        self._shared: set[int] = set()
        self._start = self._end = arena
        self._ranges = ranges

    def view(self, arena: int, ranges: int, pointer_size: int) -> Space:
        """The same memory with other places to allocate from and another pointer size."""
        view = copy.copy(self)
        view._start = view._end = arena
        view._ranges = ranges
        view.pointer_size = pointer_size
        return view

    def allocate(self, size: int, alignment: int = 0x10, one_page: bool = False) -> int:
        """Claims `size` zeroed bytes behind all others so far, within one page if they must."""
        address = -(-self._end // alignment) * alignment
        if one_page and address // PAGE != (address + size - 1) // PAGE:
            address = -(-address // PAGE) * PAGE
        self._end = address + size
        self.map(address, size)
        return address

    @property
    def allocated(self) -> tuple[int, int]:
        """Address and size of all that `allocate` gave."""
        return self._start, self._end - self._start

    def reserve(self, size: int) -> int:
        """Claims whole pages of addresses without mapping them, a free page after them."""
        address = self._ranges
        self._ranges = address + -(-size // PAGE) * PAGE + PAGE
        return address

    def map(self, address: int, size: int, state: State = State.VALID) -> None:
        """Makes sure that the pages of a range exist; new ones are zero. See `set_state`."""
        for page in self._pages(address, size):
            owner = self._owner(page)
            if page not in owner._frames:
                owner._add(page)
        if state is not State.VALID:
            self.set_state(address, size, state)

    def map_large(self, address: int, size: int = 1) -> None:
        """Maps whole 2 MiB pages over a range that has no pages yet."""
        owner = self._owner(address)
        first = address & ~(_LARGE_PAGE - 1)
        for start in range(first, address + size, _LARGE_PAGE):
            frame = self.phys.allocate_large()
            owner.tables.map(start, frame, State.LARGE)
            for number in range(_LARGE_PAGE // PAGE):
                owner._frames[start + number * PAGE] = frame + number

    def map_frame(self, address: int, other: Space, at: int) -> None:
        """Maps the page at `address` to the frame that another space has at `at`."""
        owner = self._owner(address)
        owner._frames[address] = other._owner(at)._frames[at]
        owner.tables.map(address, owner._frames[address])

    def share(self, address: int, frame: int) -> None:
        """Maps the page at `address` to the frame of a section; who writes to it gets a copy."""
        self._frames[address] = frame
        self._shared.add(address)
        self.tables.map(address, frame, shared=True)

    def shares(self, address: int) -> bool:
        """Whether the page of `address` is one of a section."""
        return address & ~(PAGE - 1) in self._shared

    def set_state(self, address: int, size: int, state: State) -> None:
        """Changes all pages that the range touches; unreadable states lose the bytes.

        Pages of a large page cannot be changed.
        """
        for page in self._pages(address, size):
            owner = self._owner(page)
            if state in (State.VALID, State.TRANSITION):
                frame = owner._own(page)
                owner.tables.map(page, owner._add(page) if frame is None else frame, state)
                continue
            frame = owner._frames.pop(page, None)
            if frame is not None and page not in owner._shared:
                self.phys.free(frame)
            owner._shared.discard(page)
            if state is State.MISSING:
                owner.tables.map(page, self.phys.missing())
            else:
                owner.tables.unmap(page, state)

    def write(self, address: int, data: bytes) -> None:
        """Puts bytes at an address, mapping pages as needed."""
        self._write(address, data, Space._own)

    def write_file(self, address: int, data: bytes) -> None:
        """Puts bytes that are in the file mapped there: a page of a section stays that section's."""
        self._write(address, data, lambda owner, page: owner._frames.get(page))

    def _write(self, address: int, data: bytes, frame_of: Callable[[Space, int], Optional[int]]) -> None:
        view = memoryview(data)
        while view:
            page = address & ~(PAGE - 1)
            owner = self._owner(page)
            frame = frame_of(owner, page)
            if frame is None:
                frame = owner._add(page)
            start = address - page
            part = view[: PAGE - start]
            self.phys.frame(frame)[start : start + len(part)] = part
            address += len(part)
            view = view[len(part) :]

    def write_int(self, address: int, value: int, size: Optional[int] = None) -> None:
        """Puts a little-endian integer (default: of pointer size), cut to `size` bytes."""
        size = self.pointer_size if size is None else size
        self.write(address, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))

    def read(self, address: int, size: int) -> bytes:
        """What was put there. Raises KeyError for a page that has no bytes."""
        data = bytearray()
        while len(data) < size:
            at = address + len(data)
            page = at & ~(PAGE - 1)
            frame = self.phys.frame(self._owner(page)._frames[page])
            data += frame[at - page : min(PAGE, at - page + size - len(data))]
        return bytes(data)

    def read_int(self, address: int, size: Optional[int] = None) -> int:
        return int.from_bytes(self.read(address, size or self.pointer_size), "little")

    def holds(self, address: int) -> bool:
        """Whether the page of `address` has bytes."""
        page = address & ~(PAGE - 1)
        return page in self._owner(page)._frames

    def own_pages(self) -> Iterator[int]:
        """Addresses of the pages with bytes that are this space's own: no section's, not the kernel's."""
        return iter(sorted(set(self._frames) - self._shared))

    def physical(self, address: int) -> int:
        """Physical address of a page that has bytes. Raises KeyError."""
        page = address & ~(PAGE - 1)
        return self._owner(page)._frames[page] << 12 | address - page

    def _own(self, page: int) -> Optional[int]:
        """The frame of a page, that of a section copied first; None for a page without bytes."""
        frame = self._frames.get(page)
        if frame is None or page not in self._shared:
            return frame
        self._shared.discard(page)
        copied = self._add(page)
        self.phys.frame(copied)[:] = self.phys.frame(frame)
        return copied

    def _add(self, page: int) -> int:
        frame = self.phys.allocate()
        self._frames[page] = frame
        self.tables.map(page, frame)
        return frame

    def _owner(self, address: int) -> Space:
        if self._kernel is not None and address >= 1 << (self.bits - 1):
            return self._kernel
        return self

    @staticmethod
    def _pages(address: int, size: int) -> Iterator[int]:
        return iter(range(address & ~(PAGE - 1), address + size, PAGE))
