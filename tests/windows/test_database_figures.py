# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.gflags` counts, what `windows.stacktracedb` lists and what it dumps are the same traces.

Each image holds many databases, whole and damaged ones side by side: one is the kernel's, each of the others
lies in a process of its own, those of x86 in a WoW64 half where the kernel is x64.
"""

from __future__ import annotations

import io
import logging
import pathlib
import re
import tempfile
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from volatility3.framework import interfaces
from volatility3.plugins.windows import gflags, stacktracedb

from tests.forge import context, kernels, sample
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.std_layouts import ALL
from tests.forge.vad import Vad
from tests.support import grid, stddata, stdrandom
from tests.support.grid import Node, Row
from tests.support.stdrandom import Plan
from winstacks.tracedb.decode import backtraces

PLACES = {"x64": 0x1A0000000, "x86": 0x02A00000}
KERNEL_PLACES = {64: 0xFFFFFA8008000000, 32: 0x85000000}
KERNELS = {64: "win10-x64", 32: "xp-x86"}

Key = Tuple[int, str, int]
"""Process ID, architecture and address (as shown) of a database."""


def forge(bits: int, plans: List[Plan]) -> Kernel:
    """An image with the databases, the last one of the kernel's bitness being the kernel's own."""
    known = kernels.load(KERNELS[bits])
    kernel = Kernel(known.table, **{**known.options(), "nt_global_flag": 0x2000})
    own = max(number for number, plan in enumerate(plans) if plan.case[1] == ("x64" if bits == 64 else "x86"))
    for number, plan in enumerate(plans):
        arch = plan.case[1]
        if number == own:
            std = plan.make(KERNEL_PLACES[bits])
            for va, data in plan.damaged(std).items():
                kernel.space.write(va, data)
            for name in ("RtlpStackTraceDatabase", "RtlpStackTraceDataBase"):
                kernel.set(name, std.base)
            continue
        process = kernel.process("app.exe", pid=1000 + 4 * number, nt_global_flag=0x1000)
        ntdll = process.module("ntdll.dll", **sample.NTDLL.options(bits == 64))
        if bits == 64 and arch == "x86":
            ntdll = process.wow64(nt_global_flag=0x1000).module("ntdll.dll", **sample.NTDLL.options(False))
        std = plan.make(PLACES[arch])
        process.vads.append(Vad(std.base, 0x1000000))
        for va, data in plan.damaged(std).items():
            process.space.write(va, data)
        process.space.write_int(ntdll.base + sample.POINTER_RVA, std.base, std.layout.pointer)
    return kernel


class _File(io.BytesIO, interfaces.plugins.FileHandlerInterface):
    """A file of a plugin, kept in memory."""

    written: Dict[str, bytes] = {}

    def __init__(self, filename: str) -> None:
        io.BytesIO.__init__(self)
        interfaces.plugins.FileHandlerInterface.__init__(self, filename)

    def close(self) -> None:
        if not self.closed:
            self.written[self.preferred_filename] = self.getvalue()
        super().close()


def dumps(opened: Opened) -> Dict[str, bytes]:
    """What --dump writes, by file name."""
    _File.written = {}
    plugin = opened.construct(stacktracedb.StackTraceDb, dump=True)
    plugin.set_open_method(_File)
    plugin.run().populate(lambda node, found: found, None)
    return _File.written


def key(row: Row) -> Key:
    return row["PID"], row["Arch"], row["Database"]


def listings(opened: Opened) -> Tuple[Dict[Key, Row], Dict[Key, List[Node]]]:
    """The databases that are shown, and the traces of each, all that carving shows."""
    databases: Dict[Key, Row] = {}
    traces: Dict[Key, List[Node]] = {}
    for node in grid.of_databases(grid.run(opened, stacktracedb.StackTraceDb, carve=True)):
        if node.row["EntryAddress"] is None:
            databases[key(node.row)] = node.row
        else:
            traces.setdefault(key(node.row), []).append(node)
    return databases, traces


def counted(nodes: List[Node]) -> Dict[str, int]:
    """The figures of a database, counted from its rows."""
    words = [set(node.row["Status"].split(", ")) for node in nodes]
    live = [node for node, flags in zip(nodes, words) if not flags & {"freed", "orphan"}]
    return {
        "Freed": sum("freed" in word for word in words),
        "Orphans": sum("orphan" in word for word in words),
        "Unindexed": sum("unindexed" in word for word in words),
        "Mismatched": sum(bool(word & {"index", "bucket", "depth"}) for word in words),
        # A slot that leads to no entry has a row, but is no trace.
        "Indexed": sum(
            node.row["Index"] is not None
            and (node.row["Depth"] is not None or "unreadable" in node.row["Status"])
            for node in live
        ),
    }


def warned(messages: List[str], what: str) -> Dict[Tuple[int, str], int]:
    """The numbers of which a warning speaks, by process ID and architecture."""
    matches = [
        re.match(r"Process (\d+) \((\w+)\), std at \w+: (\d+) " + what, message) for message in messages
    ]
    return {(int(match[1]), match[2]): int(match[3]) for match in matches if match}


def check_dump(data: bytes, arch: str, head: Row, nodes: List[Node]) -> None:
    buffer, records = backtraces.decode(data, stddata.layouts_of(arch).backtraces())
    names = ("CommittedMemory", "ReservedMemory", "Lookups")
    assert tuple(buffer)[:3] == tuple(head[name] for name in names)
    plain = [node for node in nodes if not node.row["Status"] and node.row["Index"] is not None]
    for node in plain:
        record = records[node.row["Index"] - 1]
        frames = tuple(map(grid.masked, record.frames()))
        assert (record.trace_count, record.depth) == (node.row["Count"], node.row["Depth"])
        assert frames == tuple(grid.frames(node))


@pytest.mark.parametrize("bits", [64, 32])
def test_figures_listing_and_dump_agree(bits: int, caplog: pytest.LogCaptureFixture) -> None:
    cases = [case for case in ALL if bits == 64 or case[1] == "x86"]

    @settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(
        st.tuples(*(stdrandom.plans([case], words=4, lost=2) for case in cases)), st.integers(1, len(cases))
    )
    def agree(plans: Tuple[Plan, ...], last: int) -> None:
        turned = [*plans[last:], *plans[:last]]
        with tempfile.TemporaryDirectory() as folder:
            check(context.open_image(forge(bits, turned).image(), pathlib.Path(folder)), caplog)

    agree()


def check(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        databases, traces = listings(opened)
    messages = [record.getMessage() for record in caplog.records]
    lost, unlisted = warned(messages, "bytes of the used parts"), warned(messages, "more index slots")
    written = dumps(opened)
    figures = [row for node in grid.run(opened, gflags.GFlags, carve=True) for row in node.children]
    assert {key(row) for row in figures} == set(databases)
    for row in figures:
        place, nodes = key(row), traces.get(key(row), [])
        head, name = databases[place], "backtraces.{}.{}.{:x}.bin".format(*place)
        assert row["Status"] == head["Status"]
        if row["Layout"] is None:
            assert (row["Indexed"], head["BackTraces"], nodes) == (None, None, [])
            assert name not in written
            continue
        count = counted(nodes)
        count["Mismatched"] += unlisted.get(place[:2], 0)
        assert {column: row[column] for column in count} == count, row
        assert row["UnreadableBytes"] == lost.get(place[:2], 0)
        check_dump(written[name], place[1], head, nodes)


def test_a_database_that_is_whole_is_fully_chained(tmp_path: pathlib.Path) -> None:
    plans = [Plan(case, 7, 90, 61) for case in ALL]
    opened = context.open_image(forge(64, plans).image(), tmp_path)
    figures: List[Dict[str, Any]] = [row for node in grid.run(opened, gflags.GFlags) for row in node.children]
    # The kernel's comes first.
    plans.insert(0, plans.pop())
    assert [row["Layout"] for row in figures] == [plan.case[0] for plan in plans]
    for row, plan in zip(figures, plans):
        std = plan.make(KERNEL_PLACES[64])
        entries = std.entries()
        assert row["Chained"] == len(entries)
        assert row["Indexed"] == sum(bool(entry.index) for entry in entries)
        assert (row["Freed"], row["Mismatched"], row["Orphans"]) == (len(std.freed()), 0, 0)
