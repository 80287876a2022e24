# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Traces that blocks name where these are not all in the image, or are none."""

from __future__ import annotations

import struct
from typing import List, Optional, Tuple

import pytest

from tests.forge import heaps
from tests.support import heaptypes
from winstacks.columns.words import STD
from winstacks.heaps.decode.block import UNREADABLE
from winstacks.heaps.decode.blockstack import HASH, NO_DATABASE, NO_SUCH_INDEX, UNSURE, Traces
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.tracedb.decode.recorded import RecordedStack

ARCHS = ["x64", "x86"]
PAGE = 0x1000
BASE = 0x2000000
FRAMES = (0x11111, 0x22222, 0x33333)


def traces(arch: str, data: bytes, place: int) -> Tuple[Traces, int]:
    """A process of which one page is in the image, with data at its start or, cut off, at its end."""
    page = (bytes(place) + data).ljust(PAGE, b"\0")[:PAGE]
    memory = Memory.over(Extents([(BASE, page)]), heaptypes.pointer_size(arch))
    return Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch]), BASE + place


def entry(arch: str, depth: int) -> bytes:
    """An entry of a stack trace database of index 7."""
    size = heaptypes.pointer_size(arch)
    head = bytes(size) + struct.pack("<4H", 1, 0, 7, depth)
    return head + b"".join(frame.to_bytes(size, "little") for frame in FRAMES)


@pytest.mark.parametrize("arch", ARCHS)
def test_records_of_the_log(arch: str) -> None:
    size = heaptypes.pointer_size(arch)
    record = heaps.record(list(FRAMES), size)
    whole, address = traces(arch, record, 0x40)
    assert whole.record(address) == RecordedStack("log", address, 0, FRAMES)
    assert whole.record(address + 1) == RecordedStack("log", address + 1, 0, (), HASH)
    assert whole.record(BASE + PAGE) == RecordedStack("log", BASE + PAGE, 0, (), UNREADABLE)
    cut, address = traces(arch, record, PAGE - len(record) + size)
    assert cut.record(address) == RecordedStack("log", address, 0, (), UNREADABLE)
    # The page before, with Next, is not in the image: the hash confirms the frames all the same.
    behind, _ = traces(arch, record[size:], 0)
    assert behind.record(BASE - size) == RecordedStack("log", BASE - size, 0, FRAMES)


def of_database(count: int, looked_up: List[int], read: List[int]) -> Traces:
    """Traces whose database has the indices 1 to `count`. The lists get each look-up and reading."""
    stored = [RecordedStack(STD, BASE + index, index, (index,)) for index in range(1, count + 1)]

    def look_up(index: int) -> Optional[RecordedStack]:
        looked_up.append(index)
        return stored[index - 1] if index <= count else None

    def database() -> List[RecordedStack]:
        read.append(count)
        return stored

    memory = Memory.over(Extents(()), 8)
    return Traces(memory, heaptypes.LOG["x64"], heaptypes.ENTRY["x64"], database, look_up)


def test_the_database_is_not_read_for_few_indices() -> None:
    looked_up: List[int] = []
    read: List[int] = []
    found = of_database(9, looked_up, read)
    assert [found.index(index).frames for index in (3, 4, 3)] == [(3,), (4,), (3,)]
    assert (looked_up, read) == ([3, 4], [])
    # That an index has no trace is known only of a whole database.
    assert found.index(10).status == NO_SUCH_INDEX
    assert (looked_up, read) == ([3, 4, 10], [9])


def test_the_database_is_read_once_for_many_indices() -> None:
    looked_up: List[int] = []
    read: List[int] = []
    found = of_database(1000, looked_up, read)
    assert [found.index(index).frames for index in range(1, 1001)] == [(index,) for index in range(1, 1001)]
    assert len(looked_up) < 20
    assert read == [1000]


def test_a_freed_trace_does_not_hide_the_one_that_has_its_index_now() -> None:
    live, freed = (RecordedStack(STD, BASE + place, 7, (place,)) for place in (1, 2))
    memory = Memory.over(Extents(()), 8)
    found = Traces(memory, heaptypes.LOG["x64"], heaptypes.ENTRY["x64"], lambda: [live, freed])
    assert found.index(7) == live


@pytest.mark.parametrize("arch", ARCHS)
def test_entries_of_a_database_that_is_not_known(arch: str) -> None:
    whole, address = traces(arch, entry(arch, 3), 0x40)
    assert whole.entry(address) == RecordedStack("std", address, 7, FRAMES, NO_DATABASE)
    assert whole.entry(BASE + PAGE).status == UNREADABLE
    assert whole.entry(address + 2).status == HASH
    assert whole.index(7) == RecordedStack("std", 0, 7, (), NO_DATABASE)
    for depth in (0, 33, 0xFFFF):
        wrong, address = traces(arch, entry(arch, depth), 0x40)
        assert wrong.entry(address) == RecordedStack("std", address, 0, (), HASH)
    cut, address = traces(arch, entry(arch, 3), PAGE - 8 - 2 * heaptypes.pointer_size(arch))
    assert cut.entry(address) == RecordedStack("std", address, 7, (), UNREADABLE)


@pytest.mark.parametrize("arch", ARCHS)
def test_traces_within_a_block(arch: str) -> None:
    size = heaptypes.pointer_size(arch)
    record = heaps.prefix(list(FRAMES), size)
    held, address = traces(arch, record, 0x40)
    end = address + len(record)
    # It has as many frames as the block has room for.
    assert held.inline(address, end, 3) == RecordedStack("inline", address, 0, FRAMES, full=True)
    # A stack that is less deep than the heap was told to keep.
    short, _ = traces(arch, heaps.prefix([*FRAMES, 0, 0], size), 0x40)
    assert short.inline(address, end + 2 * size, 5) == RecordedStack("inline", address, 0, FRAMES)
    wrong, _ = traces(arch, record[:size] + b"\xff" + record[size + 1 :], 0x40)
    assert wrong.inline(address, end, 3) == RecordedStack("inline", address, 0, FRAMES, UNSURE, True)
    # A block that is too small for what it says, or says nonsense, holds none.
    for depth in (0, 2, 4, 33, 0x7FFF):
        assert held.inline(address, end, depth) == RecordedStack("inline", address, 0, (), HASH)
    cut, address = traces(arch, record, PAGE - len(record) + size)
    assert cut.inline(address, address + len(record), 3) == RecordedStack(
        "inline", address, 0, (), UNREADABLE
    )
