# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Who reads an image: its own process, and helpers on workers of Dask that have nothing else to do.

The image's own process takes the shares in their order, so that its rows go straight into the tables.
Helpers take those of the last processes first, of each all kinds, since what is known of a process serves all
of them: by a queue of Dask into which only a few are put at a time. They leave each share in the lake. What a
helper took and did not finish is read by the image's own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
import uuid
from typing import Any, Callable, Optional

import distributed

from .job import Job
from .lake import Lake
from .layout import piece_file, pieces_folder

Tick = Callable[[], None]

OFTEN = 0.05
"""Seconds between two looks for a share that a helper is reading."""
SILENCE = 10.0
"""Seconds in which a helper that was at work says that it is: else it is lost."""
PATIENCE = 10.0
"""Seconds in which helpers end when there is nothing more to read."""
SELDOM = 1.0
"""Seconds between two looks for workers that have nothing to do."""
AHEAD = 2
"""Shares that wait for each helper: a small one is read sooner than the next can be put there."""
BEHIND_IMAGES = -1
"""The priority of helpers: images go first."""


@dataclasses.dataclass(frozen=True)
class Help:
    """What a helper is told.

    Attributes:
        job: the image
        attempt: whose helper it is
        topic: name of the queue of shares, and of the events by which helpers say that they are at work
        asked: the image's ImageId, its shares, and which of its processes only a scan has found
    """

    job: Job
    attempt: str
    topic: str
    asked: dict[str, Any]

    def next(self, tick: Tick) -> Optional[int]:
        """Returns the next share; None when there are no more.

        Args:
            tick: is called now and then; may raise to end this
        """
        queue = distributed.Queue(self.topic)
        while True:
            tick()
            with contextlib.suppress(asyncio.TimeoutError):
                number: Optional[int] = queue.get(timeout=SELDOM)
                if number is None:
                    # The other helpers are to see it, too.
                    queue.put(None)
                return number


class Crew:
    """The helpers of one attempt at an image (a context).

    Args:
        job: the image
        attempt: its name
        run: what a helper runs; takes a `Help` and returns a report

    Attributes:
        reports: what the helpers did, once they have ended
    """

    def __init__(self, job: Job, attempt: str, run: Callable[[Help], dict[str, Any]]) -> None:
        self.reports: list[dict[str, Any]] = []
        self._job = job
        self._attempt = attempt
        self._run = run
        self._folder = pieces_folder(job.lake, attempt)
        self._left: set[int] = set()
        self._for_helpers: list[int] = []
        self._futures: list[Any] = []
        self._queue: Any = None
        self._looked = 0.0
        self._supplied = 0.0
        self._heard: dict[str, float] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        if self._queue is None:
            return
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            if self._futures:
                self._client.cancel(self._futures)
            self._queue.close()
            self._client.unsubscribe_topic(self._help.topic)
        Lake(self._job.lake).drop_pieces(self._attempt)

    def share(self, asked: dict[str, Any]) -> bool:
        """Takes the shares of the image; returns whether there may be helpers.

        Args:
            asked: see `Help`
        """
        self._client = distributed.get_client()
        if self._most() < 1:
            return False
        places = [each["place"] for each in asked["shares"]]
        self._left.update(range(len(places)))
        self._for_helpers = sorted(self._left, key=lambda number: (places[number], -number))
        self._help = Help(self._job, self._attempt, f"stackfleet-{self._attempt}", asked)
        self._queue = distributed.Queue(self._help.topic, client=self._client)
        self._client.subscribe_topic(self._help.topic, self._hear)
        return True

    def next(self, number: int, tick: Tick) -> dict[str, Any]:
        """Returns whether the image's own process is to read a share: `read`, or else `taken`.

        Args:
            number: of the share; each is asked for once, in their order
            tick: is called while this waits; may raise to end this
        """
        if number in self._left:
            self._left.discard(number)
            self._offer()
            return {"read": number}
        path = piece_file(self._folder, number)
        mine = not path.exists() and self._withdraw(number)
        while not (mine or path.exists()) and self._at_work():
            tick()
            time.sleep(OFTEN)
        return {"taken": number} if path.exists() else {"read": number}

    def supply(self) -> None:
        """Keeps the helpers at work while the image's own process reads; is called often."""
        if self._left and time.monotonic() - self._supplied > OFTEN:
            self._hire()
            self._offer()
            self._supplied = time.monotonic()

    def end(self, tick: Tick) -> None:
        """Takes the reports of the helpers, once these have ended; those that have not begun never will.

        Args:
            tick: is called while this waits; may raise to end this
        """
        if self._futures:
            self._queue.put(None)
        until = time.monotonic() + PATIENCE
        while self._at_work() and time.monotonic() < until:
            tick()
            time.sleep(OFTEN)
        for future in self._futures:
            if future.status == "finished":
                self.reports.append(future.result())
            elif future.key in self._heard:
                self.reports.append({"reason": f"it is lost: its task is {future.status}", "memory": 0})

    def _at_work(self) -> bool:
        """Returns whether a helper has been heard of that has not ended since."""
        now = time.monotonic()
        return any(
            now - self._heard.get(future.key, -SILENCE) < SILENCE and not future.done()
            for future in self._futures
        )

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        self._heard[event[1]["helper"]] = time.monotonic()

    def _most(self) -> int:
        """Returns how many helpers there may be."""
        if self._job.limits.split is not None:
            return self._job.limits.split - 1
        return sum(self._client.nthreads().values()) - 1

    def _hire(self) -> None:
        """Asks for a helper for each worker that has nothing to do."""
        if time.monotonic() - self._looked < SELDOM:
            return
        self._looked = time.monotonic()
        busy = sum(map(len, self._client.processing().values()))
        free = sum(self._client.nthreads().values()) - busy
        for _ in range(min(free, self._most() - len(self._futures))):
            key = f"help-{uuid.uuid4().hex}"
            made = self._client.submit(self._run, self._help, key=key, pure=False, priority=BEHIND_IMAGES)
            self._futures.append(made)

    def _offer(self) -> None:
        """Puts shares into the queue, a few for each helper; behind the last one, that there are no more."""
        if not self._futures:
            return
        for _ in range(AHEAD * len(self._futures) - self._queue.qsize()):
            while self._for_helpers and self._for_helpers[-1] not in self._left:
                self._for_helpers.pop()
            if not self._for_helpers:
                self._queue.put(None)
                return
            self._left.discard(self._for_helpers[-1])
            self._queue.put(self._for_helpers.pop())

    def _withdraw(self, number: int) -> bool:
        """Takes a share back, if no helper has taken it; returns whether that is so."""
        waiting = self._queue.get(batch=True)
        for each in waiting:
            if each != number:
                self._queue.put(each)
        self._offer()
        return number in waiting
