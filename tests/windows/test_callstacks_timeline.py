# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.callstacks` tells Volatility's timeliner."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import pytest
from volatility3.framework import interfaces
from volatility3.plugins import timeliner
from volatility3.plugins.windows import callstacks, traces

from tests.forge import context, kernels, sample, vol
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.obj import CREATED
from tests.forge.paging import State
from tests.support.only import only

ALL = ("xp-x86", "win7-x86", "win10-x86", "2003-x64", "win7-x64", "win10-x64", "win11-x64")


def timeline(opened: Opened, **options: Any) -> List[Tuple[str, Optional[datetime.datetime]]]:
    """Each line with its time; all are times of creation."""
    plugin = opened.construct(callstacks.CallStacks, **options)
    lines = []
    for description, kind, time in plugin.generate_timeline():
        assert kind is timeliner.TimeLinerType.CREATED
        absent = isinstance(time, interfaces.renderers.BaseAbsentValue)
        lines.append((description, None if absent else time))
    return lines


def after(seconds: int) -> datetime.datetime:
    return CREATED + datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize("name", ALL)
def test_processes_and_threads_have_the_times_of_their_creation(name: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    app.thread(1004)
    app.thread(1008)
    lines = timeline(context.open_image(kernel.image(), tmp_path))
    processes = [line for line in lines if line[0].startswith("Process started: ")]
    threads = [line for line in lines if line[0].startswith("Thread started: ")]
    assert len(processes) + len(threads) == len(lines) == len({line for line, _ in lines})
    assert [time for _, time in processes] == [None, after(1000)]
    assert processes[1][0].startswith("Process started: PID 1000 app.exe, _EPROCESS 0x")
    # Each has a stack in the kernel and one in user mode.
    assert [time for _, time in threads] == [after(2004)] * 2 + [after(2008)] * 2
    assert all(line.startswith("Thread started: PID 1000 app.exe, TID 100") for line, _ in threads)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


def test_each_stack_of_a_thread_has_its_trace_id(sampled: Opened) -> None:
    rows = [row for _, row in sampled.rows(traces.StackTraces, kinds=["kernel", "user", "wow64"])]
    expected = {row["TraceId"]: row["ThreadCreateTime"] for row in rows}
    listed = timeline(sampled)
    found = {line.rpartition(" TraceId ")[2]: time for line, time in listed if " TraceId " in line}
    assert found == expected
    assert len(found) == 13
    assert len([line for line, _ in listed if " TraceId " not in line]) == 4


def test_options_select(sampled: Opened) -> None:
    assert {line.split(", ")[0] for line, _ in timeline(sampled, pid=[6200])} == {
        "Process started: PID 6200 spooler.exe",
        "Thread started: PID 6200 spooler.exe",
    }
    selected = timeline(sampled, tid=[6204])
    assert [line.split(", ")[1] for line, _ in selected] == ["TID 6204"] * 2


def test_processes_and_threads_of_one_id_have_lines_of_their_own(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    for _ in range(2):
        kernel.process("app.exe", pid=1000).thread(1004)
    lines = [line for line, _ in timeline(context.open_image(kernel.image(), tmp_path))]
    assert len(lines) == len(set(lines)) == 1 + 2 * 3


def test_a_thread_that_cannot_be_read_has_no_line_and_one_without_time_has_one(
    tmp_path: pathlib.Path,
) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    gone, timeless = app.thread(1004), app.thread(1008)
    kernel.space.set_state(gone.ethread.address & ~0xFFF, 0x1000, State.MISSING)
    timeless.ethread["CreateTime.QuadPart"] = 0
    lines = timeline(context.open_image(kernel.image(), tmp_path))
    assert [time for line, time in lines if "TID 1008" in line] == [None, None]
    assert not [line for line, _ in lines if "TID 1004" in line]


@pytest.mark.cli
def test_the_body_file_of_the_timeliner(tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    path, symbols = image.save(tmp_path / "sample.dmp"), image.install(tmp_path / "symbols")
    options = ("--plugin-filter", "callstacks", "--create-bodyfile")
    done = vol.run(path, "timeliner", *options, symbols=symbols, cwd=tmp_path)
    assert len(done.rows) == 17
    found: Dict[str, int] = {}
    for line in (tmp_path / "volatility.body").read_text().splitlines():
        _, name, *_, created = line.split("|")
        assert name not in found
        found[name] = int(created)
    assert len(found) == 17
    started = only(time for name, time in found.items() if "TID 6204" in name and "TraceId user:" in name)
    assert started == int(after(6200 + 6204).timestamp())
