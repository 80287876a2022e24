# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The page ranges of complete and live dumps: their places in the file, and contradictions of lists."""

from __future__ import annotations

import struct
from typing import Any, List, Optional, Sequence

import pytest

from winstacks.minidump.decode import pageranges
from winstacks.minidump.decode.bitmap import Bitmap, BitmapError, Pages
from winstacks.minidump.decode.pageranges import PageBlock, believed_pages, read_block, read_live

from .test_bitmap import places

PAGE = 0x1000
RANGES: List[Pages] = [(5, 3), (0x20, 2)]
PLACES = {5: 0, 6: 1, 7: 2, 0x20: 3, 0x21: 4}
"""The place of each page of RANGES behind the header."""


def live_dump(ranges: Sequence[Pages], **changed: Any) -> bytes:
    """A live dump; `changed` has other values of marker, signature, metadata and first_page."""
    entries = b"".join(struct.pack("<QQ", *pages) for pages in ranges)
    members = {
        "marker": 0x40,
        "signature": b"RDMP",
        "metadata": PAGE - 0x20,
        "first_page": 3 * PAGE,
        **changed,
    }
    head = struct.pack(
        "<I4s4s4xQQ16x",
        members["marker"], members["signature"], b"DUMP", members["metadata"], members["first_page"],
    )  # fmt: skip
    return bytes(2 * PAGE) + (head + entries).ljust(PAGE, b"\0") + _content(ranges)


def complete_file(
    wide: bool, ranges: Sequence[Pages], count: Optional[int] = None, pages: Optional[int] = None
) -> bytes:
    """A complete dump, whose header has other values of NumberOfRuns and NumberOfPages."""
    place, head, run = (0x88, "<I4xQ", "<QQ") if wide else (0x64, "<II", "<II")
    data = bytearray(b"PAGE" * (PAGE * (1 + wide) // 4))
    total = sum(number for _, number in ranges) if pages is None else pages
    struct.pack_into(head, data, place, len(ranges) if count is None else count, total)
    for number, pages_of_run in enumerate(ranges):
        at = place + struct.calcsize(head) + number * struct.calcsize(run)
        struct.pack_into(run, data, at, *pages_of_run)
    return bytes(data) + _content(ranges)


def _content(ranges: Sequence[Pages]) -> bytes:
    return bytes(PAGE * min(sum(count for _, count in ranges), 64))


def live(data: bytes) -> Bitmap:
    return read_live(lambda offset, length: data[offset : offset + length], len(data), 2 * PAGE)


def block(data: bytes, wide: bool) -> PageBlock:
    return read_block(lambda offset, length: data[offset : offset + length], wide)


def complete(data: bytes, wide: bool) -> Bitmap:
    return believed_pages(block(data, wide), PAGE * (1 + wide), len(data))


def test_pages_of_a_live_dump_follow_each_other() -> None:
    found = live(live_dump(RANGES))
    assert places(found) == {number: (3 + place) * PAGE for number, place in PLACES.items()}
    assert (found.lost, found.left_out, found.cut, found.stated) == (0, 0, 0, None)


def test_ranges_may_descend_or_overlap() -> None:
    """Of ranges that share pages the first counts, and each keeps its place in the file."""
    found = live(live_dump([(0x20, 2), (5, 3), (6, 4)]))
    expected = {0x20: 0, 0x21: 1, 5: 2, 6: 3, 7: 4, 8: 7, 9: 8}
    assert places(found) == {number: (3 + place) * PAGE for number, place in expected.items()}


def test_ranges_behind_the_file_are_counted() -> None:
    data = live_dump([(5, 3), (0x20, 1 << 40)])
    assert live(data).lost == 3 + (1 << 40) - (len(data) - 3 * PAGE) // PAGE


def test_the_ranges_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pageranges, "MAX_RUNS", 1)
    found = live(live_dump([(5, 3), (0x20, 2)], metadata=0x20))
    assert (len(found.runs), found.cut) == (1, 16)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(3 * PAGE),
        live_dump(RANGES, marker=0x41),
        live_dump(RANGES, signature=b"SDMP"),
        live_dump(RANGES, first_page=1 << 60),
        live_dump(RANGES, first_page=0x2010),
    ],
)
def test_what_is_no_list_is_named(data: bytes) -> None:
    with pytest.raises(BitmapError):
        live(data)


@pytest.mark.parametrize("wide", [True, False])
def test_a_consistent_complete_dump_is_left_to_volatility(wide: bool) -> None:
    assert block(complete_file(wide, RANGES), wide).consistent


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3, 40, 200, 0xFFFFFFFF])
def test_the_pages_of_the_header_tell_how_many_runs_there_are(wide: bool, count: int) -> None:
    data = complete_file(wide, RANGES, count)
    assert not block(data, wide).consistent
    assert places(complete(data, wide)) == {
        number: (1 + wide + place) * PAGE for number, place in PLACES.items()
    }


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(("count", "expected"), [(1, [5, 6, 7]), (2, list(PLACES)), (200, list(PLACES))])
def test_runs_count_where_the_pages_fit_none(wide: bool, count: int, expected: List[int]) -> None:
    data = complete_file(wide, RANGES, count, pages=99)
    assert not block(data, wide).consistent
    assert list(places(complete(data, wide))) == expected


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("ranges", [[(0x20, 2), (5, 3)], [(5, 3), (6, 2)]])
def test_runs_that_descend_or_overlap_are_contradicted(wide: bool, ranges: List[Pages]) -> None:
    """Volatility takes them as sorted, and loses the pages of all but some."""
    data = complete_file(wide, ranges)
    assert not block(data, wide).consistent
    assert {*places(complete(data, wide))} == {
        first + number for first, count in ranges for number in range(count)
    }


@pytest.mark.parametrize("wide", [True, False])
def test_a_run_without_pages_ends_no_list(wide: bool) -> None:
    """Volatility reads the runs behind it."""
    found = block(complete_file(wide, [(5, 3), (8, 0), (0x20, 2)]), wide)
    assert found.consistent and len(found.listed) == 3
    data = complete_file(wide, [(5, 3), (0, 0), (0x20, 2)])
    assert not block(data, wide).consistent
    assert {*places(complete(data, wide))} == {*PLACES}
