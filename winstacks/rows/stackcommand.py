# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A command that goes through all stacks of an image."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, Iterable, Iterator, List

from volatility3.framework import interfaces

from ..columns.words import KINDS
from ..memory.image import AddressSpace
from ..stacklist.imagefacts import Totals
from ..stacklist.stack import StackFilter, StackRecord
from ..stacklist.traces import Portion, StackCollector
from . import requested
from .command import Command
from .divided import WorkerPortion


class StackCommand(Command[StackRecord, StackRecord]):
    """A command whose steps are stacks, which it counts.

    Attributes:
        totals: counts of all stacks, including those that --find and --unbacked leave out
        doing: what the progress says about the stacks
    """

    doing = "Reading the stacks"

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self.totals = Totals()

    def space(self, step: StackRecord) -> AddressSpace:
        return step.space

    def describe(self, step: StackRecord) -> str:
        return f"{self.doing} of kind {step.kind} of process {step.space.pid_text}"

    @cached_property
    def stacks_wanted(self) -> StackFilter:
        """The filter of stacks that the options describe. Raises RenderException if --kinds names a kind that
        does not exist."""
        kinds = self.config.get("kinds") or None
        requested.check_words("kinds", kinds or (), KINDS)
        return StackFilter(
            kinds,
            self.pids,
            self.config.get("tid") or None,
            carve=self.option("carve"),
            scan_stacks=self.option("scan_stacks"),
            scan_threads=self.option("scan_threads"),
            processors=self.option("processors"),
        )

    @cached_property
    def _collector(self) -> StackCollector:
        return StackCollector(self.symbolizer, self.named)

    def steps(self) -> Iterator[StackRecord]:
        return self._collector.list_stacks(self.stacks_wanted, self.totals)

    def listed(self) -> Iterable[Portion]:
        """Returns the portions in which the stacks can be read."""
        return self._collector.portions(self.stacks_wanted, self.totals)

    def read(self, portion: Portion) -> Iterator[StackRecord]:
        return self._collector.stacks_of(portion, self.stacks_wanted, self.totals)

    def lost(self, portion: Portion) -> Iterator[StackRecord]:
        """Yields what stands for a portion that was not read to its end."""
        return self._collector.lost(portion, self.stacks_wanted, self.totals)

    def portions(self) -> List[WorkerPortion]:
        return [
            WorkerPortion(
                f"{self.doing} {portion.text}",
                f"the stacks {portion.text}",
                partial(self.read, portion),
                partial(self._lost, portion),
            )
            for portion in self.listed()
        ]

    def _lost(self, portion: Portion) -> Iterable[Any]:
        return self.standing_for(self.lost(portion))

    def take(self) -> Any:
        totals, self.totals = self.totals, Totals()
        return totals, super().take()

    def merge(self, counted: Any) -> None:
        totals, others = counted
        super().merge(others)
        self.totals.add(totals)
