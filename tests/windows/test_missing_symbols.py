# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a symbol that the kernel's table lacks costs: what needs it, and no more."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from volatility3.plugins.windows import callstacks, gflags, tracefindings, traces, trapframes

from tests.forge import context, kernels
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.support import grid

_NEEDED = "ObpObjectTypes"
"""Volatility's pool scans want it to tell types of objects apart."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    known = kernels.load("xp-x86").variant("xp-x86-lacking", drop=[_NEEDED])
    kernel = Kernel(known.table, **known.options())
    kernel.process("app.exe", pid=1000).module("ntdll.dll", exports={"NtClose": 0x1100})
    return context.open_image(kernel.image(), tmp_path_factory.mktemp("lacking"))


@pytest.mark.parametrize(
    ("plugin", "options", "things"),
    [
        (gflags.GFlags, {"scan_processes": True}, ["processes"]),
        (callstacks.CallStacks, {"scan_processes": True}, ["processes"]),
        (trapframes.TrapFrames, {"scan_threads": True}, ["threads"]),
        (traces.StackTraces, {"scan_processes": True, "scan_threads": True}, ["processes", "threads"]),
        (tracefindings.TraceFindings, {"scan": True}, ["processes", "threads"]),
    ],
)
def test_a_scan_that_cannot_run_costs_nothing_else(
    opened: Opened,
    plugin: Any,
    options: Dict[str, Any],
    things: List[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    without = [node.row for node in grid.run(opened, plugin)]
    caplog.clear()
    found = [node.row for node in grid.run(opened, plugin, **options)]
    said = {record.getMessage() for record in caplog.records}
    assert {f"No scan for {each}: the kernel's symbols lack {_NEEDED}" for each in things} <= said
    if plugin is not tracefindings.TraceFindings:
        assert found == without
