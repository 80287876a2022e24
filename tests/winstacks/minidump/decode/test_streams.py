# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every stream of a written minidump, damaged in aimed ways and at random."""

from __future__ import annotations

import functools
import struct
from typing import Any, Callable, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forge.minidump import Module, Writer, WrittenThread
from tests.support.only import only
from winstacks.memory.decode.status import NOTHING, Status, StatusItem, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump.decode import (
    functions,
    handles,
    memory,
    modules,
    platform,
    reporters,
    system,
    threads,
)
from winstacks.minidump.decode.dumpfile import MAX_STREAMS, Location, Minidump, NotAMinidumpError, Stream
from winstacks.minidump.decode.memory import MemoryRange
from winstacks.names.decode.pe import CodeView

GUID = "00112233445566778899AABBCCDDEEFF"
MODULE = Module(0x7FF600000000, 0x20000, 0x5F000000, "C:\\app\\app.exe", (GUID, 2, "D:\\b\\app.pdb"))
PAGE = bytes(range(256)) * 16
LISTS: List[Callable[[Minidump], Tuple[List[Any], Status]]] = [
    threads.thread_list,
    threads.thread_info_list,
    threads.thread_names,
    modules.module_list,
    modules.unloaded_module_list,
    memory.memory_ranges,
    memory.memory_info_list,
    handles.handle_data,
    handles.handle_operation_list,
    handles.token_info_list,
    functions.function_tables,
]
RECORDS: List[Callable[[Minidump], Any]] = [
    system.system_info,
    system.misc_info,
    system.process_vm_counters,
    system.system_memory_info,
    system.comments,
    threads.exception_stream,
]
DERIVED: List[Callable[[Minidump], Any]] = [
    reporters.crashpad_info,
    reporters.breakpad_info,
    reporters.assertion_info,
    platform.dump_machine,
    platform.other_system,
]


def dump_of(data: bytes) -> Minidump:
    return Minidump(lambda offset, length: data[offset : offset + length], len(data))


@functools.lru_cache(maxsize=None)
def full() -> bytes:
    """A dump with every stream that is decoded."""
    writer = Writer()
    writer.system_info()
    writer.misc_info(4312)
    writer.stream(21, struct.pack("<HH6I3QI60s4Q", 1, 15, 1, 4096, *range(4), 1, 2, 3, 4, b"", 5, 6, 7, 8))
    writer.stream(22, struct.pack("<HHI18Q", 2, 15, 1, *range(2, 20)))
    writer.threads([WrittenThread(8, 0x1000, (0x2000, PAGE[:64]), b"c" * 1232)])
    writer.thread_infos([(8, 0, 0, 259, 1, 2, 3, 4, 5, 6)])
    writer.thread_names([(8, "worker")])
    writer.exception(8, 0xC0000005, 0x1234, (1, 0), b"c" * 1232)
    writer.modules([MODULE])
    writer.unloaded_modules([MODULE])
    writer.memory([(0x2000, PAGE[:64])])
    writer.memory_infos([(0x10000, 0x10000, 4, 0x1000, 0x1000, 4, 0x20000)])
    writer.handles([(4, "File", "\\x"), (8, "Event", "")])
    writer.handle_operations([(4, 4312, 8, 1, (0x11, 0x22))])
    writer.function_tables([(0x10, 0x20, 0x10, ((0, 8, 4), (8, 16, 4)))])
    writer.tokens([(8, 0x44, b"token   ")])
    writer.comment("procdump -ma")
    writer.comment("weit", wide=True)
    writer.stream(0x47670001, b"own")
    writer.memory64([(0x10000, PAGE), (0x30000, PAGE)])
    return writer.bytes()


def offset_of(kind: int) -> int:
    stream = dump_of(full()).stream(kind)
    assert stream is not None
    return stream.Location.Rva


def damaged(offset: int, data: bytes) -> Minidump:
    whole = full()
    return dump_of(whole[:offset] + data + whole[offset + len(data) :])


def test_all_streams() -> None:
    dump = dump_of(full())
    assert (dump.status, dump.flags, dump.version) == (NOTHING, 2, 0)
    assert [stream for stream in dump.streams if stream.status] == []
    assert dump.streams[-2].name == "MD_BREAKPAD_INFO_STREAM"
    read = [list_(dump) for list_ in LISTS]
    assert [faults for _, faults in read] == [NOTHING] * len(LISTS)
    assert all(found for found, _ in read)
    info, misc = system.system_info(dump), system.misc_info(dump)
    assert info is not None
    assert misc is not None
    assert (info.BuildNumber, info.CSDVersion, info.machine.arch) == (19041, "", "x64")
    assert (misc.ProcessId, misc.Bias, misc.DaylightName, misc.ProcessCookie) == (
        4312,
        60,
        "Summer",
        0xC00C1E,
    )
    assert (misc.BuildString, misc.DbgBldStr, misc.EnabledFeatures) == ("19041.1.amd64fre", "dbgcore", 3)
    counters, machine = system.process_vm_counters(dump), system.system_memory_info(dump)
    assert counters is not None
    assert machine is not None
    assert (counters.VirtualSize, counters.PrivateUsage, counters.JobTotalCommitLimit) == (11, 12, None)
    assert (machine.PageSize, machine.PeakCommitment) == (4096, 8)
    assert threads.thread_info_list(dump)[0][0].StartAddress == 5
    assert threads.thread_names(dump)[0] == [(8, "worker")]
    exception = threads.exception_stream(dump)
    assert exception is not None
    assert (exception.ThreadId, exception.ExceptionInformation) == (8, (1, 0))
    module = only(modules.module_list(dump)[0])
    assert (module.ModuleName, module.FileVersion) == ("C:\\app\\app.exe", "10.0.19041.1")
    assert module.code_view == CodeView(GUID, 2, "app.pdb")
    assert modules.unloaded_module_list(dump)[0][0].ModuleName == "C:\\app\\app.exe"
    assert [handle[:3] for handle in handles.handle_data(dump)[0]] == [(4, "File", "\\x"), (8, "Event", None)]
    operation = only(handles.handle_operation_list(dump)[0])
    assert (operation.addresses, operation.status) == ((0x11, 0x22), NOTHING)
    assert handles.token_info_list(dump)[0] == [(8, 8, 0x44)]
    table = only(functions.function_tables(dump)[0])
    assert (table.MaximumAddress, table.EntryCount, table.Entries.DataSize) == (0x20, 2, 24)
    assert dump.read(table.Entries.Rva, 12) == struct.pack("<III", 0, 8, 4)
    assert system.comments(dump) == ((10, "procdump -ma", NOTHING), (11, "weit", NOTHING))
    ranges = memory.memory_ranges(dump)[0]
    assert [(piece.start, piece.length) for piece in ranges] == [
        (0x2000, 64),
        (0x10000, 4096),
        (0x30000, 4096),
    ]
    assert dump.read(ranges[2].offset, 4096) == PAGE


def test_a_stream_that_is_not_there() -> None:
    dump = dump_of(Writer().bytes())
    assert [list_(dump) for list_ in LISTS] == [([], NOTHING)] * len(LISTS)
    assert [record(dump) for record in RECORDS] == [None, None, None, None, (), None]


@pytest.mark.parametrize("data", [b"", b"MDMP", b"PAGEDU64" + bytes(64), b"MDMP" + bytes(60)])
def test_what_is_no_minidump(data: bytes) -> None:
    with pytest.raises(NotAMinidumpError):
        dump_of(data)


@pytest.mark.parametrize("size", [24, 44, 232, 832, 1364])
def test_each_version_of_misc_info(size: int) -> None:
    writer = Writer()
    writer.misc_info(4312, size=size)
    data = bytearray(writer.bytes())
    at = dump_of(bytes(data)).streams[0].Location.Rva
    data[at : at + 4] = struct.pack("<I", size)
    misc = system.misc_info(dump_of(bytes(data)))
    assert misc is not None
    values = [misc.ProcessId, misc.ProcessorMaxMhz, misc.Bias, misc.BuildString, misc.ProcessCookie]
    assert [value is not None for value in values] == [size >= end for end in (24, 44, 232, 832, 1364)]
    assert misc.status == NOTHING


def test_a_member_for_which_no_flag_vouches_is_unknown() -> None:
    writer = Writer()
    writer.misc_info(4312, flags=0)
    misc = system.misc_info(dump_of(writer.bytes()))
    assert misc is not None
    assert (misc.ProcessId, misc.ProcessCreateTime, misc.Bias) == (None, None, None)


@pytest.mark.parametrize(
    ("kind", "offset", "form", "member"),
    [
        (3, 0, "<I", "NumberOfThreads"),
        (4, 0, "<I", "NumberOfModules"),
        (5, 0, "<I", "NumberOfMemoryRanges"),
        (9, 0, "<Q", "NumberOfMemoryRanges"),
        (12, 8, "<I", "NumberOfDescriptors"),
        (13, 16, "<I", "NumberOfDescriptors"),
        (14, 8, "<I", "NumberOfEntries"),
        (16, 8, "<Q", "NumberOfEntries"),
        (17, 8, "<I", "NumberOfEntries"),
        (18, 8, "<I", "NumberOfEntries"),
        (19, 4, "<I", "TokenListEntries"),
        (24, 0, "<I", "NumberOfThreadNames"),
    ],
)
@pytest.mark.parametrize("extra", [1, 0x7FFFFFFF])
def test_a_count_that_is_too_large(kind: int, offset: int, form: str, member: str, extra: int) -> None:
    at = offset_of(kind) + offset
    before = struct.unpack_from(form, full(), at)[0]
    dump = damaged(at, struct.pack(form, before + extra))
    expected = StatusItem(StatusCode.MORE_THAN_THE_STREAM, None, (member,))
    assert sum(expected in list_(dump)[1] for list_ in LISTS) == 1
    assert [len(list_(dump)[0]) for list_ in LISTS] == [len(list_(dump_of(full()))[0]) for list_ in LISTS]


@pytest.mark.parametrize(
    ("module", "most", "list_", "kind", "offset"),
    [
        (functions, "MAX_TABLES", functions.function_tables, 13, 16),
        (handles, "MAX_TOKENS", handles.token_info_list, 19, 4),
    ],
)
def test_what_is_behind_the_limit_is_not_judged(
    module: Any, most: str, list_: Any, kind: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries have lengths of their own: whether the stream has the others is unknown."""
    dump = damaged(offset_of(kind) + offset, struct.pack("<I", 2))
    monkeypatch.setattr(module, most, 1)
    found, faults = list_(dump)
    assert (len(found), faults) == (1, status(StatusCode.LIMIT))


@pytest.mark.parametrize(("kind", "offset"), [(12, 4), (14, 4), (16, 4), (17, 4), (18, 4)])
def test_an_entry_that_is_too_small(kind: int, offset: int) -> None:
    dump = damaged(offset_of(kind) + offset, struct.pack("<I", 3))
    expected = StatusItem(StatusCode.HEADER, None, ("size of an entry",))
    assert [found for list_ in LISTS for found, faults in [list_(dump)] if expected in faults] == [[]]


@pytest.mark.parametrize("kind", [12, 13, 14, 16, 17, 18, 19])
@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_header_that_is_no_header(kind: int, size: int) -> None:
    offset = 8 if kind == 19 else 0
    dump = damaged(offset_of(kind) + offset, struct.pack("<I", size))
    assert [found for list_ in LISTS for found, faults in [list_(dump)] if faults] == [[]]


@pytest.mark.parametrize("kind", [3, 4, 5, 6, 7, 9, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 24])
@pytest.mark.parametrize("size", [0, 3])
def test_a_stream_that_is_too_short(kind: int, size: int) -> None:
    """Lists say so; of a structure None is returned, though the directory has its stream."""
    place = [stream.StreamType for stream in dump_of(full()).streams].index(kind)
    dump = damaged(32 + 12 * place + 4, struct.pack("<I", size))
    broken = [list_(dump) for list_ in LISTS]
    missing = [record(dump) for record in RECORDS].count(None)
    assert (
        missing
        + sum(StatusCode.UNREADABLE in [status_item.code for status_item in faults] for _, faults in broken)
        == 1
    )


@pytest.mark.parametrize("size", [160, 163, 166])
@pytest.mark.parametrize("lost", [False, True])
def test_half_of_a_place_is_no_place(size: int, lost: bool) -> None:
    """The registers of an exception are not looked for where only a part of their place is in the stream,
    or in the file; the rest of the exception is kept."""
    whole, place = full(), [stream.StreamType for stream in dump_of(full()).streams].index(6)
    if lost:
        writer = Writer()
        at = writer.stream(6, whole[offset_of(6) :][:168])
        dump = dump_of(writer.bytes()[: at + size])
    else:
        dump = damaged(32 + 12 * place + 4, struct.pack("<I", size))
    exception = threads.exception_stream(dump)
    assert exception is not None
    assert (exception.ExceptionCode, exception.ThreadContext) == (0xC0000005, (0, 0))
    assert StatusCode.NO_SAVED_REGISTERS in [item.code for item in exception.status]
    assert (StatusItem(StatusCode.BEYOND_THE_FILE, 168 - size) in exception.status) == lost


def test_an_array_may_be_aligned() -> None:
    writer = Writer()
    writer.modules([MODULE], padded=True)
    found, faults = modules.module_list(dump_of(writer.bytes()))
    assert ([module.BaseOfImage for module in found], faults) == ([MODULE.base], NOTHING)


def test_streams_that_overlap_and_repeat() -> None:
    writer = Writer()
    at = writer.stream(3, struct.pack("<I", 0))
    writer.streams += [(3, 4, at), (10, 4, 0), (11, 8, 1 << 31)]
    statuses = [stream.status for stream in dump_of(writer.bytes()).streams]
    assert statuses == [
        NOTHING,
        status(StatusCode.TWICE),
        status(StatusCode.OVERLAP),
        status(StatusItem(StatusCode.BEYOND_THE_FILE, 8)),
    ]


def test_a_directory_without_end() -> None:
    data = bytearray(Writer().bytes())
    struct.pack_into("<I", data, 8, 0xFFFFFFFF)
    dump = dump_of(bytes(data))
    beyond = MAX_STREAMS * 12 - (len(data) - 32)
    assert dump.status == status(StatusCode.LIMIT, StatusItem(StatusCode.BEYOND_THE_FILE, beyond))
    assert dump.streams == ()


def _ranges(*rows: Tuple[int, int, int]) -> Tuple[List[MemoryRange], Status, int]:
    """Returns what a MemoryListStream of (address, size, offset) gives, and where the data is."""
    writer = Writer()
    at = writer.put(PAGE)
    packed = b"".join(struct.pack("<QII", start, size, at + offset) for start, size, offset in rows)
    writer.stream(5, struct.pack("<I", len(rows)) + packed)
    found, faults = memory.memory_ranges(dump_of(writer.bytes()))
    return [member._replace(offset=member.offset - at) for member in found], faults, at


def test_ranges_that_share_addresses() -> None:
    found, faults, _ = _ranges((0x1000, 0x100, 0), (0x1080, 0x100, 0x100), (0x1000, 0x20, 0x210))
    assert found == [MemoryRange(0x1000, 0, 0x100), MemoryRange(0x1100, 0x180, 0x80)]
    assert faults == status(StatusItem(StatusCode.RANGES_OVERLAP, 2))


def test_a_range_given_twice_with_the_same_bytes_is_no_contradiction() -> None:
    """Breakpad lists the code around Ip, also where the code is on a stack that is listed, too."""
    found, faults, _ = _ranges((0x1000, 0x100, 0), (0x1010, 0x20, 0x110), (0x1000, 0x20, 0x200))
    assert found == [MemoryRange(0x1000, 0, 0x100)]
    assert faults == NOTHING


def test_ranges_that_share_bytes_of_the_file() -> None:
    """A page of a file is one page of the process: a small file stays small."""
    found, faults, _ = _ranges(*((0x1000 * number, 0x1000, 0) for number in range(1, 1001)))
    assert found == [MemoryRange(0x1000, 0, 0x1000)]
    assert faults == status(StatusItem(StatusCode.RANGES_OVERLAP, 999))


def test_ranges_beyond_file_and_address_space() -> None:
    found, faults, at = _ranges(((1 << 64) - 0x10, 0x20, 0), (0x5000, 0x1000, 0x1000 * 0x1000))
    assert found == [MemoryRange((1 << 64) - 0x10, 0, 0x10)]
    assert faults == status(
        StatusItem(StatusCode.BEYOND_THE_FILE, 0x1000), StatusItem(StatusCode.HEADER, None, ("DataSize",))
    )
    assert at


def test_stacks_are_memory_too() -> None:
    dump = dump_of(full())
    listed, _ = memory.memory_ranges(dump)
    stack = MemoryRange(0x80000, offset_of(21), 8)
    assert memory.memory_ranges(dump, [stack]) == (sorted([*listed, stack]), NOTHING)


def test_a_writer_lists_the_stacks_of_all_threads_or_of_none() -> None:
    dump = dump_of(full())
    listed, _ = memory.memory_ranges(dump)
    stack = MemoryRange(0x80000, offset_of(21), 8)
    expected = status(StatusItem(StatusCode.CONTRADICTED, None, ("Stack",)))
    assert memory.memory_ranges(dump, [stack, listed[0]]) == (sorted([*listed, stack]), expected)


def test_operations_that_are_none() -> None:
    at = offset_of(18) + 16
    dump = damaged(at + 16, struct.pack("<III", 9, 0, 99))
    operations, faults = handles.handle_operation_list(dump)
    operation = only(operations)
    assert operation.status == status(StatusItem(StatusCode.UNKNOWN_TYPE, 9), StatusCode.DEPTH)
    assert (len(operation.addresses), faults) == (32, NOTHING)


def test_a_sparse_file_of_60_gb_costs_what_is_asked_for() -> None:
    """Nothing behind the streams is read."""
    front = bytearray(full()[:-8192])
    count = (60 << 30) >> 28
    rows = b"".join(struct.pack("<QQ", (number + 1) << 30, 1 << 28) for number in range(count))
    place = [stream.StreamType for stream in dump_of(full()).streams].index(9)
    start = len(front)
    front += struct.pack("<QQ", count, start + 16 + len(rows)) + rows
    struct.pack_into("<II", front, 32 + 12 * place + 4, 16 + len(rows), start)
    data, read = bytes(front), []

    def reader(offset: int, length: int) -> bytes:
        read.append(length)
        return data[offset : offset + length].ljust(length, b"\0")

    dump = Minidump(reader, len(data) + (60 << 30))
    found, faults = memory.memory_ranges(dump)
    assert (len(found), faults) == (count + 1, NOTHING)
    assert found[-1].offset + found[-1].length == dump.size
    assert sum(read) < 0x10000


def everything(dump: Minidump) -> int:
    """Reads all that there is, and returns how much that is."""
    size = len(dump.streams)
    for list_ in LISTS:
        found, faults = list_(dump)
        assert isinstance(faults, tuple)
        size += len(found)
    for record in (*RECORDS, *DERIVED):
        found_one: Optional[Any] = record(dump)
        size += found_one is not None
    for thread in threads.thread_list(dump)[0]:
        threads.context(dump, thread.ThreadContext)
    return size


@given(
    damage=st.lists(
        st.tuples(st.integers(0, len(full()) - 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=8
    ),
    cut=st.integers(0, 1 << 14),
)
def test_damage_of_any_kind(damage: List[Tuple[int, bytes]], cut: int) -> None:
    data = bytearray(full())
    for offset, value in damage:
        data[offset : offset + len(value)] = value
    del data[cut if cut > 0x100 else len(data) :]
    try:
        dump = dump_of(bytes(data))
    except NotAMinidumpError:
        return
    assert everything(dump) < len(data)


VALUES = (b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x80")


@pytest.mark.parametrize("value", VALUES, ids=bytes.hex)
def test_every_byte_of_headers_and_streams_once(value: bytes) -> None:
    """Each read of any damaged file ends, with as little as the whole file could have."""
    whole = full()[:-8192]
    for offset in range(0, len(whole) - len(value), 7 if len(value) == 1 else 12):
        data = whole[:offset] + value + whole[offset + len(value) :]
        try:
            assert everything(dump_of(data)) < len(data)
        except NotAMinidumpError:
            assert offset < 8


@given(st.binary(max_size=0x200))
def test_bytes_of_any_kind_behind_a_header(data: bytes) -> None:
    header = struct.pack("<4sIIIIIQ", b"MDMP", 0xA793, len(data) // 12, 32, 0, 0, 0)
    assert everything(dump_of(header + data)) <= len(data) + 8


def test_names_of_streams() -> None:
    assert Stream(9, Location(0, 0)).name == "Memory64ListStream"
    assert Stream(0x8000, Location(0, 0)).name == "ceStreamNull"
    assert Stream(25, Location(0, 0)).name == "0x19"


@pytest.mark.parametrize(("kind", "list_"), [(3, threads.thread_list), (4, modules.module_list)])
def test_a_count_that_leaves_some_out_is_said(kind: int, list_: Any) -> None:
    """A dump whose count hides what its stream holds."""
    found, faults = list_(damaged(offset_of(kind), bytes(4)))
    assert found == []
    member = {3: "NumberOfThreads", 4: "NumberOfModules"}[kind]
    assert StatusItem(StatusCode.FEWER_THAN_THE_STREAM, None, (member,)) in faults


def test_a_module_whose_name_cannot_be_read_is_said() -> None:
    listed, faults = modules.module_list(damaged(offset_of(4) + 4 + 20, b"\xff" * 4))
    module = only(listed)
    assert module.ModuleName is None
    assert faults == status(StatusItem(StatusCode.HEADER, None, ("ModuleNameRva",)))
