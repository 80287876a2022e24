# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What Volatility's layers read of forged memory: page states, halves, sessions, ranges, objects."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from volatility3.framework import exceptions
from volatility3.plugins.windows import (
    dlllist,
    handles,
    kpcrs,
    modules,
    pslist,
    psscan,
    thrdscan,
    threads,
    unloadedmodules,
    vadinfo,
)

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.obj import Obj, ring
from tests.forge.paging import State
from tests.forge.phys import PAGE, PhysicalMemory
from tests.forge.space import Space
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.deep import rounds
from tests.support.only import only

USER = 0x10000000
KERNEL = {64: 0xFFFFA80000100000, 32: 0xA8100000}
LARGE = {64: 0xFFFFA80010000000, 32: 0xA9000000}
STATES = [state for state in State if state is not State.LARGE]


class Forged:
    """One image of one kernel, opened; what was built stays at hand for comparison."""

    def __init__(self, name: str, directory: pathlib.Path) -> None:
        known = kernels.load(name)
        self.kernel = kernel = Kernel(known.table, **known.options(), cpus=2, shuffle=3)
        self.bits = kernel.bits
        process = self.process = kernel.process("app.exe", pid=1000, session=1, nt_global_flag=0x1000)
        process.module("app.exe", dll=False)
        self.ntdll = process.module("ntdll.dll", exports={"NtClose": 0x1100})
        process.module("hidden.dll", listed=False)
        process.region(0x30000000, b"\x90", protection=EXECUTE_READWRITE)
        process.region(0x31000000, b"view", file="\\Data\\a.dat")
        self.thread = process.thread(1004, start=self.ntdll.at("NtClose"), stack=b"kernel stack")
        self.other = kernel.process("other.exe", pid=1008, session=2)
        self.wow = process.wow64(nt_global_flag=0x40) if self.bits == 64 else None
        if self.wow is not None:
            self.wow.module("ntdll.dll", exports={"NtClose": 0x1100})
            self.wow.thread(self.thread, stack=b"32-bit stack", context=b"\x1f\0\1\0")
        for number in (1, 2):
            session = kernel.session(number)
            session.space.write(self.session_address, b"session %d" % number)
        kernel.module("win32k.sys", session=kernel.session(1))
        self.gone = kernel.base + 0x8000000
        for number in range(51):
            start = self.gone + number * 0x10000
            kernel.unloaded(f"gone{number}.sys", start, start + 0x8000)
        kernel.cpus[1].current(self.thread)
        self.dpc_base = kernel.cpus[1].stack("dpc", data=b"dpc")
        for index, state in enumerate(STATES):
            self._page(kernel.space, KERNEL[self.bits] + index * PAGE, state)
            self._page(process.space, USER + index * PAGE, state)
        kernel.space.map_large(LARGE[self.bits], 1)
        kernel.space.write(LARGE[self.bits] + 0x12345, b"large")
        self.opened = context.open_image(kernel.image(), directory, f"{name}.dmp")
        found = {int(process.UniqueProcessId): process for process in self.processes()}
        self.layers = {pid: self.layer(process) for pid, process in found.items()}
        self.eprocess = found[1000]

    @property
    def session_address(self) -> int:
        return 0xFFFFF90000800000 if self.bits == 64 else 0xBD800000

    @staticmethod
    def _page(space: Space, address: int, state: State) -> None:
        space.write(address, state.value.encode())
        space.set_state(address, 1, state)

    def processes(self) -> Any:
        return pslist.PsList.list_processes(self.opened.context, self.opened.kernel)

    def layer(self, process: Any) -> Any:
        return self.opened.context.layers[process.add_process_layer()]


@pytest.fixture(scope="module", params=["win10-x64", "win7-x64", "win7-x86", "xp-x86"])
def forged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forged:
    return Forged(request.param, tmp_path_factory.mktemp("memory"))


def read(layer: Any, address: int, size: int) -> bytes:
    return bytes(layer.read(address & layer.address_mask, size))


@pytest.mark.parametrize("index", range(len(STATES)), ids=[state.name for state in STATES])
@pytest.mark.parametrize("half", ["kernel", "user"])
def test_page_states(forged: Forged, index: int, half: str) -> None:
    state = STATES[index]
    layer = forged.opened.layer if half == "kernel" else forged.layers[1000]
    address = (KERNEL[forged.bits] if half == "kernel" else USER) + index * PAGE
    if state.readable:
        assert read(layer, address, 16) == state.value.encode().ljust(16, b"\0")
        return
    with pytest.raises(exceptions.InvalidAddressException) as raised:
        read(layer, address, 1)
    assert isinstance(raised.value, exceptions.SwappedInvalidAddressException) == (state is State.PAGEFILE)


def test_large_page(forged: Forged) -> None:
    assert read(forged.opened.layer, LARGE[forged.bits] + 0x12345, 5) == b"large"
    assert read(forged.opened.layer, LARGE[forged.bits] + 0x1FFFFF, 1) == b"\0"
    with pytest.raises(exceptions.InvalidAddressException):
        read(forged.opened.layer, LARGE[forged.bits] + 0x200000, 1)


def test_processes_share_the_kernel_half_only(forged: Forged) -> None:
    base = forged.kernel.base
    assert read(forged.layers[1000], base, 2) == read(forged.layers[1008], base, 2) == b"MZ"
    with pytest.raises(exceptions.InvalidAddressException):
        read(forged.layers[1008], USER, 1)


def test_sessions_differ(forged: Forged) -> None:
    for pid, text in ((1000, b"session 1"), (1008, b"session 2")):
        assert read(forged.layers[pid], forged.session_address, 9) == text
    with pytest.raises(exceptions.InvalidAddressException):
        read(forged.opened.layer, forged.session_address, 1)
    win32k = forged.kernel.modules[-1]
    layers = modules.Modules.get_session_layers(forged.opened.context, forged.opened.kernel)
    found = modules.Modules.find_session_layer(forged.opened.context, layers, win32k.base)
    assert found is not None
    assert read(forged.opened.context.layers[found], win32k.base, 2) == b"MZ"


def test_modules_of_both_halves(forged: Forged) -> None:
    rows = [row for _, row in forged.opened.rows(dlllist.DllList) if row["PID"] == 1000]
    expected = [("app.exe", forged.process.modules[0].base), ("ntdll.dll", forged.ntdll.base)]
    if forged.wow is not None:
        expected.append(("ntdll.dll", forged.wow.modules[0].base))
        assert rows[-1]["Path"] == "C:\\Windows\\SysWOW64\\ntdll.dll"
        assert forged.eprocess.get_peb32().NtGlobalFlag == 0x40
    assert [(row["Name"], int(row["Base"])) for row in rows] == expected
    assert forged.eprocess.get_peb().NtGlobalFlag == 0x1000


def test_ranges(forged: Forged) -> None:
    rows = [row for _, row in forged.opened.rows(vadinfo.VadInfo) if row["PID"] == 1000]
    spans = [(int(row["Start VPN"]), int(row["End VPN"])) for row in rows]
    assert len(spans) == len(set(spans)) == len(forged.process.vads)
    ordered = sorted(spans)
    assert all(before[1] < after[0] for before, after in zip(ordered, ordered[1:]))
    files = {int(row["Start VPN"]): row for row in rows}
    assert files[forged.ntdll.base]["File"] == "\\Windows\\System32\\ntdll.dll"
    assert int(files[forged.ntdll.base]["End VPN"]) == forged.ntdll.base + forged.ntdll.size - 1
    assert files[0x31000000]["File"] == "\\Data\\a.dat"
    assert files[0x30000000]["PrivateMemory"] == 1
    assert forged.process.peb is not None
    assert any(start <= forged.process.peb.address <= end for start, end in spans)


def test_protections(forged: Forged) -> None:
    rows = {int(row["Start VPN"]): row for _, row in forged.opened.rows(vadinfo.VadInfo, pid=[1000])}
    assert rows[0x30000000]["Protection"] == "PAGE_EXECUTE_READWRITE"
    assert rows[forged.ntdll.base]["Protection"] == "PAGE_EXECUTE_WRITECOPY"


def test_threads(forged: Forged) -> None:
    found = only(threads.Threads.list_threads(forged.opened.context, forged.opened.kernel, forged.eprocess))
    thread, layer = forged.thread, forged.opened.layer
    assert (found.Cid.UniqueProcess, found.Cid.UniqueThread) == (1000, 1004)
    assert found.StartAddress == forged.ntdll.at("NtClose")
    assert found.owning_process().UniqueProcessId == 1000
    assert found.Tcb.State == 2
    assert (found.Tcb.StackBase - found.Tcb.KernelStack) == len(b"kernel stack")
    assert read(layer, thread.stack_base - 12, 12) == b"kernel stack"
    teb = forged.opened.context.object(
        found.vol.type_name.replace("_ETHREAD", "_TEB"), forged.layers[1000].name, int(found.Tcb.Teb)
    )
    assert teb.NtTib.Self == found.Tcb.Teb
    assert teb.NtTib.StackBase == thread.user_stack_base


def test_wow64_side_of_a_thread(forged: Forged) -> None:
    if forged.wow is None:
        pytest.skip("no WoW64 on 32 bits")
    assert forged.thread.teb is not None
    layer = forged.layers[1000]
    teb32 = forged.thread.teb["NtTib.ExceptionList"]
    base = int.from_bytes(read(layer, teb32 + 4, 4), "little")
    assert read(layer, base - 12, 12) == b"32-bit stack"
    area = forged.thread.teb["TlsSlots[1]"]
    assert read(layer, area, 8) == b"\0\0\x4c\x01\x1f\0\1\0"


def test_processors(forged: Forged) -> None:
    kernel = forged.opened.context.modules[forged.opened.kernel]
    blocks = kernel.object(
        "array", kernel.get_symbol("KiProcessorBlock").address, count=2, subtype=kernel.get_type("pointer")
    )
    second = kernel.object("_KPRCB", int(blocks[1]), absolute=True)
    assert second.Number == 1
    assert second.CurrentThread == forged.thread.ethread.address & forged.opened.layer.address_mask
    assert read(forged.opened.layer, forged.dpc_base - 3, 3) == b"dpc"
    assert second.DpcStack == forged.dpc_base & forged.opened.layer.address_mask
    if forged.bits == 64:
        assert len(forged.opened.rows(kpcrs.KPCRs)) == 2


def test_unloaded_drivers_wrap(forged: Forged) -> None:
    array = forged.kernel.space.read_int(forged.kernel.symbol("MmUnloadedDrivers"))
    assert forged.kernel.space.holds(array)
    # Volatility reads as many records as MmLastUnloadedDriver says: the one written last.
    row = only(row for _, row in forged.opened.rows(unloadedmodules.UnloadedModules))
    mask = forged.opened.layer.address_mask
    assert (row["Name"], int(row["StartAddress"])) == ("gone50.sys", forged.gone + 50 * 0x10000 & mask)
    assert int(row["EndAddress"]) - int(row["StartAddress"]) == 0x8000


def test_pool_scanners_see_the_objects(forged: Forged) -> None:
    assert {row["PID"] for _, row in forged.opened.rows(psscan.PsScan)} == {4, 1000, 1008}
    assert [row["TID"] for _, row in forged.opened.rows(thrdscan.ThrdScan)] == [1004]


def test_type_table(forged: Forged) -> None:
    if not forged.kernel.isf.has("_OBJECT_HEADER", "TypeIndex"):
        pytest.skip("no type table before Windows 7")
    names = handles.Handles.get_type_map(forged.opened.context, forged.opened.kernel)
    assert {"Process", "Thread", "File"} <= set(names.values())


@pytest.fixture(scope="module")
def scratch() -> Kernel:
    return Kernel(kernels.load("win10-x64").table)


def test_obj_members(scratch: Kernel) -> None:
    resource = scratch.obj("_ERESOURCE")
    resource["NumberOfSharedWaiters"] = 0x1_0000_0003
    assert resource["NumberOfSharedWaiters"] == 3
    resource["SystemResourcesList.Flink"] = resource
    assert resource["SystemResourcesList.Flink"] == resource.address
    thread = scratch.obj("_KTHREAD")
    thread["Header.Type"] = 6
    assert thread.member("Header")["Type"] == 6
    assert not thread.maybe("NoSuchMember", 1)
    assert thread.first(["NoSuchMember", "State"], 5) == "State"
    with pytest.raises(KeyError):
        thread["NoSuchMember"] = 1
    with pytest.raises(KeyError):
        thread.first(["NoSuchMember"], 1)


def test_obj_bit_fields_leave_their_neighbours(scratch: Kernel) -> None:
    node = scratch.obj("_MMVAD_SHORT")
    node["u.VadFlags.PrivateMemory"] = 1
    node["u.VadFlags.Protection"] = 0x1F
    node["u.VadFlags.Protection"] = 4
    assert node["u.VadFlags.PrivateMemory"] == 1
    assert node["u.VadFlags.Protection"] == 4


def test_ring_of_one_points_to_itself(scratch: Kernel) -> None:
    head = scratch.space.allocate(16)
    ring(scratch.space, [head])
    assert scratch.space.read_int(head) == scratch.space.read_int(head + 8) == head


def test_text(scratch: Kernel) -> None:
    file = scratch.file("\\a\\b.dll")
    assert file is scratch.file("\\a\\b.dll")
    assert file["FileName.Length"] == 16
    assert scratch.space.read(file["FileName.Buffer"], 16).decode("utf-16-le") == "\\a\\b.dll"


@given(
    st.lists(st.tuples(st.integers(0, 5 * PAGE), st.binary(min_size=1, max_size=2 * PAGE)), max_size=8),
    st.sampled_from([None, 1]),
)
@settings(max_examples=rounds(40), deadline=None)
def test_space_behaves_like_flat_memory(writes: list[tuple[int, bytes]], shuffle: int | None) -> None:
    space = Space(PhysicalMemory(shuffle), 64, 0x1000000, 0x2000000)
    base = 0xFFFF800000000000 - 4 * PAGE
    model = bytearray(8 * PAGE)
    space.map(base, len(model))
    for offset, data in writes:
        space.write(base + offset, data)
        model[offset : offset + len(data)] = data
    assert space.read(base, len(model)) == bytes(model[: len(model)])
    entries = [space.tables.entry(base + page) for page in range(0, len(model), PAGE)]
    assert [(entry or 0) >> 12 & 0xFFFFFFFFFF for entry in entries] == [
        space.physical(base + page) >> 12 for page in range(0, len(model), PAGE)
    ]


def test_unreadable_pages_leave_the_image() -> None:
    space = Space(PhysicalMemory(), 64, 0x1000000, 0x2000000)
    space.write(USER, b"x")
    frame = space.physical(USER) >> 12
    assert space.holds(USER) and frame in space.phys
    space.set_state(USER, 1, State.MISSING)
    assert not space.holds(USER) and frame not in space.phys
    space.set_state(USER, 1, State.VALID)
    assert space.read(USER, 1) == b"\0"


def test_missing_frames_are_in_no_image_however_many_there_are() -> None:
    """A machine loses thousands of pages; x86 has frames of 28 bits with PAE, and of 20 without."""
    phys = PhysicalMemory()
    frames = [phys.missing() for _ in range(1 << 17)]
    assert len(set(frames)) == len(frames)
    assert max(frames) < 1 << 28
    assert min(frame & 0xFFFFF for frame in frames) > 0x80000


def test_obj_of_another_bitness(scratch: Kernel) -> None:
    wow = scratch.process("w.exe", pid=2000).wow64()
    entry = Obj(wow.space, wow.isf, "_LIST_ENTRY", wow.space.allocate(8))
    entry["Flink"] = 0x1_2345_6789
    assert entry["Flink"] == 0x23456789 and entry.size == 8
