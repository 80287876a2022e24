# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The one loop of all commands: what it shows, what it takes note of, what it says at the end."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from winstacks.memory.decode.status import NOTHING, Status
from winstacks.names.symbolizer import Name
from winstacks.rows import command as commands
from winstacks.rows.command import Command
from winstacks.rows.grid import Grid, Row
from winstacks.rows.requested import UNREAD
from winstacks.stacklist.frames import NOT_THERE, NamedFrame

DOUBTFUL = "1 more may match --find and --unbacked: they have unreadable frames, or frames without a name"


class Plugin:
    """What stands for a plugin: it keeps what it is told of its progress."""

    def __init__(self, **config: Any) -> None:
        self.config = config
        self.progress: List[Tuple[float, str]] = []

    def _progress_callback(self, percent: float, text: str) -> None:
        self.progress.append((percent, text))


def frame(symbol: str, backing: str = "image") -> NamedFrame:
    """A frame of which only the name is known."""
    name = Name(symbol, "export", NOTHING, backing)
    return NamedFrame(0x1000, name, symbol, NOT_THERE._facts)


class Thing(NamedTuple):
    """What the command under test lists; a gap has no number."""

    number: Optional[int]
    frames: Optional[Tuple[NamedFrame, ...]] = ()
    held: bool = True


class Things(Command[str, Thing]):
    """A command whose steps are the letters of a text."""

    grid = Grid("PID", "Status")
    things = "things"
    nothing = "there is none"
    to_enable = "not enabled"

    def __init__(self, plugin: Any, steps: Dict[str, Sequence[Thing]]) -> None:
        super().__init__(plugin)
        self._steps = steps

    def steps(self) -> List[str]:
        return list(self._steps)

    def space(self, step: str) -> Any:
        return SimpleNamespace(eprocess=step)

    def describe(self, step: str) -> str:
        return step[0]

    def items(self, step: str) -> Iterable[Thing]:
        return self._steps[step]

    def is_gap(self, item: Thing) -> bool:
        return item.number is None

    def selects(self, item: Thing) -> bool:
        return item.held or not self.option("held")

    def frames(self, item: Thing) -> Optional[Sequence[NamedFrame]]:
        return item.frames

    def rows(self, item: Thing, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        yield 0, (item.number, len(frames))


class _Image:
    """An image whose kernel's symbols lack nothing.

    Args:
        status: that of its list of processes
    """

    lacking: Sequence[str] = ()

    def __init__(self, status: Status) -> None:
        self._status = status

    def service(self, _: object) -> Any:
        return SimpleNamespace(status=self._status)

    def possible(self, items: Iterable[Any]) -> Iterable[Any]:
        return items


@pytest.fixture(autouse=True)
def _sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of processes is sound: only then is it an answer that Windows keeps nothing."""
    monkeypatch.setattr(Command, "image", _Image(NOTHING))


def run(
    things: Sequence[Thing], caplog: pytest.LogCaptureFixture, **config: Any
) -> Tuple[List[Optional[int]], List[str]]:
    """Returns the numbers of the things that are shown, and the warnings."""
    caplog.clear()
    rows: List[Any] = list(Things(Plugin(**config), {"a": things}).generate())
    assert {(record.name, record.levelname) for record in caplog.records} <= {(__name__, "WARNING")}
    return [row[1][0] for row in rows], [record.getMessage() for record in caplog.records]


NT, APP, PRIVATE = frame("nt!NtClose"), frame("app!Run"), frame("<private>", "private")


def test_nothing_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    assert run([], caplog) == ([], ["there is none", "not enabled"])


def test_that_it_can_be_enabled_is_no_answer_of_a_damaged_list(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Command, "image", _Image(NOT_THERE.details.status))
    assert run([], caplog) == ([], ["there is none"])


def test_a_gap_is_shown_and_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    assert run([Thing(None)], caplog) == ([None], [UNREAD])
    assert run([Thing(None), Thing(1)], caplog) == ([None, 1], [])


@pytest.mark.parametrize("option", [{"find": "nt!*"}, {"unbacked": True}])
def test_a_gap_may_be_what_is_asked_for(option: Any, caplog: pytest.LogCaptureFixture) -> None:
    shown, faults = run([Thing(None), Thing(1, (NT, PRIVATE))], caplog, **option)
    assert (shown, faults) == ([1], [DOUBTFUL])


def test_stacks_are_judged_by_their_frames(caplog: pytest.LogCaptureFixture) -> None:
    things = [Thing(1, (NT, APP)), Thing(2, (APP,)), Thing(3, (APP, PRIVATE))]
    assert run(things, caplog) == ([1, 2, 3], [])
    assert run(things, caplog, find="nt!*") == ([1], [])
    assert run(things, caplog, unbacked=True) == ([3], [])
    assert run(things, caplog, unbacked=True, find="nt!*") == (
        [],
        ["No things match --find 'nt!*' and --unbacked"],
    )


def test_a_thing_that_no_frame_judges_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert run([Thing(1, None)], caplog, find="nt!*") == (
        [1],
        ["No things match --find 'nt!*'"],
    )


def test_a_stack_that_cannot_be_judged_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    assert run([Thing(1, (NT,)), Thing(2, (APP, NOT_THERE))], caplog, find="nt!*") == ([1], [DOUBTFUL])


def test_a_glob_without_a_module_is_tried_with_any(caplog: pytest.LogCaptureFixture) -> None:
    assert run([Thing(1, (NT,))], caplog, find="NtClose") == (
        [1],
        ["--find 'NtClose' has no '!': it was also tried as '*!NtClose'"],
    )


def test_an_option_of_the_command_leaves_things_out(caplog: pytest.LogCaptureFixture) -> None:
    things = [Thing(1, held=False), Thing(2)]
    assert run(things, caplog, held=True) == ([2], [])
    assert run(things[:1], caplog, held=True) == ([], ["No things match --held"])


def test_things_without_frames_are_nothing_that_find_passes_over(caplog: pytest.LogCaptureFixture) -> None:
    assert run([Thing(1)], caplog, find="nt!*") == ([], ["there is none", "not enabled"])


def test_what_is_not_there_is_said_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    assert run([Thing(1, (APP,))], caplog, handle=[0x84, 0x88], find="x!*") == (
        [],
        ["There is no event of the handle 0x84, 0x88"],
    )
    assert run([Thing(1)], caplog, index=[2]) == ([1], ["There is no back trace with the index 2"])


def test_other_errors_are_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[Thing]:
        raise ValueError("of the items")
        yield

    with pytest.raises(ValueError, match="of the items"):
        list(Things(Plugin(), {"a": broken()}).generate())  # type: ignore[dict-item]
    assert caplog.records == []
    assert gc.isenabled()


def test_rows_of_which_nobody_wants_more_end_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    rows = Things(Plugin(), {"a": [Thing(1), Thing(2)]}).generate()
    assert next(rows) == (0, (1, 0))
    assert not gc.isenabled()
    del rows
    assert gc.isenabled()
    assert caplog.records == []


def test_rows_that_are_noted_count_as_shown() -> None:
    command = Things(Plugin(), {})
    assert list(command.mark_found(iter(()))) == []
    assert not command.matched
    assert list(command.mark_found(iter([(0, (1,)), (0, (2,))]))) == [(0, (1,)), (0, (2,))]
    assert command.matched


def test_progress_moves_where_the_number_of_steps_is_known() -> None:
    plugin = Plugin()
    list(Things(plugin, {"a": (), "a2": (), "b": ()}).generate())
    assert plugin.progress == [
        (0.0, "a (1 of 3)"),
        (pytest.approx(100 / 3), "a (2 of 3)"),
        (pytest.approx(200 / 3), "b (3 of 3)"),
    ]


class Grouped(Things):
    """Steps of one text are one step of the progress."""

    grouped = True

    def count(self, steps: Iterable[str]) -> int:
        return 2


def test_steps_of_a_group_are_one() -> None:
    plugin = Plugin()
    list(Grouped(plugin, {"a": (), "a2": (), "b": (), "b2": (), "c": ()}).generate())
    assert plugin.progress == [(0.0, "a (1 of 2)"), (50.0, "b (2 of 2)"), (100.0, "c (2 of 2)")]


class Uncounted(Things):
    """How many steps there are is not known before all are done."""

    def count(self, steps: Iterable[str]) -> int:
        return 0


def test_progress_is_told_when_the_work_changes_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_OFTEN", 4)
    plugin = Plugin()
    list(Uncounted(plugin, dict.fromkeys(("a", "a2", "b", "b2", "b3", "b4"), ())).generate())
    assert plugin.progress == [(0.0, "a"), (0.0, "b"), (0.0, "b")]


def test_many_items_are_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_OFTEN", 128)
    plugin = Plugin()
    assert list(Things(plugin, {}).with_progress(range(300), "reading")) == list(range(300))
    assert plugin.progress == [(0.0, "reading")] * 3
