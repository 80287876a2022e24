# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which images are read again, which are copies, and what ends with the process of an image."""

from __future__ import annotations

import contextlib
import os
import pathlib
import types
from typing import Any, Dict, Iterator

import pytest

from stackfleet import child_process, identity, planning, provenance, task
from stackfleet.job import Job, Reading
from stackfleet.manifests import parsed, written
from stackfleet.planning import Input
from tests.conftest import ROOT
from tests.forge import sample
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


class ChangingPlace:
    """A place of a task at which a file grows after the image was identified."""

    name = "inproc://here"

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.versions: Dict[str, str] = {}

    def send(self, report: object) -> None:
        """Nobody listens."""

    def is_wanted(self) -> bool:
        return True

    @contextlib.contextmanager
    def lock(self, name: str, poll: object) -> Iterator[None]:
        with self._path.open("ab") as file:
            file.write(bytes(0x1000))
        yield


def test_an_image_that_grows_while_it_is_read_is_not_done(tmp_path: pathlib.Path) -> None:
    """It was done, with rows of two states of the file, and the next run added it as a second image."""
    image = sample.build().image()
    path = image.save(tmp_path / "growing.dmp")
    size, tables = path.stat().st_size, str(image.install(tmp_path / "symbols"))
    reading = Reading((str(ROOT / "volatility3_plugins"),), (tables,), str(tmp_path / "cache"), offline=True)
    seen = provenance.probe(str(path))
    job = Job(str(path), size, path.stat().st_mtime_ns, seen, str(tmp_path / "lake"), reading)
    report = task.run_at(job, ChangingPlace(path))  # type: ignore[arg-type]
    assert (report["status"], report["rows"]) == ("failed", 0)
    assert report["reason"] == f"{path} has {size + 0x1000} bytes, but {size} at the start of the run"


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
