# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Memory that a run holds of processes it has finished: it does not grow with their number.

Python's collector of cycles is paused while rows are made. So whatever a cycle holds stays to the end of the
run, and whatever a row that is kept leads to stays as long as the row.
"""

from __future__ import annotations

import collections
import gc
import pathlib
import sqlite3
from typing import Any, Counter, List

import pytest
from volatility3.framework.automagic import symbol_cache
from volatility3.plugins.windows import (
    callstacks,
    tracefindings,
    traceframes,
    traces,
    trapframes,
    waits,
)

from benchmarks import stacks
from winstacks.memory import image as images_of_memory
from winstacks.memory.decode.memory import ReadWindows
from winstacks.names import pdbsymbols, symbolizer
from winstacks.names.decode.pe import CodeView
from winstacks.names.symbolizer import AddressNamer

from .support.costs import Opened

_PROCESSES = 6


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return Opened(stacks.threads(tmp_path_factory.mktemp("held"), _PROCESSES, 2))


@pytest.mark.parametrize(
    "plugin",
    [
        callstacks.CallStacks,
        tracefindings.TraceFindings,
        traceframes.TraceFrames,
        traces.StackTraces,
        trapframes.TrapFrames,
        waits.WaitChains,
    ],
)
def test_nothing_of_a_finished_process_waits_for_the_collector(opened: Opened, plugin: Any) -> None:
    rows: List[object] = []
    opened.construct(plugin).run().populate(lambda node, _: rows.append(node))
    unreachable: Counter[str] = collections.Counter()

    def visit(_: Any, row: int) -> int:
        # At the last row the image is still in use, and all processes but the last are finished.
        if row == len(rows):
            unreachable.update(_collected())
        return row + 1

    gc.collect()
    gc.disable()
    try:
        opened.construct(plugin).run().populate(visit, 1)
    finally:
        gc.enable()
    assert len(rows) >= _PROCESSES
    assert unreachable == {}


def test_findings_that_are_kept_let_go_of_the_modules(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbolizer, "MAX_KEPT", 1)
    gc.collect()
    places: List[int] = []

    def visit(_: Any, rows: int) -> int:
        namers = [each for each in gc.get_objects() if type(each) is AddressNamer]
        places.append(sum(len(each) > 0 for each in namers))
        return rows + 1

    grid = opened.construct(tracefindings.TraceFindings).run()
    grid.populate(visit, 0)
    # The kernel, the last process and the one before it have places.
    assert len(places) > _PROCESSES
    assert max(places) <= 3


def test_the_kernel_is_not_read_again_for_further_processes(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its layer is kept, however many layers of processes come between."""
    monkeypatch.setattr(images_of_memory, "MAX_LAYERS", 1)
    made: Counter[str] = collections.Counter()
    begin = ReadWindows.__init__

    def counted(self: ReadWindows, reader: Any, size: int = 0x1000) -> None:
        made[str(getattr(reader, "args", ("", ""))[1])] += size == 0x1000
        begin(self, reader, size)

    monkeypatch.setattr(ReadWindows, "__init__", counted)
    opened.construct(traces.StackTraces).run().populate()
    assert made["layer_name"] == 1
    assert sum(made.values()) > _PROCESSES


def test_volatilitys_cache_of_identifiers_is_opened_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is part of a cycle: one for each PDB would be hundreds of open files."""
    monkeypatch.setattr(pdbsymbols.constants, "CACHE_PATH", str(tmp_path))
    symbol_cache.SqliteCache(str(tmp_path / pdbsymbols.constants.IDENTIFIERS_FILENAME))
    connections: List[str] = []
    connect = sqlite3.connect

    def counted(path: str, *arguments: Any, **named: Any) -> Any:
        connections.append(path)
        return connect(path, *arguments, **named)

    monkeypatch.setattr(symbol_cache.sqlite3, "connect", counted)
    for age in range(8):
        assert not list(pdbsymbols.local_urls(CodeView("0" * 32, age, "absent.pdb")))
    assert len(connections) == 1


def _collected() -> List[str]:
    """Returns the types of our objects that no longer are in use, and that only the collector frees."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        names = [f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage]
        return [name for name in names if name.startswith("winstacks.") and ".options." not in name]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
