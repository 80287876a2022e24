# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet run`: what it reads, what it passes over, and what it refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import pathlib
import shutil
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Set

import pytest
from deltalake import DeltaTable

from stackfleet import lake as lake_module
from stackfleet.lake import Lake, NewImage
from stackfleet.manifests import unopened
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet, Machine, new_fleet
from tests.support.fleetrun import called, fleet, manifests, rows
from tests.support.only import only

NOWHERE = os.path.join(os.devnull, "a")
"""A folder that nothing can make: Volatility makes a folder of symbols where it may download."""

Manifests = Dict[str, Dict[str, Any]]


@pytest.fixture(scope="module")
def lake(few: Fleet, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A lake of three images."""
    lake_folder = tmp_path_factory.mktemp("lake") / "lake"
    done = fleet("run", *few.paths, "-o", lake_folder, *few.options)
    assert done.returncode == 0, done.stderr
    return lake_folder


def copy(lake: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(lake, tmp_path / "lake"))


def attempts(found: Manifests) -> Dict[str, str]:
    return {name: manifest["attempt"] for name, manifest in found.items()}


def test_done_images_are_passed_over(few: Fleet, lake: pathlib.Path) -> None:
    before = attempts(manifests(lake))
    done = fleet("run", *few.paths, "-o", lake, *few.options)
    assert done.returncode == 0
    assert "3 images were done before" in done.stderr
    assert attempts(manifests(lake)) == before


def test_left_over_files_go_and_are_never_read(lake: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mine = copy(lake, tmp_path)
    expected = rows(mine, "traces")
    left = [mine / "Table=traces" / name for name in ("part-0.parquet", "part-00001-cut-c000.snappy.parquet")]
    for path in left:
        path.write_bytes(b"half a file")
        os.utime(path, (0, 0))
    assert rows(mine, "traces") == expected
    assert fleet("compact", mine).returncode == 0
    assert not any(path.exists() for path in left)
    assert rows(mine, "traces") == expected


def test_other_options_redo_and_say_so(few: Fleet, lake: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mine = copy(lake, tmp_path)
    done = fleet("run", few.paths[0], "-o", mine, *few.options, "--carve", "--sha256")
    assert done.returncode == 0
    assert "1 image is read again: the options differ" in done.stderr
    found = manifests(mine)[pathlib.Path(few.paths[0]).name]
    assert found["reading"]["carve"] is True
    assert len(found["files"][0]["sha256"]) == 64
    assert len(rows(mine, "image")) == 3


def test_a_redo_that_fails_leaves_what_is_done(
    few: Fleet, lake: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    mine, image = copy(lake, tmp_path), few.paths[0]
    expected = rows(mine, "traces")
    again = ["run", image, "-o", mine, *few.options, "--carve"]
    assert fleet(*again, variables={"STACKFLEET_FULL": "1"}).returncode == 3
    assert rows(mine, "traces") == expected
    stdout = fleet("status", mine, "--format", "csv").stdout
    assert "File too large" in stdout, stdout
    assert stdout.count(image) == 2
    assert "1 image has failed before" in fleet(*again).stderr
    assert fleet(*again, "--retry-failed").returncode == 0
    assert fleet("status", mine, "--format", "csv").stdout.count(image) == 1
    assert manifests(mine)[pathlib.Path(image).name]["reading"]["carve"] is True


def test_other_versions_redo_and_say_so(few: Fleet, lake: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mine = copy(lake, tmp_path)
    for known in manifests(mine).values():
        known["versions"]["volatility3"] = "1"
        fleetlakes.put_manifest(Lake(str(mine)), known)
    done = fleet("run", few.paths[0], "-o", mine, *few.options)
    assert "1 image is read again: the version of volatility3 was 1" in done.stderr


def test_failed_images_are_tried_again_only_if_asked(few: Fleet, tmp_path: pathlib.Path) -> None:
    image, lake = tmp_path / "a.dmp", tmp_path / "lake"
    image.write_bytes(b"no image")
    run = ("run", image, "-o", lake, *few.options)
    assert fleet(*run).returncode == 3
    first = manifests(lake)["a.dmp"]
    assert first["image_id"] == unopened(str(image))
    again = fleet(*run)
    assert again.returncode == 3
    assert "--retry-failed" in again.stderr
    assert manifests(lake)["a.dmp"]["attempt"] == first["attempt"]
    fleet(*run, "--retry-failed")
    assert manifests(lake)["a.dmp"]["attempt"] != first["attempt"]
    # Once it can be opened it has an ImageId, and only one manifest.
    shutil.copy(few.paths[0], image)
    assert fleet(*run).returncode == 0
    assert len(manifests(lake)) == 1
    assert manifests(lake)["a.dmp"]["status"] == "done"


def test_an_attempt_that_may_succeed_is_repeated(few: Fleet, tmp_path: pathlib.Path) -> None:
    image, lake = tmp_path / "a.raw", tmp_path / "lake"
    image.write_bytes(b"WAIT" + bytes(1 << 16))
    before = datetime.datetime.now(datetime.timezone.utc)
    done = fleet("run", image, "-o", lake, "--timeout", "2", "--retries", "1", *few.options)
    assert done.returncode == 3
    found = manifests(lake)["a.raw"]
    assert "--timeout" in found["reason"]
    assert done.stderr.count("failed") == 1
    # The manifest is that of the second attempt, and the first took two seconds.
    assert (datetime.datetime.fromisoformat(found["started"]) - before).total_seconds() > 2


def test_a_copy_is_read_whole_before_it_is_passed_over(
    few: Fleet, lake: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    mine, same = copy(lake, tmp_path), tmp_path / "same.dmp"
    shutil.copy(few.paths[0], same)
    done = fleet("run", same, "-o", mine, *few.options)
    assert done.returncode == 0, done.stderr
    assert len(manifests(mine)) == 3
    assert manifests(mine)[pathlib.Path(few.paths[0]).name]["copies"] == [str(same)]
    assert "1 image was done before" in fleet("run", same, "-o", mine, *few.options).stderr


def test_two_images_that_differ_in_one_page_that_was_not_sampled(few: Fleet, tmp_path: pathlib.Path) -> None:
    """The middle of an image of which only pieces are in the ImageId."""
    lake, images = tmp_path / "lake", [tmp_path / "a.dmp", tmp_path / "b.dmp"]
    data = bytearray(pathlib.Path(few.paths[0]).read_bytes())
    # So large that 4096 blocks of 4 KiB leave gaps.
    data += bytes((1 << 26) - len(data))
    images[0].write_bytes(data)
    data[(1 << 25) + 0x3000] = 1
    images[1].write_bytes(data)
    done = fleet("run", *images, "-o", lake, "--workers", "2", *few.options)
    assert done.returncode == 0, done.stderr
    found = manifests(lake)
    assert len(found) == 2
    renamed = only(manifest for manifest in found.values() if manifest["identity"] is not None)
    first = only(manifest for manifest in found.values() if manifest["identity"] is None)
    assert renamed["identity"]["own"] == first["image_id"] != renamed["image_id"]
    assert renamed["identity"]["of"] == first["path"]
    assert "unequal" in renamed["identity"]["compared"]
    assert {row[0] for row in rows(lake, "image")} == {manifest["image_id"] for manifest in found.values()}
    assert len({row[0] for row in rows(lake, "traces")}) == 2


def test_an_image_whose_file_was_moved_is_not_taken_for_a_copy(few: Fleet, tmp_path: pathlib.Path) -> None:
    lake, first, second = tmp_path / "lake", tmp_path / "a.dmp", tmp_path / "b.dmp"
    shutil.copy(few.paths[0], first)
    assert fleet("run", first, "-o", lake, *few.options).returncode == 0
    first.rename(second)
    assert fleet("run", second, "-o", lake, *few.options).returncode == 0
    assert "not compared" in manifests(lake)["b.dmp"]["identity"]["compared"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "IMAGE", "-o", "ftp://bucket/lake"], "ftp://bucket/lake: a lake is a folder"),
        (["run", "/nowhere/a.dmp", "-o", "LAKE"], "/nowhere/a.dmp cannot be read"),
        (["run", os.curdir, "-o", "LAKE"], "is a folder: only dumps (*.dmp) in it are read"),
        (["run", os.devnull, "-o", "LAKE"], "is not a file"),
        (["run", "IMAGE", "-o", "LAKE", "--symbol-dirs", NOWHERE], "--symbol-dirs: there is no folder"),
        (["run", "IMAGE", "-o", "LAKE", "--plugin-dirs", NOWHERE], "--plugin-dirs: there is no folder"),
        (["run", "IMAGE", "-o", "LAKE", "--timeout", "soon"], "soon"),
        (["run", "IMAGE", "-o", "LAKE", "--memory", "9" * 400], "--memory"),
        (["run", "IMAGE", "-o", "LAKE", "--retries", "-1"], "--retries: -1 is not a number from 0"),
        (["rare", "LAKE", "--limit", "-1"], "--limit: -1 is not a number from 0"),
        (["run", "IMAGE", "-o", "LAKE", "--scheduler", "tcp://127.0.0.1:9"], "--scheduler"),
        (["status", "LAKE"], "is not a stackfleet lake"),
        (["status", "IMAGE"], ".dmp: it is not a folder, and a lake is one"),
        (["run", "IMAGE", "-o", "IMAGE"], "no lake can be created here"),
        (["rare", "ftp://bucket/lake"], "ftp://"),
        (["nonsense"], "nonsense"),
        ([], "COMMAND"),
    ],
)
def test_wrong_use(arguments: list[str], message: str, few: Fleet, tmp_path: pathlib.Path) -> None:
    words = {"IMAGE": few.paths[0], "LAKE": str(tmp_path / "lake")}
    done = fleet(*(words.get(argument, argument) for argument in arguments))
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_two_runs_at_once_share_a_lake(few: Fleet, tmp_path: pathlib.Path) -> None:
    """Each reads some images alone, and one that both read is in the lake once."""
    lake = tmp_path / "lake"
    parts = [few.paths[:2], few.paths[1:]]

    def run(paths: List[str]) -> "subprocess.CompletedProcess[str]":
        return fleet("run", *paths, "-o", lake, *few.options)

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(run, parts))
    assert {done.returncode for done in runs} == {0}, [done.stderr for done in runs]
    assert fleet("run", *few.paths, "-o", lake, *few.options).returncode == 0
    assert len(rows(lake, "image")) == 3
    assert fleet("status", lake, "--verify").returncode == 0


@pytest.mark.parametrize("alike", [True, False])
def test_what_another_run_adds_meanwhile_is_done_if_it_was_read_alike(
    alike: bool, few: Fleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, add = tmp_path / "lake", Lake.add

    def behind(self: Lake, image: NewImage) -> None:
        of_theirs = {"attempt": "theirs", **({} if alike else {"reading_digest": "other"})}
        add(self, dataclasses.replace(image, manifest={**image.manifest, **of_theirs}))
        add(self, image)

    monkeypatch.setattr(Lake, "add", behind)
    done = called("run", few.paths[0], "-o", lake, *few.options)
    assert "another run has added this image" in done.stderr
    assert ("the next run reads again" in done.stderr) == (not alike)
    assert done.returncode == (0 if alike else 3)
    assert [manifest["attempt"] for manifest in manifests(lake).values()] == ["theirs"]
    monkeypatch.undo()
    done = called("run", few.paths[0], "-o", lake, *few.options)
    assert (done.returncode, "1 image was done before" in done.stderr) == (0, alike)


def test_shards_together_are_all_images(few: Fleet, tmp_path: pathlib.Path) -> None:
    lake = tmp_path / "lake"
    for shard, number in (("1/2", 2), ("2/2", 3)):
        assert fleet("run", *few.paths, "-o", lake, "--shard", shard, *few.options).returncode == 0
        assert len(rows(lake, "image")) == number
    for shard in ("0/2", "3/2", "1", "a/b"):
        assert fleet("run", *few.paths, "-o", lake, "--shard", shard).returncode == 2


def test_where_the_plugins_are_can_be_said(few: Fleet, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "plugins" / "windows"
    folder.mkdir(parents=True)
    (folder / "traces.py").write_text("raise ImportError('the plugins of this folder were used')\n")
    done = fleet("run", few.paths[0], "-o", tmp_path / "lake", "--plugin-dirs", folder.parent, *few.options)
    assert done.returncode == 3
    assert "the plugins of this folder were used" in manifests(tmp_path / "lake").popitem()[1]["log"]


def test_a_machine_of_each_name(tmp_path: pathlib.Path) -> None:
    """Names of files may have any character."""
    machines = new_fleet(tmp_path / "images")
    machines.add(Machine(1), "it's a; [b] {c} é")
    machines.ready()
    lake = tmp_path / "the 'lake'"
    assert fleet("run", *machines.paths, "-o", lake, *machines.options).returncode == 0
    assert len(rows(lake, "image")) == 1


def _listed(cache: pathlib.Path) -> Set[str]:
    """The symbol tables in a folder's tree that Volatility lists in its cache, by name of file."""
    found = only(cache.rglob("identifier.cache"))
    with contextlib.closing(sqlite3.connect(found)) as database:
        return {name for (name,) in database.execute("SELECT location FROM cache WHERE local = 1")}


def test_runs_with_other_symbol_folders_leave_each_other_their_tables(
    few: Fleet, tmp_path: pathlib.Path
) -> None:
    """Volatility takes the tables of other folders off its list: a lake has a list of its own."""
    home = tmp_path / "home"
    variables = {"XDG_CACHE_HOME": str(home), "APPDATA": str(home)}
    folders = {tmp_path / "one": few.symbols, tmp_path / "other": tmp_path / "tables"}
    shutil.copytree(few.symbols, tmp_path / "tables")

    def run(lake: pathlib.Path) -> "subprocess.CompletedProcess[str]":
        options = ("--symbol-dirs", folders[lake], "--offline", "--workers", 1)
        return fleet("run", few.paths[0], "-o", lake, *options, variables=variables)

    with ThreadPoolExecutor() as pool:
        for lake, done in zip(folders, pool.map(run, folders)):
            assert done.returncode == 0, (lake, done.stderr)
    for lake, symbols in folders.items():
        assert len(rows(lake, "image")) == 1
        assert [path.parent.parent for path in lake.rglob("identifier.cache")] == [lake / "_cache"]
        tables = {path.as_uri() for path in symbols.rglob("*.json*")}
        assert tables
        assert tables <= _listed(lake)
    assert not list(home.rglob("identifier.cache"))


def test_files_are_merged_while_a_run_goes_on(
    few: Fleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of many images would else have six files for each, and look at all of them in each commit."""
    monkeypatch.setattr(lake_module, "SMALL_FILES", 2)
    lake = tmp_path / "lake"
    done = called("run", *few.paths, "-o", lake, "--workers", 1, *few.options)
    assert done.returncode == 0, done.stderr
    operations = [item["operation"] for item in DeltaTable(str(lake)).history()]
    assert operations.count("OPTIMIZE") > 1
    assert called("status", lake, "--verify").returncode == 0
