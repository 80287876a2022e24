# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The task that Dask runs for an image: an attempt, and then its manifest."""

from __future__ import annotations

import contextlib
import platform
import uuid
from collections.abc import Iterator
from typing import Any, Callable, Optional

import distributed
from distributed.worker import thread_state

from . import custody, versions
from .attempt import Attempt, Outcome, StoppedError
from .identity import Identities, Known
from .job import Job, to_json
from .lake import Lake, unopened
from .manifests import DONE, FAILED, MANIFEST_VERSION, Manifest

PLUGIN = "stackfleet"
"""Name of the plugin of Dask's workers that compares versions."""

COPY = "copy"
"""The status of a report about an image that is a copy of one that was read."""

Report = dict[str, Any]
Tell = Callable[[Report], None]


class AttemptFailedError(Exception):
    """An attempt that failed, and that another one may not; `report` is its report."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report


class Place:
    """Where a task runs: the worker of Dask, and whether the scheduler still wants the task."""

    def __init__(self, topic: str) -> None:
        self._worker = distributed.get_worker()
        self.key = thread_state.key
        self._topic = topic
        self.name = str(self._worker.address)
        self.versions: dict[str, str] = {}
        plugin: Any = self._worker.plugins.get(PLUGIN)
        if plugin is not None:
            if plugin.refused:
                # It has told the scheduler that it goes; another worker gets the task.
                raise distributed.Reschedule
            self.versions = plugin.found

    def wanted(self) -> bool:
        """Returns whether the task is still wanted: Dask cannot interrupt one that runs."""
        status = self._worker.status
        task = self._worker.state.tasks.get(self.key)
        running = (distributed.Status.running, distributed.Status.paused)
        return status in running and task is not None and task.state != "cancelled"

    def stop_if_unwanted(self) -> None:
        """Raises StoppedError if the task is not wanted any more."""
        if not self.wanted():
            raise StoppedError

    def tell(self, report: Report) -> None:
        """Tells the client how it goes."""
        self._worker.log_event(self._topic, report)

    @contextlib.contextmanager
    def lock(self, name: str, tick: Callable[[], None]) -> Iterator[None]:
        """Keeps other tasks from what has this name."""
        lock = distributed.Lock(f"stackfleet-{name}")
        while not lock.acquire(timeout=1):
            tick()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.release()


def run_image(job: Job) -> Report:
    """Reads an image on a worker of Dask, and writes its manifest.

    Returns:
        path, image_id, status, reason, rows, seconds, memory, and the ImageId of the manifest that was
        written: whoever started the run puts the image into the lake.

    Raises:
        AttemptFailedError: it failed, and another attempt may not
    """
    return run_at(job, Place(job.custody.run))


def run_at(job: Job, place: Place) -> Report:
    """Reads an image somewhere; see `run_image`."""
    started, lake = custody.now(), Lake(job.lake)
    attempt = f"{started[:19].replace(':', '')}-{uuid.uuid4().hex[:12]}"
    place.tell({"path": job.path, "state": "started"})
    differs = custody.difference(job.path, job.size, job.probe)
    with contextlib.ExitStack() as held:
        identities = Identities(job, lake, lambda name, tick: held.enter_context(place.lock(name, tick)))
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
            return {**report, "image_id": image_id, "manifest": image_id, "status": COPY}
        made = manifest(job, outcome, identities.known, place)
        made.update(attempt=attempt, started=started, ended=custody.now())
        if outcome.facts is not None:
            made["tables"] = lake.tables(outcome.image_id, attempt, outcome.facts["rows"])
            report.update(status=DONE, rows=sum(outcome.facts["rows"].values()))
        elif outcome.image_id:
            lake.drop(outcome.image_id, attempt)
            before = lake.manifest(outcome.image_id)
            if before is not None and before["status"] == DONE:
                # What an earlier attempt has read stays as it is; that this one failed is said beside it.
                made["image_id"] = unopened(job.path)
        report["manifest"] = made["image_id"]
        lake.keep(made)
    if report["status"] == FAILED and not outcome.final:
        raise AttemptFailedError(report)
    return report


def _attempt(job: Job, name: str, identities: Identities, place: Place, lake: Lake) -> Outcome:
    decided = ""

    def decide(identified: dict[str, Any], tick: Callable[[], None]) -> Optional[str]:
        nonlocal decided
        decided = identities.decide(identified, tick) or ""
        return decided or None

    def told(state: Report) -> None:
        place.tell({"path": job.path, "state": "running", **state})

    try:
        outcome = Attempt(job, name, decide, place.wanted, told).run()
        place.stop_if_unwanted()
        return outcome
    except StoppedError:
        if decided:
            lake.drop(decided, name)
        raise


def manifest(job: Job, outcome: Outcome, known: Optional[Known], place: Place) -> Manifest:
    """Returns the manifest of an attempt, without its tables and times."""
    facts = outcome.facts or {}
    return {
        "manifest": MANIFEST_VERSION,
        "image_id": outcome.image_id or unopened(job.path),
        "status": FAILED if outcome.facts is None else DONE,
        "reason": outcome.reason,
        "path": job.path,
        "size": job.size,
        "modified": job.modified,
        "probe": job.probe,
        "files": facts.get("files") or outcome.identified.get("files", []),
        "identity": None if known is None else known.said(),
        "copies": [],
        "replaces": [each for each in job.replaces if each != outcome.image_id],
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
    """Returns the manifest of an image of which no attempt came to an end: its workers died."""
    made = manifest(job, Outcome(reason=reason), None, _Nowhere())  # type: ignore[arg-type]
    time = custody.now()
    return {**made, "attempt": "", "started": time, "ended": time}


class _Nowhere:
    """The place of what ran nowhere."""

    name = ""
    versions: dict[str, str] = {}
