# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a small dump can make the decoders read: counted in bytes of the file, without time and memory."""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, List, Tuple

import pytest

from tests.forge.minidump import Writer, WrittenThread
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import Status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump.decode import handles, modules, threads, threadstates
from winstacks.minidump.decode.dumpfile import MAX_STRING, Location, Minidump
from winstacks.minidump.decode.memory import MemoryRange
from winstacks.minidump.decode.threads import MAX_CONTEXT
from winstacks.minidump.decode.triage import _covered, _joined_ends
from winstacks.minidump.shadowstack import ShadowStacks
from winstacks.process.thread import SavedContext

COUNT = 2000
Rvas = List[int]


class CountedFile:
    """A file that counts the bytes that are read of it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.count = 0

    def read(self, offset: int, length: int) -> bytes:
        found = self._data[offset : offset + length]
        self.count += len(found)
        return found


def handle_stream(writer: Writer, rvas: Rvas) -> None:
    rows = b"".join(struct.pack("<QIIIIII", 4 * n, rva, rva, 0, 1, 1, 2) for n, rva in enumerate(rvas))
    writer.stream(12, struct.pack("<IIII", 16, 32, len(rvas), 0) + rows)


def name_stream(writer: Writer, rvas: Rvas) -> None:
    rows = b"".join(struct.pack("<IQ", number, rva) for number, rva in enumerate(rvas))
    writer.stream(24, struct.pack("<I", len(rvas)) + rows)


def file_stream(writer: Writer, rvas: Rvas) -> None:
    rows = b"".join(struct.pack("<QII", 0x10000 * number, rva, 0) for number, rva in enumerate(rvas))
    writer.stream(threadstates.MAPPED_FILES, struct.pack("<IIII", 16, 16, len(rvas), 0) + rows)


def module_stream(writer: Writer, rvas: Rvas) -> None:
    rows = b""
    for number, rva in enumerate(rvas):
        rows += struct.pack("<QIIII", 0x7FF000000000 + 0x1000 * number, 0x1000, 0, 1, rva) + bytes(84)
    writer.stream(4, struct.pack("<I", len(rvas)) + rows)


def unloaded_stream(writer: Writer, rvas: Rvas) -> None:
    rows = b"".join(
        struct.pack("<QIIII", 0x1000 * number, 0x1000, 0, 1, rva) for number, rva in enumerate(rvas)
    )
    writer.stream(14, struct.pack("<III", 12, 24, len(rvas)) + rows)


def state_stream(writer: Writer, rvas: Rvas) -> None:
    rows = b"".join(
        struct.pack("<IHBBQQII", number, 0x8664, 0xFF, 0xFF, 0, 0, rva, 0) for number, rva in enumerate(rvas)
    )
    header = struct.pack("<IIIIIIQQQ", 48, 32, len(rvas), 0, 0, 0, 0, 0, 0)
    writer.stream(threadstates.THREAD_STATES, header + rows)


def read_states(dump: Minidump) -> Tuple[List[Any], Status]:
    states = threadstates.thread_states(dump)
    return [thread.Status for thread in states.threads.values()], states.status


Lister = Callable[[Minidump], Tuple[Any, Status]]
STRINGS: Dict[str, Tuple[Callable[[Writer, Rvas], None], Lister]] = {
    "handles": (handle_stream, handles.handle_data),
    "thread names": (name_stream, threads.thread_names),
    "files": (file_stream, threadstates.mapped_files),
    "modules": (module_stream, modules.module_list),
    "unloaded modules": (unloaded_stream, modules.unloaded_module_list),
    "states": (state_stream, read_states),
}


@pytest.mark.parametrize("kind", STRINGS)
def test_a_text_with_many_owners_is_read_once(kind: str) -> None:
    write, read = STRINGS[kind]
    writer = Writer()
    write(writer, [writer.string("x" * (MAX_STRING // 2))] * COUNT)
    file = CountedFile(writer.bytes())
    dump = Minidump(file.read, len(writer.bytes()))
    found, status = read(dump)
    assert len(found) == COUNT
    assert StatusCode.LIMIT not in [item.code for item in status]
    assert file.count < 2 * dump.size


@pytest.mark.parametrize("kind", STRINGS)
def test_texts_have_at_most_the_bytes_of_the_file(kind: str) -> None:
    write, read = STRINGS[kind]
    writer = Writer()
    # Every character of these is also the length of a text that begins there.
    start = writer.put(struct.pack("<I", 0x6000) * 0x4000)
    write(writer, [start + 4 * number for number in range(COUNT)])
    file = CountedFile(writer.bytes())
    dump = Minidump(file.read, len(writer.bytes()))
    found, status = read(dump)
    assert len(found) == COUNT
    assert StatusCode.LIMIT in [item.code for item in status]
    assert file.count < 3 * dump.size


@pytest.mark.parametrize("size, present", [(MAX_STRING, True), (MAX_STRING + 2, False)])
def test_a_text_is_as_long_as_a_unicode_string(size: int, present: bool) -> None:
    writer = Writer()
    name_stream(writer, [writer.string("x" * (size // 2))])
    data = writer.bytes()
    ((_, name),), _ = threads.thread_names(Minidump(lambda at, length: data[at : at + length], len(data)))
    assert (name is not None) == present


def test_contexts_are_judged_by_their_first_bytes() -> None:
    writer = Writer()
    context = bytes(48) + struct.pack("<I", 0x10001F) + bytes(0x10000 - 52)
    writer.threads([WrittenThread(4 * number, 0, (0, b""), b"") for number in range(COUNT)])
    kind, length, _ = writer.streams.pop()
    assert (kind, length) == (3, 4 + 48 * COUNT)
    place = writer.put(context)
    rows = b"".join(
        struct.pack("<IIIIQQIIII", 4 * n, 0, 32, 0, 0, 0, 0, 0, 0x10000, place) for n in range(COUNT)
    )
    writer.stream(3, struct.pack("<I", COUNT) + rows)
    file = CountedFile(writer.bytes())
    dump = Minidump(file.read, len(writer.bytes()))
    found, status = threads.thread_list(dump)
    assert len(found) == COUNT
    assert contradicted(status) == ("ThreadContext",)
    assert file.count < 2 * dump.size


def contradicted(status: Status) -> Tuple[str, ...]:
    return next(item.members for item in status if item.code is StatusCode.CONTRADICTED)


class CountedRanges(List[MemoryRange]):
    """Ranges that count how many of them are copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.copied += len(found) if isinstance(key, slice) else 0
        return found


def test_ranges_that_cover_another_are_not_copied() -> None:
    ranges = CountedRanges(MemoryRange(16 * number, 16 * number, 16) for number in range(COUNT))
    ranges.append(MemoryRange(16 * COUNT + 1, 0, 16))
    ends = _joined_ends(ranges)
    assert ends == [16 * COUNT] * COUNT + [16 * COUNT + 17]
    assert _covered(ranges, ends, MemoryRange(5, 0, 16 * COUNT - 5))
    assert not _covered(ranges, ends, MemoryRange(5, 0, 16 * COUNT - 4))
    assert not _covered(ranges, ends, MemoryRange(16 * COUNT, 0, 4))
    assert not _covered(ranges[1:], ends[1:], MemoryRange(5, 0, 4))
    assert ranges.copied == COUNT  # of the last line itself


def test_contexts_have_at_most_the_bytes_of_the_file() -> None:
    data = Writer().bytes() + bytes(2 * MAX_CONTEXT)
    file = CountedFile(data)
    dump = Minidump(file.read, len(data))
    before = file.count
    found = [threads.context(dump, Location(MAX_CONTEXT, at)) for at in range(0x100, 0x100 + COUNT)]
    assert file.count - before < dump.size + 3 * MAX_CONTEXT
    assert found[0][1] == ()
    assert found[-1] == (b"", ((StatusCode.LIMIT, None, ()),))
    assert threads.context(dump, Location(MAX_CONTEXT, 0x100)) == found[0]


def shadow_context(pointer: int) -> SavedContext:
    """A CONTEXT with XSTATE that leads to a shadow stack."""
    context = bytearray(0x4D0)
    struct.pack_into("<I", context, 0x30, 0x10005F)
    context += struct.pack("<iIiIiI", -0x4D0, 0x600, -0x4D0, 0x4D0, 0x50, 0x50).ljust(0x50, b"\0")
    context += struct.pack("<QQ", 1 << 11, 1 << 63 | 1 << 11).ljust(0x40, b"\0")
    return SavedContext(Machine.AMD64, bytes(context) + struct.pack("<QQ", 1, pointer))


def test_shadow_stacks_have_at_most_the_bytes_of_the_file() -> None:
    data = Writer().bytes()
    at, data = len(data), data + struct.pack("<Q", 0x7FF600001000) * COUNT
    file = CountedFile(data)
    dump = Minidump(file.read, len(data))
    stacks = ShadowStacks(dump, [MemoryRange(0x5000, at, 8 * COUNT)])
    same = [stacks.with_shadow(shadow_context(0x5000)) for _ in range(COUNT)]
    assert {len(saved.shadow) for saved in same} == {COUNT}
    others = [stacks.with_shadow(shadow_context(0x5000 + 8 * number)) for number in range(1, 100)]
    assert others[-1].shadow == ()
    assert others[-1].status == ((StatusCode.LIMIT, None, ()),)
    assert file.count < 4 * dump.size
