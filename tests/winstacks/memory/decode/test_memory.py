# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads of memory: values here and there, across holes, across windows, within limits."""

from __future__ import annotations

from typing import List, Set, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode import memory as memories
from winstacks.memory.decode.memory import WINDOW, Memory, ReadWindows, join, string_lengths
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.structure import Field

PAGES = st.sets(st.integers(0, 40), max_size=20)
SIZES = st.sampled_from([PAGE_SIZE, 4 * PAGE_SIZE, WINDOW])


class Counted:
    """A reader over a range that is all present, which notes what it was asked for."""

    def __init__(self) -> None:
        self.starts: List[int] = []

    def __call__(self, start: int, length: int) -> Extents:
        self.starts.append(start)
        return Extents([(start, bytes((start // 0x100 + number) & 0xFF for number in range(length)))])


def extents_of(pages: Set[int]) -> Extents:
    return Extents((page * PAGE_SIZE, bytes([page]) * PAGE_SIZE) for page in pages)


def check(memory: Memory, pages: Set[int], address: int, length: int) -> None:
    data = memory.read(address, length)
    expected = [byte // PAGE_SIZE for byte in range(address, address + length)]
    if pages.issuperset(expected):
        assert data is not None
        assert list(data) == expected
    else:
        assert data is None


@given(PAGES, st.integers(0, 42 * PAGE_SIZE), st.integers(1, 3 * PAGE_SIZE))
def test_reads_what_is_all_there(pages: Set[int], address: int, length: int) -> None:
    check(Memory.over(extents_of(pages), 8), pages, address, length)


@given(
    PAGES,
    SIZES,
    st.lists(st.tuples(st.integers(0, 42 * PAGE_SIZE), st.integers(1, 3 * PAGE_SIZE)), max_size=5),
)
def test_the_size_of_a_window_changes_nothing(
    pages: Set[int], size: int, reads: List[Tuple[int, int]]
) -> None:
    memory = Memory(ReadWindows(extents_of(pages).part, size), 8)
    for address, length in reads:
        check(memory, pages, address, length)


@given(PAGES, st.integers(0, 42 * PAGE_SIZE), st.integers(0, 42 * PAGE_SIZE))
def test_yields_every_page_once(pages: Set[int], start: int, end: int) -> None:
    memory = Memory.over(extents_of(pages), 8)
    found: List[Tuple[int, bytes]] = [(at, bytes(data)) for at, data in memory.pages(start, end)]
    for at, data in found:
        assert start <= at < at + len(data) <= end
        assert data == bytes([at // PAGE_SIZE]) * len(data)
    total = sum(max(min(end, (page + 1) * PAGE_SIZE) - max(start, page * PAGE_SIZE), 0) for page in pages)
    assert sum(len(data) for _, data in found) == total
    assert found == sorted(found)


def test_nothing_is_asked_for_outside_the_ranges() -> None:
    requests = []

    def reader(start: int, length: int) -> Extents:
        requests.append(start)
        return Extents([(start, bytes(length))])

    memory = Memory(ReadWindows(reader, WINDOW), 4, [(0x20000, 0x21000), (0x21000, 0x22000)])
    assert memory.pointer(0x40000) is None
    assert memory.number(0x21FFE, 4) is None
    assert memory.links(0x1FFFC) is None
    assert list(memory.pages(0x30000, 1 << 64)) == []
    assert not requests
    assert memory.number(0x20FFE, 4) == 0
    assert memory.links(0x21000) == (0, 0)
    assert set(requests) == {0x20000}


def test_what_was_read_beyond_a_range_is_not_given_out() -> None:
    """A window reaches further than the ranges: what it holds of the rest stays out of reach."""
    memory = Memory(ReadWindows(Counted(), WINDOW), 8, [(0x1000, 0x2000), (0x3000, 0x4000)])
    assert memory.read(0x1000, 0x1000) is not None
    assert memory.read(0x2000, 1) is None
    assert memory.read(0x3FFF, 2) is None
    assert memory.read(0x3FFF, 1) is not None
    assert memory.read(0x0FFF, 2) is None


def test_a_part_of_memory_shares_what_was_read() -> None:
    reader = Counted()
    whole = Memory(ReadWindows(reader), 8)
    part = whole.within([(0x1000, 0x1800)])
    assert part.read(0x1000, 0x800) == whole.read(0x1000, 0x800)
    assert part.read(0x1800, 1) is None
    assert whole.read(0x1800, 1) is not None
    assert reader.starts == [0x1000]


def test_pointers_have_the_width_of_the_process() -> None:
    extents = Extents([(0x1000, bytes(range(1, 17)))])
    assert Memory.over(extents, 4).pointer(0x1000) == 0x04030201
    assert Memory.over(extents, 8).pointer(0x1000) == 0x0807060504030201
    assert Memory.over(extents, 4).links(0x1000) == (0x04030201, 0x08070605)
    assert Memory.over(extents, 8).links(0x1008) is None


def test_a_window_is_read_once() -> None:
    reader = Counted()
    memory = Memory(ReadWindows(reader, WINDOW), 8)
    for address in (0x10, 0x20, WINDOW - 4, WINDOW + 1, 0x10):
        first = address // WINDOW * WINDOW
        expected = bytes((first // 0x100 + address - first + number) & 0xFF for number in range(4))
        assert memory.read(address, 4) == expected
    assert reader.starts == [0, WINDOW]


def test_a_read_across_two_windows() -> None:
    memory = Memory(ReadWindows(Counted(), WINDOW), 8)
    assert memory.read(WINDOW - 2, 4) == b"\xfe\xff\x00\x01"


def test_a_read_across_many_windows_is_one() -> None:
    reader = Counted()
    memory = Memory(ReadWindows(reader, PAGE_SIZE), 8)
    data = memory.read(PAGE_SIZE - 2, 4 * PAGE_SIZE)
    assert data is not None
    assert len(data) == 4 * PAGE_SIZE
    assert reader.starts == [PAGE_SIZE - 2]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "MAX_WINDOW_BYTES", 8 * WINDOW)
    reader = Counted()
    memory = Memory(ReadWindows(reader, WINDOW), 8)
    for number in range(9):
        assert memory.read(number * WINDOW, 16) is not None
    assert memory.read(0, 16) is not None
    assert reader.starts.count(0) == 2


def test_absent_pages_are_asked_for_once() -> None:
    """They take no room: a dump may have more threads than windows are kept, and lack their TEBs."""
    starts: List[int] = []

    def read(start: int, length: int) -> Extents:
        starts.append(start)
        return Extents(())

    memory, pages = Memory(ReadWindows(read), 8), range(0, 20_000 * PAGE_SIZE, PAGE_SIZE)
    for _ in range(3):
        assert not any(memory.read(page, 8) for page in pages)
    assert starts == list(pages)


def test_what_is_held_is_read_once() -> None:
    reader = Counted()
    memory = Memory(ReadWindows(reader, PAGE_SIZE), 8)
    inside, across = memory.read_kept(0x1010, 16), memory.read_kept(0x1FF8, 16)
    assert inside.read(0x1010, 16) is not None
    assert across.read(0x1FF8, 16) is not None
    assert memory.read_kept(0x1010, 16) is inside
    assert memory.read(0x1FF8, 16) is not None
    assert reader.starts == [0x1000, 0x2000]


def test_what_is_not_there() -> None:
    memory = Memory(ReadWindows(lambda start, length: Extents([(start, bytes(8))]), WINDOW), 8)
    assert memory.read(4, 4) is not None
    assert memory.read(4, 5) is None
    assert memory.read(-8, 4) is None
    assert memory.read(0, -1) is None
    assert memory.number(7, 2) is None


def test_what_is_loaded_is_not_kept() -> None:
    reader = Counted()
    memory = Memory(ReadWindows(reader, WINDOW), 8)
    for _ in range(2):
        assert memory.load(0x10, 0x20).missing(0x10, 0x30) == 0
    assert reader.starts == [0x10, 0x10]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Field(1, 2), 0xF2F1),
        (Field(2, 2, shift=4, mask=0xFF), 0x3F),
        (Field(3, 1, signed=True), -13),
        (Field(7, 2), None),
    ],
)
def test_a_member_of_a_structure(field: Field, value: int) -> None:
    extents = Extents([(0x1000, bytes(range(0xF0, 0xF8)))])
    assert Memory.over(extents, 8).member(0x1000, field) == value


def test_a_unicode_string_is_cut_to_the_limit() -> None:
    text = "wait".encode("utf-16-le")
    memory = Memory.over(Extents([(0x1000, text)]), 4)

    def string(length: int, buffer: int = 0x1000) -> bytes:
        return length.to_bytes(2, "little") + bytes(2) + buffer.to_bytes(4, "little")

    assert memory.unicode_string(string(8)) == "wait"
    assert memory.unicode_string(string(0xFFFE), 4) == "wa"
    assert memory.unicode_string(string(0, 0xDEAD)) == ""
    assert memory.unicode_string(string(10)) is None


def test_a_unicode_string_at_an_address() -> None:
    structure = (8).to_bytes(2, "little") + (10).to_bytes(2, "little") + (0x1008).to_bytes(4, "little")
    memory = Memory.over(Extents([(0x1000, structure + "wait".encode("utf-16-le"))]), 4)
    assert memory.unicode_string_at(0x1000) == "wait"
    assert memory.unicode_string_at(0x1000, 4) == "wa"
    assert memory.unicode_string_at(0x100C) is None  # the structure is cut


def test_ranges_that_touch_or_overlap_are_one() -> None:
    assert join([(8, 9), (0, 4), (4, 6), (5, 7), (3, 3)]) == [(0, 7), (8, 9)]


@pytest.mark.parametrize(
    ("length", "room", "usable"),
    [(0, 0, True), (8, 8, True), (8, 10, True), (10, 8, False), (7, 8, False), (0xFFFE, 0xFFFE, True)],
)
def test_lengths_of_a_string(length: int, room: int, usable: bool) -> None:
    """A UNICODE_STRING need not end with a zero: the whole of its room may be text."""
    data = length.to_bytes(2, "little") + room.to_bytes(2, "little")
    assert string_lengths(data) == ((length, room) if usable else None)
