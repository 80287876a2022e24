# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""After a power failure: what a manifest names may be cut, empty, missing or altered, and is read again."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat
from typing import Callable, Dict, List

import pytest

from stackfleet.layout import TABLES
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import called, fleet, manifests, rows


@pytest.fixture(scope="module")
def before(few: Fleet, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    lake = tmp_path_factory.mktemp("power") / "lake"
    assert fleet("run", *few.paths, "-o", lake, *few.options).returncode == 0
    return lake


@pytest.fixture
def lake(before: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(before, tmp_path / "lake"))


def flip(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


DAMAGE: Dict[str, Callable[[pathlib.Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "missing": lambda path: path.unlink(),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "altered": flip,
}
SAME_SIZE = ("zeros", "altered")


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_tables_are_read_again(
    name: str, few: Fleet, lake: pathlib.Path, before: pathlib.Path
) -> None:
    victim = manifests(lake)[pathlib.Path(few.paths[0]).name]
    DAMAGE[name](lake / victim["tables"]["traces"]["file"])
    result = fleet("rare", lake, "--max-hosts", "9")
    # What changes neither the size nor what is asked for is found when all is compared.
    assert result.returncode == (0 if name == "altered" and "left out" not in result.stderr else 3), (
        result.stderr
    )
    if result.returncode:
        assert few.paths[0] in result.stderr
    options = ["--verify"] if name in SAME_SIZE else []
    done = fleet("run", *few.paths, "-o", lake, *few.options, *options)
    assert done.returncode == 0, done.stderr
    assert "1 image is read again: their tables do not agree" in done.stderr
    assert "2 images were done before" in done.stderr
    assert rows(lake, "traces") == rows(before, "traces")
    assert fleet("status", lake, "--verify").returncode == 0


@pytest.mark.parametrize("data", [b"", bytes(4000)])
def test_a_manifest_that_is_cut_is_made_again(
    data: bytes, few: Fleet, lake: pathlib.Path, before: pathlib.Path
) -> None:
    victim = manifests(lake)[pathlib.Path(few.paths[0]).name]
    (lake / "manifest" / f"{victim['image_id']}.json").write_bytes(data)
    result = called("status", lake, "--verify")
    assert result.returncode == 3
    assert victim["image_id"] in result.stderr
    done = fleet("run", *few.paths, "-o", lake, *few.options)
    assert done.returncode == 0, done.stderr
    assert "1 image is read again: their manifests differ from the catalogue" in done.stderr
    assert called("status", lake, "--verify").returncode == 0
    assert rows(lake, "traces") == rows(before, "traces")


def test_an_image_that_is_gone_stays_damaged(few: Fleet, lake: pathlib.Path) -> None:
    """What its manifest says of custody is not lost."""
    name = pathlib.Path(few.paths[0]).name
    victim = manifests(lake)[name]
    DAMAGE["cut"](lake / victim["tables"]["traces"]["file"])
    done = fleet("run", few.paths[1], few.paths[0] + ".gone", "-o", lake, *few.options)
    assert done.returncode == 3
    assert "1 image is damaged, and this run does not read it" in done.stderr
    assert manifests(lake)[name] == victim


def test_files_and_folders_are_on_the_disk_before_a_manifest_names_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_folder = fleetlakes.new_lake(tmp_path / "lake")
    events: List[str] = []
    sync, replace = os.fsync, os.replace

    def synced(held: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{held}"))
        assert stat.S_ISDIR(os.fstat(held).st_mode) or os.fstat(held).st_size
        sync(held)

    def replaced(one: pathlib.Path, other: pathlib.Path) -> None:
        events.append("replaced")
        replace(one, other)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("asks Linux which file is synced")
    fleetlakes.add(lake_folder, "i1")
    tables, after = events[: events.index("replaced")], events[events.index("replaced") + 1 :]
    known = json.loads((lake_folder.manifests_folder / "i1.json").read_text())
    for table in known["tables"].values():
        path = lake_folder.folder / table["file"]
        assert {str(path), str(path.parent), str(path.parent.parent), str(lake_folder.folder)} <= set(tables)
        assert table["bytes"] == path.stat().st_size
    # The catalogue comes last: before it, all files that it leads to and all other logs are on the disk.
    assert after[0] == str(lake_folder.manifests_folder)
    logs = [text for text in after if text.endswith(".json")]
    assert logs[-1].startswith(str(lake_folder.folder / "tables" / "manifests" / "_delta_log"))
    assert {pathlib.Path(log).parents[1].name for log in logs} == {*TABLES, "manifests"}


def test_what_was_kept_before_a_run_was_killed_is_taken_over(tmp_path: pathlib.Path) -> None:
    """Between the manifest of an image and its entry in the catalogue."""
    lake_folder = fleetlakes.new_lake(tmp_path / "lake")
    fleetlakes.add(lake_folder, "i1")
    lake_folder.keep(fleetlakes.keep(lake_folder, "i2"))
    lost = fleetlakes.keep(lake_folder, "i3")
    lake_folder.keep(lost)
    (lake_folder.folder / lost["tables"]["traces"]["file"]).unlink()
    lake_folder.take_over()
    assert [manifest["image_id"] for manifest in lake_folder.contents().manifests] == ["i1", "i2"]
    assert not lake_folder.contents().damaged
