# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.gflags` counts of a heap's trace log is what `windows.stacktracedb` lists of it."""

from __future__ import annotations

import logging
import pathlib
import random
import re
import tempfile
from typing import Dict, FrozenSet, List, NamedTuple, Tuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from volatility3.plugins.windows import gflags, stacktracedb

from tests.forge import context, kernels, sample
from tests.forge.heaplog import HeapLog
from tests.forge.kernel import Kernel
from tests.support import grid
from tests.support.grid import Node

PAGE = 0x1000


class Plan(NamedTuple):
    """A log of so many traces, with a byte changed in so many of its records and some pages lost."""

    wow64: bool
    seed: int
    traces: int
    changed: int
    lost: FrozenSet[int]

    def regions(self, log: HeapLog) -> Dict[int, bytes]:
        chance = random.Random(self.seed)
        for _ in range(self.traces):
            log.log([chance.randrange(1 << 16, 1 << 31) for _ in range(chance.randint(1, 32))])
        memory = {page: bytearray(data) for page, data in log.regions().items()}
        for record in chance.sample(log.records(), min(self.changed, self.traces)):
            place = record.va + chance.randrange(log.pointer, len(log.record_bytes(record)))
            memory[place & -PAGE][place & PAGE - 1] ^= chance.choice((1, 0x80, 0xFF))
        pages = sorted(memory)
        gone = {pages[number] for number in self.lost if number < len(pages)}
        return {page: bytes(data) for page, data in memory.items() if page not in gone}


PLANS = st.builds(
    Plan,
    st.booleans(),
    st.integers(0, 0xFFFF),
    st.integers(1, 120),
    st.integers(0, 4),
    st.frozensets(st.integers(2, 8), max_size=2),
)


def forge(plans: List[Plan]) -> Kernel:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    for number, plan in enumerate(plans):
        process = kernel.process("app.exe", pid=1000 + 4 * number, nt_global_flag=0x1000)
        ntdll = process.module("ntdll.dll", **sample.NTDLL.options())
        if plan.wow64:
            ntdll = process.wow64(nt_global_flag=0x1000).module("ntdll.dll", **sample.NTDLL.options(False))
        log = HeapLog("x86" if plan.wow64 else "x64")
        for page, data in plan.regions(log).items():
            process.space.write(page, data)
        process.space.write_int(ntdll.base + sample.POINTER_RVA + 0x10, log.address, log.pointer)
    return kernel


def warned(messages: List[str]) -> Dict[Tuple[int, str], int]:
    """The bytes that are said not to be in the image, by process ID and architecture."""
    form = r"Process (\d+) \((\w+)\), heaplog at \w+: (\d+) bytes of the used parts"
    matches = [re.match(form, message) for message in messages]
    return {(int(match[1]), match[2]): int(match[3]) for match in matches if match}


@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.lists(PLANS, min_size=8, max_size=8))
def agree(caplog: pytest.LogCaptureFixture, counts: List[int], plans: List[Plan]) -> None:
    caplog.clear()
    with tempfile.TemporaryDirectory() as folder, caplog.at_level(logging.WARNING):
        opened = context.open_image(forge(plans).image(), pathlib.Path(folder))
        nodes = grid.of_databases(grid.run(opened, stacktracedb.StackTraceDb))
        lost = warned([record.getMessage() for record in caplog.records])
        figures = [row for node in grid.run(opened, gflags.GFlags) for row in node.children]
    databases = [node.row for node in nodes if node.row["EntryAddress"] is None]
    assert [(row["PID"], row["Database"], row["Status"]) for row in figures] == [
        (row["PID"], row["Database"], row["Status"]) for row in databases
    ]
    for row in figures:
        place = row["PID"], row["Arch"]
        listed: List[Node] = [
            node for node in nodes if node.row["PID"] == row["PID"] and node.row["EntryAddress"] is not None
        ]
        words = [set(node.row["Status"].split(", ")) for node in listed]
        assert (row["Kind"], row["Layout"], row["Indexed"], row["Freed"]) == ("heaplog", "heaplog", 0, 0)
        assert row["Chained"] == len(listed)
        assert row["Mismatched"] == sum(bool(word & {"bucket", "depth"}) for word in words)
        assert row["UnreadableBytes"] == lost.get(place, 0)
        plan = plans[(row["PID"] - 1000) // 4]
        if not (plan.changed or plan.lost):
            assert (len(listed), row["Status"]) == (plan.traces, "")
        counts.append(len(listed))


def test_figures_and_listing_agree(caplog: pytest.LogCaptureFixture) -> None:
    found: List[int] = []
    agree(caplog, found)
    assert len(found) > 12 and sum(found) > 300
