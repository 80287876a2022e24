# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The collector of cycles, which is paused where many rows are made and runs again afterwards."""

from __future__ import annotations

import gc
from typing import Iterator, List

import pytest

from winstacks.memory import collector
from winstacks.memory.collector import collector_paused, paused_by_group


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is frozen meanwhile: the tests' own conftest freezes what is imported."""
    gc.unfreeze()
    monkeypatch.setattr(collector, "_froze", False)
    yield
    gc.enable()
    gc.unfreeze()


def test_the_collector_is_paused_and_runs_again() -> None:
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_made_while_it_was_paused_is_old() -> None:
    gc.collect()
    with collector_paused():
        lists = [[number] for number in range(5000)]
    assert gc.get_count()[0] < 5000
    old = {id(element) for element in gc.get_objects(generation=2)}
    assert {id(element) for element in lists} <= old
    assert not gc.get_freeze_count()


def test_what_somebody_has_frozen_stays_frozen() -> None:
    mine = [[number] for number in range(100)]
    gc.freeze()
    with collector_paused():
        pass
    assert {id(element) for element in mine}.isdisjoint(map(id, gc.get_objects()))


def test_what_was_frozen_by_us_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = [[number] for number in range(100)]
    collector.freeze()
    monkeypatch.delattr(gc, "get_freeze_count")
    with collector_paused():
        pass
    assert {id(element) for element in mine}.isdisjoint(map(id, gc.get_objects()))


def test_it_runs_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="of the rows"), collector_paused():
        raise ValueError("of the rows")
    assert gc.isenabled()


def test_it_runs_again_when_nobody_wants_more_rows() -> None:
    def rows() -> Iterator[int]:
        with collector_paused():
            yield from range(10)

    listed = rows()
    assert next(listed) == 0
    assert not gc.isenabled()
    del listed
    assert gc.isenabled()


def test_who_paused_it_before_starts_it_again() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_it_runs_between_groups() -> None:
    enabled: List[bool] = []

    def numbers() -> Iterator[int]:
        for number in (11, 12, 21, 13):
            enabled.append(gc.isenabled())
            yield number

    inside = [gc.isenabled() for _ in paused_by_group(numbers(), lambda number: number // 10)]
    # The first of each group is fetched while it runs, the others of the group while it is paused.
    assert enabled == [True, False, False, False]
    assert inside == [False] * 4
    assert gc.isenabled()
