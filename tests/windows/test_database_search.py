# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Databases that are found by search, although the process that owns the memory does not want that."""

from __future__ import annotations

import logging
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import pytest
from volatility3.plugins.windows import gflags, stacktracedb

from tests.forge import context, kernels, sample
from tests.forge.context import Opened
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.process import Process
from tests.forge.std import Std
from tests.support import grid
from tests.support.grid import Node
from tests.support.only import only
from winstacks.tracedb.decode import proof

BASE = 0x1A0000000
TRACES = 35
PAGE = 0x1000
NTDLL = 0x7FFA00000000


class Processes:
    """Processes that share one ntdll image, each with a database of its own unless told otherwise."""

    def __init__(self) -> None:
        known = kernels.load("win10-x64")
        self.kernel = Kernel(known.table, **known.options())
        self.databases: Dict[int, Std] = {}

    def process(
        self, pid: int, pointer_rva: Optional[int] = sample.POINTER_RVA, flags: int = 0x1000, **options: Any
    ) -> Tuple[Process, Module]:
        process = self.kernel.process(f"p{pid}.exe", pid=pid, nt_global_flag=flags)
        ntdll = process.module("ntdll.dll", NTDLL, **{**sample.NTDLL.options(), **options})
        database = self.databases[pid] = Std("6.1", "x64", BASE + pid * 0x10000000)
        for number in range(TRACES):
            database.log([NTDLL + 0x1000 + 0x20 * number + frame for frame in range(6)])
        sample.write(process, database)
        if pointer_rva is not None:
            process.space.write_int(NTDLL + pointer_rva, database.base)
        return process, ntdll

    def open(self, folder: pathlib.Path, image: Optional[Image] = None) -> Opened:
        return context.open_image(image or self.kernel.image(), folder)


def traces(opened: Opened, pid: int, **options: Any) -> List[Node]:
    nodes = grid.run(opened, stacktracedb.StackTraceDb, **options)
    return [node for node in nodes if node.row["PID"] == pid and node.row["EntryAddress"] is not None]


def status(opened: Opened, pid: int) -> str:
    node = only(node for node in grid.run(opened, gflags.GFlags) if node.row["PID"] == pid)
    return str(node.row["Status"])


def test_a_process_with_its_pointer_elsewhere_hides_no_other(tmp_path: pathlib.Path) -> None:
    processes = Processes()
    processes.process(1000, sample.POINTER_RVA - 0x40)
    processes.process(1004)
    opened = processes.open(tmp_path)
    assert [len(traces(opened, pid)) for pid in (1000, 1004)] == [TRACES, TRACES]


@pytest.mark.parametrize(
    ("member", "value", "size"),
    [("CommitBase", 0, 8), ("PreCommitted", 2, 1), ("NextFreeUpperMemory", 0, 8), ("NumberOfBuckets", 0, 4)],
)
@pytest.mark.parametrize("flags", [0x1000, 0])
def test_one_wrong_member_hides_no_database(
    member: str, value: int, size: int, flags: int, tmp_path: pathlib.Path
) -> None:
    processes = Processes()
    process, _ = processes.process(1000, flags=flags)
    database = processes.databases[1000]
    process.space.write_int(database.base + database.layout.fields[member][0], value, size)
    opened = processes.open(tmp_path)
    nodes = grid.run(opened, stacktracedb.StackTraceDb, pid=[1000])
    assert member in nodes[0].row["Status"]
    assert len(traces(opened, 1000)) == TRACES


@pytest.mark.parametrize("other", [True, False])
def test_a_header_that_is_paged_out_hides_no_database(other: bool, tmp_path: pathlib.Path) -> None:
    processes = Processes()
    if other:
        processes.process(1000)
    process, _ = processes.process(1004)
    process.space.set_state(processes.databases[1004].base, PAGE, State.PAGEFILE)
    opened = processes.open(tmp_path)
    assert len(traces(opened, 1004)) == TRACES


@pytest.mark.parametrize(("flags", "carve"), [(0x1000, False), (0x1000, True), (0, True)])
def test_a_hidden_and_damaged_database_is_found(flags: int, carve: bool, tmp_path: pathlib.Path) -> None:
    """Where the flags ask for a database, and with --carve where they do not."""
    processes = Processes()
    process, _ = processes.process(1000, pointer_rva=None, flags=flags)
    process.space.set_state(processes.databases[1000].base, PAGE, State.PAGEFILE)
    opened = processes.open(tmp_path)
    nodes = grid.of_databases(grid.run(opened, stacktracedb.StackTraceDb, pid=[1000], carve=carve))
    assert nodes[0].row["Status"].startswith("no pointer, header: unreadable")
    assert len(traces(opened, 1000, carve=carve)) == TRACES


def test_a_hidden_database_of_a_process_whose_flags_ask_for_none_is_carved_only(
    tmp_path: pathlib.Path,
) -> None:
    processes = Processes()
    processes.process(1000, pointer_rva=None, flags=0)
    opened = processes.open(tmp_path)
    assert not traces(opened, 1000)
    assert len(traces(opened, 1000, carve=True)) == TRACES


def test_data_that_is_paged_out_is_said(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    processes = Processes()
    processes.process(1000)
    process, _ = processes.process(1004)
    process.space.set_state(NTDLL + sample.POINTER_RVA, PAGE, State.PAGEFILE)
    opened = processes.open(tmp_path)
    assert (status(opened, 1000), status(opened, 1004)) == ("", "ntdll data incomplete")
    with caplog.at_level(logging.WARNING):
        assert len(traces(opened, 1004)) == TRACES
    assert "Process 1004 (x64) (NtGlobalFlag 0x1000: ust): ntdll data incomplete" in caplog.text


def test_a_flag_without_a_database_is_said(tmp_path: pathlib.Path) -> None:
    processes = Processes()
    process = processes.kernel.process("p1000.exe", pid=1000, nt_global_flag=0x1000)
    process.module("ntdll.dll", NTDLL, **{**sample.NTDLL.options(), "resident": True})
    assert status(processes.open(tmp_path), 1000) == "no database"


def test_decoys_cost_little_and_are_said(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes()
    words = b"".join((0x10000 * number).to_bytes(8, "little") for number in range(1, 0x10001))
    processes.process(1000, pointer_rva=None, data=len(words) + PAGE, contents={0x7000: words})
    tried: List[int] = []
    prove = proof.prove

    def counted(reader: Any, address: int, layouts: Any) -> proof.Proof:
        tried.append(address)
        return prove(reader, address, layouts)

    monkeypatch.setattr(proof, "prove", counted)
    assert status(processes.open(tmp_path), 1000) == "search cut short"
    assert len(tried) <= 600


def test_no_such_process_is_said(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    processes = Processes()
    with caplog.at_level(logging.WARNING):
        assert not grid.run(processes.open(tmp_path), stacktracedb.StackTraceDb, pid=[99999])
    assert "There is no process 99999 in this image" in caplog.text


def test_orphans_are_counted(tmp_path: pathlib.Path) -> None:
    processes = Processes()
    process, _ = processes.process(1000)
    database = processes.databases[1000]
    entry = database.entries()[4]
    bucket = database.layout.buckets + entry.bucket * database.layout.stride
    process.space.write_int(database.base + bucket, 0)
    process.space.write_int(database.end - 8 * entry.index, 0)
    opened = processes.open(tmp_path)
    node = only(node for node in grid.run(opened, gflags.GFlags) if node.row["PID"] == 1000)
    assert node.children[0]["Orphans"] == 1
    words = [trace.row["Status"].split(", ") for trace in traces(opened, 1000, carve=True)]
    assert sum("orphan" in word for word in words) == 1


def test_slots_that_lead_nowhere_are_counted_without_end(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    processes = Processes()
    process, _ = processes.process(1000)
    database = processes.databases[1000]
    wild = 2000
    for index in range(TRACES + 1, TRACES + 1 + wild):
        process.space.write_int(database.end - 8 * index, 0x10)
    upper = database.layout.fields["NextFreeUpperMemory"][0]
    process.space.write_int(database.base + upper, database.end - 8 * (TRACES + wild))
    opened = processes.open(tmp_path)
    node = only(node for node in grid.run(opened, gflags.GFlags) if node.row["PID"] == 1000)
    assert node.children[0]["Mismatched"] == wild
    with caplog.at_level(logging.WARNING):
        shown = traces(opened, 1000)
    assert sum(node.row["Status"] == "" for node in shown) == TRACES
    assert f"{wild - 1000} more index slots" in caplog.text
