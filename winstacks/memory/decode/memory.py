# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory of an address space, as all other modules read it: single values and whole ranges.

Addresses are canonical. If memory is not in the image, the result is None: never an exception, never zeros.
"""

from __future__ import annotations

import bisect
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from .memo import Key, Memo
from .pagetable import PAGE_SIZE
from .ranges import Extents
from .structure import Buffer, Field

ReadFile = Callable[[int, int], bytes]
"""Takes an offset and a length, returns the bytes of the file from there: fewer at the end of the file."""

ReadMemory = Callable[[int, int], Optional[Buffer]]
"""Takes an address and a length, returns the bytes of memory there, or None unless all can be read."""

Reader = Callable[[int, int], Extents]
"""Takes a canonical start address and a length in bytes; returns the present parts of that range."""

WINDOW = 0x10000
"""Bytes of one read where structures lie side by side, such as the blocks of a heap."""

MAX_WINDOW_BYTES = 24 << 20
"""Bytes of windows that are kept, those used last. One that was dropped is read again on demand."""

_EMPTY_WINDOW = 256
"""Bytes that a window takes besides its content: absent pages are asked for as often as others."""

MAX_STRING = 0x1000

Range = Tuple[int, int]

_Run = Tuple[int, bytes]
_NO_RUN: _Run = (0, b"")


class Windows(Memo[Key, Extents]):
    """Windows of memory by key, each read at the first use. Those used last are kept, in two generations.
    `most_bytes` limits both generations together. `drops` is how often windows were dropped."""

    def __init__(self, read: Callable[[Key], Extents], most_bytes: int) -> None:
        super().__init__(read)
        self.drops = 0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._older: Dict[Key, Extents] = {}

    def __missing__(self, key: Key) -> Extents:
        older = self._older.pop(key, None)
        window = super().__missing__(key) if older is None else self.keep(key, older)
        self._bytes += _EMPTY_WINDOW + sum(len(data) for _, data in window.runs)
        if self._bytes > self._most_bytes // 2:
            self._older, self._bytes = dict(self), 0
            self.clear()
            self.drops += 1
        return window


class ReadWindows(Windows[int]):
    """The present bytes of a layer, in windows of one size by their numbers."""

    def __init__(self, reader: Reader, size: int = PAGE_SIZE) -> None:
        super().__init__(lambda number: reader(number * size, size), MAX_WINDOW_BYTES)
        self.reader = reader
        self.size = size


def string_lengths(data: bytes) -> Optional[Tuple[int, int]]:
    """Returns Length and MaximumLength of a UNICODE_STRING, in bytes, from the structure's bytes.

    None if they contradict each other: Length is even and at most MaximumLength.
    """
    length, room = int.from_bytes(data[:2], "little"), int.from_bytes(data[2:4], "little")
    return None if length % 2 or length > room else (length, room)


class Memory:
    """The memory of one address space.

    Args:
        pointer_size: bytes of a pointer in the structures to be read: 4 in the 32-bit half of a WoW64 process
        ranges: (start, end) of the memory that may be read, such as the process's VADs: an address outside is
            not read even if a structure points there. None: no limits
    """

    def __init__(
        self, windows: ReadWindows, pointer_size: int, ranges: Optional[Iterable[Range]] = None
    ) -> None:
        self.pointer_size = pointer_size
        self._windows = windows
        self._ranges = None if ranges is None else join(ranges)
        self._starts = [start for start, _ in self._ranges or ()]
        self._low, self._data = _NO_RUN
        self._runs: Dict[int, _Run] = {}
        self._drops = windows.drops

    @classmethod
    def over(cls, extents: Extents, pointer_size: int) -> Memory:
        """Returns a Memory over bytes that were already read."""
        runs = [(start, start + len(data)) for start, data in extents.runs]
        return cls(ReadWindows(extents.part, WINDOW), pointer_size, runs)

    def within(self, ranges: Iterable[Range]) -> Memory:
        """Returns the same memory limited to some ranges; both keep what either reads."""
        return Memory(self._windows, self.pointer_size, ranges)

    def read(self, address: int, length: int) -> Optional[bytes]:
        """Returns `length` bytes at an address, or None unless all are present."""
        offset = address - self._low
        if offset >= 0 <= length and offset + length <= len(self._data):
            return self._data[offset : offset + length]
        return self._read(address, length)

    def number(self, address: Optional[int], size: int) -> Optional[int]:
        """Returns an unsigned little-endian number of `size` bytes; None if it is not present, or if the
        address is None, as of a symbol that the kernel lacks."""
        data = None if address is None else self.read(address, size)
        return None if data is None else int.from_bytes(data, "little")

    def pointer(self, address: Optional[int]) -> Optional[int]:
        """Returns the pointer stored at an address; None as for `number`."""
        return self.number(address, self.pointer_size)

    def member(self, address: Optional[int], field: Optional[Field]) -> Optional[int]:
        """Returns a member of the structure at an address; None if the member is not present, if the symbols
        lack it (`field` is None), or if there is no structure (the address is None or 0)."""
        if not address or field is None:
            return None
        data = self.read(address + field.offset, field.size)
        if data is None:
            return None
        return int.from_bytes(data, "little", signed=field.signed) >> field.shift & field.mask

    def is_zero_page(self, address: int) -> bool:
        """Returns whether the page of an address is all zeros, as tools write for an unreadable page."""
        data = self.read(address & -PAGE_SIZE, PAGE_SIZE)
        return data is not None and not any(data)

    def links(self, address: int) -> Optional[Tuple[int, int]]:
        """Returns Flink and Blink of the _LIST_ENTRY at an address, or None if they are not present."""
        half = self.pointer_size
        data = self.read(address, 2 * half)
        if data is None:
            return None
        return int.from_bytes(data[:half], "little"), int.from_bytes(data[half:], "little")

    def unicode_string(self, data: bytes, limit: int = MAX_STRING) -> Optional[str]:
        """Returns the text of a UNICODE_STRING from the structure's bytes; None if the text is absent."""
        length = min(int.from_bytes(data[:2], "little"), limit)
        start = self.pointer_size
        text = self.read(int.from_bytes(data[start : 2 * start], "little"), length) if length else b""
        return None if text is None else text.decode("utf-16-le", "replace")

    def unicode_string_at(self, address: int, limit: int = MAX_STRING) -> Optional[str]:
        """Returns the text of the UNICODE_STRING at an address; None if it is not present."""
        data = self.read(address, 2 * self.pointer_size)
        return None if data is None else self.unicode_string(data, limit)

    def ends_text(self, data: bytes) -> bool:
        """Returns whether nothing contradicts the Length of a UNICODE_STRING, from the structure's bytes.

        It is even and at most MaximumLength; if the buffer has room behind the text, 0 is there
        (RtlCopyUnicodeString). Not for strings that Windows makes longer or shorter in place.
        """
        lengths = string_lengths(data)
        if lengths is None:
            return False
        length, room = lengths
        start = int.from_bytes(data[self.pointer_size : 2 * self.pointer_size], "little")
        return room < length + 2 or self.number(start + length, 2) in (0, None)

    def load(self, start: int, length: int) -> Extents:
        """Returns the present parts of a range, and does not keep them."""
        return self._windows.reader(start, length)

    def read_kept(self, start: int, length: int) -> Extents:
        """Returns the present bytes of the windows that cover a range, and keeps them: for small ranges."""
        size = self._windows.size
        first, last = start // size, (start + max(length, 1) - 1) // size
        if first == last:
            return self._windows[first]
        return Extents(run for number in range(first, last + 1) for run in self._windows[number].runs)

    def pages(self, start: int, end: int) -> Iterator[Tuple[int, bytes]]:
        """Yields (address, bytes) of each present page of a range, within the limits."""
        ranges: List[Range] = [(start, end)]
        if self._ranges is not None:
            position = max(bisect.bisect_right(self._starts, start) - 1, 0)
            ranges = self._ranges[position:]
        for low, high in ranges:
            if low >= end:
                return
            low, high = max(low, start), min(high, end)
            while low < high:
                limit = min(low - low % PAGE_SIZE + PAGE_SIZE, high)
                data = self.read(low, limit - low)
                if data is not None:
                    yield low, data
                low = limit

    def _read(self, address: int, length: int) -> Optional[bytes]:
        size = self._windows.size
        first = address // size
        low, data = self._runs.get(first, _NO_RUN)
        offset = address - low
        if offset >= 0 <= length and offset + length <= len(data):
            self._low, self._data = low, data
            return data[offset : offset + length]
        if address < 0 or length < 0 or not self._allowed(address, length):
            return None
        last = (address + max(length, 1) - 1) // size
        if first == last:
            extents = self._windows[first]
            run = extents.run_at(address)
            if run is None:
                return None
            if self._within(run):
                self._keep(first, run)
            start, data = run
            offset = address - start
            return data[offset : offset + length] if offset + length <= len(data) else None
        if last == first + 1:
            extents = self.read_kept(address, length)
        else:
            extents = self._windows.reader(address, length)
        view = extents.read(address, length)
        return None if view is None else bytes(view)

    def _allowed(self, address: int, length: int) -> bool:
        if self._ranges is None:
            return True
        position = bisect.bisect_right(self._starts, address) - 1
        return position >= 0 and address + length <= self._ranges[position][1]

    def _keep(self, number: int, run: _Run) -> None:
        """Keeps a run of a window at hand while the window is kept; the whole run may be read."""
        if self._drops != self._windows.drops:
            self._drops = self._windows.drops
            self._runs.clear()
        self._low, self._data = self._runs[number] = run

    def _within(self, run: _Run) -> bool:
        """Returns whether a whole run may be read, and so be kept at hand."""
        return self._ranges is None or self._allowed(run[0], len(run[1]))


def join(ranges: Iterable[Range]) -> List[Range]:
    """Returns ranges sorted by address; ranges that touch or overlap are joined, empty ones are left out."""
    joined: List[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
