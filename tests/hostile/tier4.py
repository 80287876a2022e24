# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The amplifiers: what a plugin does on each, counted, and the seconds and megabytes that it takes."""

from __future__ import annotations

import functools
import logging
import pathlib
import tempfile
from typing import Any, Callable, List, Sequence, Set, Tuple

from tests.forge import context
from tests.support import work
from tests.support.work import Work
from winstacks.stacklist.imagefacts import LOGGERS

from . import forking, plugins
from .amplifiers import AMPLIFIERS
from .forking import Report, Violation
from .tier2 import MORE_MEGABYTES, MORE_SECONDS


class Amplified:
    """An opened image and the plugin that it aims at; `size` is the number of pages of its file."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self._made = AMPLIFIERS[name]
        image = self._made.build()
        self._opened = context.open_raw(image, folder)
        self.size = sum(path.stat().st_size for path in folder.iterdir()) // work.PAGE
        expected = f"windows.{self._made.plugin}"
        self._plugin = next(plugin for plugin in plugins.discover() if plugins.full_name(plugin) == expected)

    def count(self) -> Tuple[Work, Set[str], str]:
        """Returns what a run does, what its warnings and Status cells say, and what went wrong with it."""
        report = self._call(lambda: work.pages(lambda: work.calls(self._rows)))
        if report.error:
            return Work(0, 0, 0, 0), set(), report.error
        before, (((rows, messages), calls), pages) = report.value
        return Work(pages, calls, rows, (report.megabytes - before) * 1024), messages, ""

    def cost(self) -> Report:
        """Returns what a run costs, in megabytes beyond those that were taken before."""
        report = self._call(self._rows)
        return report if report.error else report._replace(megabytes=report.megabytes - report.value[0])

    def _call(self, function: Callable[[], Any]) -> Report:
        return forking.call(lambda: (forking.megabytes(), function()))

    def _rows(self) -> Tuple[int, Set[str]]:
        messages: Set[str] = set()
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: messages.add(record.getMessage())  # type: ignore[method-assign]
        for name in LOGGERS:
            logging.getLogger(name).addHandler(handler)
        grid = self._opened.construct(self._plugin, **self._made.options).run()
        place = [column.name for column in grid.columns].index("Status")
        count = 0
        for _, cells in grid._generator:
            count += 1
            messages.add(str(cells[place]))
        return count, messages


def parts(seed: str, numbers: Sequence[int]) -> List[Callable[[], List[Violation]]]:
    """Returns the runs as parts that may be made at the same time. There is nothing of chance in them."""
    names = list(AMPLIFIERS)
    return [functools.partial(_run, names[number], number) for number in numbers if number < len(names)]


def _run(name: str, number: int) -> List[Violation]:
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        report = Amplified(name, pathlib.Path(folder)).cost()
    found: List[Violation] = []
    if report.error:
        found.append(Violation(number, f"{name}: {report.error}"))
    if report.seconds > MORE_SECONDS:
        found.append(Violation(number, f"{name}: took {report.seconds:.1f} s", slow=True))
    if report.megabytes > MORE_MEGABYTES:
        found.append(Violation(number, f"{name}: took {report.megabytes:.0f} MB"))
    return found
