# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The bitmap of a dump: each set bit is a page, and no bitmap claims more pages than the file has."""

from __future__ import annotations

import struct
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.minidump.decode import bitmap
from winstacks.minidump.decode.bitmap import Bitmap, BitmapError, PageRun, read_bitmap

PAGE = 0x1000


def summary(bits: bytes, header_size: int = 3 * PAGE, count: int = -1, kind: bytes = b"SDMP") -> bytes:
    size = 8 * len(bits) if count < 0 else count
    return struct.pack("<4s4s24xQQQ", kind, b"DUMP", header_size, pages_of(bits), size) + bits


def pages_of(bits: bytes) -> int:
    return bin(int.from_bytes(bits, "little")).count("1")


def dump(bits: bytes, pages: int, first: int = 3, kind: bytes = b"SDMP") -> bytes:
    start = bytes(2 * PAGE) + summary(bits, first * PAGE, kind=kind)
    return start.ljust(first * PAGE, b"\0") + bytes(pages * PAGE)


def read(data: bytes, start: int = 2 * PAGE) -> Bitmap:
    return read_bitmap(lambda offset, length: data[offset : offset + length], len(data), start)


def places(found: Bitmap) -> Dict[int, int]:
    """Where in the file each page lies, by its number."""
    return {
        (run.address + step) // PAGE: run.offset + step
        for run in found.runs
        for step in range(0, run.length, PAGE)
    }


@given(
    st.sets(st.integers(0, 299), min_size=1),
    st.integers(38, 600),
    st.integers(3, 6),
    st.sampled_from([b"SDMP", b"FDMP"]),
)
def test_every_bit_is_a_page(numbers: Set[int], size: int, first: int, kind: bytes) -> None:
    """In each layout that the structure allows: no real file is known."""
    bits = sum(1 << number for number in numbers).to_bytes(size, "little")
    found = read(dump(bits, len(numbers), first, kind))
    assert places(found) == {number: (first + place) * PAGE for place, number in enumerate(sorted(numbers))}
    assert found.lost == 0
    assert found.counted == found.stated == len(numbers)
    assert all(a.address + a.length < b.address for a, b in zip(found.runs, found.runs[1:]))


def test_pages_beyond_the_file_are_counted() -> None:
    found = read(dump(b"\xff" * 4, 5))
    assert found == Bitmap([PageRun(0, 3 * PAGE, 5 * PAGE)], 27, stated=32)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(2 * PAGE) + b"SDMPDUMP",
        bytes(3 * PAGE),
        bytes(2 * PAGE) + summary(b"\xff", header_size=1 << 60),
        bytes(2 * PAGE) + summary(b"\xff", header_size=0),
        bytes(2 * PAGE) + summary(b"\xff", kind=b"MDMP").ljust(2 * PAGE),
    ],
)
def test_what_is_no_bitmap_is_named(data: bytes) -> None:
    with pytest.raises(BitmapError):
        read(data)


@given(st.binary(max_size=200), st.integers(0, 1 << 64), st.integers(0, 1 << 64))
def test_no_bitmap_claims_more_than_there_is(bits: bytes, header_size: int, count: int) -> None:
    data = bytes(2 * PAGE) + summary(bits, header_size % (1 << 64), count % (1 << 64)) + bytes(6 * PAGE)
    try:
        found = read(data)
    except BitmapError:
        return
    assert sum(run.length for run in found.runs) <= len(data)
    assert all(run.offset + run.length <= len(data) for run in found.runs)


def test_bits_beyond_the_file_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: List[Tuple[int, int]] = []
    stretches = bitmap._stretches

    def counted(*args: Any) -> Iterator[Tuple[int, int]]:
        for stretch in stretches(*args):
            seen.append(stretch)
            yield stretch

    monkeypatch.setattr(bitmap, "_stretches", counted)
    assert read(dump(b"\x55" * 0xF00, 3)) == Bitmap(
        [PageRun(2 * number * PAGE, (3 + number) * PAGE, PAGE) for number in range(3)],
        4 * 0xF00 - 3,
        stated=4 * 0xF00,
    )
    assert len(seen) < 10


def test_runs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitmap, "MAX_RUNS", 2)
    found = read(dump(b"\x55\x55", 6))
    assert (len(found.runs), found.left_out, found.lost) == (2, 4, 2)


def test_the_bitmap_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitmap, "MAX_BITMAP", 3)
    found = read(dump(b"\xff\0\0\xff\xff", 24))
    assert (found.runs, found.cut) == ([PageRun(0, 3 * PAGE, 8 * PAGE)], 2)


def test_a_bitmap_without_bits_has_no_pages() -> None:
    assert read(dump(bytes(0xF00), 1)) == Bitmap([], 0, stated=0)


def test_a_file_without_pages_has_no_runs() -> None:
    data = bytes(2 * PAGE) + summary(b"\xff", 2 * PAGE + 64).ljust(100, b"\0")
    assert read(data) == Bitmap([], 8, stated=8)
