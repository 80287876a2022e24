# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is in the way of a run: paths, names, clocks, a lake that cannot be written, a scheduler that dies."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import types
from typing import Dict, List, Optional, Tuple
from unittest import mock

import pytest
from distributed.comm import CommClosedError

from stackfleet import engine
from stackfleet.job import Reading
from stackfleet.lake import Lake
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetnight import Run
from tests.support.fleetrun import COMMAND, ask, called, fleet, manifests, rows, runs
from tests.support.only import only

pytestmark = pytest.mark.once

NOT_UTF8 = os.fsdecode(b"caf\xe9.dmp")


def _without_roots_rights() -> Optional[Tuple[str, ...]]:
    """Returns `stackfleet` as a command that may write only where modes allow it; None if there is no way."""
    if not hasattr(os, "geteuid"):
        return None
    if os.geteuid() != 0:
        return COMMAND
    setpriv, rights = shutil.which("setpriv"), "-dac_override,-dac_read_search"
    if setpriv is None:
        return None
    return (setpriv, f"--bounding-set={rights}", f"--inh-caps={rights}", *COMMAND)


READ_ONLY = _without_roots_rights()


@pytest.fixture
def image(few: Fleet, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copy(few.paths[0], tmp_path / "a.dmp"))


@pytest.mark.parametrize("wrong", ["nowhere.dmp", "empty", NOT_UTF8, "loop.dmp"])
def test_one_wrong_path_does_not_keep_others_from_being_read(
    wrong: str, image: pathlib.Path, fresh: pathlib.Path, run: Run, tmp_path: pathlib.Path
) -> None:
    if wrong == NOT_UTF8:
        try:
            shutil.copy(image, tmp_path / wrong)
        except OSError:
            pytest.skip("this file system has no such names")
    if wrong == "loop.dmp":
        (tmp_path / wrong).symlink_to(tmp_path / wrong)
    if wrong == "empty":
        (tmp_path / wrong).mkdir()
    done = run(tmp_path / wrong, image, code=3)
    assert (
        "not UTF-8" if wrong == NOT_UTF8 else "is a folder" if wrong == "empty" else "cannot be read"
    ) in done.stderr
    assert [manifest["status"] for manifest in manifests(fresh).values()] == ["done"]
    status = fleet("status", fresh)
    assert (status.returncode, status.stderr) == (0, "")
    known = only(runs(fresh))
    assert list(known["unread"]) == [str(tmp_path / wrong).replace("\udce9", "\\xe9")]
    assert known["image_id"] == manifests(fresh)["a.dmp"]["run"]


def test_the_command_line_is_kept_once(
    image: pathlib.Path, few: Fleet, fresh: pathlib.Path, run: Run
) -> None:
    run(image, few.paths[1])
    assert few.paths[1] not in json.dumps(manifests(fresh)["a.dmp"])
    assert only(runs(fresh))["command"][1:4] == ["run", str(image), few.paths[1]]
    # What was done before is no run of its own.
    run(image)
    assert len(runs(fresh)) == 1


@pytest.mark.parametrize("names", [["nowhere.dmp"], ["nowhere.dmp", "neither.dmp"], [NOT_UTF8], [""]])
def test_wrong_paths_alone_leave_no_lake(names: List[str], fresh: pathlib.Path) -> None:
    fleet("run", *(fresh.parent / name for name in names), "-o", fresh, code=2)
    assert not fresh.exists()


def test_a_run_that_cannot_begin_leaves_no_lake(image: pathlib.Path, fresh: pathlib.Path, run: Run) -> None:
    assert "--scheduler" in run(image, "--scheduler", "tcp://127.0.0.1:9", code=2).stderr
    assert not fresh.exists()
    # A folder that was there before stays, as that on which a volume is mounted.
    fresh.mkdir()
    assert "--scheduler" in run(image, "--scheduler", "tcp://127.0.0.1:9", code=2).stderr
    assert list(fresh.iterdir()) == []
    (fresh / "note.txt").write_text("mine")
    run(image, "--scheduler", "tcp://127.0.0.1:9", code=2)
    assert [path.name for path in fresh.iterdir()] == ["note.txt"]


@pytest.mark.parametrize("is_lakes", [True, False])
def test_a_cache_that_cannot_be_made(
    is_lakes: bool, image: pathlib.Path, few: Fleet, fresh: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "note.txt").write_text("mine")
    below = tmp_path / "note.txt" / "below"
    lake, cache = (below, ()) if is_lakes else (fresh, ("--cache-path", below))
    tables = ("--symbol-dirs", few.symbols, "--offline")
    _names_cache(fleet("run", image, "-o", lake, *tables, *cache, code=2).stderr)


def _names_cache(said: str) -> None:
    assert "Volatility's cache" in said and "--cache-path names another folder" in said
    assert "cannot be written" in said and "plugin" not in said and "Traceback" not in said


def test_a_lake_that_cannot_be_written(image: pathlib.Path, fresh: pathlib.Path, run: Run) -> None:
    run(image)
    # Tests may run as root, for whom nothing is read-only.
    shutil.rmtree(fresh / "Table=runs")
    (fresh / "Table=runs").write_text("")
    assert "the lake cannot be written" in run(image, "--carve", code=2).stderr


@pytest.mark.parametrize("full", ["stackfleet-", "lake", "lake behind its first commit"])
def test_a_full_disk_is_no_fault_of_an_image(
    full: str, image: pathlib.Path, few: Fleet, fresh: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_usage(folder: pathlib.Path) -> types.SimpleNamespace:
        is_full = folder.name.startswith(full.split()[0]) and (
            "behind" not in full or (fresh / "Table=runs").is_dir()
        )
        return types.SimpleNamespace(free=5 << 10 if is_full else 1 << 40)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    done = called("run", image, "-o", fresh, *few.options)
    monkeypatch.undo()
    assert "No space left on device: 5 KiB are free on its disk" in done.stderr
    if full == "lake":
        assert (done.returncode, fresh.exists()) == (2, False)
        return
    assert "1 image is not done, and not recorded in the lake: the next run reads it again" in done.stderr
    # A lake that has no reason is not where to look for one.
    assert "stackfleet status" not in done.stderr
    assert (done.returncode, manifests(fresh)) == (3, {})
    again = called("run", image, "-o", fresh, *few.options)
    assert (again.returncode, [found["status"] for found in manifests(fresh).values()]) == (0, ["done"])


@pytest.mark.skipif(READ_ONLY is None, reason="root may write anywhere, and setpriv is missing")
def test_a_lake_that_is_read_only(image: pathlib.Path, few: Fleet, fresh: pathlib.Path, run: Run) -> None:
    assert READ_ONLY is not None
    run(image)
    # Volatility has to write that other tables are there than its cache lists.
    others = ["--symbol-dirs", shutil.copytree(few.symbols, fresh.parent / "tables"), "--offline"]
    others += ["--cache-path", shutil.copytree(few.folder / "cache", fresh / "_cache")]
    folders = [fresh, *(path for path in fresh.rglob("*") if path.is_dir())]
    for path in (*folders, *(path for path in fresh.rglob("*") if path.is_file())):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        for question in ("status", "rare", "findings"):
            fleet(question, fresh, command=READ_ONLY, code=0)
        for writing in (
            ["run", image, "-o", fresh, *few.options, "--carve"],
            ["compact", fresh],
            ["forget", fresh, "a.dmp"],
        ):
            done = fleet(*writing, command=READ_ONLY, code=2)
            # Threads of Delta panic where Python has a traceback.
            assert "cannot be written" in done.stderr and "panicked" not in done.stderr
        _names_cache(fleet("run", image, "-o", fresh, *others, command=READ_ONLY, code=2).stderr)
    finally:
        for path in folders:
            path.chmod(0o755)


def test_a_clock_that_went_back_redoes_nothing(
    image: pathlib.Path, few: Fleet, fresh: pathlib.Path, run: Run
) -> None:
    """A failure of the future, and another content of the past, are not what is known of the file now."""
    run(image)
    shutil.copy(few.paths[1], image)
    run(image)
    expected = rows(fresh, "traces")
    for known in Lake(str(fresh)).manifests():
        if known["size"] == image.stat().st_size and known["modified"] == image.stat().st_mtime_ns:
            known["ended"] = known["started"] = "2001-01-01T00:00:00+00:00"
            fleetlakes.put_manifest(Lake(str(fresh)), known)
    assert "1 image was done before" in run(image).stderr
    assert rows(fresh, "traces") == expected


def test_a_scheduler_that_dies_while_plugins_are_registered(tmp_path: pathlib.Path) -> None:
    client, progress = mock.Mock(), mock.Mock()
    client.register_plugin.side_effect = CommClosedError("in <TCP>: Stream is closed")
    client.unregister_worker_plugin.side_effect = CommClosedError("closed")
    jobs = [mock.Mock(path=f"/images/{number}.raw") for number in range(2)]
    missing = engine.run(client, jobs, mock.Mock(), Reading(), {}, progress, False)
    assert missing == 2
    statuses: Dict[str, Tuple[str, bool]] = {
        report["path"]: (report["status"], report["unrecorded"])
        for report in (call.args[0] for call in progress.ended.call_args_list)
    }
    assert statuses == {"/images/0.raw": ("unfinished", True), "/images/1.raw": ("unfinished", True)}


def test_a_replaced_image_is_named_and_can_be_forgotten(
    image: pathlib.Path, few: Fleet, fresh: pathlib.Path, run: Run
) -> None:
    run(image, few.paths[2])
    old = manifests(fresh)["a.dmp"]["image_id"]
    shutil.copy(few.paths[1], image)
    done = run(image, few.paths[2])
    assert (
        f"{image} has new content. The rows of its old content, {old}, stay until: "
        f"stackfleet forget {fresh} {old}" in done.stderr
    )
    new = {manifest["image_id"] for manifest in Lake(str(fresh)).manifests()} - {old}
    assert len(new) == 2
    by_id = {row["ImageId"]: row["ReplacedBy"] for row in ask("status", fresh)}
    assert by_id[old] is not None and set(by_id[old]) < new
    assert all(manifest is None for image_id, manifest in by_id.items() if image_id != old)
    fleet("forget", fresh, "nobody", code=2)
    assert len(Lake(str(fresh)).manifests()) == 3
    assert fleet("forget", fresh, old, code=0).stdout == f"{old} is forgotten: {image}\n"
    assert {row[0] for row in rows(fresh, "traces")} == new
    assert not any(old.encode() in path.read_bytes() for path in fresh.glob("Table=[a-m]*/*"))
    assert "1 image was done before" not in run(image, few.paths[2]).stderr
    # By name everything that has this path goes; the lake keeps who asked for that.
    fleet("forget", fresh, "a.dmp", code=0)
    assert [manifest["path"] for manifest in manifests(fresh).values()] == [few.paths[2]]
    assert {old: str(image)} in [known.get("forgotten") for known in runs(fresh)]


def test_an_empty_file_is_said_to_be_empty(tmp_path: pathlib.Path, run: Run) -> None:
    path = tmp_path / "memory.raw"
    path.touch()
    assert "The file is empty" in run(path, code=3).stderr


@pytest.mark.parametrize("first", [True, False])
def test_what_one_of_two_equal_files_still_has_is_not_replaced(
    first: bool, few: Fleet, image: pathlib.Path, fresh: pathlib.Path, run: Run
) -> None:
    """The other one is read, whichever of them was read first."""
    paths = [str(image), few.paths[0]] if first else [few.paths[0], str(image)]
    for path in paths:
        run(path)
    assert only(manifests(fresh).values())["copies"] == paths[1:]
    shutil.copy(few.paths[1], image)
    done = run(few.paths[0], image)
    assert "1 image was done before" in done.stderr
    assert "1 image is read again: the file was changed" in done.stderr
    assert "forget" not in done.stderr
    assert [item["status"] for item in Lake(str(fresh)).manifests()] == ["done", "done"]


@pytest.mark.skipif(os.name == "nt", reason="the home folder of POSIX")
def test_a_home_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    """An ID in a container may have no home, where Volatility makes a folder when it is imported."""
    home = {"HOME": os.devnull, "XDG_CACHE_HOME": ""}
    done = fleet("--help", variables=home)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert f"stackfleet: Volatility cannot make its cache, {os.devnull}/.cache" in done.stderr
    fleet("--help", variables={**home, "XDG_CACHE_HOME": str(tmp_path / "cache")}, code=0)


@pytest.mark.parametrize("command", [[], ["run"], ["rare"], ["status"], ["report"], ["forget"]])
def test_help_names_the_exit_codes(command: "list[str]") -> None:
    output = " ".join(fleet(*command, "--help").stdout.split())
    assert "Exit codes: 0 every image is done" in output
    assert all(f"; {code} " in output for code in (2, 3, 130))
