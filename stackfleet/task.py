# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Dask task for one image: an attempt, whose rows and manifest enter the lake in one commit."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import platform
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any, Callable, Optional

import distributed
from distributed.worker import thread_state

from . import provenance, versions
from .child_process import Attempt, Outcome, StoppedError
from .identity import Identities
from .job import Job
from .lake import LEAST_ROOM, AddedError, Lake, LakeError, NewImage
from .lakefolder import FullError, refuse_full
from .manifests import COPY, DONE, FAILED, MANIFEST_VERSION, Manifest, cut_text, unopened

PLUGIN = "stackfleet"
"""Name of the Dask worker plugin that compares versions."""

Report = dict[str, Any]


class AttemptFailedError(Exception):
    """A failed attempt after which another may succeed; `report` is its report."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report


def named(worker: str) -> str:
    """Returns the beginning of a reason that names a worker; empty for one in this program."""
    return "" if worker.startswith("inproc://") else f"worker {worker}: "


class TaskPlace:
    """The place where a task runs: the Dask worker, and whether the scheduler still wants the task."""

    def __init__(self, topic: str) -> None:
        self._worker = distributed.get_worker()
        self.key = thread_state.key
        self._topic = topic
        self.name = str(self._worker.address)
        self.versions: dict[str, str] = {}
        plugin: Any = self._worker.plugins.get(PLUGIN)
        if plugin is not None:
            if plugin.refused:
                # The worker has announced to the scheduler that it leaves; another worker gets the task.
                raise distributed.Reschedule
            self.versions = plugin.found

    def is_wanted(self) -> bool:
        """Returns whether the task is still wanted: Dask cannot interrupt a running task."""
        status = self._worker.status
        task = self._worker.state.tasks.get(self.key)
        running = (distributed.Status.running, distributed.Status.paused)
        return status in running and task is not None and task.state != "cancelled"

    def send(self, report: Report) -> None:
        """Sends a progress report to the client."""
        self._worker.log_event(self._topic, report)

    @contextlib.contextmanager
    def lock(self, name: str, poll: Callable[[], None]) -> Iterator[None]:
        """Locks a name against other tasks."""
        lock = distributed.Lock(f"stackfleet-{name}")
        while not lock.acquire(timeout=1):
            poll()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.release()


def run_image(job: Job) -> Report:
    """Reads an image on a worker of Dask, and adds it to the lake.

    Returns:
        path, image_id, status, reason, rows, seconds, memory, and whether the file is truncated

    Raises:
        AttemptFailedError: the attempt failed, and another attempt may succeed
    """
    place = TaskPlace(job.custody.run)
    try:
        return run_at(job, place)
    finally:
        # The result takes another way, and may arrive after the start of the next image.
        place.send({"path": job.path, "state": "ended"})


def run_at(job: Job, place: TaskPlace) -> Report:
    """Reads an image in a given place; see `run_image`."""
    started = provenance.now()
    attempt = f"{started[:19].replace(':', '')}-{uuid.uuid4().hex[:12]}"
    place.send({"path": job.path, "state": "started"})
    report: Report = {
        "path": job.path,
        "image_id": "",
        "status": FAILED,
        "rows": 0,
        "seconds": 0.0,
        "memory": 0,
    }
    try:
        lake = Lake(job.lake, create=True)
        with contextlib.ExitStack() as contexts:
            lock = lambda name, poll: contexts.enter_context(place.lock(name, poll))  # noqa: E731
            identities = Identities(job, lake, lock)
            folder = contexts.enter_context(tempfile.TemporaryDirectory(prefix="stackfleet-"))
            differs = _difference(job, place)
            if differs:
                outcome = Outcome(reason=differs, final=True)
            else:
                refuse_full(pathlib.Path(folder), LEAST_ROOM)
                outcome = Attempt(
                    job,
                    folder,
                    identities.decide,
                    place.is_wanted,
                    lambda state: place.send({"path": job.path, "state": "running", **state}),
                ).run()
                if not place.is_wanted():
                    raise StoppedError
                differs = _difference(job, place)
                if differs and outcome.facts is not None:
                    # The rows are of two states of the file.
                    outcome = dataclasses.replace(outcome, facts=None, reason=differs, final=True)
            if outcome.facts is None:
                # Whatever its process says: where it had no room, the image is not to blame.
                refuse_full(pathlib.Path(folder), LEAST_ROOM)
            report.update(image_id=outcome.image_id, seconds=outcome.seconds, memory=outcome.memory)
            if identities.copy_of:
                copy = lake.add_copy(identities.copy_of, job.path)
                known = {name: copy[name] for name in ("image_id", "truncated", "reason")}
                return {**report, **known, "status": COPY}
            image_manifest = manifest(job, outcome, identities.known)
            image_manifest.update(attempt=attempt, started=started, ended=provenance.now())
            image_manifest.update(worker=place.name, versions={**versions.of_packages(), **place.versions})
            report["reason"] = image_manifest["reason"]
            if outcome.facts is None:
                if identities.before is not None:
                    # The rows of an earlier attempt stay; that this one failed is recorded beside them.
                    image_manifest["image_id"] = unopened(job.path)
                lake.add(NewImage(image_manifest))
            else:
                try:
                    lake.add(NewImage(image_manifest, pathlib.Path(folder), identities.before))
                except AddedError as error:
                    if not _read_alike(error.manifest, image_manifest):
                        raise
                    report["reason"] = str(error)
                rows = sum(item["rows"] for item in image_manifest["tables"].values())
                report.update(status=DONE, rows=rows, truncated=image_manifest["truncated"])
    except (LakeError, FullError) as error:
        # Nothing was recorded: the next run reads the image again.
        return {**report, "status": FAILED, "reason": str(error), "unrecorded": True}
    if report["status"] == FAILED and not outcome.final:
        raise AttemptFailedError(report)
    return report


def _difference(job: Job, place: TaskPlace) -> str:
    """Returns why the file of an image is not the one at the start of the run; empty if it is."""
    differs = provenance.difference(job.path, job.size, job.probe)
    return differs and f"{named(place.name)}{differs}"


def _read_alike(one: Manifest, other: Manifest) -> bool:
    """Returns whether two runs have read the same file in the same way: the next run reads it no more."""
    same = all(one[name] == other[name] for name in ("path", "size", "modified", "probe", "reading_digest"))
    return same and all(one["versions"].get(name) == other["versions"].get(name) for name in versions.DECIDE)


def manifest(job: Job, outcome: Outcome, known: Optional[dict[str, Any]]) -> Manifest:
    """Returns the manifest of an attempt, without its times and its worker."""
    facts = outcome.facts or {}
    return {
        "manifest": MANIFEST_VERSION,
        "image_id": outcome.image_id or unopened(job.path),
        "status": FAILED if outcome.facts is None else DONE,
        "reason": outcome.reason or cut_text(facts.get("truncated"), facts.get("missing_share")),
        "truncated": facts.get("truncated"),
        "missing_share": facts.get("missing_share"),
        "path": job.path,
        "size": job.size,
        "modified": job.modified,
        "probe": job.probe,
        "files": facts.get("files") or outcome.identified.get("files", []),
        "identity": known,
        "copies": [],
        "replaces": [image_id for image_id in job.replaces if image_id != outcome.image_id],
        "tables": facts.get("tables", {}),
        "reading": dataclasses.asdict(job.reading),
        "reading_digest": job.reading.digest(),
        "versions": versions.of_packages(),
        "limits": dataclasses.asdict(job.limits),
        **dataclasses.asdict(job.custody),
        "worker": "",
        "machine": platform.node(),
        "exit": outcome.exit,
        "seconds": outcome.seconds,
        "memory": outcome.memory,
        "warnings": facts.get("warnings", 0),
        "warning_texts": facts.get("texts", []),
        "log": outcome.log,
    }


def lost(job: Job, reason: str) -> Manifest:
    """Returns the manifest of an image whose attempts never ended, because their workers died."""
    time = provenance.now()
    return {**manifest(job, Outcome(reason=reason), None), "attempt": "", "started": time, "ended": time}
