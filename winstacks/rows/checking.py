# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A command that runs checks on the stacks of an image."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Iterable, Iterator, Tuple

from ..findings.registry import Findings
from ..stacklist.stack import StackRecord
from ..stacklist.traces import Portion, ThreadWatch, unwatched
from .stackcommand import StackCommand


class CheckingCommand(StackCommand):
    """A command whose steps are the stacks that the checks have examined."""

    doing = "Checking the stacks"

    @cached_property
    def checks(self) -> Tuple[str, ...]:
        """The names of the checks; empty for all."""
        return ()

    @cached_property
    def findings(self) -> Findings:
        """Runs the checks, and has what they found."""
        names = self.config.get("process") or ()
        checks = self.checks or None
        return Findings(self.symbolizer, checks, self.pids, self.option("scan"), self.watch, names)

    @property
    def watch(self) -> ThreadWatch:
        """Called for each thread whose stacks the checks need."""
        return unwatched

    def steps(self) -> Iterator[StackRecord]:
        return self.findings.examine(self.totals)

    def divides(self) -> bool:
        return True

    def listed(self) -> Iterable[Portion]:
        return self.findings.portions(self.totals)

    def read(self, portion: Portion) -> Iterator[StackRecord]:
        return self.findings.examine_portion(portion, self.totals)

    def lost(self, portion: Portion) -> Iterator[StackRecord]:
        return self.findings.lose(portion, self.totals)

    def take(self) -> Any:
        return self.findings.take(), super().take()

    def merge(self, counted: Any) -> None:
        examined, others = counted
        super().merge(others)
        self.findings.merge(examined)

    def finish_portions(self) -> Iterable[StackRecord]:
        self.findings.finish()
        return ()
