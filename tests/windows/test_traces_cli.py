# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.traces` through the command line: its renderers, its files, its errors."""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any, Dict, List, NamedTuple

import pytest

from tests.forge import sample, vol
from tests.support.only import only
from winstacks.columns import tables


class Saved(NamedTuple):
    file: pathlib.Path
    symbols: pathlib.Path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("sample")
    image = sample.build().image()
    return Saved(image.save(folder / "sample.dmp"), image.install(folder / "symbols"))


def run(saved: Saved, *command: str, **options: Any) -> vol.Result:
    return vol.run(saved.file, *command, symbols=saved.symbols, **options)


def lines(path: pathlib.Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def grid(saved: Saved, plugin: str, *options: str) -> List[Dict[str, Any]]:
    rows = run(saved, plugin, *options).rows
    for row in rows:
        assert row.pop("__children") == []
    return rows


@pytest.mark.parametrize(
    "options",
    [(), ("--unbacked", "--carve"), ("--kinds", "std", "lock"), ("--find", "nt!*", "--kinds", "kernel")],
    ids=len,
)
def test_the_files_hold_what_the_grids_show(saved: Saved, options: Any, tmp_path: pathlib.Path) -> None:
    written = run(saved, "windows.traces", "--dump", *options, arguments=["-o", str(tmp_path)])
    rows = {row["Table"]: row for row in written.rows}
    assert list(rows) == ["traces", "traceframes", "tracewaits", "traceimage"]
    waits = lines(tmp_path / "tracewaits.jsonl")
    assert waits == ([] if "std" in options else grid(saved, "windows.tracewaits"))
    assert rows["tracewaits"]["Rows"] == len(waits)
    for name in ("traces", "traceframes"):
        found = lines(tmp_path / f"{name}.jsonl")
        assert found == grid(saved, f"windows.{name}", *options)
        assert rows[name]["Rows"] == len(found) > 0
        assert rows[name]["File output"] == f"{name}.jsonl"
        assert all(list(row) == [column.name for column in tables.FLAT[name]] for row in found)
    image = only(lines(tmp_path / "traceimage.jsonl"))
    assert rows["traceimage"]["Rows"] == 1
    assert image["ImageId"] == lines(tmp_path / "traces.jsonl")[0]["ImageId"]
    shown = only(grid(saved, "windows.traceimage", *options))
    assert shown == image


def test_the_dump_hashes_the_files_where_it_is_told_to(saved: Saved, tmp_path: pathlib.Path) -> None:
    run(saved, "windows.traces", "--dump", "--sha256", "--kinds", "lock", arguments=["-o", str(tmp_path)])
    image = only(lines(tmp_path / "traceimage.jsonl"))
    file = only(json.loads(image["Files"]))
    assert file["sha256"] == hashlib.sha256(saved.file.read_bytes()).hexdigest()
    assert [image[name] for name in ("Threads", "Stacks", "StacksIncomplete", "Databases")] == [None] * 4


def test_all_rows_are_at_one_level(saved: Saved) -> None:
    for plugin in ("windows.traces", "windows.traceframes"):
        shown = run(saved, plugin, renderer="csv").stdout.splitlines()
        table = tables.FLAT[plugin.partition(".")[2]]
        assert shown[0] == ",".join(["TreeDepth", *(column.name for column in table)])
        assert len(shown) > 40
        assert {line.partition(",")[0] for line in shown[1:] if line} == {"0"}


def test_a_kind_that_there_is_not(saved: Saved) -> None:
    failed = run(saved, "windows.traces", "--kinds", "fiber")
    assert failed.returncode == 2
    assert "argument --kinds: invalid choice: 'fiber' (choose from kernel, user, wow64" in failed.stderr
    assert "Traceback" not in failed.stderr
