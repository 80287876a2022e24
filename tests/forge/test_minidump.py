# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forge of minidumps: each of its layouts is read alike. `test_minidump_layouts.py` has the real ones."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, List, Tuple

import pytest

from tests.forge.minidump import LAST_RESERVED, Module, Writer, WrittenThread
from tests.forge.test_minidump_layouts import FORMS, MISC_INFO, THREAD_NAMES, stream_of
from tests.support.changeddumps import FUNCTIONS
from tests.winstacks.minidump.decode.test_streams import GUID, LISTS, PAGE, RECORDS, dump_of
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import Status, StatusItem, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump import opened
from winstacks.minidump.decode import memory, threads
from winstacks.minidump.decode.system import comments

DRAWN = (9, 10, 11, 18, 19)
"""Memory64ListStream, comments, HandleOperationListStream, TokenStream: no real file of these is known."""


def whole(seed: Any) -> bytes:
    """A dump with each stream that has a list, in the layout of a seed."""
    writer = Writer(flags=0x2 | 0x4 | 0x20 | 0x800 | 0x1000 | 0x40000, seed=seed)
    writer.system_info()
    writer.misc_info(4312)
    long = bytearray(1407)
    struct.pack_into("<I", long, 0x30, 0x10005F)
    plain = bytearray(1232)
    struct.pack_into("<I", plain, 0x30, 0x10001F)
    writer.threads(
        [
            WrittenThread(
                8 + 4 * number, 0x10000 + 0x2000 * number, (0x20000 + 0x1000 * number, PAGE[:64]), context
            )
            for number, context in enumerate((bytes(plain), bytes(long), bytes(plain)))
        ]
    )
    writer.thread_infos([(8 + 4 * number, 0, 0, 259, 1, 2, 3, 4, 5, 6) for number in range(3)])
    writer.thread_names([(8, "worker"), (12, "reader"), (16, "writer")])
    writer.exception(
        8, 0xC0000005, 0x1234, (1, 0), bytes(long) if seed is not None and seed % 2 else bytes(plain)
    )
    found = [
        Module(
            0x7FF600000000 + 0x100000 * n, 0x20000, 0x5F000000 + n, f"C:\\a{n}.dll", (GUID, n, f"a{n}.pdb")
        )
        for n in range(3)
    ]
    writer.modules(found)
    writer.unloaded_modules([module._replace(base=module.base + 0x50000) for module in found])
    writer.memory_infos([(base, base, 4, 0x1000, 0x1000, 4, 0x20000) for base in (0x20000, 0x21000, 0x22000)])
    writer.handles([(4, "File", "\\x"), (8, "Event", ""), (12, "Event", "\\e")], second=True)
    writer.handle_operations([(4, 4312, 8, 1, (0x11, 0x22)), (4, 4312, 8, 2, (0x33, 0x44))])
    writer.function_tables([(base, base + 0x20, base, ((0, 8, 4), (8, 16, 4))) for base in (0x10, 0x40)])
    writer.tokens([(8, 0x44, b"token   "), (12, 0x48, b"another ")])
    writer.comment("a comment")
    writer.comment("another", wide=True)
    within = [(0x300010, 0x20, len(PAGE) + 0x10)] if seed is not None and seed % 3 == 0 else []
    writer.memory([(0x700000, PAGE[:0x100]), (0x702000, PAGE[0x100:0x180])], within)
    again = [(0x300000, PAGE)] if seed is not None and seed % 4 == 0 else []
    writer.memory64([(0x100000, PAGE), (0x300000, PAGE), (0x500000, PAGE), *again])
    return writer.bytes()


def decoded(data: bytes) -> Tuple[List[Any], List[Status]]:
    """Returns all values of a dump, without their places in the file, and all faults.

    An entry of the directory that is there twice is no fault, and the reader says that it is the second.
    """
    dump = dump_of(data)
    values: List[Any] = []
    places = [(stream.StreamType, stream.Location) for stream in dump.streams]
    repeated = {place for place in places if places.count(place) > 1}
    second = status(StatusCode.TWICE)
    statuses: List[Status] = [dump.status]
    for stream in dump.streams:
        user = stream.StreamType > LAST_RESERVED
        told = user or (stream.StreamType, stream.Location) in repeated
        statuses.append(() if told and stream.status == second else stream.status)
    for read in LISTS:
        rows, wrong = read(dump)
        # The ranges come below, joined: which row of the file gives a byte is a matter of the layout.
        values.append([] if read is memory.memory_ranges else [_placeless(row, dump) for row in rows])
        statuses.append(wrong)
    for record in RECORDS:
        one = record(dump)
        values.append(_placeless(one, dump))
        statuses.append(getattr(one, "status", ()))
    values.append([(kind, text) for kind, text, _ in comments(dump)])
    ranges, wrong = opened.memory(dump)
    pieces = ((piece.start, dump.read(piece.offset, piece.length) or b"") for piece in ranges)
    values.append(Extents(pieces).runs)
    return values, [*statuses, wrong]


def _placeless(row: Any, dump: Any) -> Any:
    """Returns a row in which the bytes stand in place of their range of the file."""
    if not hasattr(row, "_asdict"):
        return row
    found = {}
    for name, value in row._asdict().items():
        if name in ("NativeDescriptor", "SizeOfAlignPad", "offset") or (
            name == "ThreadContext" and isinstance(row, threads.ExceptionStream)
        ):
            continue
        found[name] = dump.read(value.Rva, value.DataSize) if hasattr(value, "Rva") else value
    return found


@pytest.mark.parametrize("seed", range(24))
def test_every_layout_is_read_alike(seed: int) -> None:
    expected, clean = decoded(whole(None))
    assert not any(clean)
    found, statuses = decoded(whole(seed))
    assert not any(statuses)
    assert found == expected
    assert whole(seed) != whole(None)


def test_each_stream_has_the_layout_of_a_real_file_or_several() -> None:
    """A stream that the forge learns to write needs a comparison with a real file, or seeds that draw it."""
    compared = {form.kind for form, _, _ in FORMS.values()} | {MISC_INFO, THREAD_NAMES, FUNCTIONS}
    assert {kind for kind, _, _ in entries_of(whole(None))} == compared | {*DRAWN}
    for kind in DRAWN:
        sizes = {(len(stream_of(whole(seed), kind)), stream_of(whole(seed), kind)[:16]) for seed in range(24)}
        assert len(sizes) > 1, kind


def test_layouts_differ(tmp_path: pathlib.Path) -> None:
    """Directory before and behind the streams, headers of several sizes, streams in several orders."""
    dumps = [whole(seed) for seed in range(24)]
    places = {struct.unpack_from("<I", data, 12)[0] == 32 for data in dumps}
    headers = {stream_of(data, 17)[:8] for data in dumps}
    orders = {tuple(stream.StreamType for stream in dump_of(data).streams) for data in dumps}
    assert places == {True, False}
    assert len(headers) > 6
    assert len(orders) == 24


def entries_of(data: bytes) -> List[Tuple[int, int, int]]:
    """Returns the entries of the directory that are in use: type, start and end in the file."""
    streams = dump_of(data).streams
    return [(item.StreamType, item.Location.Rva, sum(item.Location)) for item in streams]


def test_layouts_share_bytes() -> None:
    """Among the seeds is each way in which parts of a dump share bytes without harm."""
    ways = set()
    for seed in range(24):
        data = whole(seed)
        entries = entries_of(data)
        (base,) = struct.unpack_from("<Q", stream_of(data, 9), 8)
        own = [entry for entry in entries if entry[0] <= LAST_RESERVED]
        users = [entry for entry in entries if entry[0] > LAST_RESERVED]
        ways |= {"entry twice" for entry in own if own.count(entry) > 1}
        ways |= {"user of memory" for _, start, _ in users if start >= base}
        for _, start, end in own:
            ways |= {"same place" for _, low, high in users if (low, high) == (start, end)}
            ways |= {
                "part" for _, low, high in users if start <= low and high <= end and high - low < end - start
            }
        rows = list(struct.iter_unpack("<QII", stream_of(data, 5)[4:]))
        ways |= {"range twice" for row in rows if rows.count(row) > 1}
        ways |= {"range of full memory" for _, _, rva in rows if rva >= base}
        ways |= {"range in a stream" for _, size, rva in rows for _, low, high in users if low <= rva < high}
        (count,) = struct.unpack_from("<Q", stream_of(data, 9))
        full = list(struct.iter_unpack("<QQ", stream_of(data, 9)[16:]))
        ways |= {"full memory twice" for row in full if count == len(full) and full.count(row) > 1}
    assert ways == {
        *("entry twice", "same place", "part", "user of memory", "range twice"),
        *("range of full memory", "range in a stream", "full memory twice"),
    }


def test_streams_that_cannot_share_bytes_are_told() -> None:
    """Of two lists of one place, only one can be what it says."""
    writer = Writer()
    writer.thread_names([(8, "worker")])
    _, size, at = writer.streams[0]
    writer.streams.append((17, size - 4, at + 4))
    statuses = [stream.status for stream in dump_of(writer.bytes()).streams]
    assert statuses == [(), status(StatusCode.OVERLAP)]


def test_a_stream_in_full_memory_is_told() -> None:
    """Full memory is the end of the file: a list that lies in it shows a wrong BaseRva."""
    writer = Writer()
    writer.memory64([(0x1000, PAGE)])
    writer.streams.append((3, 4, len(writer.bytes()) - len(PAGE)))
    _, faults = opened.memory(dump_of(writer.bytes()))
    assert faults == status(StatusItem(StatusCode.CONTRADICTED, None, ("BaseRva", "DataSize")))


@pytest.mark.parametrize("other", [(0x5000, 0x20, 0x10), (0x1010, 0x20, 0x211), (0x1020, 0x20, 0x10)])
def test_memory_that_cannot_be_shared_is_told(other: Tuple[int, int, int]) -> None:
    """One place of the file for two addresses, and two contents for one address."""
    writer = Writer()
    at = writer.put(bytes(range(256)) * 4)
    rows = [(0x1000, 0x100, 0), (0x1040, 0x20, 0x40), (0x1000, 0x100, 0), (0x1008, 0x20, 0x100 + 8), other]
    packed = b"".join(struct.pack("<QII", start, size, at + offset) for start, size, offset in rows)
    writer.stream(5, struct.pack("<I", len(rows)) + packed)
    ranges, faults = opened.memory(dump_of(writer.bytes()))
    assert sum(piece.length for piece in ranges) == 0x100
    assert faults == status(StatusItem(StatusCode.RANGES_OVERLAP, 1))
