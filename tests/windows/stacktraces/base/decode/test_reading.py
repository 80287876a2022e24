# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small reads at scattered addresses."""

from __future__ import annotations

from typing import List

from volatility3.plugins.windows.stacktraces.base.decode import reading
from volatility3.plugins.windows.stacktraces.base.decode.extents import Extents
from volatility3.plugins.windows.stacktraces.base.decode.reading import CHUNK, Chunks


class Counted:
    """A reader over a range that is all present, which notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: List[int] = []

    def __call__(self, start: int, length: int) -> Extents:
        self.asked.append(start)
        return Extents([(start, bytes((start // 0x100 + number) & 0xFF for number in range(length)))])


def test_a_chunk_is_read_once() -> None:
    reader = Counted()
    chunks = Chunks(reader)
    for address in (0x10, 0x20, CHUNK - 4):
        assert bytes(chunks.read(address, 4) or b"") == bytes(
            (address + number) & 0xFF for number in range(4)
        )
    assert reader.asked == [0]


def test_a_read_across_two_chunks() -> None:
    chunks = Chunks(Counted())
    assert bytes(chunks.read(CHUNK - 2, 4) or b"") == b"\xfe\xff\x00\x01"


def test_what_is_kept_is_bounded() -> None:
    reader = Counted()
    chunks = Chunks(lambda start, length: Extents([(start, bytes(16))]) if reader(start, 1) else Extents([]))
    for number in range(reading.MAX_CHUNKS + 1):
        assert chunks.read(number * CHUNK, 16) is not None
    assert chunks.read(0, 16) is not None
    assert reader.asked.count(0) == 2


def test_what_is_not_there() -> None:
    chunks = Chunks(lambda start, length: Extents([(start, bytes(8))]))
    assert chunks.read(4, 4) is not None
    assert chunks.read(4, 5) is None
