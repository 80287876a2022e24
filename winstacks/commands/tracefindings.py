# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracefindings`."""

from __future__ import annotations

from functools import cached_property
from typing import Iterator, Tuple

from volatility3.framework import interfaces

from ..options import CHECKS
from ..rows import findings as rows
from ..rows.checking import CheckingCommand
from ..rows.grid import Row


class TraceFindings(CheckingCommand):
    """The work of `windows.tracefindings`."""

    grid = rows.FINDINGS

    @cached_property
    def checks(self) -> Tuple[str, ...]:
        return rows.chosen(self.plugin, "check", CHECKS)

    @cached_property
    def _severities(self) -> Tuple[str, ...]:
        return rows.severities(self.plugin)

    def finish(self) -> Iterator[Row]:
        found = self.findings.found()
        yield from rows.nothing_found(self.image, found, self._severities, self.findings.examined)
        if self.option("summary"):
            yield from rows.summary(self.image, found, self._severities)
        in_short = bool(self.option("brief")) and not self.option("unchecked")
        yield from rows.rows(self.image, found, self._severities, in_short)

    def run(self) -> interfaces.renderers.TreeGrid:
        check = self.config.get("explain")
        if check is not None:
            return rows.explained(check, self.plugin)
        # An unknown word ends the command before any row.
        _ = self.checks, self._severities
        return super().run()
