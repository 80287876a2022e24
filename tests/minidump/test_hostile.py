# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Plugins on dumps whose counts, places and sizes lie: rows or a sentence, and never more than there is."""

from __future__ import annotations

import bisect
import hashlib
import pathlib
import sys
from typing import Any, Callable, Iterator, List, Optional, Set, Tuple
from unittest import mock

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.minidump import (
    callstacks,
    heaptraces,
    info,
    locks,
    stacktracedb,
    tracefindings,
    traces,
)

from benchmarks import hostileforms
from tests.forge.context import Opened
from tests.support.processdumps import OpenedDump, dump_of, whole_faults
from tests.winstacks.minidump.decode import test_streams
from tests.winstacks.minidump.decode.test_tamper import DIRECTORY, HEADER, LAYOUTS
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.memory.image import AddressSpace
from winstacks.minidump.decode.memory import memory_ranges
from winstacks.minidump.decode.modules import module_list
from winstacks.process.userstacks import UserStacks
from winstacks.stacks.decode import budget
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.decode.walk import Walker

from .test_plugins import UPDATER, opened  # noqa: F401  (a fixture)

WRITES = 24
VALUES = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)
PLUGINS = {
    "info": info.Info,
    "callstacks": callstacks.CallStacks,
    "stacktracedb": stacktracedb.StackTraceDb,
    "locks": locks.Locks,
    "heaptraces": heaptraces.HeapTraces,
    "traces": traces.StackTraces,
}


@pytest.fixture(scope="module")
def data(opened: Opened) -> bytes:  # noqa: F811
    return dump_of(opened, UPDATER)


def _places(data: bytes) -> Iterator[Tuple[int, int]]:
    """Yields (offset, bytes) of the members of header and directory, of lists and of their first entry."""
    yield from ((offset, size) for _, offset, size in HEADER)
    for place, stream in enumerate(test_streams.dump_of(data).streams):
        yield from ((32 + 12 * place + offset, size) for _, offset, size in DIRECTORY)
        layout, rva = LAYOUTS.get(stream.StreamType), stream.Location.Rva
        if layout is not None:
            yield from ((rva + offset, size) for _, offset, size in layout.header)
            yield from ((rva + layout.start + offset, size) for _, offset, size in layout.members)


def _writes(data: bytes) -> List[Tuple[int, bytes]]:
    writes = [
        (offset, value.to_bytes(8, "little")[:size]) for offset, size in _places(data) for value in VALUES
    ]
    return sorted(writes, key=lambda write: hashlib.sha256(repr(write).encode()).digest())[:WRITES]


def _links(data: bytes) -> List[Tuple[int, bytes]]:
    """Returns writes to words that lead from memory to memory: to nothing, to themselves, astray."""
    ranges, _ = memory_ranges(test_streams.dump_of(data))
    starts = [piece.start for piece in ranges]
    writes = []
    for piece in ranges:
        for place in range(piece.offset, piece.offset + piece.length - 7, 8):
            target = int.from_bytes(data[place : place + 8], "little")
            within = bisect.bisect_right(starts, target) - 1
            if within >= 0 and target < ranges[within].start + ranges[within].length:
                own = piece.start + place - piece.offset
                writes += [(place, value.to_bytes(8, "little")) for value in (0, own, own + 1, (1 << 64) - 1)]
    return sorted(writes, key=lambda write: hashlib.sha256(repr(write).encode()).digest())[:WRITES]


@pytest.mark.parametrize("number", range(WRITES))
@pytest.mark.parametrize("places", [_writes, _links], ids=["of the file", "of the memory"])
def test_a_write_costs_no_run(
    data: bytes, tmp_path: pathlib.Path, places: Callable[[bytes], List[Tuple[int, bytes]]], number: int
) -> None:
    offset, value = places(data)[number]
    file = tmp_path / "written.dmp"
    file.write_bytes(data[:offset] + value + data[offset + len(value) :])
    for name, plugin in PLUGINS.items():
        try:
            rows = OpenedDump(file).rows(plugin)
        except (exceptions.RenderException, exceptions.UnsatisfiedException):
            continue
        assert len(rows) < 2000, name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["written.dmp"]


def test_no_name_is_followed(data: bytes, tmp_path: pathlib.Path) -> None:
    """A module whose path is that of a file of the examiner's: nothing opens the file."""
    other = tmp_path / "named.dll"
    other.write_bytes(b"MZ")
    name = str(other).encode("utf-16-le")
    stream = test_streams.dump_of(data).stream(4)
    assert stream is not None
    written = bytearray(data + len(name).to_bytes(4, "little") + name + b"\0\0")
    place = stream.Location.Rva + 4 + 20
    written[place : place + 4] = len(data).to_bytes(4, "little")
    assert module_list(test_streams.dump_of(bytes(written)))[0][0].ModuleName == str(other)
    file = tmp_path / "written.dmp"
    file.write_bytes(bytes(written))
    seen: Set[str] = set()
    watching = [True]
    sys.addaudithook(
        lambda event, args: seen.add(str(args[0])) if watching[0] and event == "open" and args else None
    )
    for plugin in PLUGINS.values():
        OpenedDump(file).rows(plugin)
    assert not any("named.dll" in path for path in seen)
    other.read_bytes()
    watching[0] = False
    assert any("named.dll" in path for path in seen)  # the watch sees what is opened


def test_the_limits_of_a_stack_are_read_once(tmp_path: pathlib.Path) -> None:
    """The walk, the stacks where no code lies, and a check ask for them, for each thread."""
    file, read, tebs = tmp_path / "threads.dmp", UserStacks._read, []
    file.write_bytes(hostileforms.threads(300))

    def counted(stacks: UserStacks, key: Tuple[AddressSpace, int]) -> List[Tuple[int, int]]:
        tebs.append(key[1])
        return read(stacks, key)

    with mock.patch.object(UserStacks, "_read", counted):
        OpenedDump(file).rows(tracefindings.TraceFindings)
    assert len(tebs) == len(set(tebs)) == 300


@pytest.mark.parametrize("form", [hostileforms.returns, hostileforms.scanned])
def test_threads_on_one_stack_have_the_frames_of_the_file(
    form: Callable[[int], bytes], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each walk of each thread could scan the same 64 KB, and find the same 500 frames there."""
    file, threads = tmp_path / "shared.dmp", 400
    file.write_bytes(form(threads))
    size, read_slots, counts = file.stat().st_size, Walker.read_slots, []

    def counted(walker: Walker[Registers], address: int, count: int) -> Optional[Tuple[int, ...]]:
        counts.append(count)
        return read_slots(walker, address, count)

    with mock.patch.object(Walker, "read_slots", counted):
        rows = [row for _, row in OpenedDump(file).rows(callstacks.CallStacks)]
    most_frames = threads + 2 * (budget.LEAST_FRAMES + size // budget.BYTES_OF_A_FRAME)
    assert len(rows) < threads + 8 + most_frames
    assert 8 * sum(counts) < budget.LEAST_SCANNED + budget.SCANS_OF_A_BYTE * size + threads * PAGE_SIZE
    cut = [row for row in rows if "too many frames" in str(row["Status"])]
    assert cut or "the remaining stacks are not scanned" in caplog.text


@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=PLUGINS)
def test_each_plugin_tells_that_the_dump_is_cut(
    plugin: Any, data: bytes, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, half = tmp_path / "cut.dmp", len(data) // 2
    for size, told in ((len(data), 0), (half, len(data) - half)):
        file.write_bytes(data[:size])
        caplog.clear()
        OpenedDump(file).rows(plugin)
        where = "" if plugin is info.Info else " (see minidump.info)"
        expected = f"Rows may be missing or wrong: {told} bytes beyond the end of the file{where}"
        assert whole_faults(caplog) == [expected] * bool(told)
