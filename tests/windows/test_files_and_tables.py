# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the plugins do without their symbol tables, and where a file cannot be written."""

from __future__ import annotations

import logging
import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.windows import gflags, handletraces, heaptraces, locks, stacktracedb, traces
from volatility3.plugins.windows.stacktraces.base import tables

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.forge.handles import HandleTable, named
from tests.support import grid
from tests.support.tracedkernels import new_kernel, put_database, traces_of


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """The sample in a context into which none of our tables was loaded."""
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def creators(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """An XP whose handles have creators and nothing else."""
    kernel = new_kernel("xp-x86", 0x2000)
    table = HandleTable(kernel.process("app.exe", pid=1000))
    index = put_database(kernel, "5.1", traces_of(kernel))[1]
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready"), creator=index)
    table.finish()
    return context.open_image(kernel.image(), tmp_path_factory.mktemp("creators"))


def said(caplog: pytest.LogCaptureFixture, level: int) -> List[str]:
    """What the plugin itself said, not its helpers."""
    plugins = [each for each in caplog.records if ".stacktraces." not in each.name]
    return [each.getMessage() for each in plugins if each.levelno == level]


@pytest.mark.parametrize(
    ("plugin", "image"),
    [
        (gflags.GFlags, "bare"),
        (handletraces.HandleTraces, "creators"),
        (heaptraces.HeapTraces, "bare"),
        (locks.Locks, "bare"),
        (stacktracedb.StackTraceDb, "bare"),
    ],
)
def test_a_missing_table_is_one_error_that_says_what_to_do(
    plugin: Any,
    image: str,
    tmp_path: pathlib.Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing else is said: whether there is anything to show is not known then."""
    opened = request.getfixturevalue(image)
    monkeypatch.setattr(tables, "_BESIDE", tmp_path)
    with caplog.at_level(logging.WARNING):
        grid.run(opened, plugin)
    (error,) = said(caplog, logging.ERROR)
    assert "windows/stacktraces/" in error and "copy the 'symbols' folder" in error
    assert said(caplog, logging.WARNING) == []


class _Full(interfaces.plugins.FileHandlerInterface):
    """A file on a disk that is full."""

    def __init__(self, filename: str) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("plugin", [locks.Locks, stacktracedb.StackTraceDb, traces.StackTraces])
def test_a_file_that_cannot_be_written_costs_no_row(
    plugin: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    made = opened.construct(plugin, dump=True)
    made.set_open_method(_Full)
    dumped = made.run()
    names = [column.name for column in dumped.columns]
    rows: List[Dict[str, Any]] = []
    with caplog.at_level(logging.ERROR):
        dumped.populate(lambda node, _: rows.append(dict(zip(names, node.values))), None)
    outputs = [row["File output"] for row in rows if isinstance(row["File output"], str)]
    assert outputs and set(outputs) == {"Error outputting file"}
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert errors and all("cannot be written: [Errno 28] No space left on device" in each for each in errors)
