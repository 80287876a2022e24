# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.gflags` on forged images."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.windows import gflags, stacktracedb

from tests.forge import context, kernels, sample, sampledeadlock, sampleheaps
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.std import Std
from tests.support import grid
from tests.support.grid import Node
from tests.support.only import only


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


def run(opened: Opened, **options: Any) -> List[Node]:
    return grid.run(opened, gflags.GFlags, **options)


def spaces(nodes: List[Node]) -> Dict[Tuple[int, str], Node]:
    return {(node.row["PID"], node.row["Arch"]): node for node in nodes}


def test_flags_of_every_address_space(opened: Opened) -> None:
    shown = spaces(run(opened))
    flags = {key: (node.row["NtGlobalFlag"], node.row["Flags"]) for key, node in shown.items()}
    assert flags == {
        (0, "x64"): (0x2000, "kst"),
        (4, "x64"): (None, None),
        (4312, "x64"): (0x1000, "ust"),
        (5120, "x64"): (0, ""),
        (5120, "x86"): (0x1000, "ust"),
        (6200, "x64"): (0x1000, "ust"),
    }
    assert shown[4, "x64"].row["Status"] == "no PEB"


def test_symbols_that_would_name_nothing_are_not_missed(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    run(opened)
    assert "No symbols for" not in caplog.text


def test_databases_stand_below_their_space(opened: Opened) -> None:
    found = {
        key: [(row["Kind"], row["Database"], row["LocatedBy"], row["Layout"]) for row in node.children]
        for key, node in spaces(run(opened)).items()
        if node.children
    }
    assert found == {
        (0, "x64"): [("std", grid.masked(sample.KERNEL_DATABASE), "symbol", "6.1")],
        (4312, "x64"): [
            ("std", sample.PROCESS_DATABASE, "search", "6.1"),
            ("heaplog", sampleheaps.LOG, "search", "heaplog"),
        ],
        (5120, "x86"): [("std", sample.WOW64_DATABASE, "search", "6.1")],
        (6200, "x64"): [("std", sampledeadlock.DATABASE, "search", "6.1")],
    }


def test_pid_selects(opened: Opened) -> None:
    assert [node.row["PID"] for node in run(opened, pid=[0])] == [0]
    assert [node.row["PID"] for node in run(opened, pid=[5120])] == [5120, 5120]


def test_a_peb_that_is_paged_out_is_said(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    assert process.peb is not None
    image = kernel.image()
    process.space.set_state(process.peb.address, 0x1000, State.PAGEFILE)
    row = spaces(run(context.open_image(image, tmp_path)))[1000, "x64"].row
    assert (row["NtGlobalFlag"], row["Status"]) == (None, "flags unreadable")


def test_a_pointer_to_no_database_is_a_row_that_says_so(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **{**known.options(), "nt_global_flag": 0x2000})
    place = 0xFFFFAB8008000000
    kernel.space.write(place, b"\x41" * 0x3000)
    kernel.set("RtlpStackTraceDatabase", place)
    opened = context.open_image(kernel.image(), tmp_path)
    child = only(spaces(run(opened))[0, "x64"].children)
    assert child["Status"].startswith("header: ")
    assert child["Layout"] is None
    node = only(grid.run(opened, stacktracedb.StackTraceDb, pid=[0]))
    assert node.row["Status"] == child["Status"]


def test_figures_are_those_of_the_listing(tmp_path: pathlib.Path) -> None:
    """The self-check counts what windows.stacktracedb shows."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = process.module("ntdll.dll", **sample.NTDLL.options())
    database = Std("6.1", "x64", sample.PROCESS_DATABASE)
    stacks = [[ntdll.base + 0x1000 + 16 * number + frame for frame in range(5)] for number in range(90)]
    for number, stack in enumerate(stacks):
        database.log(stack, number=number % 3 != 0)
    for stack in stacks[:20]:
        database.release(stack)
    sample.write(process, database)
    process.space.write_int(ntdll.base + sample.POINTER_RVA, database.base)
    entry = next(entry for entry in database.entries() if entry.index == 30)
    process.space.write_int(entry.va + 16, entry.frames[0] ^ 0x40)
    opened = context.open_image(kernel.image(), tmp_path)

    figures = only(spaces(run(opened))[1000, "x64"].children)
    nodes = grid.run(opened, stacktracedb.StackTraceDb, pid=[1000], carve=True)
    words = [node.row["Status"].split(", ") for node in nodes if node.row["EntryAddress"] is not None]
    count = {
        word: sum(word in status_words for status_words in words)
        for word in ("freed", "unindexed", "bucket", "orphan")
    }
    assert figures["Freed"] == count["freed"] == 20
    assert figures["Unindexed"] == count["unindexed"]
    assert figures["Mismatched"] == count["bucket"] == 1
    assert figures["Chained"] == 70
    assert figures["Indexed"] == len(words) - count["freed"] - count["unindexed"]
    assert figures["UnreadableBytes"] == 0
