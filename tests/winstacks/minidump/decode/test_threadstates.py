# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The streams of our own: written as the page says, read, and damaged."""

from __future__ import annotations

import struct
from typing import Tuple

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.forge.minidump import Writer
from tests.support.only import only
from winstacks.memory.decode.status import NOTHING, StatusItem
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump.decode import threadstates
from winstacks.minidump.decode.dumpfile import Location, Minidump

THREADS, FILES, FRAMES = 0x57530001, 0x57530002, 0x57530003
AMD64 = 0x8664


def dump_of(writer: Writer) -> Minidump:
    data = writer.bytes()
    return Minidump(lambda offset, length: data[offset : offset + length], len(data))


def written(count: int = 2, entry_size: int = 32) -> Writer:
    """A dump with all three streams, by the declarations of docs/windows-minidump.md."""
    writer = Writer()
    name, string = writer.string("app.exe"), writer.string("running, contradicted: Cid.UniqueProcess")
    rows = struct.pack("<IHBBQQII", 8, AMD64, 2, 0xFF, 1 << 5 | 1 << 30, 1 << 1, string, 1)
    rows += struct.pack("<IHBBQQII", 12, AMD64, 0xFF, 6, 0, 0, 0, 0)
    writer.stream(
        THREADS, struct.pack("<6I3Q", 48, entry_size, count, 9, name, 0, 4096, 0x1000, 0x2000) + rows
    )
    files = struct.pack("<QII", 0x10000, writer.string("\\Device\\x"), 0)
    files += struct.pack("<QII", 0x20000, writer.string(""), 0) + struct.pack("<QII", 0x30000, 0, 0)
    writer.stream(FILES, struct.pack("<4I", 16, 16, 3, 0) + files)
    place = writer.put(b"frame")
    writer.stream(
        FRAMES, struct.pack("<4I", 16, 24, 1, 0) + struct.pack("<QIIII", 0x8A000000, 8, 0, 5, place)
    )
    return writer


def test_what_is_written_is_read() -> None:
    found = threadstates.thread_states(dump_of(written()))
    assert (found.flags, found.image_file_name, found.unread_bytes) == (9, "app.exe", 4096)
    assert (found.peb, found.peb32, found.status) == (0x1000, 0x2000, NOTHING)
    first, second = found.threads[8, AMD64], found.threads[12, AMD64]
    assert (first.State, first.WaitReason, second.State, second.WaitReason) == (2, None, None, 6)
    assert (first.unknown, first.unsure) == (("Rdx", "MxCsr"), ("Rsp",))
    assert (first.Status, second.Status) == ("running, contradicted: Cid.UniqueProcess", None)
    assert (first.known, second.known) == (threadstates.KNOWN_START_ADDRESS, 0)


def test_files_and_trap_frames() -> None:
    dump = dump_of(written())
    files, faults = threadstates.mapped_files(dump)
    assert (files, faults) == ({0x10000: "\\Device\\x", 0x20000: "", 0x30000: None}, NOTHING)
    frames, faults = threadstates.trap_frames(dump)
    frame = only(frames)
    assert faults == NOTHING
    assert (frame.Address, frame.ThreadId, dump.read(frame.Location.Rva, 5)) == (0x8A000000, 8, b"frame")
    assert isinstance(frame.Location, Location)


def test_a_dump_without_them() -> None:
    dump = dump_of(Writer())
    assert threadstates.thread_states(dump) == threadstates.NO_STATES
    assert threadstates.mapped_files(dump) == ({}, NOTHING)
    assert threadstates.trap_frames(dump) == ([], NOTHING)
    assert threadstates.listed_states(dump) == ([], NOTHING)


def test_counts_and_sizes_that_are_wrong() -> None:
    found, faults = threadstates.listed_states(dump_of(written(count=1000)))
    assert len(found) == 2
    assert faults == (StatusItem(StatusCode.MORE_THAN_THE_STREAM, None, ("NumberOfEntries",)),)
    assert threadstates.listed_states(dump_of(written(entry_size=8)))[0] == []


def test_the_bits_are_those_of_the_page() -> None:
    text = " ".join((ROOT / "docs" / "windows-minidump.md").read_text("utf-8").split())
    assert f"from bit 0: `{' '.join(threadstates.REGISTER_BITS)}`." in text
    assert threadstates.bits_of(("Rip", "MxCsr", "Rip")) == 1 | 1 << 30


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 255)),
        min_size=1,
        max_size=8,
    )
)
def test_damage_anywhere(changes: Tuple[Tuple[int, int], ...]) -> None:
    """No change of bytes ends with an error, and no more comes out than the stream has room for."""
    data = bytearray(written().bytes())
    for place, value in changes:
        data[(32 + place) % len(data)] = value
    dump = Minidump(lambda offset, length: bytes(data[offset : offset + length]), len(data))
    for read in (threadstates.listed_states, threadstates.listed_files, threadstates.trap_frames):
        assert len(read(dump)[0]) <= len(data)
    threadstates.thread_states(dump)
