# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The log of a table: Delta's writer sums up its commits in a checkpoint after each hundred of them."""

from __future__ import annotations

import pathlib
import shutil
from typing import List, Tuple

import pytest
from deltalake import DeltaTable, Schema

from stackfleet import folders
from stackfleet.columns import stored
from stackfleet.layout import TRACES
from stackfleet.tablelog import DataFile, TableLog

COMMITS = 102
NAMES = [f"{number:04}.a.parquet" for number in range(COMMITS)]


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A lake with one log of many commits."""
    folder = tmp_path_factory.mktemp("lake")
    (folder / "tables" / TRACES).mkdir(parents=True)
    log = TableLog(folder, TRACES)
    for name in NAMES:
        log.commit(stored(TRACES), [DataFile(name, 100, 1, "a", "b")])
    return folder


def loaded(folder: pathlib.Path) -> List[str]:
    return [file.name for file in TableLog(folder, TRACES).load()]


def in_log(folder: pathlib.Path) -> List[str]:
    return sorted(path.name for path in (folder / "tables" / TRACES / "_delta_log").iterdir())


def test_a_log_with_a_checkpoint_is_read_and_written(long_log: pathlib.Path) -> None:
    assert list(long_log.rglob("*.checkpoint.parquet"))
    assert loaded(long_log) == NAMES


@pytest.mark.parametrize("torn", [False, True])
def test_a_log_is_shortened_to_a_checkpoint(
    torn: bool, long_log: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = pathlib.Path(shutil.copytree(long_log, tmp_path / "lake"))
    last = max(name for name in in_log(folder) if name.endswith(".json"))
    if torn:
        (folder / "tables" / TRACES / "_delta_log" / last).write_bytes(b"{")
    names = NAMES[:-1] if torn else NAMES
    log = TableLog(folder, TRACES)
    log.shorten()
    shortened = in_log(folder)
    assert len(shortened) == 3 and shortened[-1] == "_last_checkpoint"
    assert loaded(folder) == names
    log.shorten()
    assert in_log(folder) == shortened
    log.commit(stored(TRACES), [DataFile("x.a.parquet", 100, 1, "a", "b")], log.load()[:1])
    assert loaded(folder) == [*names[1:], "x.a.parquet"]


def test_a_checkpoint_is_on_the_disk_before_commits_go(
    long_log: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pathlib.Path(shutil.copytree(long_log, tmp_path / "lake"))
    synced: List[Tuple[str, int]] = []
    monkeypatch.setattr(folders, "sync", lambda path: synced.append((path.name, len(in_log(folder)))))
    TableLog(folder, TRACES).shorten()
    newest = max(name for name in in_log(folder) if name.endswith(".checkpoint.parquet"))
    (first, *_) = [number for name, number in synced if name == newest]
    assert first > COMMITS


def test_a_log_of_an_earlier_version_is_shortened(tmp_path: pathlib.Path) -> None:
    """Such a log does not have the settings by which Delta removes commits at once."""
    (tmp_path / "tables" / TRACES).mkdir(parents=True)
    DeltaTable.create(str(tmp_path / "tables" / TRACES), Schema.from_arrow(stored(TRACES)))
    log = TableLog(tmp_path, TRACES)
    for name in NAMES[:3]:
        log.commit(stored(TRACES), [DataFile(name, 100, 1, "a", "b")])
    log.shorten()
    assert len(in_log(tmp_path)) == 3
    assert loaded(tmp_path) == NAMES[:3]
