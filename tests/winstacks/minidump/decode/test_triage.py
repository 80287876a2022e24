# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small kernel dumps of every generation: what is decoded is what was written; hostile ones get an answer."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import smalldump
from tests.forge.smalldump import CRASHED, KDBG, STARTED, Driver, SmallDump
from tests.support.only import only, rows_of
from winstacks.memory.decode.machine import UnsupportedMachineError
from winstacks.memory.decode.status import NOTHING, has_status, naming
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump.decode.crashed import crashed_thread, structure_memory
from winstacks.minidump.decode.drivers import broken_driver, list_drivers, list_unloaded
from winstacks.minidump.decode.kernelheader import NotAKernelDumpError
from winstacks.minidump.decode.triage import TriageDump, memory_ranges
from winstacks.stacklist.decode.bugchecks import bug_check, context_parameter

KERNEL = {True: 0xFFFFF80312200000, False: 0x82800000}
STACK = {True: 0xFFFFD00012345000, False: 0x8F345000}
THREAD = {True: (0xFFFFA00001234080, 0xFFFFA00001230080), False: (0x85123020, 0x85124020)}

GENERATIONS: Dict[str, Dict[str, Any]] = {
    "2000-x86": {"wide": False, "build": 2195, "entry": 0x44, "tail": 4, "debugger": False},
    "xp-x86": {"wide": False, "build": 2600, "tail": 16},
    "2003-x64": {"wide": True, "build": 3790, "entry": 0x80},
    "7-x86": {"wide": False, "build": 7601},
    "7-x64": {"wide": True, "build": 7601},
    "10-x86": {"wide": False, "build": 19041},
    "10-x64": {"wide": True, "build": 19041},
    "11-x64": {"wide": True, "build": 22621, "entry": 0xC0},
    "11-arm64": {"wide": True, "build": 22000, "machine": 0xAA64},
    **{f"drawn-{seed}-x64": {"wide": True, "build": 19045, "seed": seed} for seed in range(6)},
    **{f"drawn-{seed}-x86": {"wide": False, "build": 10240, "seed": seed} for seed in range(9)},
}


def writer(name: str) -> SmallDump:
    """A dump with every part."""
    options = GENERATIONS[name]
    wide = options["wide"]
    kernel, stack, (ethread, eprocess) = KERNEL[wide], STACK[wide], THREAD[wide]
    forged_dump = SmallDump(**options)
    context = smalldump.context(wide, kernel + 0x1234, stack + 0x40)
    if "machine" in options:
        context = struct.pack("<I", 0x400007).ljust(0x390, b"\0")
    record = struct.pack("<I", 0xC0000005).ljust(0x98 if wide else 0x50, b"\0")
    forged_dump.crash(0xD1, (0x10, 2, 0, kernel + 0x1234), context, record)
    forged_dump.stack(stack, bytes(range(256)) * 16)
    forged_dump.thread(ethread, eprocess, stack + 0xF00, stack + 0x10, 3, 0x7FF000)
    forged_dump.drivers(
        [
            Driver("\\SystemRoot\\system32\\ntoskrnl.exe", kernel, 0x800000, kernel + 0x10, 0x5F111111),
            Driver("\\SystemRoot\\System32\\drivers\\tcpip.sys", kernel + 0x1000000, 0x300000),
        ],
        broken="bad.sys",
    )
    forged_dump.unloaded([Driver("dump_diskdump.sys", kernel + 0x2000000, 0x10000)])
    forged_dump.block(kernel + 0x5000, b"kernel page")
    forged_dump.block(stack - 0x1000, b"below the stack")
    return forged_dump


def machine_of(name: str) -> int:
    return int(GENERATIONS[name].get("machine", 0x8664 if GENERATIONS[name]["wide"] else 0x14C))


def opened(data: bytes) -> TriageDump:
    return TriageDump(lambda offset, length: data[offset : offset + length], len(data))


def dump(name: str) -> TriageDump:
    return opened(writer(name).file())


@pytest.mark.parametrize("name", GENERATIONS)
def test_header(name: str) -> None:
    read, wide = dump(name), GENERATIONS[name]["wide"]
    header, kernel = read.header, KERNEL[wide]
    assert (header.wide, header.MinorVersion) == (wide, GENERATIONS[name]["build"])
    assert (header.BugCheckCode, header.BugCheckParameters) == (0xD1, (0x10, 2, 0, kernel + 0x1234))
    assert (header.SystemTime, header.SystemUpTime) == (CRASHED, STARTED)
    assert (header.KdDebuggerDataBlock, header.PsLoadedModuleList) == (kernel + KDBG, kernel + 0x400)
    assert (header.MachineImageType, header.ProductType) == (machine_of(name), 1)
    assert (header.Comment, header.RequiredDumpSpace) == ("", read.size if wide else None)
    assert not read.status


def test_the_seeds_draw_every_layout_of_x86() -> None:
    """No real file of x86 is known: all forms of the last members, both of the entries, both of CONTEXT."""
    drawn = [writer(name) for name in GENERATIONS if name.startswith("drawn") and name.endswith("x86")]
    for made in drawn:
        made.file()
    assert {made.tail_form for made in drawn} == {*smalldump.TAILS_OF_X86}
    assert {made.first for made in drawn} == {4, 8}
    assert {made.members["ContextOffset"] < 0x1000 for made in drawn} == {False, True}


@pytest.mark.parametrize("name", GENERATIONS)
def test_parts(name: str) -> None:
    read = dump(name)
    sizes = {0x8664: 0x4D0, 0x14C: 0x2CC, 0xAA64: 0x390}
    assert (len(read.context.data), read.context.status) == (sizes[machine_of(name)], ())
    assert (read.exception.data[:4], read.exception.status) == (struct.pack("<I", 0xC0000005), ())
    assert read.call_stack.data == bytes(range(256)) * 16
    assert len(read.part("Thread").data) >= 0x400
    assert read.part("Mm").offset == 0


@pytest.mark.parametrize("name", GENERATIONS)
def test_drivers(name: str) -> None:
    """Members that the entries of a generation lack are None, and never 0."""
    read, wide = dump(name), GENERATIONS[name]["wide"]
    listed, faults = list_drivers(read)
    kernel, tcpip = rows_of(2, listed)
    assert not faults
    assert (kernel.name, kernel.DllBase) == ("\\SystemRoot\\system32\\ntoskrnl.exe", KERNEL[wide])
    assert (kernel.SizeOfImage, kernel.EntryPoint) == (0x800000, KERNEL[wide] + 0x10)
    assert (tcpip.DllBase, tcpip.EntryPoint) == (KERNEL[wide] + 0x1000000, 0)
    assert kernel.CheckSum == 0x12345
    assert kernel.TimeDateStamp == (None if name in ("2000-x86", "2003-x64") else 0x5F111111)
    assert broken_driver(read) == "bad.sys"
    unloaded, faults = list_unloaded(read)
    gone = only(unloaded)
    assert not faults
    # Twelve characters of the name are in the dump.
    start = KERNEL[wide] + 0x2000000
    assert gone == ("dump_diskdum", start, start + 0x10000)


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_thread_that_crashed(name: str) -> None:
    read, wide = dump(name), GENERATIONS[name]["wide"]
    crashed = crashed_thread(read)
    if name in ("2000-x86", "xp-x86"):
        # These have no KDDEBUGGER_DATA64: nothing tells where the members lie.
        assert (crashed.ethread, crashed.members, crashed.process) == (None, {}, "")
        return
    assert (crashed.ethread, crashed.eprocess) == THREAD[wide]
    assert (crashed.processor, crashed.member("state"), crashed.member("teb")) == (3, 2, 0x7FF000)
    assert crashed.member("initial_stack") == STACK[wide] + 0xF00
    assert crashed.member("tid") is None


@pytest.mark.parametrize("name", GENERATIONS)
def test_memory(name: str) -> None:
    read, wide = dump(name), GENERATIONS[name]["wide"]
    ranges, faults = memory_ranges(read, structure_memory(read, crashed_thread(read)))
    assert not faults
    found = {piece.start: read.available(piece.offset, piece.length) for piece in ranges}
    assert found[STACK[wide]] == bytes(range(256)) * 16
    if name in ("2000-x86", "xp-x86"):
        return
    assert found[KERNEL[wide] + 0x5000] == b"kernel page"
    assert found[STACK[wide] - 0x1000] == b"below the stack"
    assert found[KERNEL[wide] + KDBG][0x10:0x14] == b"KDBG"
    assert {len(found[address]) for address in THREAD[wide]} == {0x400}


def test_a_block_that_claims_the_bytes_of_another_is_left_out() -> None:
    """One page as a thousand: a small file cannot claim to be a large memory."""
    new_writer = writer("10-x64")
    data = bytearray(new_writer.file())
    at = new_writer.members["DataBlocksOffset"]
    first = struct.unpack_from("<QII", data, at)
    struct.pack_into("<QII", data, at + 16, first[0] + 0x100000, *first[1:])
    ranges, faults = memory_ranges(opened(bytes(data)))
    assert has_status(faults, StatusCode.RANGES_OVERLAP)
    assert first[0] in {piece.start for piece in ranges}
    assert first[0] + 0x100000 not in {piece.start for piece in ranges}


def test_a_block_that_passes_the_last_address_is_told() -> None:
    data = bytearray(writer("10-x64").file())
    new_writer = writer("10-x64")
    new_writer.file()
    struct.pack_into("<Q", data, new_writer.members["DataBlocksOffset"], 0xFFFFFFFFFFFFFFF8)
    found, faults = memory_ranges(opened(bytes(data)))
    assert (found[-1].start, found[-1].length) == (0xFFFFFFFFFFFFFFF8, 8)
    assert faults == naming(StatusCode.HEADER, "DataBlocksOffset")


@pytest.mark.parametrize("name", ["10-x64", "10-x86"])
def test_debugger_data_without_its_tag_is_told(name: str) -> None:
    data = writer(name).file()
    assert opened(data).status == NOTHING
    faults = opened(data.replace(b"KDBG", b"KDBX")).status
    assert faults == naming(StatusCode.HEADER, "DebuggerDataOffset")


def test_a_dump_that_is_cut_says_how_much_is_missing() -> None:
    data = writer("10-x64").file()
    read = opened(data[:-0x100])
    assert [(status_item.code, status_item.number) for status_item in read.status if status_item.number] == [
        (StatusCode.BEYOND_THE_FILE, 0x100)
    ]


@pytest.mark.parametrize(
    ("number", "name"), [(0xA641, "ARM64EC"), (0x1C4, "ARM"), (0x200, "Itanium"), (7, "0x7")]
)
def test_another_machine_is_named_and_refused(number: int, name: str) -> None:
    read = opened(SmallDump(machine=number).file())
    with pytest.raises(UnsupportedMachineError, match=name):
        _ = read.machine


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin"),
        (b"PAGEDU64", "ends within the header"),
        (writer("10-x64").file()[:0x5F], "before its bug check"),
        (b"MDMP" + bytes(0x4000), "does not begin"),
        (writer("10-x64").file().replace(struct.pack("<I", 4), struct.pack("<I", 1)), "type 1"),
    ],
)
def test_what_is_no_small_dump_is_named(data: bytes, message: str) -> None:
    with pytest.raises(NotAKernelDumpError, match=message):
        opened(data)


@pytest.mark.parametrize("name", ["10-x64", "10-x86"])
@pytest.mark.parametrize("pages", [1, 2])
@pytest.mark.parametrize("kind", [4, 1, 6])
def test_the_header_alone_has_the_bug_check(name: str, pages: int, kind: int) -> None:
    """Collectors keep the first 4 or 8 KB, of dumps of any type."""
    wide = GENERATIONS[name]["wide"]
    data = bytearray(writer(name).file()[: min(0x1000 * pages, 0x2000 if wide else 0x1000)])
    struct.pack_into("<I", data, 0xF98 if wide else 0xF88, kind)
    read = opened(bytes(data))
    assert read.header_only and has_status(read.status, StatusCode.HEADER_ONLY)
    assert (read.header.BugCheckCode, read.header.BugCheckParameters[1]) == (0xD1, 2)
    assert read.header.SystemTime == CRASHED
    assert read.header.SystemUpTime == (None if wide and pages == 1 else STARTED)
    assert list_drivers(read) == ([], ()) and list_unloaded(read) == ([], ())
    assert memory_ranges(read) == ([], ())
    assert read.context.data == smalldump.context(wide, KERNEL[wide] + 0x1234, STACK[wide] + 0x40)
    everything(read)


def test_a_dump_cut_within_its_list_of_parts_has_its_header() -> None:
    read = opened(writer("10-x64").file()[:0x2010])
    assert read.header_only and read.header.BugCheckCode == 0xD1


def test_only_registers_count_as_registers() -> None:
    """If ContextOffset leads elsewhere, the header's own CONTEXT is used, and the status says so."""
    new_writer = writer("10-x64")
    data = bytearray(new_writer.file())
    struct.pack_into("<I", data, 0x200C, new_writer.members["CallStackOffset"])
    read = opened(bytes(data))
    assert (read.context.offset, has_status(read.context.status, StatusCode.NOT_A_CONTEXT)) == (0x348, True)
    data[0x348:0x818] = b"PAGE" * (0x4D0 // 4)
    read = opened(bytes(data))
    assert has_status(read.context.status, StatusCode.NOT_A_CONTEXT)


def test_the_place_of_a_stamp_may_hold_a_pointer() -> None:
    """The kernel's own entry has a pointer there: half of it is no TimeDateStamp."""
    new_writer = writer("10-x64")
    data = bytearray(new_writer.file())
    struct.pack_into("<Q", data, new_writer.members["DriverListOffset"] + 0x88, KERNEL[True] + 0x123456)
    assert [driver.TimeDateStamp for driver in list_drivers(opened(bytes(data)))[0]] == [None, 0x5F000000]


def everything(read: TriageDump) -> None:
    """Decodes all of a dump; nothing that it returns is larger than the file could make it."""
    try:
        crashed = crashed_thread(read)
    except UnsupportedMachineError:
        return
    ranges, _ = memory_ranges(read, structure_memory(read, crashed))
    assert sum(piece.length for piece in ranges) <= read.size
    assert all(low.start + low.length <= high.start for low, high in zip(ranges, ranges[1:]))
    drivers, _ = list_drivers(read)
    assert len(drivers) * 0x40 <= read.size
    assert len(list_unloaded(read)[0]) <= 256
    assert len(broken_driver(read) or "") <= 0x400
    assert len(read.context.data) + len(read.exception.data) <= 0x600


MEMBERS = st.lists(
    st.tuples(st.integers(0, 0x9C // 4 - 1), st.sampled_from((0, 1, 0x2000, 0x7FFFFFFF, 0xFFFFFFFF, -1))),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(GENERATIONS)), MEMBERS, st.integers(0, 0xFFFFFFFF))
def test_members_that_lie_get_an_answer(name: str, written: List[Tuple[int, int]], value: int) -> None:
    data = bytearray(writer(name).file())
    base = 0x2000 if GENERATIONS[name]["wide"] else 0x1000
    for place, chosen in written:
        number = value if chosen < 0 else chosen
        struct.pack_into("<I", data, base + 4 * place, number)
    everything(opened(bytes(data)))


@settings(deadline=None)
@given(st.sampled_from(sorted(GENERATIONS)), st.floats(0, 1), st.randoms(use_true_random=False))
def test_cut_and_shuffled_dumps_get_an_answer(name: str, cut: float, random: Any) -> None:
    data = writer(name).file()
    base = 0x2000 if GENERATIONS[name]["wide"] else 0x1000
    data = data[: base + int((len(data) - base) * cut)]
    pieces = [data[at : at + 0x40] for at in range(base + 0x80, len(data), 0x40)]
    random.shuffle(pieces)
    read: Optional[TriageDump] = None
    for damaged in (data, data[: base + 0x80] + b"".join(pieces)):
        try:
            read = opened(damaged)
        except NotAKernelDumpError:
            continue
        everything(read)


def test_bug_checks_have_their_names() -> None:
    assert bug_check(0xD1).shown == "0xd1 DRIVER_IRQL_NOT_LESS_OR_EQUAL"
    assert bug_check(0xD1).parameters[1] == "IRQL"
    assert bug_check(0x1000007E).parameters == bug_check(0x7E).parameters
    assert (bug_check(0xBADC0DE).shown, bug_check(0xBADC0DE).parameters) == ("0xbadc0de", ("", "", "", ""))
    assert [context_parameter(code) for code in (0x7E, 0x3B, 0xD1)] == [3, 2, -1]


@pytest.mark.parametrize("form", ["<I12xIIIIIII", "<Q16xQIIIIII"])
def test_an_x86_dump_with_other_last_members_is_told_by_the_tag(form: str) -> None:
    new_writer = writer("10-x86")
    data = bytearray(new_writer.file())
    names = ["TopOfStack", "DataPageAddress", "DataPageOffset", "DataPageSize", "DebuggerDataOffset"]
    names += ["DebuggerDataSize", "DataBlocksOffset", "DataBlocksCount"]
    tail = struct.pack(form, *(new_writer.members.get(name, 0) for name in names))
    at = 0x1000 + 18 * 4
    room = min(value for name, value in new_writer.members.items() if name.endswith("Offset") and value > at)
    assert at + len(tail) <= room
    data[at : at + len(tail)] = tail
    read = opened(bytes(data))
    assert read.debugger_data.tagged
    assert crashed_thread(read).ethread == THREAD[False][0]


def test_an_unloaded_driver_that_contradicts_itself_costs_itself() -> None:
    new_writer = writer("10-x64")
    new_writer.unloaded([Driver("a.sys", KERNEL[True] + 0x2000000, 0x1000), Driver("b.sys", 0x1000, 0x1000)])
    found, faults = list_unloaded(opened(new_writer.file()))
    assert [member.name for member in found] == ["a.sys"]
    assert has_status(faults, StatusCode.HEADER)


def test_x86_entries_may_be_aligned_to_eight_bytes() -> None:
    new_writer = writer("10-x86")
    new_writer.first = 8
    new_writer.drivers([Driver("ntoskrnl.exe", KERNEL[False], 0x800000), Driver("a.sys", 0x8F000000, 0x1000)])
    drivers, faults = list_drivers(opened(new_writer.file()))
    assert [(driver.name, driver.DllBase) for driver in drivers] == [
        ("ntoskrnl.exe", KERNEL[False]),
        ("a.sys", 0x8F000000),
    ]
    assert not faults
