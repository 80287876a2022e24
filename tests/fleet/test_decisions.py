# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which images are read again, which are copies, and what ends with the process of an image."""

from __future__ import annotations

import os
import pathlib
import types
from typing import Any, Dict

import pytest

from stackfleet import child_process, identity, planning, task
from stackfleet.job import Job, Reading
from stackfleet.manifests import parsed, written
from stackfleet.planning import Input
from tests.support.fleetrun import PATIENCE, gone, wait

pytestmark = pytest.mark.once

CHANGES: Dict[str, Dict[str, Any]] = {
    "size": {"size": 5},
    "time": {"modified": 5},
    "sampled bytes": {"probe": "other"},
    "nothing": {},
    "the time of a copy": {"modified": 5},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_tells_a_changed_file(change: str) -> None:
    file: Dict[str, Any] = {"size": 4, "modified": 4, "probe": "probe"}
    reading: Any = types.SimpleNamespace(digest=lambda: "options")
    before = {"path": "/a.raw", **file, "reading_digest": "options", "versions": {}}
    path = "/copy.raw" if "copy" in change else "/a.raw"
    reason = planning._reason(before, path, Input(**{**file, **CHANGES[change]}), reading, {})
    assert reason == (None if change in ("nothing", "the time of a copy") else "the file was changed")


@pytest.mark.parametrize("change", ["size", "time", "nothing"])
def test_an_earlier_file_is_compared_only_if_it_is_as_it_was(change: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image.raw"
    path.write_bytes(b"image")
    known = path.stat()
    other: Dict[str, Any] = {"path": str(path), "files": [{"path": str(path)}], "identity": None}
    other.update(size=known.st_size, modified=known.st_mtime_ns)
    if change == "size":
        path.write_bytes(b"images")
    os.utime(path, ns=(0, known.st_mtime_ns + (change == "time")))
    digest = identity.provenance.sha256(str(path), lambda: None)
    compared = identity._compared(other, [digest], lambda: None)
    assert compared == (identity.EQUAL if change == "nothing" else identity.CHANGED)


@pytest.mark.skipif(os.name == "nt", reason="sessions are those of POSIX")
def test_what_a_process_started_in_a_session_of_its_own_ends_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL, start_new_session=True)\n"
        "print(json.dumps({'pid': child.pid}), flush=True)\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(child_process, "PROGRAM", str(program))
    with open(tmp_path / "log", "wb") as log, child_process.ChildProcess(log) as process:
        message = process.hear(60)
        assert message
        assert process.end() == "signal 9"
    wait(gone(message["pid"]), PATIENCE)


def test_an_image_whose_workers_died_has_a_valid_manifest() -> None:
    lost = task.lost(Job("/a.raw", 1, 2, "probe", "/lake", Reading()), "its workers died")
    found = parsed(written(lost), lost["image_id"])
    assert (found["status"], found["reason"], found["worker"]) == ("failed", "its workers died", "")
