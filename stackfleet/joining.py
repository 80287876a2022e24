# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks each Dask worker before it gets work, including workers that join during a run.

Each worker must have the same versions as the client, and see the same file at each path.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Sequence
from typing import Any

import distributed

from winstacks.memory.decode.text import counted

from . import provenance, versions
from .child import unusable
from .child_process import ChildProcess, tail
from .forking import READERS
from .job import Job, Reading
from .task import PLUGIN

MOST_SAID = 3
"""The most differing paths that are named; the others are counted."""


class RefusedError(Exception):
    """A worker that must not work on this run; the text names it and gives the reason."""


class CheckFailedError(Exception):
    """Plugins or Volatility cannot be used here; the text gives the reason."""


def checked(reading: Reading, lake: str) -> dict[str, str]:
    """Returns the versions of all packages here; a process like an image's finds the plugins'.

    Raises:
        CheckFailedError: plugins cannot be found or imported, or Volatility's cache cannot be written
    """
    with tempfile.TemporaryFile() as log:
        with ChildProcess(log) as process:
            process.send({"check": True, "reading": dataclasses.asdict(reading), "lake": lake})
            answer = process.hear() or {}
            process.end(1.0)
        if "versions" not in answer:
            reason = answer.get("failed", {}).get("reason")
            raise CheckFailedError(reason or unusable(tail(log).strip().rpartition("\n")[2]))
    return {**versions.of_packages(), **answer["versions"]}


class Joining(distributed.WorkerPlugin):
    """Compares a worker with the client when the run starts or the worker joins.

    Args:
        expected: versions of the client
        topic: topic of the messages to the client about refused workers
        embedded: whether workers are threads of the client, so that there is nothing to compare

    Attributes:
        found: versions of the worker
        refused: reason why the worker is refused; empty if it is not
    """

    name = PLUGIN

    def __init__(
        self,
        reading: Reading,
        expected: dict[str, str],
        jobs: Sequence[Job],
        topic: str,
        embedded: bool = False,
    ) -> None:
        self._reading, self._expected, self._topic = reading, expected, topic
        self._lake = jobs[0].lake
        self._files = [(job.path, job.size, job.probe) for job in jobs]
        self.found = expected if embedded else {}
        self.refused = ""
        self._embedded = embedded

    async def setup(self, worker: Any) -> None:
        """Checks a worker. A refused worker is closed if it joined during the run; other workers stay."""
        if self._embedded:
            return
        # A starting worker runs the plugins before it sends its first heartbeat.
        late = not worker.periodic_callbacks["heartbeat"].is_running()
        self.refused = f"worker {worker.address}: its check has not ended"
        message = await asyncio.to_thread(self._look)
        self.refused = f"worker {worker.address}: {message}" if message else ""
        if self.refused:
            if late:
                asyncio.get_running_loop().call_later(1, self._dismiss, worker)
            raise RefusedError(self.refused)

    def teardown(self, worker: Any) -> None:
        """Ends the process that forks readers, at the end of the run; the client ends its own."""
        if not self._embedded:
            READERS.close()

    def _dismiss(self, worker: Any) -> None:
        worker.log_event(self._topic, {"state": "refused", "reason": self.refused})
        asyncio.ensure_future(worker.close(nanny=True, reason=self.refused))  # noqa: RUF006

    def _look(self) -> str:
        """Returns in words what differs on this worker."""
        different = versions.differences(self._expected, versions.of_packages(), versions.HERE)
        if different:
            return "; ".join(different)
        try:
            self.found = checked(self._reading, self._lake)
        except CheckFailedError as error:
            return str(error)
        different = versions.differences(self._expected, self.found)
        return "; ".join(filter(None, (*different, self._describe_files())))

    def _describe_files(self) -> str:
        """Returns in words which paths lead to other files on this worker."""
        different = [text for text in (provenance.difference(*probe) for probe in self._files) if text]
        left = len(different) - MOST_SAID
        more = [f"and {counted(left, 'more path')}"] if left > 0 else []
        return "; ".join(different[:MOST_SAID] + more)
