# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A command that runs checks on the stacks of an image."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Iterator, List, Tuple

from volatility3.framework import interfaces

from ..findings.registry import Findings
from ..memory.image import AddressSpace
from ..stacklist.imagefacts import Totals
from ..stacklist.stack import StackRecord
from ..stacklist.traces import Portion
from .command import Command
from .divided import WorkerPortion


class CheckingCommand(Command[StackRecord, StackRecord]):
    """A command whose steps are the stacks that the checks have examined.

    Attributes:
        totals: counts of all stacks
    """

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self.totals = Totals()

    @cached_property
    def checks(self) -> Tuple[str, ...]:
        """The names of the checks; empty for all."""
        return ()

    @cached_property
    def findings(self) -> Findings:
        """Runs the checks, and has what they found."""
        return Findings(self.symbolizer, self.checks, self.pids, self.option("scan"))

    def steps(self) -> Iterator[StackRecord]:
        return self.findings.examine(self.totals)

    def space(self, step: StackRecord) -> AddressSpace:
        return step.space

    def divides(self) -> bool:
        return True

    def portions(self) -> List[WorkerPortion]:
        return [self._portion(portion) for portion in self.findings.portions(self.totals)]

    def _portion(self, portion: Portion) -> WorkerPortion:
        return WorkerPortion(
            f"Checking the stacks {portion.text}",
            f"the stacks {portion.text}",
            lambda: self.findings.examine_portion(portion, self.totals),
            lambda: self.standing_for(self.findings.lose(portion, self.totals)),
        )

    def take(self) -> Any:
        totals, self.totals = self.totals, Totals()
        return totals, self.findings.take(), super().take()

    def merge(self, counted: Any) -> None:
        totals, examined, others = counted
        super().merge(others)
        self.totals.add(totals)
        self.findings.merge(examined)

    def finish_portions(self) -> None:
        self.findings.finish()
