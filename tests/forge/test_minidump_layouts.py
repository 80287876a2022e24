# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forge of minidumps writes the layouts of real files, stream by stream.

Values come from PyPI's `minidump` or from offsets of the declarations, which nobody here wrote: the forge
writes these values, and its bytes must be those of the real stream. Offsets within the file differ, and so do
members that the forge leaves constant.
"""

from __future__ import annotations

import logging
import pathlib
import struct
import uuid
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import pytest
from minidump.minidumpfile import MinidumpFile

from tests.conftest import SHARED
from tests.forge.minidump import Module, Writer, WrittenThread
from tests.support.changeddumps import FUNCTIONS, OF_WINDOWS, ChangedDump
from tests.support.only import only
from tests.winstacks.minidump.decode.test_streams import dump_of

# Its wheel for Python 3.13 is installed on newer ones, too, which cannot load it.
udmp_parser = pytest.importorskip("udmp_parser")

Ranges = Sequence[Tuple[int, int]]
CRASHPAD, BREAKPAD, ASSERTION = 0x43500001, 0x47670001, 0x47670002
MISC_INFO, THREAD_NAMES = 15, 24


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
@pytest.mark.parametrize("path", OF_WINDOWS, ids=lambda path: str(path.stem))
def test_the_layout_of_header_and_directory(path: pathlib.Path) -> None:
    """MINIDUMP_HEADER and MINIDUMP_DIRECTORY: the high word of Version and CheckSum are the writer's own."""
    data = path.read_bytes()
    stamp, flags = struct.unpack_from("<IQ", data, 20)
    count, directory = struct.unpack_from("<II", data, 8)
    theirs = list(struct.iter_unpack("<III", data[directory : directory + 12 * count]))
    writer = Writer(flags=flags)
    for kind, size, rva in theirs:
        writer.stream(kind, data[rva : rva + size])
    forged = bytearray(writer.bytes())
    struct.pack_into("<I", forged, 20, stamp)
    for low, high in ((0, 6), (8, 16), (20, 32)):
        assert forged[low:high] == data[low:high]
    (directory,) = struct.unpack_from("<I", forged, 12)
    ours = list(struct.iter_unpack("<III", forged[directory : directory + 12 * count]))
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    for (_, size, mine), (_, _, rva) in zip(ours, theirs):
        assert forged[mine : mine + size] == data[rva : rva + size]


@pytest.mark.shared
@pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there")
@pytest.mark.parametrize("file", [CHROME, CET, NULL, NAMES])
def test_the_layout_of_what_a_module_leads_to(file: str) -> None:
    """Name and CvRecord: both lie where MINIDUMP_MODULE says, in the form of the real file."""
    dump, theirs = real(file)
    rows, records = dump.stream(4), udmp_parser.UserDumpParser()
    path = only(path for path in OF_WINDOWS if path.name == file)
    assert records.Parse(path)
    seen = 0
    for number, module in enumerate(theirs.modules.modules):
        name_rva, size, rva = (
            struct.unpack_from("<I", rows, 4 + 108 * number + place)[0] for place in (20, 76, 80)
        )
        record = dump.read(rva, size)
        assert record == bytes(records.Modules()[module.baseaddress].CvRecord)
        if record[:4] != b"RSDS":
            continue
        seen += 1
        guid, age = uuid.UUID(bytes_le=record[4:20]), int.from_bytes(record[20:24], "little")
        pdb = record[24:].partition(b"\0")[0].decode()
        writer = Writer()
        writer.modules([Module(module.baseaddress, 0, 0, module.name, (str(guid), age, pdb))])
        forged = ChangedDump(writer.bytes())
        row = forged.stream(4)[4:]
        mine, at, length = (struct.unpack_from("<I", row, place)[0] for place in (20, 80, 76))
        assert forged.read(at, length) == record[:length] and not record[length:].strip(b"\0")
        text = 4 + 2 * len(module.name)
        assert forged.read(mine, text) == dump.read(name_rva, text)
    assert seen


@pytest.mark.shared
@pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there")
def test_the_layout_of_handles() -> None:
    """Access, counts, and the names to which the RVAs lead; PyPI's `minidump` reads the values."""
    dump, theirs = real(CET)
    data, named = dump.stream(12), 0
    for number, handle in enumerate(theirs.handles.handles):
        writer = Writer()
        writer.handles([(handle.Handle, handle.TypeName or "", handle.ObjectName or "")])
        forged = ChangedDump(writer.bytes())
        mine, entry = forged.stream(12)[16:], data[16 + 32 * number :][:32]
        for place, text in ((8, handle.TypeName), (12, handle.ObjectName)):
            if text:
                named += 1
                size = 4 + 2 * len(text)
                at, rva = (struct.unpack_from("<I", row, place)[0] for row in (mine, entry))
                assert forged.read(at, size) == dump.read(rva, size)
        members = handle.Attributes, handle.GrantedAccess, handle.HandleCount, handle.PointerCount
        assert tuple(_number(value) for value in members) == struct.unpack_from("<4I", entry, 16)
        assert len(mine) == 32 and struct.unpack_from("<4I", mine, 16) == (0, 0x1F0003, 1, 2)
    assert named > 100


@pytest.mark.shared
@pytest.mark.parametrize("name", ["breakpad-minidump_crashpad_annotation", "rust-simple-crashpad"])
def test_the_layout_of_the_annotations_of_crashpad(name: str) -> None:
    """Each list and structure has the size, the version and the links that the forge gives it."""
    data = (SHARED / "real_minidumps" / "other_systems" / f"{name}.dmp").read_bytes()
    writer = Writer()
    writer.crashpad([("key", "value")], [("name", 1, b"text")], module=7)
    forged = writer.bytes()
    shapes = []
    for one in (forged, data):
        stream = ChangedDump(one).stream(CRASHPAD)
        version, simple_size, simple, links_size, links = (len(stream), *_four(stream, 36))
        assert struct.unpack_from("<I", stream)[0] == 1 and version == 52
        (pairs,), (modules,) = (struct.unpack_from("<I", one, rva) for rva in (simple, links))
        assert (simple_size, links_size) == (4 + 8 * pairs, 4 + 12 * modules)
        shape = set()
        for number in range(modules):
            _, size, rva = struct.unpack_from("<III", one, links + 4 + 12 * number)
            (own_version,), lists = (
                struct.unpack_from("<I", one, rva),
                struct.iter_unpack("<II", one[rva + 4 : rva + size]),
            )
            for place, (length, at) in enumerate(lists):
                if length:
                    (count,) = struct.unpack_from("<I", one, at)
                    assert length == 4 + (4, 8, 12)[place] * count
                    shape.add(place)
            assert (size, own_version) == (28, 1)
        for number in range(pairs):
            for rva in struct.unpack_from("<II", one, simple + 4 + 8 * number):
                (length,) = struct.unpack_from("<I", one, rva)
                assert one[rva + 4 + length] == 0 and one[rva + 4 : rva + 4 + length].decode().isprintable()
        shapes.append(shape)
    ours, theirs = shapes
    assert ours == {2} and theirs <= {0, 1, 2} and theirs


def _four(data: bytes, place: int) -> Tuple[int, ...]:
    return struct.unpack_from("<4I", data, place)


@pytest.mark.shared
@pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there")
def test_the_layout_of_what_breakpad_recorded() -> None:
    """Its threads, of which the one that asked raised the exception; and an assertion."""
    seen = 0
    for path in OF_WINDOWS:
        dump = ChangedDump.named(path.name)
        kinds = [stream.StreamType for stream in dump_of(path.read_bytes()).streams]
        if BREAKPAD not in kinds:
            continue
        valid, writing, asking = struct.unpack("<III", dump.stream(BREAKPAD))
        writer = Writer()
        writer.breakpad(writing, asking, ("", "", "", 0, 0))
        if valid == 3 and asking:
            seen += 1
            assert stream_of(writer.bytes(), BREAKPAD) == dump.stream(BREAKPAD)
            _, theirs = real(path.name)
            assert asking in [record.ThreadId for record in theirs.exception.exception_records]
    assert seen > 4
    data = (SHARED / "real_minidumps" / "broken" / "rust-invalid-parameter.dmp").read_bytes()
    stream = ChangedDump(data).stream(ASSERTION)
    texts = [
        stream[place : place + 256].decode("utf-16-le", "replace").partition("\0")[0]
        for place in (0, 256, 512)
    ]
    line, kind = struct.unpack_from("<II", stream, 768)
    writer = Writer()
    writer.breakpad(1, 2, (texts[0], texts[1], texts[2], line, kind))
    forged = stream_of(writer.bytes(), ASSERTION)
    assert len(forged) == len(stream) == 776 and texts[0] == "format != nullptr" and kind == 1
    for place, text in zip((0, 256, 512), texts):
        size = 2 * len(text) + 2
        assert forged[place : place + size] == stream[place : place + size]
    assert forged[768:] == stream[768:]


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
