# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs images on Dask: on workers within this program, or on the workers of an existing scheduler."""

from __future__ import annotations

import contextlib
import logging
import uuid
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Optional

import dask.config
import distributed
from distributed.comm import CommClosedError

from .forking import LAST, READERS
from .job import Job, Reading
from .joining import Joining
from .lake import Lake, LakeError, NewImage
from .output import tell
from .planning import WrongUseError
from .progress import Progress
from .task import AttemptFailedError, lost, run_image

CONNECT = 10
"""Seconds in which a scheduler must answer, also after its connection was lost."""

LOOPBACK = "127.0.0.1:0"
"""Address of a server on this machine, with any free port."""


@contextlib.contextmanager
def connected(scheduler: Optional[str], workers: int) -> Iterator[distributed.Client]:
    """Yields a client of an existing scheduler, or of one within this program.

    Args:
        scheduler: address of a scheduler; None for one within this program, whose workers are threads: each
            task has a process of its own
        workers: number of these workers

    Raises:
        WrongUseError: there is no such scheduler
    """
    with contextlib.ExitStack() as contexts:
        if scheduler is not None:
            try:
                client = distributed.Client(scheduler, timeout=CONNECT)
            except (OSError, ValueError, TypeError) as error:
                raise WrongUseError(f"--scheduler {scheduler}: {error}") from error
            contexts.enter_context(client)
            if not client.nthreads():
                tell(f"stackfleet: {scheduler} has no workers: the images wait until one joins")
            yield client
            return
        contexts.enter_context(
            dask.config.set({"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []})
        )
        contexts.callback(READERS.close, LAST)
        cluster = contexts.enter_context(_embedded(workers))
        yield contexts.enter_context(distributed.Client(cluster))


def _embedded(workers: int) -> distributed.LocalCluster:
    """Returns a scheduler within this program, with one worker of several threads."""
    with warnings.catch_warnings():
        # Dask warns about a worker without a dashboard.
        warnings.simplefilter("ignore", UserWarning)
        return distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=False,
            # Dask opens two servers in any case: here they serve nothing, and listen on this machine only.
            dashboard_address=LOOPBACK,
            worker_dashboard_address=LOOPBACK,
            scheduler_kwargs={"dashboard": False},
            dashboard=False,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )


def run(
    client: distributed.Client,
    jobs: Sequence[Job],
    lake: Lake,
    reading: Reading,
    found: dict[str, str],
    progress: Progress,
    embedded: bool,
) -> int:
    """Runs images; returns the number of images that are not done.

    Args:
        found: versions of the client
        embedded: whether the workers are threads of this program

    Raises:
        RefusedError: a worker has other versions, or sees other files
    """
    topic = jobs[0].custody.run
    try:
        client.subscribe_topic(topic, lambda event: progress.event(event[1]))
        client.register_plugin(Joining(reading, found, jobs, topic, embedded))
        by_key = {f"image-{uuid.uuid4().hex}": job for job in jobs}
        futures = [
            client.submit(run_image, job, key=key, pure=False, retries=job.limits.retries)
            for key, job in by_key.items()
        ]
        missing = 0
        for batch in distributed.as_completed(futures).batches():
            missing += sum(not progress.ended(_ended(future, by_key[future.key], lake)) for future in batch)
            # Each commit looks at all files. A lake that cannot be written ends the last merge, not this one.
            with contextlib.suppress(LakeError):
                lake.compact(needed=True)
        return missing
    except CommClosedError:
        # If the scheduler is lost before the first task ends, nothing else reports it.
        for job in jobs:
            progress.ended(_unfinished(job))
        return len(jobs)
    finally:
        with contextlib.suppress(OSError, ValueError):
            client.unregister_worker_plugin(Joining.name)
            client.unsubscribe_topic(topic)


def _ended(future: Any, job: Job, lake: Lake) -> dict[str, Any]:
    """Processes the end of a task; returns its report."""
    if future.status == "finished":
        # The scheduler holds the result, and may be lost at this moment.
        try:
            report: dict[str, Any] = future.result()
            return report
        except (CancelledError, OSError):
            return _unfinished(job)
    if future.status != "error":
        return _unfinished(job)
    error = future.exception()
    if isinstance(error, AttemptFailedError):
        return error.report
    if isinstance(error, distributed.scheduler.KilledWorker):
        reason = "its workers died, one after the other"
    else:
        reason = f"{type(error).__name__}: {error}"
    report = {"path": job.path, "status": "failed", "reason": reason}
    try:
        lake.add(NewImage(lost(job, reason)))
    except LakeError as failed:
        return {**report, "reason": f"{reason}; {failed}", "unrecorded": True}
    return report


def _unfinished(job: Job) -> dict[str, Any]:
    reason = "the scheduler is gone"
    return {"path": job.path, "status": "unfinished", "reason": reason, "unrecorded": True}
