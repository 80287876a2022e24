# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Traces that blocks name where these are not all in the image, or are none."""

from __future__ import annotations

import struct
from typing import Tuple

import pytest

from tests.forge import heaps
from tests.support import heaptypes
from winstacks.heaps.decode.block import UNREADABLE
from winstacks.heaps.decode.blockstack import HASH, NO_DATABASE, UNSURE, Traces
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
