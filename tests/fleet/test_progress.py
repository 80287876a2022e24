# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a terminal shows of a run."""

from __future__ import annotations

import io
import re
from typing import Iterator, Tuple

import pytest
from rich.console import Console

from stackfleet import progress
from stackfleet.progress import Progress
from tests.support.only import only


@pytest.fixture
def shown() -> Iterator[Tuple[Progress, io.StringIO]]:
    """The progress of ten images of 100 bytes, and what the terminal received."""
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=120)
    with Progress({f"/images/{number}": 100 for number in range(10)}, console) as bar:
        yield bar, terminal


def test_no_more_images_run_than_there_are_workers(shown: Tuple[Progress, io.StringIO]) -> None:
    """The next image of a worker starts before the result of the last one has arrived."""
    bar, terminal = shown
    for number in range(10):
        bar.event({"path": f"/images/{number}", "state": "started"})
        bar._live.refresh()  # type: ignore[union-attr]
        bar.event({"path": f"/images/{number}", "state": "ended"})
    assert set(re.findall(r"(\d+) running,", terminal.getvalue())) <= {"0", "1"}


def test_the_estimate_does_not_rise(
    shown: Tuple[Progress, io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    bar, terminal = shown
    now = [bar._begin]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for number in range(9):
        for _ in range(3):
            now[0] += 7 * (number + 1)
            bar._live.refresh()  # type: ignore[union-attr]
        bar.ended({"path": f"/images/{number}", "status": "done", "seconds": 1.0, "memory": 0, "rows": 1})
        bar._live.refresh()  # type: ignore[union-attr]
    left = re.findall(r"(\d+):(\d\d):(\d\d) left", terminal.getvalue())
    seconds = [int(hours) * 3600 + int(minutes) * 60 + int(rest) for hours, minutes, rest in left]
    assert len(seconds) > 9 and seconds == sorted(seconds, reverse=True)


def test_names_and_reasons_do_not_move_the_cursor() -> None:
    """A path, and what an image makes Volatility say, are of whoever made the image."""
    log = io.StringIO()
    with Progress({"/images/0": 100}, Console(file=log)) as bar:
        bar.ended({"path": "/images/\x1b[2J\n.dmp", "status": "failed", "reason": "no kernel \x9b31m \u202e"})
    assert only(log.getvalue().splitlines()).isprintable()
    terminal = io.StringIO()
    with Progress({"/images/0": 100}, Console(file=terminal, force_terminal=True, width=120)) as bar:
        bar.event({"path": "/images/\x1b]0;title\x07.dmp", "state": "started"})
        bar._live.refresh()  # type: ignore[union-attr]
    assert "title" in terminal.getvalue() and "\x1b]0;" not in terminal.getvalue()
