# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Dask task for one image: an attempt, followed by its manifest."""

from __future__ import annotations

import contextlib
import platform
import uuid
from collections.abc import Iterator
from typing import Any, Callable, Optional

import distributed
from distributed.worker import thread_state

from . import provenance, versions
from .child_process import Attempt, Outcome, StoppedError
from .identity import Identities, KnownImage
from .job import Job, to_json
from .lake import Lake, unopened
from .manifests import DONE, FAILED, MANIFEST_VERSION, Manifest, cut_text

PLUGIN = "stackfleet"
"""Name of the Dask worker plugin that compares versions."""

COPY = "copy"
"""Status in a report about an image that is a copy of an image already read."""

Report = dict[str, Any]
SendReport = Callable[[Report], None]


class AttemptFailedError(Exception):
    """A failed attempt after which another may succeed; `report` is its report."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report


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

    def stop_if_unwanted(self) -> None:
        """Raises StoppedError if the task is no longer wanted."""
        if not self.is_wanted():
            raise StoppedError

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
    """Reads an image on a worker of Dask, and writes its manifest.

    Returns:
        path, image_id, status, reason, rows, seconds, memory, whether the file is truncated, and the ImageId
        of the written manifest: the client that started the run puts the image into the lake.

    Raises:
        AttemptFailedError: the attempt failed, and another attempt may succeed
    """
    return run_at(job, TaskPlace(job.custody.run))


def run_at(job: Job, place: TaskPlace) -> Report:
    """Reads an image in a given place; see `run_image`."""
    started, lake = provenance.now(), Lake(job.lake)
    attempt = f"{started[:19].replace(':', '')}-{uuid.uuid4().hex[:12]}"
    place.send({"path": job.path, "state": "started"})
    differs = provenance.difference(job.path, job.size, job.probe)
    with contextlib.ExitStack() as contexts:
        identities = Identities(job, lake, lambda name, poll: contexts.enter_context(place.lock(name, poll)))
        if differs:
            outcome = Outcome(reason=f"worker {place.name}: {differs}", final=True)
        else:
            outcome = _attempt(job, attempt, identities, place, lake)
        report = {
            "path": job.path,
            "image_id": outcome.image_id,
            "status": FAILED,
            "reason": outcome.reason,
            "rows": 0,
            "seconds": outcome.seconds,
            "memory": outcome.memory,
        }
        if identities.copy is not None:
            lake.keep(identities.copy)
            image_id = identities.copy["image_id"]
            report.update(truncated=identities.copy["truncated"], reason=identities.copy["reason"])
            return {**report, "image_id": image_id, "manifest": image_id, "status": COPY}
        image_manifest = manifest(job, outcome, identities.known, place)
        image_manifest.update(attempt=attempt, started=started, ended=provenance.now())
        if outcome.facts is not None:
            image_manifest["tables"] = lake.tables(outcome.image_id, attempt, outcome.facts["rows"])
            report.update(status=DONE, rows=sum(outcome.facts["rows"].values()))
            report.update(truncated=image_manifest["truncated"], reason=image_manifest["reason"])
        elif outcome.image_id:
            lake.drop(outcome.image_id, attempt)
            before = lake.manifest(outcome.image_id)
            if before is not None and before["status"] == DONE:
                # The result of an earlier attempt stays; that this one failed is recorded next to it.
                image_manifest["image_id"] = unopened(job.path)
        report["manifest"] = image_manifest["image_id"]
        lake.keep(image_manifest)
    if report["status"] == FAILED and not outcome.final:
        raise AttemptFailedError(report)
    return report


def _attempt(job: Job, name: str, identities: Identities, place: TaskPlace, lake: Lake) -> Outcome:
    decided = ""

    def decide(identified: dict[str, Any], poll: Callable[[], None]) -> Optional[str]:
        nonlocal decided
        decided = identities.decide(identified, poll) or ""
        return decided or None

    def send_state(state: Report) -> None:
        place.send({"path": job.path, "state": "running", **state})

    try:
        outcome = Attempt(job, name, decide, place.is_wanted, send_state).run()
        place.stop_if_unwanted()
        return outcome
    except StoppedError:
        if decided:
            lake.drop(decided, name)
        raise


def manifest(job: Job, outcome: Outcome, known: Optional[KnownImage], place: TaskPlace) -> Manifest:
    """Returns the manifest of an attempt, without its tables and times."""
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
        "identity": None if known is None else known.manifest_entry(),
        "copies": [],
        "replaces": [image_id for image_id in job.replaces if image_id != outcome.image_id],
        "tables": {},
        "reading": to_json(job.reading),
        "reading_digest": job.reading.digest(),
        "versions": {**versions.of_packages(), **place.versions},
        "limits": to_json(job.limits),
        "case": job.custody.case,
        "note": job.custody.note,
        "run": job.custody.run,
        "worker": place.name,
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
    image_manifest = manifest(job, Outcome(reason=reason), None, _Nowhere())  # type: ignore[arg-type]
    time = provenance.now()
    return {**image_manifest, "attempt": "", "started": time, "ended": time}


class _Nowhere:
    """The place of an attempt that ran nowhere."""

    name = ""
    versions: dict[str, str] = {}
