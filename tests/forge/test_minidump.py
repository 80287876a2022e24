# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forge of minidumps: its layouts are those of real files, and each layout is read alike.

Values come from PyPI's `minidump`, which nobody here wrote: the forge writes these values, and its bytes must
be those of the real stream. Offsets within the file differ, and so do members that the forge leaves constant.
"""

from __future__ import annotations

import logging
import pathlib
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import pytest
from minidump.minidumpfile import MinidumpFile

from tests.forge.minidump import LAST_RESERVED, Module, Writer, WrittenThread
from tests.support.changeddumps import FUNCTIONS, OF_WINDOWS, ChangedDump
from tests.support.only import only
from tests.winstacks.minidump.decode.test_streams import GUID, LISTS, PAGE, RECORDS, dump_of
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import Status, StatusItem, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump import opened
from winstacks.minidump.decode import memory, threads
from winstacks.minidump.decode.system import comments

Ranges = Sequence[Tuple[int, int]]


class Form(NamedTuple):
    """A stream that is a header and entries.

    Attributes:
        kind: its type
        header, entry: sizes in bytes
        left_out: (start, end) in an entry, or in the header if there are no entries, of offsets, of members
            that the forge leaves constant, and of members that the other parser does not tell
    """

    kind: int
    header: int
    entry: int
    left_out: Ranges


def real(name: str) -> Tuple[ChangedDump, Any]:
    """Returns a real file, and what PyPI's `minidump` read of it."""
    path = only(path for path in OF_WINDOWS if path.name == name)
    logging.disable(logging.ERROR)  # it wants a PEB of every dump
    try:
        return ChangedDump.named(name), MinidumpFile.parse(str(path))
    finally:
        logging.disable(logging.NOTSET)


def put_threads(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    writer.threads(
        [
            WrittenThread(
                thread.ThreadId,
                thread.Teb,
                (
                    thread.Stack.StartOfMemoryRange,
                    dump.read(thread.Stack.MemoryLocation.Rva, thread.Stack.MemoryLocation.DataSize),
                ),
                dump.read(thread.ThreadContext.Rva, thread.ThreadContext.DataSize),
                thread.SuspendCount,
            )
            for thread in theirs.threads.threads
        ]
    )


def put_modules(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    found = []
    for module in theirs.modules.modules:
        version = module.versioninfo
        words = [
            part
            for word in (version.dwFileVersionMS, version.dwFileVersionLS)
            for part in (word >> 16, word & 0xFFFF)
        ]
        found.append(
            Module(module.baseaddress, module.size, module.timestamp, module.name, None, tuple(words))
        )
    writer.modules(found)


def put_memory(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    writer.memory(
        [
            (piece.start_virtual_address, dump.read(piece.start_file_address, piece.size))
            for piece in theirs.memory_segments.memory_segments
        ]
    )


def put_exception(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    found = only(theirs.exception.exception_records)
    record = found.ExceptionRecord
    parameters = record.ExceptionInformation[: record.NumberParameters]
    place = found.ThreadContext
    context = dump.read(place.Rva, place.DataSize)
    writer.exception(found.ThreadId, record.ExceptionCode_raw, record.ExceptionAddress, parameters, context)


def put_system(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    found = theirs.sysinfo
    writer.system_info(
        found.ProcessorArchitecture.value, found.BuildNumber, (found.MajorVersion, found.MinorVersion)
    )


def put_handles(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    writer.handles([(one.Handle, one.TypeName or "", one.ObjectName or "") for one in theirs.handles.handles])


def put_unloaded(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    writer.unloaded_modules(
        [
            Module(module.baseaddress, module.size, module.timestamp, module.name)
            for module in theirs.unloaded_modules.modules
        ]
    )


def put_regions(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    writer.memory_infos(
        [
            (
                info.BaseAddress,
                info.AllocationBase,
                info.AllocationProtect,
                info.RegionSize,
                info.State.value,
                info.Protect.value if info.Protect else 0,
                info.Type.value if info.Type else 0,
            )
            for info in theirs.memory_info.infos
        ]
    )


def put_thread_infos(writer: Writer, theirs: Any, dump: ChangedDump) -> None:
    members = "ThreadId DumpFlags DumpError ExitStatus CreateTime ExitTime KernelTime UserTime"
    members += " StartAddress Affinity"
    rows = [
        tuple(_number(getattr(info, member)) for member in members.split())
        for info in theirs.thread_info.infos
    ]
    writer.thread_infos(rows)


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


NULL, CET, LLDB, NAMES = (
    *("null_write_av.dmp", "tiny-exe-with-cet-xsave.dmp"),
    *("lldb-fizzbuzz_no_heap.dmp", "breakpad-thread_name_list.dmp"),
)
CHROME = "node-minidump-windows.dmp"
FORMS: Dict[str, Tuple[Form, str, Callable[[Writer, Any, ChangedDump], None]]] = {
    "threads": (Form(3, 4, 48, ((8, 16), (36, 40), (44, 48))), CHROME, put_threads),
    "threads with XSTATE": (Form(3, 4, 48, ((8, 16), (36, 40), (44, 48))), CET, put_threads),
    "modules": (Form(4, 4, 108, ((12, 16), (20, 32), (40, 108))), CHROME, put_modules),
    "memory": (Form(5, 4, 16, ((12, 16),)), CHROME, put_memory),
    "exception": (Form(6, 168, 0, ((12, 24), (36, 40), (164, 168))), CHROME, put_exception),
    "exception of x86": (Form(6, 168, 0, ((12, 24), (36, 40), (164, 168))), NULL, put_exception),
    "system": (Form(7, 56, 0, ((2, 8), (24, 56))), CHROME, put_system),
    "handles": (Form(12, 16, 32, ((8, 32),)), CET, put_handles),
    "unloaded modules": (Form(14, 12, 24, ((12, 16), (20, 24))), CET, put_unloaded),
    "regions": (Form(16, 16, 48, ((36, 40),)), CET, put_regions),
    "thread infos": (Form(17, 12, 64, ()), LLDB, put_thread_infos),
}


def blanked(data: bytes, form: Form) -> List[bytes]:
    """Returns header and entries without what differs."""
    size = form.entry or form.header
    parts = [data[: form.header]] if form.entry else []
    start = form.header if form.entry else 0
    for place in range(start, len(data), size):
        entry = bytearray(data[place : place + size])
        for low, high in form.left_out:
            entry[low:high] = bytes(high - low)
        parts.append(bytes(entry))
    return parts


def stream_of(data: bytes, kind: int) -> bytes:
    return ChangedDump(data).stream(kind)


@pytest.mark.shared
@pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there")
@pytest.mark.parametrize("name", FORMS)
def test_the_layout_is_that_of_a_real_file(name: str) -> None:
    form, file, put = FORMS[name]
    dump, theirs = real(file)
    writer = Writer()
    put(writer, theirs, dump)
    forged, true = blanked(stream_of(writer.bytes(), form.kind), form), blanked(dump.stream(form.kind), form)
    assert forged == true
    assert any(any(part) for part in true)


@pytest.mark.shared
@pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there")
def test_the_layout_of_thread_names() -> None:
    dump, _ = real(NAMES)
    data = dump.stream(24)
    (count,) = struct.unpack_from("<I", data)
    names = []
    for number in range(count):
        tid, rva = struct.unpack_from("<IQ", data, 4 + 12 * number)
        (size,) = struct.unpack("<I", dump.read(rva, 4))
        names.append((tid, dump.read(rva + 4, size).decode("utf-16-le")))
    assert count == 3
    writer = Writer()
    writer.thread_names(names)
    forged = stream_of(writer.bytes(), 24)
    form = Form(24, 4, 12, ((4, 12),))
    assert blanked(forged, form) == blanked(data, form)
    for number, (_, name) in enumerate(names):
        (rva,) = struct.unpack_from("<Q", forged, 8 + 12 * number)
        written = ChangedDump(writer.bytes()).read(rva, 4 + 2 * len(name))
        assert written == struct.pack("<I", 2 * len(name)) + name.encode("utf-16-le")


@pytest.mark.shared
@pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there")
def test_the_layout_of_misc_info() -> None:
    """The members that both have stand at the same offsets, in each size of the structure."""
    for file, size in ((NAMES, 1364), (NULL, 232), ("breakpad-minidump2.dmp", 24)):
        dump, theirs = real(file)
        data = dump.stream(15)
        writer = Writer()
        writer.misc_info(theirs.misc_info.ProcessId, theirs.misc_info.ProcessCreateTime, size)
        forged = stream_of(writer.bytes(), 15)
        assert (len(data), data[:4]) == (len(forged), forged[:4]) == (size, struct.pack("<I", size))
        assert data[8:16] == forged[8:16]
        if size == 1364:
            text = "17763.1.amd64fre".encode("utf-16-le")
            assert data[232 : 232 + 10] == text[:10]
            assert forged[232 : 232 + 10] == "19041".encode("utf-16-le")
            for one in (data, forged):
                assert one[752:832].decode("utf-16-le").startswith("dbgcore")


@pytest.mark.shared
@pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there")
def test_the_layout_of_function_tables() -> None:
    """The real file is one of the layouts that the forge chooses from."""
    data = ChangedDump.named(CHROME).stream(FUNCTIONS)
    low, high, base, count, _ = struct.unpack_from("<QQQII", data, 28)
    entry = struct.unpack_from("<III", data, 172)
    assert count == 1
    for seed in range(200):
        writer = Writer(seed=seed)
        writer.function_tables([(low, high, base, [entry])])
        forged = stream_of(writer.bytes(), FUNCTIONS)
        if len(forged) == len(data) and forged[:60] == data[:60]:
            assert forged[172:] == data[172:]
            return
    raise AssertionError("no layout of the forge is that of the real file")


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
        if name in ("NativeDescriptor", "offset") or (
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
