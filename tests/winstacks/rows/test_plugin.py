# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What plugins say besides their rows, and the collector, which is paused for them and runs again."""

from __future__ import annotations

import gc
from typing import Any, Dict, Iterator, List, Optional

import pytest
from volatility3 import framework
from volatility3.framework import interfaces

from winstacks.rows import plugin
from winstacks.rows.command import Command
from winstacks.rows.plugin import Listing, collector_paused
from winstacks.rows.requested import UNREAD


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    gc.enable()


class Said:
    """What stands for a plugin: it keeps what it is told of its progress."""

    def __init__(self, **config: Any) -> None:
        self.config = config
        self.progress: List[str] = []
        self.percents: List[float] = []

    def _progress_callback(self, percent: float, what: str) -> None:
        self.progress.append(what)
        self.percents.append(percent)


def records(caplog: pytest.LogCaptureFixture) -> List[Any]:
    return [(each.name, each.levelname, each.getMessage()) for each in caplog.records]


@pytest.mark.parametrize(
    ("found", "nothing", "said"), [(False, "there is none", 1), (True, "there is none", 0), (False, "", 0)]
)
def test_a_listing_without_anything_ends_with_a_warning_of_the_plugin(
    found: bool, nothing: str, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Listing(_command(Said()), nothing) as listing:
        listing.found = found
    assert records(caplog) == [(__name__, "WARNING", "there is none")] * said


def _command(said: Any) -> Command:
    return Command(said)


def test_other_errors_are_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="of the rows"), Listing(_command(Said()), "there is none"):
        raise ValueError("of the rows")
    assert records(caplog) == []


def test_a_listing_of_which_nobody_wants_more_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def rows() -> Iterator[int]:
        with Listing(_command(Said()), "there is none"):
            yield from range(10)

    assert next(rows()) == 0
    assert records(caplog) == []


def test_progress_is_told_when_the_work_changes_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_OFTEN", 4)
    said = Said()
    things = [0, 0, 1, 1, 1, 1]
    assert list(Listing(_command(said)).each(things, str)) == things
    assert said.progress == ["0", "1", "1"]


def test_progress_moves_where_the_number_of_things_is_known() -> None:
    said = Said()
    assert list(Listing(_command(said)).each("aabb", str, 4)) == list("aabb")
    assert said.percents == [0, 25, 50, 75]
    assert said.progress[-1] == "b (4 of 4)"
    said = Said()
    assert list(Listing(_command(said)).each("aabbcc", str, 2, grouped=True)) == list("aabbcc")
    assert said.percents == [0, 50, 100]
    assert said.progress == ["a (1 of 2)", "b (2 of 2)", "c (2 of 2)"]


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ({}, "not enabled"),
        ({"unread": True}, UNREAD),
        ({"found": True}, "None of the things passes --find 'x' (or '*!x') and --leaks"),
        ({"found": True, "matched": True}, None),
    ],
)
def test_each_kind_of_nothing_has_its_answer(
    state: Dict[str, bool], answer: Optional[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Listing(_command(Said(find="x", leaks=True, held=False)), "not enabled", "things") as listing:
        for name, value in state.items():
            setattr(listing, name, value)
    assert [message for _, _, message in records(caplog)] == ([] if answer is None else [answer])


def test_what_is_not_there_is_said_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with Listing(_command(Said(handle=[0x84, 0x88], find="x")), "not enabled", "things") as listing:
        listing.found = True
    assert [message for _, _, message in records(caplog)] == ["There is no event of the handle 0x84, 0x88"]
    caplog.clear()
    with Listing(_command(Said(index=[1, 2])), "not enabled", "things") as listing:
        listing.found = listing.matched = True
        listing.asked.saw("index", 1)
    assert [message for _, _, message in records(caplog)] == ["There is no back trace with the index 2"]


def test_rows_are_noted() -> None:
    listing = Listing(_command(Said()))
    assert list(listing.noting(iter(()))) == []
    assert not listing.matched
    assert list(listing.noting(iter(range(3)))) == [0, 1, 2]
    assert listing.matched


def test_nothing_of_the_library_is_a_plugin() -> None:
    found = framework.class_subclasses(interfaces.plugins.PluginInterface)
    assert [each for each in found if each.__module__.startswith("winstacks")] == []


def test_the_collector_is_paused_and_runs_again() -> None:
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_made_while_it_was_paused_is_old() -> None:
    gc.collect()
    with collector_paused():
        made = [[number] for number in range(5000)]
    assert gc.get_count()[0] < 5000
    old = {id(each) for each in gc.get_objects(generation=2)}
    assert {id(each) for each in made} <= old
    assert not gc.get_freeze_count()


def test_what_somebody_has_frozen_stays_frozen() -> None:
    mine = [[number] for number in range(100)]
    gc.freeze()
    try:
        with collector_paused():
            pass
        assert {id(each) for each in mine}.isdisjoint(map(id, gc.get_objects()))
    finally:
        gc.unfreeze()


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
