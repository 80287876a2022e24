# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a plugin does, apart from what it declares: one loop, which every command fills in.

A command goes in steps, as a rule the address spaces of an image. A step has items: stacks with their owners,
and gaps, which stand for stacks that cannot be read. An item has frames, by which --find and --unbacked judge
it, and rows.

    class Locks(Command[AddressSpace, Listed]):
        grid, things = GRID, "locks"

        def items(self, step): return self.lister.list_created(step)
        def frames(self, item): return self.frames_of(item.space).recorded(item.stack)
        def rows(self, item, frames): yield from self.printed.lock(item, frames)
"""

from __future__ import annotations

import itertools
import logging
from functools import cached_property
from typing import Any, Generic, Iterable, Iterator, List, Optional, Sequence, TypeVar

from volatility3.framework import exceptions, interfaces

from ..flat.container import file_length
from ..flat.frames import NamedFrame, NamedFrames, SpaceFrames
from ..flat.selection import Selection
from ..memory.collector import paused_by_group
from ..memory.image import AddressSpace, Image
from ..names.symbolizer import Symbolizer
from ..process.processlist import ProcessList
from ..process.spaces import AddressSpaces
from ..tracedb.finder import Databases
from . import plugin as plugins
from . import requested
from .frames import FramePrinter, StackRows
from .grid import Grid, Row
from .requested import UNREAD, Asked, sentences

Step = TypeVar("Step")
Item = TypeVar("Item")

_OFTEN = 4096
_AT_ONCE = 64
"""Items that are made before any is shown: so few that they are still in the cache of the processor."""

NO_RECORDS = (
    "A small kernel dump has the kernel stack of one thread, and nothing that Windows recorded: "
    "minidump.info, callstacks, trapframes, traces, traceframes, traceimage and tracefindings read it"
)
_DOUBTFUL = (
    "{} more may be what --find and --unbacked ask for: they have frames that cannot be read, or no names"
)


class Command(Generic[Step, Item]):
    """The work of a plugin. The methods from `steps` to `finish` are what a command fills in.

    Args:
        plugin: the plugin that runs: its `config`, and its `_progress_callback`, are all that the loop needs

    Attributes:
        grid: the columns
        things: what the command lists, in plural
        nothing: the warning when nothing was found; may be empty
        to_enable: the same, where it says how Windows is made to keep what the command lists: it is no answer
            where the list of processes is damaged
        kernel: whether the command takes PID 0 for the kernel
        recorded: whether the command lists what Windows recorded, which a small kernel dump has not
        grouped: whether steps of one text are one step of the progress
        config: the values of the plugin's options
        asked: the IDs that the options ask for
        selection: what --find and --unbacked ask for
        found: whether there is anything to show, even if the options leave all of it out
        matched: whether the options leave any of it
        unread: whether something could not be read
    """

    grid: Grid
    things = nothing = to_enable = ""
    kernel = True
    grouped = recorded = False

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        self.plugin = plugin
        self.config = plugin.config
        self.asked = Asked(plugin.config, self.kernel)
        self.selection = Selection(plugin.config.get("find"), plugin.config.get("unbacked", False))
        self.found = self.matched = self.unread = False
        self.log = logging.getLogger(type(plugin).__module__)
        self._percent = 0.0

    @cached_property
    def image(self) -> Image:
        """The image that the plugin runs on. The plugin of another kind of input opens that here.

        Raises:
            RenderException: its machine is not supported, or it can have nothing that the command lists
        """
        image = requested.image(self.plugin)
        if self.recorded and image.threads_only:
            raise exceptions.RenderException(NO_RECORDS)
        return image

    @cached_property
    def symbolizer(self) -> Symbolizer:
        """What names addresses; it downloads only with --fetch-symbols."""
        return Symbolizer(self.image, self.option("fetch_symbols"), self.plugin._progress_callback)

    @cached_property
    def databases(self) -> Databases:
        """What finds the stack trace databases."""
        return Databases(self.image, self.symbolizer.indexes)

    @cached_property
    def named(self) -> NamedFrames:
        """The frames of the image, each address named once."""
        return NamedFrames(self.symbolizer)

    @cached_property
    def printer(self) -> FramePrinter:
        """What makes the cells of frames."""
        return FramePrinter(self.image.machine)

    def frames_of(self, space: AddressSpace) -> SpaceFrames:
        """Returns what names the frames of an address space."""
        return self.named.of(space)

    def stack_rows(self, key: Sequence[str], columns: Sequence[str]) -> StackRows:
        """Returns what makes the rows of stacks; see there."""
        return StackRows(self.grid, self.printer, key, columns, self.option("fold"))

    def option(self, name: str) -> bool:
        """Returns whether a switch is given."""
        return bool(self.config.get(name, False))

    # What a command fills in.

    def steps(self) -> Iterable[Any]:
        """Returns the parts of the work: as a rule the address spaces that --pid asks for."""
        return list(AddressSpaces.list_spaces(self.image, self.config.get("pid")))

    def count(self, steps: Iterable[Step]) -> int:
        """Returns how many steps there are, 0 if that is not known before all are done."""
        return len(steps) if isinstance(steps, list) else 0

    def space(self, step: Any) -> AddressSpace:
        """Returns the address space to which a step belongs."""
        found: AddressSpace = step
        return found

    def describe(self, step: Step) -> str:
        """Returns what is told of a step while it is worked on."""
        raise NotImplementedError

    def items(self, step: Step) -> Iterable[Item]:
        """Yields what there is in a step."""
        return ()

    def is_gap(self, item: Item) -> bool:
        """Returns whether an item stands for stacks that cannot be read."""
        return False

    def wanted(self, item: Item) -> bool:
        """Returns whether the options that only this plugin has let an item through, which is no gap."""
        return True

    def frames(self, item: Item) -> Optional[Sequence[NamedFrame]]:
        """Returns the frames of an item. None: --find and --unbacked do not judge it by any."""
        return None

    def rows(self, item: Item, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        """Yields the rows of an item.

        Args:
            item: no gap, or one that is to be shown
            frames: those of the item
        """
        return iter(())

    def finish(self) -> Iterator[Row]:
        """Yields the rows that come when all steps are done, behind the warnings."""
        return iter(())

    def run(self) -> interfaces.renderers.TreeGrid:
        """Returns the grid of the plugin's rows."""
        return plugins.tree(self.plugin, self.grid, self.generate())

    # The loop.

    def generate(self) -> Iterator[Row]:
        """Returns all rows. At the end the log says what no row says.

        A listing may have millions of rows: the parts are chained in C, not by a generator within another.
        """
        parts = itertools.chain(self.image.possible(self._parts()), self._end())
        return itertools.chain.from_iterable(parts)

    def _parts(self) -> Iterator[Iterator[Row]]:
        """Yields the rows of each step. What the kernel's symbols lack costs the rest of the step."""
        for step in paused_by_group(self._progress(self.steps()), self._group):
            # `map`: the items are listed when the first is asked for, where `possible` sees what is lacking.
            items = itertools.chain.from_iterable(map(self.items, (step,)))
            yield self.image.possible(itertools.chain.from_iterable(map(self._shown, items)))

    def _end(self) -> Iterator[Iterator[Row]]:
        self.unread = self.unread or bool(self.image.lacking)
        self.image.service(file_length)
        for answer in self._answers():
            self.log.warning(answer)
        yield self.finish()

    def _group(self, step: Step) -> object:
        return self.space(step).eprocess

    def _shown(self, item: Item) -> Iterator[Row]:
        """Returns the rows of an item, and takes note of what it is."""
        if self.is_gap(item):
            self.unread = True
            return self.rows(item, ()) if self.selection.takes_gap() else iter(())
        frames: Optional[Sequence[NamedFrame]] = None
        if self.wanted(item):
            frames = self.frames(item)
            if frames is None:
                self.found = True
                return self.rows(item, ())
            if self.selection.takes(frames):
                self.found = self.matched = True
                return self.rows(item, frames)
        # A stack without frames is nothing that --find or --unbacked could pass over.
        self.found = self.found or frames is None or bool(frames)
        return iter(())

    def noting(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Returns rows unchanged, and takes note that the options leave some if there are any."""
        for row in rows:
            self.matched = True
            return itertools.chain((row,), rows)
        return iter(())

    def many(self, items: Iterable[Any], text: str) -> Iterator[Any]:
        """Yields items unchanged, and tells Volatility's progress callback a text for every 4096th item.

        A database has a hundred thousand traces: here each costs no step of Python.
        """
        items = iter(items)
        for count in itertools.count():
            some = tuple(itertools.islice(items, _AT_ONCE))
            if not some:
                return
            if not count % (_OFTEN // _AT_ONCE):
                self.plugin._progress_callback(self._percent, text)
            yield from some

    def _progress(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yields steps, and tells Volatility's progress callback what is being worked on.

        The callback gets the text of a step when that differs from the text before, for every 4096th step,
        and for each step where it is known how many there are.
        """
        total = self.count(steps)
        before, groups = "", 0
        for count, step in enumerate(steps):
            now = self.describe(step)
            changed = now != before
            groups += changed
            if changed or (total and not self.grouped) or not count % _OFTEN:
                place = groups - 1 if self.grouped else count
                if total:
                    self._percent = 100.0 * min(place, total) / total
                self.plugin._progress_callback(
                    self._percent, f"{now} ({min(place + 1, total)} of {total})" if total else now
                )
                before = now
            yield step

    def _answers(self) -> List[str]:
        """Returns the warnings: each ID that was asked for and is not there, and why nothing is shown."""
        lost = self.asked.lost(lambda: self.image)
        answers = [*sentences(lost), *self._why_nothing(self.asked.in_vain(lost))]
        if self.selection.doubtful:
            answers.append(_DOUBTFUL.format(self.selection.doubtful))
        return [each for each in answers if each]

    def _why_nothing(self, in_vain: bool) -> Iterator[str]:
        wider = self.selection.wider
        if self.matched:
            if self.selection.widened:
                yield f"--find '{self.selection.find}' has no '!': it was taken as '{wider}' too"
        elif in_vain:
            return
        elif self.found:
            yield self.asked.nothing_passes(self.things, wider)
        elif self.unread:
            yield UNREAD
        else:
            yield self.nothing
            if self.to_enable and not self.image.service(ProcessList).status:
                yield self.to_enable
