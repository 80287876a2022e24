# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A build in which members move is read when lines are added to a text: of each kind, and no code changes.

Stack trace databases are in tests/winstacks/tracedb/test_generations.py, NT heaps in
tests/winstacks/heaps/test_layouts.py.
"""

from __future__ import annotations

import pathlib
import struct
from typing import List, Tuple, Union

import pytest

from tests.forge import context, kernels, pageheaps, segmentheaps
from tests.forge import heaplog as heaplogs
from tests.forge.heaplog import Record
from tests.forge.kernel import Kernel
from tests.forge.unloaded import UnloadedDll, unload_trace
from tests.support import bare, heaptypes, newbuild, stddata
from tests.support.heapforms import Records
from tests.support.heapimage import HEAP, HeapImage, groups, symbols
from winstacks.heaps import lister
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.contents import HeapContents, find_heaps, read_contents
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import has_status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import AddressSpace
from winstacks.names.decode import unloadevents
from winstacks.names.loaderlists import LoaderLists
from winstacks.process import globalflag, usertypes
from winstacks.process.thread import SavedContext, user_thread
from winstacks.stacks.cpu_x64 import Cpu64
from winstacks.stacks.cpu_x86 import Cpu86
from winstacks.stacks.cpus import AnyStart
from winstacks.tracedb.decode import backtraces, heaplog
from winstacks.tracedb.decode.backtraces import BacktraceRecord, Buffer
from winstacks.tracedb.model import Layouts
from winstacks.traps.state import TrapContexts

ARCHES = ("x64", "x86")
SHIFT = 0x20


def layouts(arch: str) -> Layouts:
    size = stddata.POINTERS[arch]
    return Layouts(bare.image(size), bare.MACHINES[size])


@pytest.mark.parametrize("arch", ARCHES)
def test_backtraces(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newbuild.add(tmp_path, monkeypatch, "backtraces", _RTL_PROCESS_BACKTRACES=SHIFT)
    known, size = layouts(arch), stddata.POINTERS[arch]
    record = BacktraceRecord(7, 1, 2, struct.pack("<2" + "QI"[size == 4], 0x1000, 0x2000))
    for build in (30000, 30001):
        dump = b"".join(backtraces.encode(Buffer(1, 2, 3, 1), [record], known.backtraces(build)))
        assert dump[:SHIFT] == bytes(SHIFT)
        assert int.from_bytes(dump[SHIFT : SHIFT + size], "little") == 1
        assert backtraces.decode(dump, known.backtraces(build)) == (Buffer(1, 2, 3, 1), [record])
    for older in (None, 2600, 29999):
        assert b"".join(backtraces.encode(Buffer(1, 2, 3, 1), [record], known.backtraces(older)))[0] == 1


class NewLog(heaplogs.HeapLog):
    """A heap's trace log of the new build: its members lie further on, those of records too."""

    def object_bytes(self) -> bytes:
        old = super().object_bytes()
        return old[: self.pointer] + bytes(SHIFT) + old[self.pointer :]

    def record_bytes(self, record: Record) -> bytes:
        old = super().record_bytes(record)
        return old[: self.pointer] + bytes(SHIFT) + old[self.pointer :]


def new_logs(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newbuild.add(
        *(folder, monkeypatch, "heaplog", "Next|MemoryBlockLookaside"),
        _RTLP_HEAP_STACK_TRACE_LOG=SHIFT,
        _RTLP_HEAP_STACK_TRACE_RECORD=SHIFT,
    )


@pytest.mark.parametrize("arch", ARCHES)
def test_heaplog(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, old = NewLog(arch), heaplogs.HeapLog(arch)
    for number in range(300):
        frames = [0x10000000 + 0x1000 * number + 4 * place for place in range(number % 32 + 1)]
        # Each record has the room that this build wants.
        log.log(frames, va=0x30100040 + 0x200 * number)
        old.log(frames)
    before = layouts(arch)
    assert heaplog.prove(stddata.reader_of(log.regions().items()), log.address, before.heaplogs) is None
    new_logs(tmp_path, monkeypatch)
    known = layouts(arch)
    for number, forged in enumerate((log, old)):
        reader = stddata.reader_of(forged.regions().items())
        layout = heaplog.prove(reader, forged.address, known.heaplogs)
        assert layout is known.heaplogs[number]
        found = {
            trace.address: trace.frames for trace in heaplog.HeapLog(reader, forged.address, layout).traces()
        }
        assert found == {record.va: record.frames for record in forged.records()}
        # A log that is damaged is read as what most of its records are.
        assert heaplog.likeliest(reader, forged.address, known.heaplogs) is layout


@pytest.mark.parametrize("wow64", [False, True])
def test_blocks_that_name_records_of_a_new_log(
    wow64: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_logs(tmp_path, monkeypatch)
    image = HeapImage("win10-x64", wow64)
    image.log = NewLog(image.arch)
    image.used["log"] = True
    heap = image.heap()
    for number in (5, 6, 7):
        record = image.log.log(image.stack(number), va=0x30100040 + 0x200 * number)
        heap.extended(100 + number, record)
    image.put(heap.regions(), HEAP)
    found = groups(image.run(tmp_path))
    assert sorted(symbols(node)[1] for node in found) == [
        f"app!open_store+{number:#x}" for number in (5, 6, 7)
    ]


def contents_of(arch: str, regions: List[Tuple[int, bytes]], listed: List[int]) -> HeapContents:
    """What the heaps of a process hold that has these regions."""
    size = stddata.POINTERS[arch]
    memory = Memory.over(Extents(sorted(regions)), size)
    layouts = lister.load_layouts(bare.image(size), bare.MACHINES[size])
    found = find_heaps(memory, layouts, listed)
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch])
    return read_contents(memory, found, layouts, traces, listed, keep=True)


def shown(contents: HeapContents) -> List[Tuple[int, int, bool]]:
    return sorted(
        (block.user, block.size, block.freed) for group in contents.groups for block in group.blocks
    )


@pytest.mark.parametrize("arch", ARCHES)
def test_page_heap(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = pageheaps._FORMS[arch]

    new = old._replace(
        root={name: offset + SHIFT for name, offset in old.root.items()},
        node={name: offset + SHIFT * (name not in ("left", "right")) for name, offset in old.node.items()},
        node_size=old.node_size + SHIFT,
    )
    newbuild.add(
        *(tmp_path, monkeypatch, "heap-page", "Signature|pNextAlloc"),
        _DPH_HEAP_ROOT=SHIFT,
        _DPH_HEAP_BLOCK=SHIFT,
    )
    for form in (new, old):
        monkeypatch.setitem(pageheaps._FORMS, arch, form)
        heap = pageheaps.PageHeap(0x300000, arch, 0x10000)
        users = [heap.block(0x500000 + 0x4000 * number, 100 + number, 0, number == 2) for number in range(3)]
        contents = contents_of(arch, heap.regions(), [0x300000])
        expected = [(user, 100 + number, number == 2) for number, user in enumerate(users)]
        assert shown(contents) == expected
        assert [owner.kind for owner in contents.owners if not owner.status] == ["page heap"]


@pytest.mark.parametrize("arch", ARCHES)
def test_segment_heap(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = segmentheaps._FORMS[arch]
    # The signature lies where it did: the lists tell the two builds from each other.
    new = old._replace(contexts=old.contexts + SHIFT, root=old.root + SHIFT, size=old.size + SHIFT)
    newbuild.add(tmp_path, monkeypatch, "heap-segment", "Interceptor", _SEGMENT_HEAP=SHIFT)
    for form in (new, old):
        monkeypatch.setitem(segmentheaps._FORMS, arch, form)
        records, heap = Records(arch), segmentheaps.SegmentHeap(0x10000000, arch)
        record = records.add()
        heap.segment(0x800000)
        user = heap.large(0x20000000, 0x54321, record)
        contents = contents_of(arch, [*heap.regions(), *records.runs()], [0x10000000])
        assert shown(contents) == [(user, 0x54321, False)]
        assert [group.trace for group in contents.groups] == [records.trace(record)]
        assert [owner.kind for owner in contents.owners] == ["segment heap"]
        assert not any(has_status(owner.status, StatusCode.DAMAGED) for owner in contents.owners)


PEB_MEMBERS = {"x64": (0x18, 0xBC), "x86": (0xC, 0x68)}
"""Ldr and NtGlobalFlag."""
LIST_HEADS = {"x64": (0x10, 0x20, 0x30), "x86": (0xC, 0x14, 0x1C)}
LIST_LINKS = {"x64": (0, 0x10, 0x20), "x86": (0, 8, 0x10)}
ENTRY_MEMBERS = {"x64": (0x30, 0x40, 0x58), "x86": (0x18, 0x20, 0x2C)}
"""DllBase, SizeOfImage and BaseDllName."""
TIB_MEMBERS = {"x64": (8, 0x10, 0x30), "x86": (4, 8, 0x18)}
"""StackBase, StackLimit and Self."""
PEB, LDR, MODULE, NAME, TEB = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000
BASE, SIZE, FLAGS = 0x7FF0000, 0x123000, 0x1070


def process(arch: str, shift: int) -> bytes:
    """A process with one module, whose structures lie as Windows has them, or further on."""
    size, data = stddata.POINTERS[arch], bytearray(0x6000)

    def put(address: int, value: int, width: int = size) -> None:
        data[address : address + width] = value.to_bytes(width, "little")

    ldr, flags = PEB_MEMBERS[arch]
    put(PEB + shift + ldr, LDR)
    put(PEB + shift + flags, FLAGS, 4)
    for head, links in zip(LIST_HEADS[arch], LIST_LINKS[arch]):
        one, other = LDR + shift + head, MODULE + shift + links
        for place, value in ((one, other), (one + size, other), (other, one), (other + size, one)):
            put(place, value)
    base, length, name = (MODULE + shift + member for member in ENTRY_MEMBERS[arch])
    put(base, BASE)
    put(length, SIZE, 4)
    text = "app.exe".encode("utf-16-le")
    put(name, len(text) | len(text) + 2 << 16, 4)
    put(name + size, NAME)
    data[NAME : NAME + len(text)] = text
    for member, value in zip(TIB_MEMBERS[arch], (0x30000, 0x20000, TEB)):
        put(TEB + shift + member, value)
    return bytes(data)


@pytest.mark.parametrize("arch", ARCHES)
def test_process(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newbuild.add(
        *(tmp_path, monkeypatch, "process"),
        _PEB=SHIFT,
        _PEB_LDR_DATA=SHIFT,
        _LDR_DATA_TABLE_ENTRY=SHIFT,
        _NT_TIB=SHIFT,
    )
    size = stddata.POINTERS[arch]
    for shift in (SHIFT, 0):
        image = bare.image(size, process(arch, shift))
        space = AddressSpace(1000, "app.exe", bare.MACHINES[size], "bare", peb=PEB)
        entries, complete = LoaderLists(image).process_modules(space)
        assert [(entry.base, entry.size, entry.name) for entry in entries] == [(BASE, SIZE, "app.exe")]
        assert complete
        assert globalflag.read(image, space) == FLAGS
        tib, memory = usertypes.with_teb(image, space, TEB)["_NT_TIB"], image.memory(space)
        assert [memory.pointer(TEB + tib.offset(name)) for name in ("StackBase", "StackLimit")] == [
            0x30000,
            0x20000,
        ]
        # Where a process has no list, the newest table has the word: nothing tells of another.
        assert usertypes.user_types(image, space._replace(peb=0)) is image.process_types(space.machine)


CONTEXT = {"x64": ("Rip", 0x30, 0xF8, 0x98, 0x100001), "x86": ("Eip", 0, 0xB8, 0xC4, 0x10001)}
"""Of a CONTEXT: ContextFlags, Rip and Rsp, and flags that say that these were written."""


@pytest.mark.parametrize("arch", ARCHES)
def test_context(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newbuild.add(tmp_path, monkeypatch, "context", _CONTEXT=SHIFT, _KSWITCH_FRAME=SHIFT)
    size = stddata.POINTERS[arch]
    _, flags, ip, sp, written = CONTEXT[arch]
    image = bare.image(size)
    contexts = TrapContexts(image, members=True)
    space = AddressSpace(1000, "app.exe", bare.MACHINES[size], "bare")
    for shift in (SHIFT, 0):
        data = bytearray(0x600)
        for place, value, width in ((flags, written, 4), (ip, 0x401000, size), (sp, 0x20000, size)):
            data[shift + place : shift + place + width] = value.to_bytes(width, "little")
        thread = user_thread(space, 7, None)
        state = contexts.saved(thread, space, SavedContext(space.machine, bytes(data), 0x9000))
        assert (state.registers["Rip"], state.registers["Rsp"], state.status) == (0x401000, 0x20000, ())
        assert {member.name: member.offset for member in state.members}["Rip"] == shift + ip


@pytest.mark.parametrize("arch", ARCHES)
def test_switch_frame(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits, in a build that keeps more below the return address."""
    newbuild.add(tmp_path, monkeypatch, "context", _KSWITCH_FRAME=SHIFT)
    size = stddata.POINTERS[arch]
    image = bare.image(size)
    cpu: Union[Cpu64, Cpu86] = Cpu64(image) if size == 8 else Cpu86(image)
    place = {8: 0x38, 4: 8}[size]
    for number, shift in enumerate((SHIFT, 0)):
        data = bytearray(0x100)
        data[shift + place : shift + place + size] = (0x401234).to_bytes(size, "little")
        memory = Memory.over(Extents([(0x1000, bytes(data))]), size)
        starts: List[AnyStart] = list(cpu.switched_out(memory, 0x1000))
        # The one that is in the kernel's code is taken.
        assert [start.registers.ip == 0x401234 for start in starts] == [number == 0, number == 1]


@pytest.mark.parametrize("arch", ARCHES)
def test_unload(arch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newbuild.add(tmp_path, monkeypatch, "unload", _RTL_UNLOAD_EVENT_TRACE=SHIFT)
    size = stddata.POINTERS[arch]
    types = bare.image(size).our_generations("unload", bare.MACHINES[size])
    layouts = [unloadevents.EventLayout(generation["_RTL_UNLOAD_EVENT_TRACE"]) for generation in types]
    bases = [0x10000000 + number * 0x100000 for number in range(20)]
    gone = [UnloadedDll(f"library{number}.dll", base, 0x8000, 7) for number, base in enumerate(bases)]
    old = unload_trace(gone, 8 * size)
    length = len(old) // unloadevents.EVENTS
    elements = (old[start : start + length] for start in range(0, len(old), length))
    for expected, data in ((0, b"".join(bytes(SHIFT) + element for element in elements)), (1, old)):
        held = memoryview(bytes(0x100) + data + b"\x11" * 0x400)
        assert list(unloadevents.find_ring(held, layouts, 0x80000000)) == [0x100]
        sized = [(held[0x100 : 0x100 + 16 * layout.size], layout) for layout in layouts]
        rings = [unloadevents.read_events(ring, layout, 0x80000000) for ring, layout in sized]
        assert [ring is not None for ring in rings] == [number == expected for number in range(3)]
        assert [event.name for event in rings[expected] or ()] == [member.name for member in gone[4:]]


@pytest.mark.parametrize(("number", "first"), [(0xF0000000 | 19041, 0xC), (30000, 0xC + SHIFT)])
def test_where_nothing_tells_the_kernels_build_does(
    number: int, first: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newbuild.add(tmp_path, monkeypatch, "process", _PEB=SHIFT)
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.set("NtBuildNumber", number)
    image = context.open_image(kernel.image(), tmp_path).image
    types = image.our_generations("process", Machine.I386)
    assert [generation["_PEB"].offset("Ldr") for generation in types] == sorted(
        [0xC, 0xC + SHIFT], reverse=first != 0xC
    )
    assert image.process_types(Machine.I386)["_PEB"].offset("Ldr") == first
