# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The file as it is written, and what a dump of more than 4 GB is."""

from __future__ import annotations

import array
import struct

from tests.support.only import only
from winstacks.memory.decode.status import NOTHING
from winstacks.minidump.decode import memory, threads
from winstacks.minidump.decode.dumpfile import Minidump
from winstacks.minidump.decode.memory import MemoryInfo, MemoryRange
from winstacks.minidump.encode import streams
from winstacks.minidump.encode.dumpfile import PAGE, Draft
from winstacks.minidump.encode.streams import WrittenThread

NAMES = ("ThreadListStream", "MemoryInfoListStream", "Memory64ListStream")
HUGE = 60 << 30


def read_as(head: bytes, size: int) -> Minidump:
    """The dump whose memory is zeros: nobody needs 60 GB to read it."""
    return Minidump(lambda offset, length: bytes(head[offset : offset + length]).ljust(length, b"\0"), size)


def drafted(ranges: "array.array[int]", place: int) -> bytes:
    draft = Draft(1700000000, 2, NAMES)
    stack = (0x20000FF0, 0x1010, place)
    streams.thread_list(draft, [WrittenThread(8, 1, 32, 0, 0x5000, stack, b"c" * 1232)])
    streams.memory_info_list(draft, [MemoryInfo(0, 0, 0, 0x10000, 0x10000, 1, 0)])
    return bytes(draft.head(ranges))


def test_the_memory_begins_on_a_page() -> None:
    head = drafted(array.array("Q", (0x10000, 0x1000, 0x20000000, 0x2000)), 0x1FF0)
    assert len(head) % PAGE == 0
    dump = read_as(head, len(head) + 0x3000)
    ranges, faults = memory.memory_ranges(dump)
    assert (ranges, faults) == (
        [MemoryRange(0x10000, len(head), 0x1000), MemoryRange(0x20000000, len(head) + 0x1000, 0x2000)],
        NOTHING,
    )
    listed, faults = threads.thread_list(dump)
    thread = only(listed)
    assert faults == NOTHING
    assert (thread.StartOfMemoryRange, thread.Stack) == (0x20000FF0, (0x1010, len(head) + 0x1FF0))
    assert dump.status == NOTHING and (dump.time_date_stamp, dump.flags) == (1700000000, 2)


def test_a_stack_beyond_4_gb_has_no_rva() -> None:
    """An RVA has 32 bits; the address of the stack says where it is."""
    head = drafted(array.array("Q", (0x10000, 0x1000, 0x20000000, HUGE)), HUGE)
    dump = read_as(head, len(head) + HUGE + 0x1000)
    listed, faults = threads.thread_list(dump)
    thread = only(listed)
    assert (thread.Stack.Rva, thread.Stack.DataSize, faults) == (0, 0x1010, NOTHING)
    stacks = [MemoryRange(thread.StartOfMemoryRange, thread.Stack.Rva, thread.Stack.DataSize)]
    ranges, faults = memory.memory_ranges(dump, stacks)
    assert [(piece.start, piece.length) for piece in ranges] == [(0x10000, 0x1000), (0x20000000, HUGE)]
    assert faults == NOTHING


def test_a_stack_without_an_rva_is_not_taken_from_the_header() -> None:
    """Of memory that no range has nothing is shown, whatever lies at offset 0 of the file."""
    head = drafted(array.array("Q", (0x10000, 0x1000)), HUGE)
    dump = read_as(head, len(head) + 0x1000)
    ranges, _ = memory.memory_ranges(dump, [MemoryRange(0x20000FF0, 0, 0x1010)])
    assert [piece.start for piece in ranges] == [0x10000]


def test_equal_strings_are_written_once() -> None:
    draft = Draft(0, 0, ())
    first = draft.string("Event")
    assert (draft.string("Event"), draft.string("File") != first, draft.string(None)) == (first, True, 0)
    long = draft.string("x" * 100_000)
    (length,) = struct.unpack_from("<I", draft._data, long)
    assert length == 0xFFFE
