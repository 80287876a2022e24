# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Bitmap dumps and live dumps open as images; the pages of processes that they lack are named.

What contradicts itself, or is of no kind that anything reads, is named before Volatility reads it."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, List, Optional, Set

import pytest
from volatility3.framework import exceptions
from volatility3.framework.layers import crash
from volatility3.plugins.minidump import bitmaplayer
from volatility3.plugins.windows import gflags

from tests.forge import context, kernels, sample, vol
from tests.forge.context import Opened
from tests.forge.dump import BITMAP, BITMAP_AUTOMATIC, BITMAP_KERNEL, LIVE, Image
from tests.forge.kernel import Kernel
from tests.support.only import only
from winstacks.columns.words import COMPLETENESSES
from winstacks.process.spaces import AddressSpaces

from . import test_small_hostile

PAGE = 0x1000
USER_END = 1 << 47

pytestmark = pytest.mark.cli


@pytest.fixture(scope="module")
def image() -> Image:
    return sample.build().image()


@pytest.fixture(scope="module")
def opened(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(image, tmp_path_factory.mktemp("whole"))


def pages_of_processes(opened: Opened) -> Set[int]:
    """The page frames that only the user halves of processes map."""
    context_, spaces = opened.image.context, list(AddressSpaces.list_spaces(opened.image))
    mapped: List[Set[int]] = [set(), set()]
    for layer_name in {space.layer_name for space in spaces if space.layer_name}:
        layer = context_.layers[layer_name]
        for user, (low, high) in enumerate(((USER_END, layer.maximum_address), (0, USER_END - 1))):
            for _, _, physical, length, _ in layer.mapping(low, high - low, ignore_errors=True):
                mapped[user].update(range(physical // PAGE, (physical + length - 1) // PAGE + 1))
    return mapped[1] - mapped[0]


def run(path: pathlib.Path, symbols: pathlib.Path, *line: str) -> Any:
    done = vol.run(path, *line, symbols=symbols)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("dump_type", [BITMAP, BITMAP_KERNEL, BITMAP_AUTOMATIC, *LIVE])
def test_rows_of_the_kernel_are_those_of_a_full_dump(
    image: Image, opened: Opened, tmp_path: pathlib.Path, dump_type: int
) -> None:
    symbols = image.install(tmp_path / "symbols")
    without = pages_of_processes(opened) if dump_type in (BITMAP_KERNEL, BITMAP_AUTOMATIC, LIVE[0]) else set()
    path = image.save(tmp_path / "memory.dmp", dump_type, without)
    whole = image.save(tmp_path / "whole.dmp")
    line = "windows.callstacks", "--pid", "4"
    assert run(path, symbols, *line).rows == run(whole, symbols, *line).rows
    done = run(path, symbols, "windows.traceimage")
    row = only(done.rows)
    assert row["InputKind"] == "image"
    expected = {BITMAP_KERNEL: "kernel pages", BITMAP_AUTOMATIC: "active pages", LIVE[0]: "kernel pages"}
    assert row["Completeness"] == expected.get(dump_type)
    assert done.stderr.count("pages of processes are absent") == bool(without)
    assert not without or f"The crash dump is {COMPLETENESSES[row['Completeness']]}" in done.stderr
    assert not row["Truncated"]


def test_a_plugin_of_volatility_reads_it(image: Image, opened: Opened, tmp_path: pathlib.Path) -> None:
    """And a process without its pages has a row that says so."""
    symbols = image.install(tmp_path / "symbols")
    path = image.save(tmp_path / "memory.dmp", BITMAP_KERNEL, pages_of_processes(opened))
    names = [row["ImageFileName"] for row in run(path, symbols, "windows.pslist").rows]
    assert "updater.exe" in names
    rows = run(path, symbols, "windows.callstacks", "--pid", "4312").flat
    assert any(row["Part"] == "kernel" and row["Symbol"] for row in rows)
    assert any("stack unreadable" in (row["Status"] or "") for row in rows if row["Part"] == "user")


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_32_bit_dump_opens(seed: Optional[int], tmp_path: pathlib.Path) -> None:
    """Whatever the layout: signature, length of the bitmap, room before the pages."""
    known = kernels.load("win7-x86")
    kernel = Kernel(known.table, **known.options())
    kernel.process("app.exe", pid=1000)
    image = kernel.image()
    image.install(context.symbol_directory())
    opened = context.open_file(image.save(tmp_path / "memory.dmp", BITMAP_AUTOMATIC, seed=seed))
    below = opened.context.layers[opened.layer.dependencies[0]]
    assert isinstance(below, bitmaplayer.PagesDump32Layer)
    assert {row["Process"] for _, row in opened.rows(gflags.GFlags)} >= {"nt", "app.exe"}


@pytest.mark.parametrize("dump_type", LIVE)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_live_dump_opens(dump_type: int, seed: int, tmp_path: pathlib.Path) -> None:
    """Whatever the layout: order of ranges, room behind them, bytes of partial dumps that readers skip."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.process("app.exe", pid=1000)
    image = kernel.image()
    image.install(context.symbol_directory())
    expected = context.open_file(image.save(tmp_path / "memory.raw")).rows(gflags.GFlags)
    opened = context.open_file(image.save(tmp_path / "memory.dmp", dump_type, seed=seed))
    below = opened.context.layers[opened.layer.dependencies[0]]
    assert isinstance(below, bitmaplayer.PagesDump64Layer)
    assert opened.rows(gflags.GFlags) == expected


@pytest.mark.parametrize(("name", "place"), [("win7-x86", 0x64), ("win10-x64", 0x88)])
@pytest.mark.parametrize("claimed", [87, 0xFFFFFFFF])
def test_more_runs_than_the_header_has_room_for(
    name: str, place: int, claimed: int, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Volatility reads the memory in the file as further runs: millions of them in a file of some GB."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    kernel.process("app.exe", pid=1000)
    image = kernel.image()
    image.install(context.symbol_directory())
    path = image.save(tmp_path / "memory.dmp")
    expected = context.open_file(path).rows(gflags.GFlags)
    data = bytearray(path.read_bytes())
    data[place : place + 4] = claimed.to_bytes(4, "little")
    path.write_bytes(data)
    opened = context.open_file(path)
    below = opened.context.layers[opened.layer.dependencies[0]]
    assert isinstance(below, bitmaplayer.PagesDump32Layer)
    assert opened.rows(gflags.GFlags) == expected
    assert f"NumberOfRuns of the header is {claimed}" in caplog.text


@pytest.mark.parametrize("dump_type", [BITMAP, BITMAP_KERNEL, *LIVE])
def test_the_pages_of_kdmp_parser(image: Image, tmp_path: pathlib.Path, dump_type: int) -> None:
    """Each page of each dump, and those that are absent."""
    kdmp_parser = pytest.importorskip("kdmp_parser")
    path = image.save(tmp_path / "memory.dmp", dump_type)
    other, opened = kdmp_parser.KernelDumpParser(path), context.open_file(path)
    layer = opened.context.layers[opened.layer.dependencies[0]]
    assert isinstance(layer, bitmaplayer.PagesDump64Layer)
    pages = [
        start // PAGE
        for start, _, length, _ in layer._segments
        for start in range(start, start + length, PAGE)
    ]
    assert len(pages) > 1000
    for number in pages:
        assert layer.read(number * PAGE, PAGE) == bytes(other.read_physical_page(number * PAGE))
    for number in {page + 1 for page in pages} - {*pages}:
        assert other.read_physical_page(number * PAGE) is None


@pytest.mark.parametrize("dump_type", [1, BITMAP, BITMAP_AUTOMATIC, *LIVE])
def test_what_has_no_pages_is_said_at_once(
    dump_type: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A small dump that calls itself larger: Volatility would read its bytes as bits of a bitmap, or runs."""
    data = bytearray(test_small_hostile.dump(True))
    struct.pack_into("<I", data, 0xF98, dump_type)
    path = tmp_path / "memory.dmp"
    path.write_bytes(data)
    monkeypatch.setattr(crash.WindowsCrashDump32Layer, "_load_segments", lambda layer: pytest.fail("read"))
    with pytest.raises(exceptions.UnsatisfiedException):
        context.open_file(path)
    assert "the header is" in caplog.text if dump_type == 1 else f"type {dump_type}: Behind" in caplog.text


def test_a_complete_dump_without_runs_is_named(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray(test_small_hostile.dump(True))
    struct.pack_into("<I", data, 0xF98, 1)
    struct.pack_into("<QQ", data, 0x88, 0, 0)
    path = tmp_path / "memory.dmp"
    path.write_bytes(data)
    with pytest.raises(exceptions.UnsatisfiedException):
        context.open_file(path)
    assert "names no page of the file" in caplog.text


@pytest.mark.parametrize("dump_type", [0, 2, 3, 11, 0xFFFFFFFF])
def test_a_type_that_nothing_reads_is_named(
    dump_type: int, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray(test_small_hostile.dump(True))
    struct.pack_into("<I", data, 0xF98, dump_type)
    path = tmp_path / "memory.dmp"
    path.write_bytes(data)
    with pytest.raises(exceptions.UnsatisfiedException):
        context.open_file(path)
    assert f"The crash dump is of type {dump_type}, which neither" in caplog.text


def test_a_bitmap_with_another_number_of_pages_says_so(
    image: Image, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A bit that was cleared moves all pages behind it."""
    path = image.save(tmp_path / "memory.dmp", BITMAP)
    data = bytearray(path.read_bytes())
    for change, told in ((0, False), (1, True)):
        data[0x2028] ^= change
        path.write_bytes(data)
        caplog.clear()
        context.open_file(path)
        assert ("memory may be missing or misplaced" in caplog.text) == told
