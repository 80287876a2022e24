# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Who reads which share of an image: the order of the shares, and what helpers find in their queue."""

from __future__ import annotations

import itertools
import pathlib
import types
from typing import Any, List

import pytest

from stackfleet import crew
from stackfleet.crew import AHEAD, Crew


class Shares:
    """In the place of a queue of Dask."""

    def __init__(self, *_: object, **__: object) -> None:
        self.waiting: List[Any] = []

    def put(self, number: Any) -> None:
        self.waiting.append(number)

    def get(self, batch: bool) -> List[Any]:
        taken, self.waiting = self.waiting, []
        return taken

    def qsize(self) -> int:
        return len(self.waiting)

    def close(self) -> None:
        pass


class Workers:
    """In the place of a client of Dask with two workers, one of which runs the image's own process."""

    def nthreads(self) -> Any:
        return {"one": 1, "two": 1}

    def processing(self) -> Any:
        return {"one": ["the image"], "two": []}

    def submit(self, *_: object, key: str, **__: object) -> Any:
        return types.SimpleNamespace(key=key, status="pending", done=lambda: False)

    def subscribe_topic(self, *_: object) -> None:
        pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Crew:
    """A crew for six shares; each look at the clock is a second after the one before."""
    seconds = itertools.count(100)
    monkeypatch.setattr(crew, "time", types.SimpleNamespace(monotonic=lambda: float(next(seconds))))
    monkeypatch.setattr(crew.distributed, "get_client", Workers)
    monkeypatch.setattr(crew.distributed, "Queue", Shares)
    job: Any = types.SimpleNamespace(lake=str(tmp_path), limits=types.SimpleNamespace(split=2))
    found = Crew(job, "attempt", lambda _: {})
    assert found.share({"shares": [{"place": place / 6} for place in range(6)]})
    return found


def test_helpers_find_new_shares_while_the_image_is_read(made: Crew) -> None:
    assert made.next(0, lambda: None) == {"read": 0}
    taken = []
    for left in range(5, 0, -1):
        made.supply()
        assert made._queue.qsize() == min(left, AHEAD)
        taken.append(made._queue.waiting.pop(0))
    assert taken == [5, 4, 3, 2, 1]


def test_at_the_end_helpers_find_that_there_are_no_more(made: Crew) -> None:
    made.next(0, lambda: None)
    made.supply()
    made.end(lambda: None)
    assert made._queue.waiting == [5, 4, None]


def test_nothing_is_offered_that_is_being_read(made: Crew) -> None:
    for number in range(3):
        made.next(number, lambda: None)
    made.supply()
    waiting = list(made._queue.waiting)
    assert waiting == [5, 4]
    # What waits is taken back, when its turn has come before a helper took it.
    assert made.next(3, lambda: None) == {"read": 3}
    assert made.next(4, lambda: None) == {"read": 4}
    assert 4 not in made._queue.waiting
