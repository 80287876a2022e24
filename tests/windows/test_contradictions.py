# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Single values that contradict others: the row says so, and shows what the others lead to."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterator, List

import pytest
from volatility3.plugins.windows import gflags, locks, stacktracedb

from tests.forge import context, kernels, sample, sampleheaps
from tests.forge.heaplog import HeapLog
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources
from tests.forge.vad import Vad
from tests.hostile.tamper import Target
from tests.support import grid
from tests.support.only import only
from tests.support.tracedkernels import KERNELS, new_kernel, put_database
from winstacks.process import vads


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield Target(sample.build(), tmp_path_factory.mktemp("contradictions"))


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
@pytest.mark.parametrize("path", ["Cid.UniqueProcess", ""])
def test_the_owner_of_a_lock_is_the_process_to_which_the_thread_points(
    name: str, path: str, tmp_path: pathlib.Path
) -> None:
    kernel = new_kernel(name)
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    resources = Resources(kernel)
    resources.add(active=1, exclusive=thread)
    resources.link()
    if path:
        thread.ethread[path] = 4
    opened = context.open_image(kernel.image(), tmp_path)
    node = only(grid.run(opened, locks.Locks, pid=[0]))
    word = "contradicted: Cid.UniqueProcess" if path else ""
    for row in (node.row, node.children[0]):
        assert (row["OwnerPID"], row["OwnerProcess"], row["OwnerTID"]) == (1000, "app.exe", 1004)
        assert (word in row["Status"]) if path else "contradicted" not in row["Status"]


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
@pytest.mark.parametrize("value", (0, 0x1000))
def test_the_tebs_know_the_peb_of_a_process(name: str, value: int, tmp_path: pathlib.Path) -> None:
    """An address that is 0 made a process one without user mode: its flags, heaps and locks were gone."""
    kernel = new_kernel(name)
    process = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    process.thread(1004), process.thread(1008)
    process.eprocess["Peb"] = value
    node = only(grid.run(context.open_image(kernel.image(), tmp_path), gflags.GFlags, pid=[1000]))
    assert "contradicted: Peb" in node.row["Status"]
    assert node.row["NtGlobalFlag"] == (None if value else 0x1000)


@pytest.mark.parametrize("changed", (1, 2))
def test_the_peb_of_the_kernel_counts_more_than_a_teb(changed: int, tmp_path: pathlib.Path) -> None:
    """A process can write its TEBs: one write says nothing, and no number of them has another PEB read."""
    kernel = new_kernel("win7-x64")
    process = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    threads = [process.thread(1004), process.thread(1008)]
    for thread in threads[:changed]:
        assert thread.teb is not None
        thread.teb["ProcessEnvironmentBlock"] = 0x5000000
    node = only(grid.run(context.open_image(kernel.image(), tmp_path), gflags.GFlags, pid=[1000]))
    assert ("contradicted: Peb" in node.row["Status"]) == (changed == 2)
    assert node.row["NtGlobalFlag"] == 0x1000


@pytest.mark.parametrize("plugin", ["gflags", "traces", "tracewaits"])
def test_a_number_that_is_no_id_of_a_process(target: Target, plugin: str) -> None:
    """No table for programs has room for 64 bits of an ID: `-r parquet` would end without a row."""
    process = target.kernel.processes[-1]
    write = target.at(process.eprocess.at("UniqueProcessId"), 1 << 63 | 7)
    clean, answer = target.clean(plugin), target.run(plugin, [write])
    assert set(answer.column("PID")) == set(clean.column("PID"))
    said = [row[1] or "" for row in zip(*map(answer.column, ("PID", "Status"))) if row[0] == process.pid]
    assert said
    word = "contradicted: UniqueProcessId"
    assert [text for text in said if word in text and f"ID {process.pid} in PspCidTable" in text]


def test_a_number_that_is_no_index_of_a_trace(target: Target) -> None:
    members = target.read("locks").members
    member = next(each for each in members if each.name == "_ERESOURCE.CreatorBackTraceIndex")
    answer = target.run("locks", [(member.place or 0, (1 << 63 | 7).to_bytes(8, "little"))])
    assert max(filter(None, answer.column("Index"))) < 1 << 24
    assert "contradicted: CreatorBackTraceIndex" in answer.column("Status")


def test_where_a_driver_may_have_been_is_said(target: Target) -> None:
    clean = target.clean("stacktracedb", pid=[0])
    answer = target.run("stacktracedb", [target.at(target.kernel.symbol("MmUnloadedDrivers"), 0)], pid=[0])
    assert len(answer.rows) == len(clean.rows)
    gone = [at for at, symbol in enumerate(clean.column("Symbol")) if "<unloaded:" in (symbol or "")]
    assert gone
    statuses = [(answer.column("Symbol")[at], answer.column("Status")[at]) for at in gone]
    assert set(statuses) == {("<no-module>", "contradicted: MmUnloadedDrivers")}
    assert any("MmUnloadedDrivers" in warning for warning in answer.warnings)


@pytest.mark.parametrize(("name", "generation"), KERNELS)
def test_where_a_driver_may_have_been_is_said_of_every_kernel(
    name: str, generation: str, tmp_path: pathlib.Path
) -> None:
    kernel = new_kernel(name)
    start = kernel.base + 0x8000000
    kernel.unloaded("gone.sys", start, start + 0x8000)
    put_database(kernel, generation, [(start + 0x10, kernel.symbol("NtClose") + 4)])
    target = Target(kernel, tmp_path)
    clean = target.clean("stacktracedb")
    answer = target.run("stacktracedb", [target.at(kernel.symbol("MmUnloadedDrivers"), 0)])
    symbols = clean.column("Symbol")
    place = only(at for at, symbol in enumerate(symbols) if "<unloaded:gone" in (symbol or ""))
    assert "contradicted" not in " ".join(filter(None, clean.column("Status")))
    assert answer.column("Symbol")[place] == "<no-module>"
    assert answer.column("Status")[place] == "contradicted: MmUnloadedDrivers"
    assert any("MmUnloadedDrivers" in warning for warning in answer.warnings)
    unbacked = target.run("stacktracedb", [target.at(kernel.symbol("MmUnloadedDrivers"), 0)], unbacked=True)
    assert grid.masked(start + 0x10) in unbacked.column("Address")


def test_a_log_of_a_heap_to_which_no_pointer_leads(target: Target) -> None:
    updater = target.kernel.processes[1]
    ntdll = next(module for module in updater.modules if module.name == "ntdll.dll")
    place = ntdll.base + sampleheaps.LOG_POINTER_RVA
    clean = target.clean("stacktracedb", pid=[4312])
    answer = target.run("stacktracedb", [target.at(place, 0, 8, updater)], pid=[4312])
    assert len(answer.rows) == len(clean.rows)
    word = [value for value in answer.column("Status") if value == "no pointer"]
    assert len(word) == 1 and "no pointer" not in clean.column("Status")
    rows = target.run("gflags", [target.at(place, 0, 8, updater)], pid=[4312])
    kinds = dict(zip(rows.column("Kind"), rows.column("Status")))
    assert kinds["heaplog"] == "no pointer"


@pytest.mark.parametrize("name", ["win7-x64", "win10-x86", "win10-x64", "win11-x64"])
def test_a_log_of_every_form_in_private_memory(name: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = app.module("ntdll.dll", data=0x2000)
    log = HeapLog(known.arch)
    for number in range(40):
        log.log([ntdll.base + 0x1000 + number, ntdll.base + 0x1500])
    for address, data in log.regions().items():
        app.region(address, data)
    opened = context.open_image(kernel.image(), tmp_path)
    rows = [node.row for node in grid.run(opened, stacktracedb.StackTraceDb, pid=[1000])]
    head = only(row for row in rows if row["BackTraces"] is not None)
    assert (head["Database"], head["Status"], head["BackTraces"]) == (log.address, "no pointer", 40)
    assert len(rows) == 2 + 40


def test_a_process_of_many_vads_leaves_others_theirs(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And each has the same share, whichever comes first; who has more is told."""
    known = kernels.load("win10-x64")
    counts: List[Dict[int, int]] = []
    for greedy in (1000, 3000):
        kernel = Kernel(known.table, **known.options())
        for pid in (1000, 2000, 3000):
            process = kernel.process(f"p{pid}.exe", pid=pid)
            for number in range(6000 if pid == greedy else 700):
                process.vads.append(Vad(0x10000000 + 0x20000 * number, 0x1000))
        folder = tmp_path / str(greedy)
        folder.mkdir()
        opened = context.open_image(kernel.image(), folder)
        counts.append(_vads(opened.image))
    for found, greedy in zip(counts, (1000, 3000)):
        others = {count for pid, count in found.items() if pid != greedy}
        assert all(count >= 700 for count in others)
        assert found[greedy] < 6000
    assert counts[0][1000] == counts[1][3000]
    assert caplog.text.count("read up to the limit") == 2


def _vads(image: Any) -> Dict[int, int]:
    from winstacks.process.spaces import AddressSpaces

    read = image.service(vads.Vads)
    found = {space.pid or 0: space for space in AddressSpaces.list_spaces(image) if (space.pid or 0) >= 1000}
    return {pid: len(read.list_regions(space)[0]) for pid, space in found.items()}


def test_nothing_is_said_of_what_agrees(target: Target) -> None:
    for plugin in (gflags.GFlags, locks.Locks, stacktracedb.StackTraceDb):
        name = plugin.__module__.rsplit(".", 1)[-1]
        values = target.clean(name).column("Status")
        assert not [value for value in values if value and ("contradicted" in value or "no pointer" in value)]


@pytest.mark.parametrize(
    ("name", "wow64", "stored"),
    [
        *((name, wow64, 0) for name in ("win7-x64", "win10-x64", "win11-x64") for wow64 in (True, False)),
        # Since 8 a structure stands between: one that cannot be read is said to be that.
        ("win7-x64", True, 0x41414000),
    ],
)
def test_a_32_bit_half_of_which_the_process_does_not_know(
    name: str, wow64: bool, stored: int, tmp_path: pathlib.Path
) -> None:
    """The TEBs lead to it; a process that has none gets none."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    thread = app.thread(1004)
    flags = 0x1000 if wow64 else 0
    if wow64:
        half = app.wow64(nt_global_flag=flags)
        half.module("ntdll.dll")
        half.thread(thread, teb=0x7FFDB000)
        app.eprocess.first(("WoW64Process", "Wow64Process"), stored)
    opened = context.open_image(kernel.image(), tmp_path)
    rows = [node.row for node in grid.run(opened, gflags.GFlags, pid=[1000])]
    assert [row["Arch"] for row in rows] == (["x64", "x86"] if wow64 else ["x64"])
    for row in rows:
        assert ("contradicted: WoW64Process" in row["Status"]) == wow64
    assert rows[-1]["NtGlobalFlag"] == flags
