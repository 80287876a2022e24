# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The tables that one process writes, against the rows that the plugins show."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any, Dict, List

import pyarrow.parquet as pq
import pytest
from volatility3.plugins.windows import tracefindings, traceframes, traceimage, traces, tracewaits, trapframes

from stackfleet.columns import ROW, SCHEMAS
from stackfleet.job import Reading
from stackfleet.layout import (
    FINDINGS,
    FRAMES,
    IMAGE,
    MODULE_SETS,
    MODULES,
    TABLES,
    TRACES,
    TRAP_FRAMES,
    WAITS,
)
from stackfleet.writer import module_set, version_number
from tests.forge import context, kernels, sample
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.support import grid
from tests.support.shared import written

PLUGINS = {
    TRACES: traces.StackTraces,
    FRAMES: traceframes.TraceFrames,
    FINDINGS: tracefindings.TraceFindings,
    TRAP_FRAMES: trapframes.TrapFrames,
    WAITS: tracewaits.TraceWaits,
    IMAGE: traceimage.TraceImage,
}
OWN = {TRACES: ["ModuleSet"], TRAP_FRAMES: ["ImageId", "Schema"]}
"""Columns that the plugins do not have."""

DIFFER = {"Warnings", "WarningText"}
"""What depends on how often an image was read before."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def paths(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, pathlib.Path]:
    return written(opened, tmp_path_factory.mktemp("lake"), Reading()).paths


def plain(value: Any, shown: Any = None) -> Any:
    """A time in UTC without a zone, as the grid has it or as Arrow has it.

    Where the grid shows a number, a lake has hexadecimal text; of an address the grid shows 48 bits.
    """
    if isinstance(shown, int) and isinstance(value, str):
        return int(value, 16) if shown >> 48 else int(value, 16) & (1 << 48) - 1
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value


def read(paths: Dict[str, pathlib.Path], table: str) -> Any:
    """A table as a question sees it."""
    found = pq.ParquetFile(paths[table]).read()
    assert found.column("Row").to_pylist() == list(range(found.num_rows))
    return found.drop_columns(["Row"])


def of_plugin(opened: Opened, table: str) -> List[Dict[str, Any]]:
    return [node.row for node in grid.run(opened, PLUGINS[table])]


@pytest.mark.parametrize("table", list(PLUGINS))
def test_a_table_has_the_rows_of_its_plugin(
    table: str, opened: Opened, paths: Dict[str, pathlib.Path]
) -> None:
    found = read(paths, table)
    assert found.schema.equals(SCHEMAS[table])
    rows = found.drop_columns(OWN.get(table, [])).to_pylist()
    expected = of_plugin(opened, table)
    assert len(rows) == len(expected) > 0
    for mine, theirs in zip(rows, expected):
        assert list(mine) == list(theirs)
        for name in mine.keys() - DIFFER:
            assert plain(mine[name], theirs[name]) == plain(theirs[name]), name


def test_files_are_packed_and_have_microseconds(paths: Dict[str, pathlib.Path]) -> None:
    for path in paths.values():
        column = pq.ParquetFile(path).metadata.row_group(0).column(0)
        assert column.compression == "ZSTD"
    kind = pq.read_schema(paths[TRACES]).field("ProcessCreateTime").type
    assert (kind.unit, kind.tz) == ("us", "UTC")


def test_module_sets_are_the_versions_in_the_frames(paths: Dict[str, pathlib.Path]) -> None:
    """Made again from the frames that the lake has."""
    frames: Dict[str, List[Dict[str, Any]]] = {}
    for row in read(paths, FRAMES).to_pylist():
        frames.setdefault(row["TraceId"], []).append(row)
    versions = {
        row["Version"]: (row["Module"], row["ModuleStamp"], row["ModuleSize"])
        for row in read(paths, MODULES).to_pylist()
    }
    listed = {
        row["ModuleSet"]: {versions[number] for number in row["Versions"]}
        for row in read(paths, MODULE_SETS).to_pylist()
    }
    seen = 0
    for trace in read(paths, TRACES).to_pylist():
        counted = {
            (row["Module"].lower(), row["ModuleStamp"], row["ModuleSize"])
            for row in frames.get(trace["TraceId"], [])
            if row["Backing"] == "image" and row["How"] != "scan" and (row["Frame"] or row["How"] != "trap")
        }
        if counted:
            assert listed[trace["ModuleSet"]] == counted
            assert module_set(sorted(version_number(*version) for version in counted)) == trace["ModuleSet"]
            seen += 1
        else:
            assert trace["ModuleSet"] is None
    assert seen > 20


def test_an_empty_table_has_a_file_with_its_schema(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    bare = context.open_image(Kernel(known.table, **known.options()).image(), tmp_path)
    paths = written(bare, tmp_path / "lake", Reading()).paths
    assert set(paths) == set(TABLES)
    assert pq.read_metadata(paths[FRAMES]).num_rows == 0
    assert pq.read_schema(paths[FRAMES]).equals(SCHEMAS[FRAMES].append(ROW))
