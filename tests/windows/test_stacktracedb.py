# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.stacktracedb` on forged images: options, damage, and what is said when there is nothing."""

from __future__ import annotations

import csv
import io
import json
import logging
import pathlib
import subprocess
from typing import Any, List, Tuple

import pyarrow.parquet
import pytest
from volatility3 import framework
from volatility3.plugins.windows import stacktracedb

from tests.forge import context, kernels, sample, std_bytes, vol
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.std import Std
from tests.support import grid
from tests.support.grid import MASK, Node
from tests.support.only import only, rows_of

PAGE = 0x1000
PARQUET = pathlib.Path(framework.__file__).parent / "plugins" / "renderers" / "parquet_renderer.py"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


def traces(nodes: List[Node], pid: int) -> List[Node]:
    return [node for node in nodes if node.row["PID"] == pid and node.row["EntryAddress"] is not None]


def symbols(node: Node) -> List[str]:
    return [frame["Symbol"] for frame in node.children]


def run(opened: Opened, **options: Any) -> List[Node]:
    return grid.run(opened, stacktracedb.StackTraceDb, **options)


def test_the_kernels_database_is_named(opened: Opened) -> None:
    first, second, third, fourth = rows_of(4, traces(run(opened, pid=[0]), 0))
    assert first.row["Count"] == 3
    assert symbols(first) == [
        "Ntfs!NtfsCreateScb+0x4d",
        "Ntfs!NtfsCommonCreate+0x71",
        "Ntfs!NtfsFsdCreate+0x32",
        "nt!IofCallDriver+0x59",
        "nt!IopParseDevice+0xd4",
        "nt!ObpLookupObjectName+0xfe",
        "nt!ObOpenObjectByName+0xdf",
        "nt!IopCreateFile+0x62",
        "nt!NtCreateFile+0x79",
    ]
    assert symbols(second)[0] == "tcpip!NetioInitialize+0x18"
    assert second.children[0]["Source"] == "export"
    assert symbols(third)[:2] == ["<unloaded:aimhook>+0x1a34", "<unloaded:aimhook>+0x12c0"]
    assert symbols(fourth)[0] == "<no-module>"


def test_both_halves_of_a_wow64_process_are_there(opened: Opened) -> None:
    trace = only(traces(run(opened, pid=[5120]), 5120))
    assert trace.row["Arch"] == "x86"
    assert symbols(trace)[1:3] == ["legacy!read_ini+0x19", "legacy!WinMain+0x2e"]


def test_fold_puts_a_trace_into_one_string(opened: Opened) -> None:
    plain, folded = run(opened, pid=[4312]), run(opened, pid=[4312], fold=True)
    assert all(not node.children for node in folded)
    for one, other in zip(traces(plain, 4312), traces(folded, 4312)):
        assert other.row["Stack"] == "; ".join(symbols(one))
        assert one.row["Stack"] is None


def test_index_selects_traces(opened: Opened) -> None:
    shown = traces(run(opened, index=[2]), 0) + traces(run(opened, index=[2]), 4312)
    assert [node.row["Index"] for node in shown] == [2, 2]


@pytest.mark.parametrize("glob", ["*!NTFSCommon*", "Ntfs!NtfsCommonCreate+0x71"])
def test_find_selects_by_symbol(opened: Opened, glob: str) -> None:
    nodes = run(opened, find=glob)
    assert [node.row["Index"] for node in traces(nodes, 0)] == [1]
    assert not traces(nodes, 4312)


def test_unbacked_selects_by_what_lies_there(opened: Opened) -> None:
    nodes = run(opened, unbacked=True)
    assert [node.row["Index"] for node in traces(nodes, 0)] == [3, 4]
    assert [node.row["Index"] for node in traces(nodes, 4312)] == [2, None]
    assert symbols(traces(nodes, 4312)[0])[1:3] == ["<private>", "<private>"]


def test_unbacked_is_not_misled_by_the_loader_list(tmp_path: pathlib.Path) -> None:
    kernel = sample.build()
    updater = next(process for process in kernel.processes if process.pid == 4312)
    updater.module("evil.dll", sample.INJECTED, vad=False)
    nodes = run(context.open_image(kernel.image(), tmp_path), unbacked=True)
    trace, allocated = rows_of(2, traces(nodes, 4312))
    assert trace.row["Index"] == 2
    assert symbols(allocated)[:2] == symbols(trace)[1:3] == ["evil+0x2c4", "evil+0x11"]
    assert trace.children[1]["Status"] == "VAD without file, contradicted: SizeOfImage"


def test_keys_repeat_in_frame_rows_and_quantities_do_not(opened: Opened) -> None:
    for node in run(opened):
        for frame in node.children:
            for key in ("PID", "Process", "Arch", "Database", "Index", "EntryAddress"):
                assert frame[key] == node.row[key]
            for quantity in ("Count", "Depth", "BackTraceHash", "Stack", "Lookups", "BackTraces"):
                assert frame[quantity] is None


def kernel_database(**options: Any) -> Tuple[Kernel, Std]:
    """A kernel whose database has 200 traces of 8 frames."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **{**known.options(), "nt_global_flag": 0x2000})
    database = Std("6.1", "x64", 0xFFFFAB8008000000, kernel=True, reserve=0x800000, **options)
    for number in range(200):
        database.log([kernel.base + 0x1000 + 0x10 * number + frame for frame in range(8)])
    for address, data in std_bytes.regions(database).items():
        kernel.space.write(address, data)
    kernel.set("RtlpStackTraceDatabase", database.base)
    return kernel, database


def test_a_hole_loses_only_what_is_unreadable(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, database = kernel_database()
    hole = (database.first_entry + 3 * PAGE) & -PAGE
    kernel.space.set_state(hole, PAGE, State.PAGEFILE)
    with caplog.at_level(logging.WARNING):
        nodes = run(context.open_image(kernel.image(), tmp_path))
    assert f"{PAGE} bytes of the used parts" in caplog.text
    shown = {node.row["Index"]: node for node in traces(nodes, 0)}
    assert sorted(shown) == list(range(1, 201))
    size = 16 + 8 * 8
    for entry in database.entries():
        node = shown[entry.index]
        frames = [frame["Address"] for frame in node.children]
        if entry.va + size <= hole or hole + PAGE <= entry.va:
            assert frames == [frame & MASK for frame in entry.frames]
            assert node.row["Status"] == ""
        else:
            assert "unreadable" in node.row["Status"]


def test_a_frame_changed_in_memory_is_told_by_its_bucket(tmp_path: pathlib.Path) -> None:
    kernel, database = kernel_database()
    entry = next(iter(database.entries()))
    kernel.space.write_int(entry.va + 16, entry.frames[0] + 1)
    nodes = run(context.open_image(kernel.image(), tmp_path))
    assert traces(nodes, 0)[0].row["Status"] == "bucket"
    assert all(node.row["Status"] == "" for node in traces(nodes, 0)[1:])


@pytest.mark.cli
@pytest.mark.parametrize(("flags", "is_explained"), [(0, False), (0x2000, True)])
def test_nothing_to_show_is_explained(tmp_path: pathlib.Path, flags: int, is_explained: bool) -> None:
    known = kernels.load("win10-x64")
    image = Kernel(known.table, **{**known.options(), "nt_global_flag": flags}).image()
    result = vol.run(
        image.save(tmp_path / "a.dmp"), "windows.stacktracedb", symbols=image.install(tmp_path / "symbols")
    )
    assert result.returncode == 0
    assert [(row["PID"], row["Status"]) for row in result.rows] == [(0, "no database")] * is_explained
    assert "+kst 0x2000" in result.stderr
    assert "+ust 0x1000" in result.stderr
    assert ("The kernel (NtGlobalFlag 0x2000: kst): no database" in result.stderr) == is_explained


def test_one_line_names_a_pdb_that_is_missing(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(opened)
    line = only(record.message for record in caplog.records if "No symbols for" in record.message)
    assert "--fetch-symbols" in line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the sample's image and symbols."""
    new_folder = tmp_path_factory.mktemp("renderers")
    image = sample.build().image()
    image.save(new_folder / "sample.dmp")
    image.install(new_folder / "symbols")
    return new_folder


@pytest.mark.cli
class TestRenderers:
    """The sample through the command line, as pipelines take it."""

    def _run(self, folder: pathlib.Path, renderer: str) -> vol.Result:
        result = vol.run(
            folder / "sample.dmp", "windows.stacktracedb", symbols=folder / "symbols", renderer=renderer
        )
        assert result.returncode == 0, result.stderr
        return result

    def test_all_agree(self, folder: pathlib.Path) -> None:
        requested_symbols = [
            row["Symbol"] for row in self._run(folder, "json").flat if row["Symbol"] is not None
        ]
        assert "Ntfs!NtfsCreateScb+0x4d" in requested_symbols
        lines = [line for line in self._run(folder, "jsonl").stdout.splitlines() if line]
        below = [frame["Symbol"] for line in lines for frame in json.loads(line)["__children"]]
        assert below == requested_symbols
        text = self._run(folder, "csv").stdout
        rows = list(csv.DictReader(io.StringIO(text[text.index("TreeDepth") :])))
        assert [row["Symbol"] for row in rows if row["TreeDepth"] == "1"] == requested_symbols

    @pytest.mark.skipif(not PARQUET.exists(), reason="this Volatility has no renderer for Parquet")
    def test_parquet_holds_every_value(self, folder: pathlib.Path) -> None:
        image, symbols = folder / "sample.dmp", folder / "symbols"
        command, environment = vol.prepare(image, "windows.stacktracedb", symbols=symbols, renderer="parquet")
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        table = pyarrow.parquet.read_table(io.BytesIO(done.stdout))
        assert "<unloaded:aimhook>+0x1a34" in table.column("Symbol").to_pylist()
