# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.stacktracedb` on every layout in the kernel and in processes, and what only --carve shows."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest
from volatility3.plugins.windows import gflags, stacktracedb

from tests.conftest import SHARED
from tests.forge import context, kernels, real_sets, sample
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.std import Std
from tests.support import grid, realtruth
from tests.support.grid import Node


class Form(NamedTuple):
    """A layout in one place: the kernel that it is tested in, and whether it is that kernel's own."""

    layout: str
    arch: str
    kernel: str
    owned: bool


FORMS = [
    Form("5.1", "x86", "xp-x86", False),
    Form("5.1", "x86", "xp-x86", True),
    Form("5.2", "x86", "xp-x86", False),
    Form("5.2", "x86", "xp-x86", True),
    Form("5.2", "x86", "2003-x64", False),
    Form("5.2", "x64", "2003-x64", False),
    Form("5.2", "x64", "2003-x64", True),
    Form("6.0", "x86", "win7-x86", False),
    Form("6.0", "x86", "win7-x86", True),
    Form("6.0", "x64", "win7-x64", False),
    Form("6.0", "x64", "win7-x64", True),
    Form("6.1", "x86", "win10-x86", False),
    Form("6.1", "x86", "win10-x86", True),
    Form("6.1", "x86", "win10-x64", False),
    Form("6.1", "x64", "win11-x64", False),
    Form("6.1", "x64", "win11-x64", True),
]
KERNEL_PLACE = {"x64": 0xFFFFFA8008000000, "x86": 0x85000000}
USER_PLACE = {"x64": 0x1A0000000, "x86": 0x02A00000}


def fill(database: Std, base: int, count: int = 150) -> None:
    """Logs traces of all depths, some of them often, some of equal hash, and releases some."""
    stacks = [
        [base + 0x1000 + 0x20 * number + frame for frame in range(number % 32 + 1)] for number in range(count)
    ]
    for number, stack in enumerate(stacks):
        for _ in range(number % 4 + 1):
            database.log(stack, number=number % 7 != 0)
        database.log(stack[::-1])
    for stack in stacks[::10]:
        for _ in range(5):
            if tuple(stack) in {entry.frames for entry in database.entries()}:
                database.release(stack)


def forge(form: Form) -> Tuple[Kernel, Std]:
    known = kernels.load(form.kernel)
    flags = 0x2000 if form.owned else 0
    kernel = Kernel(known.table, **{**known.options(), "nt_global_flag": flags})
    if form.owned:
        database = Std(form.layout, form.arch, KERNEL_PLACE[form.arch], kernel=True)
        fill(database, kernel.base)
        sample.write(kernel, database)
        for name in ("RtlpStackTraceDatabase", "RtlpStackTraceDataBase"):
            kernel.set(name, database.base)
        return kernel, database
    process = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = process.module("ntdll.dll", **sample.NTDLL.options(form.kernel.endswith("x64")))
    if kernel.bits == 64 and form.arch == "x86":
        ntdll = process.wow64(nt_global_flag=0x1000).module("ntdll.dll", **sample.NTDLL.options(False))
    database = Std(form.layout, form.arch, USER_PLACE[form.arch])
    fill(database, ntdll.base)
    sample.write(process, database)
    width = 8 if form.arch == "x64" else 4
    process.space.write_int(ntdll.base + sample.POINTER_RVA, database.base, width)
    return kernel, database


def shown(nodes: List[Node]) -> List[Tuple[Any, ...]]:
    return [
        (
            node.row["Index"] or 0,
            node.row["EntryAddress"],
            node.row["Count"],
            node.row["Depth"],
            node.row["BackTraceHash"],
            tuple(grid.frames(node)),
        )
        for node in nodes
        if node.row["EntryAddress"] is not None
    ]


def expected(database: Std) -> List[Tuple[Any, ...]]:
    return [
        (
            entry.index,
            grid.masked(entry.va),
            entry.count,
            entry.depth,
            entry.hash,
            tuple(map(grid.masked, entry.frames)),
        )
        for entry in database.entries()
    ]


@pytest.mark.parametrize(
    "form", FORMS, ids=lambda form: f"{form.layout}-{form.arch}-{form.kernel}-{form.owned}"
)
def test_every_layout_in_every_place(form: Form, tmp_path: pathlib.Path) -> None:
    kernel, database = forge(form)
    opened = context.open_image(kernel.image(), tmp_path)
    found = [row for node in grid.run(opened, gflags.GFlags) for row in node.children]
    assert [(row["Kind"], row["Layout"], row["Arch"], row["Status"]) for row in found] == [
        ("std", form.layout, form.arch, "")
    ]
    nodes = grid.of_databases(grid.run(opened, stacktracedb.StackTraceDb))
    assert shown(nodes) == expected(database)
    assert {node.row["Status"] for node in nodes} <= {"", "unindexed"}
    head = next(node.row for node in nodes if node.row["EntryAddress"] is None)
    assert head["BackTraces"] == max(entry.index for entry in database.entries())
    freed = [
        node
        for node in grid.run(opened, stacktracedb.StackTraceDb, carve=True)
        if "freed" in (node.row["Status"] or "")
    ]
    assert sorted(node.row["EntryAddress"] for node in freed) == [
        grid.masked(entry.va) for entry in database.freed()
    ]
    assert found[0]["Freed"] == len(database.freed())
    folded = grid.run(opened, stacktracedb.StackTraceDb, carve=True, fold=True)
    stacks = {node.row["EntryAddress"]: node.row["Stack"] for node in folded}
    for node in (*nodes, *freed):
        assert stacks[node.row["EntryAddress"]] == _folded(node)


def _folded(node: Node) -> Any:
    """What --fold shows of a trace (of a database nothing): a frame that is not there by its status."""
    if node.row["EntryAddress"] is None:
        return None
    return "; ".join(row["Symbol"] or f"<{row['Status']}>" for row in node.children)


def _open(name: str, folder: pathlib.Path) -> Tuple[real_sets.RealSet, Opened]:
    real = real_sets.load(SHARED / "real_std" / f"{name}.tar.xz")
    image = realtruth.image_of(real, realtruth.kernels_of(name)[0], False)
    return real, context.open_image(image, folder)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["7601.24384-x64-big", "7601.24384-x64-lazy", "19044.1766-x64-heap"])
def test_carving_finds_what_windows_released(name: str, tmp_path: pathlib.Path) -> None:
    real, opened = _open(name, tmp_path)
    nodes = grid.run(opened, stacktracedb.StackTraceDb, pid=[1000], carve=True)
    freed = [node for node in nodes if node.row["Status"] == "freed"]
    expected = {(entry["index"], entry["va"]) for entry in real.truth["freed"]}
    assert {(node.row["Index"] or 0, node.row["EntryAddress"]) for node in freed} == expected
    for node in freed:
        assert node.row["Count"] == 0
        assert [row["Status"] for row in node.children[:2]] == ["overwritten"] * min(2, len(node.children))
        assert all(row["Address"] is not None for row in node.children[2:])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["7601.24384-x64-heap", "19044.1766-x64-heap"])
def test_the_heaps_log_comes_back(name: str, tmp_path: pathlib.Path) -> None:
    real, opened = _open(name, tmp_path)
    heap = real.truth["heap"]
    nodes = grid.run(opened, stacktracedb.StackTraceDb, pid=[1000])
    log = grid.masked(heap["heap_stack_trace_log"])
    records: Dict[int, Tuple[int, int, Tuple[int, ...]]] = {
        node.row["EntryAddress"]: (node.row["BackTraceHash"], node.row["Depth"], tuple(grid.frames(node)))
        for node in nodes
        if node.row["Database"] == log and node.row["EntryAddress"] is not None
    }
    assert records == {
        record["va"]: (record["hash"], record["depth"], tuple(record["frames"]))
        for record in heap["heap_trace_records"]
    }


def _with_private_database(pointer: bool) -> Kernel:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("app.exe", pid=1000, nt_global_flag=0x100)
    ntdll = process.module("ntdll.dll", **sample.NTDLL.options())
    for place in (USER_PLACE["x64"], USER_PLACE["x64"] + 0x10000000):
        database = Std("6.1", "x64", place)
        fill(database, ntdll.base, 20)
        sample.write(process, database)
    if pointer:
        process.space.write_int(ntdll.base + sample.POINTER_RVA, USER_PLACE["x64"])
    return kernel


@pytest.mark.parametrize("pointer", [True, False])
def test_carving_finds_databases_that_no_pointer_leads_to(pointer: bool, tmp_path: pathlib.Path) -> None:
    """Application Verifier keeps databases of its own."""
    opened = context.open_image(_with_private_database(pointer).image(), tmp_path)

    def databases(**options: Any) -> List[Tuple[int, str]]:
        nodes = grid.of_databases(grid.run(opened, stacktracedb.StackTraceDb, **options))
        return [
            (node.row["Database"], node.row["Status"]) for node in nodes if node.row["EntryAddress"] is None
        ]

    place, other = USER_PLACE["x64"], USER_PLACE["x64"] + 0x10000000
    # The process's flags ask for one: where no pointer leads to it, all that prove themselves are shown.
    assert databases() == ([(place, "")] if pointer else [(place, "no pointer"), (other, "no pointer")])
    assert databases(carve=True) == [(place, "" if pointer else "no pointer"), (other, "no pointer")]
