# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a worker of Dask is asked before it gets work, those too that join in the middle of a run.

Each must have the same versions as the client, and see the same file at each path.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from typing import Any

import distributed

from . import custody, versions
from .attempt import Process, tail
from .job import Job, Reading, to_json
from .task import PLUGIN

MOST_SAID = 3
"""Differences of paths that are named; of more the number is."""


class RefusedError(Exception):
    """A worker that may not work on this run; the text names it and says why."""


class CheckFailedError(Exception):
    """Plugins or Volatility cannot be used here; the text says why."""


def checked(reading: Reading, lake: str) -> dict[str, str]:
    """Returns the versions of all packages here; a process as for an image says those of the plugins.

    Args:
        reading: how images are read
        lake: folder of the lake, absolute

    Raises:
        CheckFailedError: there are no plugins, or they cannot be imported
    """
    with tempfile.TemporaryFile() as log:
        with Process(log) as process:
            process.tell({"check": True, "reading": to_json(reading), "lake": lake})
            said = process.hear() or {}
            process.end(1.0)
        if "versions" not in said:
            reason = said.get("failed", {}).get("reason") or tail(log).strip().rpartition("\n")[2]
            raise CheckFailedError(
                f"the plugins cannot be used: {reason} (--plugin-dirs says where they are)"
            )
    return {**versions.of_packages(), **said["versions"]}


class Joining(distributed.WorkerPlugin):
    """Compares a worker with the client, when the run starts or the worker joins.

    Args:
        reading: how images are read
        expected: the client's versions
        jobs: the images
        topic: under which the client hears of a worker that is refused
        embedded: whether workers are threads of the client: there is nothing to compare

    Attributes:
        found: the worker's versions
        refused: why it may not work; empty if it may
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
        self._looked = embedded

    async def setup(self, worker: Any) -> None:
        """Looks at a worker. One that was there before the run stays as it is; one that joins later goes."""
        if self._looked:
            return
        # A worker that is just starting runs the plugins before it sends its first sign of life.
        late = not worker.periodic_callbacks["heartbeat"].is_running()
        self.refused = f"worker {worker.address}: still being looked at"
        said = await asyncio.to_thread(self._look)
        self.refused = f"worker {worker.address}: {said}" if said else ""
        if self.refused:
            if late:
                asyncio.get_running_loop().call_later(1, self._dismiss, worker)
            raise RefusedError(self.refused)

    def _dismiss(self, worker: Any) -> None:
        worker.log_event(self._topic, {"state": "refused", "reason": self.refused})
        asyncio.ensure_future(worker.close(nanny=True, reason=self.refused))  # noqa: RUF006

    def _look(self) -> str:
        """Returns in words what is different here."""
        said = versions.differences(self._expected, versions.of_packages(), versions.HERE)
        if said:
            return "; ".join(said)
        try:
            self.found = checked(self._reading, self._lake)
        except CheckFailedError as error:
            return str(error)
        said = versions.differences(self._expected, self.found)
        return "; ".join(filter(None, (*said, self._files_said())))

    def _files_said(self) -> str:
        """Returns in words which paths lead to other files here."""
        said = [text for text in (custody.difference(*each) for each in self._files) if text]
        more = [f"and {len(said) - MOST_SAID} more paths"] if len(said) > MOST_SAID else []
        return "; ".join(said[:MOST_SAID] + more)
