# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Running systems that nobody here wrote, without some pages: a row is as before, or says why it is not."""

from __future__ import annotations

import bisect
import collections
import logging
import operator
import pathlib
import shutil
from typing import Any, Dict, Iterable, List, NamedTuple, Set, Tuple

import pytest
from volatility3.framework import exceptions
from volatility3.framework.renderers import NotAvailableValue
from volatility3.plugins.windows import (
    callstacks,
    gflags,
    locks,
    tracefindings,
    traceframes,
    traces,
    tracewaits,
    trapframes,
    waits,
)

from tests.forge import context
from tests.forge.context import Opened
from tests.support.strangers import IMAGES, unpacked, without_pages
from tests.windows.test_callstacks import plain
from winstacks.columns import words
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.names.decode.functiontable import FunctionTable
from winstacks.names.decode.pe import DIRECTORY_EXCEPTION, read_headers
from winstacks.names.loaderlists import module_lists
from winstacks.process.spaces import AddressSpaces
from winstacks.process.threads import Threads

pytestmark = pytest.mark.shared

Row = Dict[str, Any]


FRAMES, STACKS = traceframes.TraceFrames, traces.StackTraces


class Write(NamedTuple):
    """A number of `size` bytes at an address of the kernel, or of a process's layer."""

    address: int
    value: int
    size: int
    layer_name: str = ""


class System:
    """One of IMAGES, open; and copies of it that lack pages."""

    def __init__(self, packed: pathlib.Path, folder: pathlib.Path) -> None:
        self._image = unpacked(packed, folder)
        shutil.copytree(folder / "symbols", context.symbol_directory(), dirs_exist_ok=True)
        self.whole = context.open_file(self._image)
        self._rows: Dict[Any, List[Row]] = {}

    def rows(self, plugin: Any) -> List[Row]:
        """Returns the rows of the whole image, which are read once."""
        if plugin not in self._rows:
            self._rows[plugin] = top(self.whole, plugin)
        return self._rows[plugin]

    def page(self, address: int, layer_name: str = "") -> int:
        """Returns the number of the physical page of an address, of the kernel or of a process's layer."""
        layer = self.whole.context.layers[layer_name] if layer_name else self.whole.layer
        place: int = layer.translate(address & layer.address_mask)[0]
        return place // PAGE_SIZE

    def zeroed(self, *pages: int) -> Opened:
        """Opens a copy with zeros in pages, as tools write that could not read these."""
        return self._with({page * PAGE_SIZE: bytes(PAGE_SIZE) for page in pages})

    def written(self, *writes: Write) -> Opened:
        """Opens a copy with other numbers."""
        places = [self.page(each.address, each.layer_name) * PAGE_SIZE for each in writes]
        return self._with(
            {
                place + each.address % PAGE_SIZE: each.value.to_bytes(each.size, "little")
                for place, each in zip(places, writes)
            }
        )

    def _with(self, changes: Dict[int, bytes]) -> Opened:
        """Opens a copy with other bytes at places of the file."""
        data = bytearray(self._image.read_bytes())
        for place, changed in changes.items():
            data[place : place + len(changed)] = changed
        path = self._image.with_name("changed.raw")
        path.write_bytes(data)
        return context.open_file(path)

    def without(self, *addresses: int) -> Opened:
        return context.open_file(without_pages(self._image, set(map(self.page, addresses))))


@pytest.fixture(scope="module", params=IMAGES, ids=lambda path: path.name.partition(".")[0])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> System:
    return System(request.param, tmp_path_factory.mktemp("system"))


def top(opened: Opened, plugin: Any, **options: Any) -> List[Row]:
    return [plain(row) for depth, row in opened.rows(plugin, **options) if not depth]


def words_of(row: Row) -> Set[str]:
    return set(filter(None, (row["Status"] or "").split(", ")))


def test_a_thread_that_is_not_in_the_image_may_wait(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """PspCidTable still has its ID."""
    before = {row["TID"]: row for row in system.rows(waits.WaitChains)}
    threads = [thread for thread in Threads.list_threads(system.whole.image) if thread.tid in before]
    lost = threads[1]
    damaged = system.without(lost.ethread)
    caplog.set_level(logging.WARNING)
    after = {row["TID"]: row for row in top(damaged, waits.WaitChains)}
    assert after[lost.tid]["Status"] == "unreadable"
    assert set(before) <= set(after) or after[None]["Status"] == "thread list damaged"
    unread = [tid for tid, row in after.items() if row["Status"] == "unreadable"]
    said = f"It is not known whether {len(unread)} thread"
    assert [message.startswith(said) for message in caplog.messages if "not known" in message] == [True]
    caplog.clear()
    assert lost.tid not in {row["TID"] for row in top(damaged, tracewaits.TraceWaits)}
    assert any(message.startswith(said) for message in caplog.messages)
    shown = {row["TID"] for row in top(damaged, waits.WaitChains, tid=[lost.tid])}
    assert shown - {None} == {lost.tid}


def test_an_object_whose_type_is_not_in_the_image_may_be_another(system: System) -> None:
    """A wait for a file is one for the event in its FILE_OBJECT, which has no name of its own."""
    image = system.whole.image
    memory = image.memory(image.kernel)
    types = [memory.pointer(image.symbol(name)) for name in ("ExEventObjectType", "IoFileObjectType")]
    before = {(row["PID"], row["TID"], row["Evidence"]): row for row in system.rows(waits.WaitChains)}
    # Threads may lie in the same pages.
    after = [row for row in top(system.without(*types), waits.WaitChains) if row["Evidence"]]
    changed = 0
    for row in after:
        known = before[row["PID"], row["TID"], row["Evidence"]]
        if any(known[name] != row[name] for name in ("WaitsFor", "WaitAddress", "WaitName", "ChainEnd")):
            assert words_of(row) - words_of(known) == {"object type unknown"}
            changed += 1
    kinds = words.EVENT, words.FILE
    named = [row for row in before.values() if row["WaitsFor"] in kinds and row["WaitName"]]
    assert changed == len(named)
    assert not any("object type unknown" in words_of(row) for row in before.values())


def test_a_peb_of_zeros_is_one_that_could_not_be_copied(system: System) -> None:
    """Flags of 0 ask for no list of sections, so that nothing said why there was none."""
    spaces = AddressSpaces.list_spaces(system.whole.image)
    space = next((each for each in spaces if each.peb and each.layer_name), None)
    if space is None:
        pytest.skip("no process has started")
    damaged = system.zeroed(system.page(space.peb, space.layer_name))
    listed = {row["PID"]: row for row in top(damaged, gflags.GFlags)}
    assert listed[space.pid]["Status"] == "flags unreadable" and listed[space.pid]["NtGlobalFlag"] is None
    found = [row["Status"] for row in top(damaged, locks.Locks) if row["PID"] == space.pid]
    assert found == ["list not found"]
    assert all(row["NtGlobalFlag"] is not None for row in system.rows(gflags.GFlags) if not row["Status"])


REGISTERS = {"Rip": ("Rip", "Eip"), "Rsp": ("Rsp", "HardwareEsp")}
"""Registers in columns, and the members of trap frames that hold them: x64, x86."""


@pytest.mark.parametrize("register", REGISTERS)
def test_code_of_a_process_has_no_registers_of_the_kernels_half(system: System, register: str) -> None:
    """Whoever writes such a value into the frame of a thread from user mode hides its stack."""
    image = system.whole.image
    known = {thread.tid: thread for thread in Threads.list_threads(image)}
    frames = system.rows(trapframes.TrapFrames)
    framed = [row for row in frames if (row["Mode"], row["Origin"]) == ("user", "thread")]
    if not framed:
        pytest.skip("no thread has a frame of a system call")
    chosen = known[framed[0]["TID"]]
    place = framed[0]["TrapFrame"] + image.types["_KTRAP_FRAME"].offset(*REGISTERS[register])
    other = next(thread for tid, thread in known.items() if tid != chosen.tid and thread.kernel_stack)
    assert other.kernel_stack
    damaged = system.written(Write(place, other.kernel_stack, image.pointer_size))
    word = f"contradicted: {register}"
    rows = [row for row in top(damaged, trapframes.TrapFrames) if row["TID"] == chosen.tid]
    assert [word in words_of(row) for row in rows if row["Mode"] == "user"] == [True]
    listed = damaged.rows(callstacks.CallStacks, tid=[chosen.tid])
    part = [(depth, plain(row)) for depth, row in listed if row["Part"] == "user"]
    assert word in words_of(part[0][1])
    end = image.machine.masked(image.machine.kernel_start)
    assert all(row["Address"] < end for depth, row in part if depth)
    told = [(row["Finding"], row["Evidence"]) for row in top(damaged, tracefindings.TraceFindings)]
    said = {"lost_stacks": f"user of TID {chosen.tid} ({word}"}
    if register == "Rsp":
        # Ebp may lead on to the right stack.
        said["stack_pivot"] = "the stack pointer of a thread leads to no memory of its process"
    assert any(finding in said and said[finding] in evidence for finding, evidence in told)
    assert not any("contradicted: R" in row["Status"] for row in frames)


def test_a_length_that_the_name_of_a_module_cannot_have(system: System) -> None:
    """Whoever writes it renames a module of a process; its path has the name, too."""
    image = system.whole.image
    layout = image.types["_LDR_DATA_TABLE_ENTRY"]
    before = [row for row in system.rows(FRAMES) if row["ModulePath"]]
    modules = {
        (row["PID"], row["ModulePath"]): row["Module"] for row in before if row["TraceId"].startswith("user:")
    }
    if not modules:
        pytest.skip("no module of a process is on a stack")
    spaces = {space.pid: space for space in AddressSpaces.list_spaces(image) if space.layer_name}
    writes: Dict[Tuple[int, str], Write] = {}
    for (pid, path), length in zip(modules, (0, 2, 5, 0xFFFF)):
        memory = image.memory(spaces[pid])
        entries, _ = image.service(module_lists).process_modules(spaces[pid])
        paths = {
            memory.unicode_string_at(each.address + layout.offset("FullDllName")): each for each in entries
        }
        place = paths[path].address + layout.offset("BaseDllName")
        writes[pid, path] = Write(place, length, 2, spaces[pid].layer_name)
    after = top(system.written(*writes.values()), FRAMES)
    renamed = [row for row in after if (row["PID"], row["ModulePath"]) in writes]
    assert {(row["PID"], row["ModulePath"]): row["Module"] for row in renamed} == {
        module: modules[module] for module in writes
    }
    assert all("contradicted: BaseDllName" in words_of(row) for row in renamed)
    assert not any("BaseDllName" in row["Status"] for row in before)


def exact(rows: Iterable[Row]) -> Set[Tuple[str, str]]:
    """Returns TraceId and StackKey of the stacks whose KeyQuality is `exact`."""
    return {(row["TraceId"], row["StackKey"]) for row in rows if row["KeyQuality"] == words.EXACT}


def named(rows: Iterable[Row], *kinds: str) -> List[Row]:
    """Returns the rows of frames in modules of the kernel, in stacks of these kinds; Base is the module's."""
    rows = [row for row in rows if row["TraceId"].startswith(kinds) and row["Rva"] is not None]
    return [{**row, "Base": int(row["Address"], 0) - row["Rva"]} for row in rows]


def test_headers_of_zeros_are_no_headers(system: System) -> None:
    """They contradicted the list of modules, and its module had no frames any more."""
    rows = named(system.rows(FRAMES), "callback")
    bases = {row["Base"] for row in rows} - {system.whole.image.base}
    damaged = system.zeroed(*map(system.page, bases))
    assert bases and exact(top(damaged, STACKS)) <= exact(system.rows(STACKS))
    assert {row["Address"] for row in named(top(damaged, FRAMES), "callback")} == {
        row["Address"] for row in rows
    }


def test_headers_that_are_no_headers_make_no_exact_key(system: System) -> None:
    """A write to the first bytes of a driver takes its frames out of each module."""
    bases = {row["Base"] for row in named(system.rows(FRAMES), "callback")} - {system.whole.image.base}
    base = min(bases)
    damaged = system.written(Write(base, 0, 2))
    after = top(damaged, STACKS)
    assert exact(after) <= exact(system.rows(STACKS))
    listed = [row for row in after if row["TraceId"].startswith("callback")]
    assert any("headers contradict the module list" in words_of(row) for row in listed)


@pytest.mark.parametrize("present", (False, True))
def test_a_lost_page_of_a_function_table_is_no_page_of_leaves(system: System, present: bool) -> None:
    """A page of zeros was taken for functions without entries, whose caller is on top of the stack."""
    if system.whole.image.machine is not Machine.AMD64:
        pytest.skip("x86 has no function tables")
    before, base = exact(system.rows(STACKS)), system.whole.image.base
    memory = system.whole.image.memory(system.whole.image.kernel)
    headers = read_headers(lambda rva, length: memory.read(base + rva, length))
    start, size = headers.directory(DIRECTORY_EXCEPTION)
    table = memory.read(base + start, size)
    assert table is not None
    entries = FunctionTable.from_bytes(table, lambda rva, length: memory.read(base + rva, length))
    rvas = [row["Rva"] for row in named(system.rows(FRAMES), "kernel") if row["Base"] == base]
    places = [start + bisect.bisect_left(entries.ranges[0], rva) * entries.ENTRY_SIZE for rva in rvas]
    for page, _ in collections.Counter(place // PAGE_SIZE for place in places).most_common(1):
        address = base + page * PAGE_SIZE
        damaged = system.zeroed(system.page(address)) if present else system.without(address)
        listed = top(damaged, STACKS)
        assert exact(listed) <= before
        assert any("function table unreadable" in words_of(row) for row in listed)


def test_lost_code_may_be_no_call(system: System) -> None:
    """The first function of a thread lies on the stack like a return address, but behind no call."""
    outermost = {row["TraceId"]: int(row["Address"], 0) for row in named(system.rows(FRAMES), "kernel")}
    pages = collections.Counter(address - address % PAGE_SIZE for address in outermost.values())
    for page, _ in pages.most_common(1):
        assert exact(top(system.without(page), STACKS)) <= exact(system.rows(STACKS))


def test_a_thread_that_ran_is_not_being_made(system: System) -> None:
    """State 0 hid why it waits, and that its registers are saved."""
    image = system.whole.image
    state = image.types["_ETHREAD"].offset("Tcb.State")
    rows = system.rows(callstacks.CallStacks)
    waiting = {row["TID"] for row in rows if (row["State"], row["Part"]) == ("Waiting", "kernel")}
    thread = next(thread for thread in Threads.list_threads(image) if thread.tid in waiting)
    damaged = system.written(Write(thread.ethread + state, 0, 1))
    after = [row for row in top(damaged, callstacks.CallStacks) if row["TID"] == thread.tid]
    assert after and all("contradicted: State" in words_of(row) for row in after)
    assert not any("State" in row["Status"] for row in rows if row["State"] == "Initialized")


def test_resources_with_values_that_no_resource_has(system: System) -> None:
    """More waiters than threads; an exclusive owner although the resource is free."""
    image = system.whole.image
    before = [row for row in system.rows(locks.Locks) if row["LockType"] == words.RESOURCE]
    free = [row for row in before if not row["OwnerRole"]]
    values = {"NumberOfSharedWaiters": 0xFFFFFFFF, "NumberOfExclusiveWaiters": 1 << 20, "Flag": 0xFFFF}
    chosen = dict(zip(values, free))
    fields = {member: image.types["_ERESOURCE"].field(member) for member in values}
    places = {member: image.machine.canonical(row["Lock"]) for member, row in chosen.items()}
    damaged = system.written(
        *(Write(places[name] + fields[name].offset, values[name], fields[name].size) for name in chosen)
    )
    after = {row["Lock"]: row for row in top(damaged, locks.Locks)}
    for member, known in chosen.items():
        row = after[known["Lock"]]
        assert f"contradicted: {member}" in words_of(row)
        assert row["Waiters"] == (None if member != "Flag" else known["Waiters"])
    assert not any("contradicted" in row["Status"] for row in before)


def test_a_kernel_without_its_first_page_is_missed(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """Volatility takes a driver for the kernel, and rows have what lies at the places of its variables."""
    try:
        damaged = system.zeroed(system.page(system.whole.image.base))
    except exceptions.UnsatisfiedException:
        pytest.skip("no kernel is found")
    caplog.set_level(logging.WARNING)
    told = "ends before the kernel's PsLoadedModuleList"
    for opened in (system.whole, damaged):
        caplog.clear()
        top(opened, FRAMES)
        assert sum(told in message for message in caplog.messages) == (opened is damaged)


def test_a_protection_that_no_page_table_shows_is_unknown(system: System) -> None:
    """Code has one; entries of 32 bits do not show whether a page can be executed."""
    rows = [row for _, row in system.whole.rows(FRAMES) if row["Backing"] == words.IMAGE]
    unknown = [isinstance(row["PageProtection"], NotAvailableValue) for row in rows]
    shown = [isinstance(row["PageProtection"], str) for row in rows]
    assert rows and all(map(operator.xor, unknown, shown))
    assert all(unknown) or system.whole.image.machine is Machine.AMD64
