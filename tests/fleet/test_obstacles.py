# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is in the way of a run: paths, names, clocks, a lake that cannot be written, a scheduler that dies."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import types
from typing import Dict, Optional, Tuple
from unittest import mock

import pytest
from distributed.comm import CommClosedError

from stackfleet import engine
from stackfleet.job import Reading
from stackfleet.lake import Lake
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import COMMAND, called, fleet, manifests, rows, runs
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
    wrong: str, image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path
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
    lake = tmp_path / "lake"
    done = fleet("run", tmp_path / wrong, image, "-o", lake, *few.options)
    assert done.returncode == 3, done.stderr
    assert (
        "not UTF-8" if wrong == NOT_UTF8 else "is a folder" if wrong == "empty" else "cannot be read"
    ) in done.stderr
    assert [manifest["status"] for manifest in manifests(lake).values()] == ["done"]
    status = fleet("status", lake)
    assert (status.returncode, status.stderr) == (0, "")
    known = only(runs(lake))
    assert list(known["unread"]) == [str(tmp_path / wrong).replace("\udce9", "\\xe9")]
    assert known["image_id"] == manifests(lake)["a.dmp"]["run"]


def test_the_command_line_is_kept_once(image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path) -> None:
    lake = tmp_path / "lake"
    assert fleet("run", image, few.paths[1], "-o", lake, *few.options).returncode == 0
    assert all(str(few.paths[1]) not in json.dumps(manifest) for manifest in [manifests(lake)["a.dmp"]])
    known = only(runs(lake))
    assert known["command"][1:4] == ["run", str(image), few.paths[1]]
    # What was done before is no run of its own.
    assert fleet("run", image, "-o", lake, *few.options).returncode == 0
    assert len(runs(lake)) == 1


def test_wrong_paths_alone_leave_no_lake(tmp_path: pathlib.Path) -> None:
    for arguments in (["nowhere.dmp"], ["nowhere.dmp", "neither.dmp"], [NOT_UTF8], [""]):
        done = fleet("run", *(tmp_path / argument for argument in arguments), "-o", tmp_path / "lake")
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "lake").exists()


def test_a_run_that_cannot_begin_leaves_no_lake(
    image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path
) -> None:
    lake = tmp_path / "lake"
    done = fleet("run", image, "-o", lake, *few.options, "--scheduler", "tcp://127.0.0.1:9")
    assert (done.returncode, lake.exists()) == (2, False)
    # A folder that was there before stays.
    lake.mkdir()
    (lake / "note.txt").write_text("mine")
    done = fleet("run", image, "-o", lake, *few.options, "--scheduler", "tcp://127.0.0.1:9")
    assert (done.returncode, [path.name for path in lake.iterdir()]) == (2, ["note.txt"])


def test_a_lake_that_cannot_be_written(image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path) -> None:
    lake = tmp_path / "lake"
    assert fleet("run", image, "-o", lake, *few.options).returncode == 0
    # Tests may run as root, for whom nothing is read-only.
    shutil.rmtree(lake / "Table=runs")
    (lake / "Table=runs").write_text("")
    done = fleet("run", image, "-o", lake, *few.options, "--carve")
    assert done.returncode == 2
    assert "the lake cannot be written" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("full", ["stackfleet-", "lake", "lake behind its first commit"])
def test_a_full_disk_is_no_fault_of_an_image(
    full: str, image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"

    def disk_usage(folder: pathlib.Path) -> types.SimpleNamespace:
        is_full = folder.name.startswith(full.split()[0]) and (
            "behind" not in full or (lake / "Table=runs").is_dir()
        )
        return types.SimpleNamespace(free=5 << 10 if is_full else 1 << 40)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    done = called("run", image, "-o", lake, *few.options)
    monkeypatch.undo()
    assert "No space left on device: 5 KiB are free on its disk" in done.stderr
    if full == "lake":
        assert (done.returncode, lake.exists()) == (2, False)
        return
    assert "1 image is not done, and not recorded in the lake: the next run reads it again" in done.stderr
    # A lake that has no reason is not where to look for one.
    assert "stackfleet status" not in done.stderr
    assert (done.returncode, manifests(lake)) == (3, {})
    again = called("run", image, "-o", lake, *few.options)
    assert (again.returncode, [found["status"] for found in manifests(lake).values()]) == (0, ["done"])


@pytest.mark.skipif(READ_ONLY is None, reason="root may write anywhere, and setpriv is missing")
def test_a_lake_that_is_read_only(image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path) -> None:
    lake = tmp_path / "lake"
    assert READ_ONLY is not None
    assert fleet("run", image, "-o", lake, *few.options).returncode == 0
    folders = [lake, *(path for path in lake.rglob("*") if path.is_dir())]
    for path in (*folders, *(path for path in lake.rglob("*") if path.is_file())):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        for question in ("status", "rare", "findings"):
            assert fleet(question, lake, command=READ_ONLY).returncode == 0
        for writing in (
            ["run", image, "-o", lake, *few.options, "--carve"],
            ["compact", lake],
            ["forget", lake, "a.dmp"],
        ):
            done = fleet(*writing, command=READ_ONLY)
            assert (done.returncode, "cannot be written" in done.stderr) == (2, True)
            # Threads of Delta panic where Python has a traceback.
            assert not re.search("Traceback|panicked", done.stderr)
    finally:
        for path in folders:
            path.chmod(0o755)


def test_a_clock_that_went_back_redoes_nothing(
    image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path
) -> None:
    """A failure of the future, and another content of the past, are not what is known of the file now."""
    lake = tmp_path / "lake"
    run = ("run", image, "-o", lake, *few.options)
    assert fleet(*run).returncode == 0
    shutil.copy(few.paths[1], image)
    assert fleet(*run).returncode == 0
    expected = rows(lake, "traces")
    for known in Lake(str(lake)).manifests():
        if known["size"] == image.stat().st_size and known["modified"] == image.stat().st_mtime_ns:
            known["ended"] = known["started"] = "2001-01-01T00:00:00+00:00"
            fleetlakes.put_manifest(Lake(str(lake)), known)
    done = fleet(*run)
    assert "1 image was done before" in done.stderr, done.stderr
    assert rows(lake, "traces") == expected


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
    image: pathlib.Path, few: Fleet, tmp_path: pathlib.Path
) -> None:
    lake = tmp_path / "lake"
    run = ("run", image, few.paths[2], "-o", lake, *few.options)
    assert fleet(*run).returncode == 0
    old = manifests(lake)["a.dmp"]["image_id"]
    shutil.copy(few.paths[1], image)
    done = fleet(*run)
    assert done.returncode == 0
    assert (
        f"{image} has new content. The rows of its old content, {old}, stay until: "
        f"stackfleet forget {lake} {old}" in done.stderr
    )
    new = {manifest["image_id"] for manifest in Lake(str(lake)).manifests()} - {old}
    assert len(new) == 2
    status_rows = [
        json.loads(line) for line in fleet("status", lake, "--format", "jsonl").stdout.splitlines()
    ]
    by_id = {row["ImageId"]: row["ReplacedBy"] for row in status_rows}
    assert by_id[old] is not None and set(by_id[old]) < new
    assert all(manifest is None for image_id, manifest in by_id.items() if image_id != old)
    assert fleet("forget", lake, "nobody").returncode == 2
    assert len(Lake(str(lake)).manifests()) == 3
    gone = fleet("forget", lake, old)
    assert (gone.returncode, f"{old} is forgotten: {image}\n") == (0, gone.stdout), gone.stderr
    assert {row[0] for row in rows(lake, "traces")} == new
    assert not any(old.encode() in path.read_bytes() for path in lake.glob("Table=[a-m]*/*"))
    assert "1 image was done before" not in fleet(*run).stderr
    # By name everything that has this path goes; the lake keeps who asked for that.
    assert fleet("forget", lake, "a.dmp").returncode == 0
    assert [pathlib.Path(manifest["path"]).name for manifest in manifests(lake).values()] == [
        pathlib.Path(few.paths[2]).name
    ]
    assert {old: str(image)} in [known.get("forgotten") for known in runs(lake)]


def test_a_copy_that_was_replaced_is_read(few: Fleet, image: pathlib.Path, tmp_path: pathlib.Path) -> None:
    lake, options = tmp_path / "lake", few.options
    for path in (few.paths[0], image):
        assert fleet("run", path, "-o", lake, *options).returncode == 0
    assert manifests(lake)[pathlib.Path(few.paths[0]).name]["copies"] == [str(image)]
    shutil.copy(few.paths[1], image)
    done = fleet("run", few.paths[0], image, "-o", lake, *options)
    assert done.returncode == 0
    assert "1 image was done before" in done.stderr
    assert "1 image is read again: the file was changed" in done.stderr
    assert manifests(lake)["a.dmp"]["status"] == "done"


def test_what_a_copy_still_has_is_not_replaced(
    few: Fleet, image: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    lake, options = tmp_path / "lake", few.options
    for path in (image, few.paths[0]):
        assert fleet("run", path, "-o", lake, *options).returncode == 0
    shutil.copy(few.paths[1], image)
    done = fleet("run", few.paths[0], image, "-o", lake, *options)
    assert done.returncode == 0
    assert "1 image was done before" in done.stderr
    assert "forget" not in done.stderr


@pytest.mark.parametrize("command", [[], ["run"], ["rare"], ["status"], ["report"], ["forget"]])
def test_help_names_the_exit_codes(command: "list[str]") -> None:
    output = " ".join(fleet(*command, "--help").stdout.split())
    assert "Exit codes: 0 every image is done" in output
    assert all(f"; {code} " in output for code in (2, 3, 130))


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["rare", "LAKE", "--kind", "nosuch"], ("nosuch", "std", "handle")),
        (["diff", "LAKE", "a", "b", "--kind", "nosuch"], ("nosuch", "std", "handle")),
        (["export", "LAKE", "--to", "jsonl", "--kind", "nosuch"], ("nosuch", "std", "handle")),
        (["findings", "LAKE", "--severity", "urgent"], ("urgent", "high", "medium", "low")),
        (["export", "LAKE", "--to", "jsonl", "--table", "nosuch"], ("nosuch", "traces", "frames")),
        (["sql", "LAKE", "SELECT * FROM nosuch"], ("nosuch", "traces", "frames", "manifests", "hosts")),
        (["sql", "LAKE", "SELECT * FROM manifests, nosuch"], ("nosuch", "traces", "frames", "hosts")),
    ],
)
def test_a_wrong_word_is_answered_by_the_right_ones(
    arguments: "list[str]", messages: "tuple[str, ...]", few: Fleet, tmp_path: pathlib.Path
) -> None:
    lake = tmp_path / "lake"
    assert fleet("run", few.paths[0], "-o", lake, *few.options).returncode == 0
    done = fleet(*(str(lake) if argument == "LAKE" else argument for argument in arguments))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in messages), done.stderr
