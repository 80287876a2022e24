# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of a plugin, apart from its declarations: one loop, which every command fills in.

A command goes in steps, usually the address spaces of an image. A step has items: stacks with their owners,
and gaps, which stand for stacks that cannot be read. An item has rows, and frames to which --find and
--unbacked apply.

    class Locks(Command[AddressSpace, Listed]):
        grid, things = GRID, "locks"

        def items(self, step): return self.lister.list_created(step)
        def frames(self, item): return self.frames_of(item.space).name_recorded(item.stack)
        def rows(self, item, frames): yield from self.printed.lock(item, frames)
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import operator
from functools import cached_property, partial
from typing import Any, Callable, Generic, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from volatility3.framework import exceptions, interfaces

from ..columns.commands import for_input
from ..memory.collector import paused_by_group
from ..memory.decode.status import status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.symbolizer import Symbolizer
from ..process.processlist import process_list
from ..process.spaces import AddressSpaces
from ..stacklist.container import file_length
from ..stacklist.frames import NamedFrame, NamedFrames, SpaceFrames
from ..stacklist.selection import Selection
from ..tracedb.gap import Gap
from . import plugin as plugins
from . import requested
from .divided import Divided, Log, WorkerPortion, workers_wanted
from .entries import EntryRows, ShownEntry
from .frames import FramePrinter
from .grid import Grid, Row
from .requested import UNREAD, RequestedIds, sentences

Step = TypeVar("Step")
Item = TypeVar("Item")

_OFTEN = 4096
_WORTH_A_FORK = 2
"""The least number of portions that are divided among workers."""
_AT_ONCE = 64
"""Number of items made before any is shown: few enough to stay in the processor's cache."""

NO_RECORDS = (
    "A small kernel dump has the kernel stack of one thread, and nothing that Windows recorded: "
    "minidump.info, callstacks, trapframes, traces, traceframes, traceimage, tracefindings, tracegraph and "
    "tracereport read it"
)
_ONLY_SELECTED = "; {} leaves out all other processes"
_DOUBTFUL = "{} more may match --find and --unbacked: they have unreadable frames, or frames without a name"


def _say_nothing(percent: float, text: Optional[str] = None) -> None:
    """Shows no progress: the first process shows the progress of all workers."""


class Command(Generic[Step, Item]):
    """The work of a plugin. A command fills in the methods from `steps` to `finish`. `plugin` is the plugin
    that runs; the loop needs its `config` and `_progress_callback` only.

    Attributes:
        key, unreadable: columns of entries, see EntryRows
        things: what the command lists, in plural
        nothing: warning for an empty result; may be empty
        to_enable: warning for an empty result that explains how to make Windows record what the command
            lists; not shown if the list of processes is damaged
        kernel: whether PID 0 selects the kernel
        recorded: whether the command lists what Windows recorded, which a small kernel dump lacks
        grouped: whether consecutive steps with one text are one step of the progress
        where_faults: the end of the warning about a dump that is faulty as a whole
        joins: whether workers send steps, whose items the first process joins, and not rows
        found: whether there is anything to show, before the options filter it
        matched: whether anything passes the options
        unread: whether something could not be read
    """

    grid: Grid
    key: Tuple[str, ...] = ()
    unreadable: Tuple[str, ...] = ("PID", "Process")
    things = nothing = to_enable = ""
    where_faults = " (see minidump.info)"
    kernel = True
    grouped = recorded = joins = False

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        plugins.begin(plugin)
        self.plugin = plugin
        self.config = plugin.config
        self.requested = RequestedIds(plugin.config, self.kernel)
        self.selection = Selection(plugin.config.get("find"), plugin.config.get("unbacked", False))
        self.found = self.matched = self.unread = False
        self.log = logging.getLogger(type(plugin).__module__)
        self._percent = 0.0
        self._open = contextlib.ExitStack()

    @cached_property
    def image(self) -> Image:
        """The image that the plugin runs on. Plugins for other kinds of input open it here. Raises
        RenderException if the machine is not supported, or the input cannot contain what the command
        lists."""
        image = requested.open_image(self.plugin, self.where_faults)
        if self.recorded and image.threads_only:
            raise exceptions.RenderException(NO_RECORDS)
        return image

    @cached_property
    def pids(self) -> Optional[Tuple[int, ...]]:
        """The IDs of the processes that --pid and --process select, 0 for the kernel; None for all."""
        return self.requested.processes(lambda: self.image)

    @cached_property
    def symbolizer(self) -> Symbolizer:
        """Names addresses; downloads symbols only with --fetch-symbols."""
        return Symbolizer(self.image, self.option("fetch_symbols"), self.plugin._progress_callback)

    @cached_property
    def named(self) -> NamedFrames:
        """The named frames of the image; each address is named once."""
        return NamedFrames(self.symbolizer)

    @cached_property
    def printer(self) -> FramePrinter:
        """Makes the cells of frames."""
        return FramePrinter(self.image.machine)

    def frames_of(self, space: AddressSpace) -> SpaceFrames:
        """Returns the namer of the frames of an address space."""
        return self.named.for_space(space)

    @cached_property
    def entries(self) -> EntryRows:
        """Makes the rows of entries."""
        return EntryRows(self.grid, self.printer, self.key, self.unreadable, self.option("fold"))

    def option(self, name: str) -> bool:
        return bool(self.config.get(name, False))

    # The methods that a command fills in.

    def steps(self) -> Iterable[Any]:
        """Returns the parts of the work, usually the address spaces that --pid and --process select."""
        return list(AddressSpaces.list_spaces(self.image, self.pids))

    def count(self, steps: Iterable[Step]) -> int:
        """Returns the number of steps, 0 if it is unknown until all are done."""
        return len(steps) if isinstance(steps, list) else 0

    def space(self, step: Any) -> AddressSpace:
        """Returns the address space to which a step belongs."""
        found: AddressSpace = step
        return found

    def describe(self, step: Step) -> str:
        """Returns the text that the progress shows for a step."""
        raise NotImplementedError

    def items(self, step: Step) -> Iterable[Union[Item, Gap]]:
        """Yields the items of a step, and gaps where items may be missing."""
        return ()

    def is_gap(self, item: Item) -> bool:
        """Returns whether an item stands for stacks that cannot be read; a Gap is not asked about."""
        return False

    def selects(self, item: Item) -> bool:
        """Returns whether an item passes the options that only this plugin has; gaps are not asked about."""
        return True

    def frames(self, item: Item) -> Optional[Sequence[NamedFrame]]:
        """Returns the frames of an item; None if --find and --unbacked do not apply to it."""
        return None

    def rows(self, item: Item, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        """Yields the rows of an item. `item` is an item that is no gap, or a gap that is shown."""
        return self.entries.rows(self.entry(item), frames)

    def entry(self, item: Item) -> ShownEntry:
        """Returns the entry of an item; a command that shows entries needs no `rows`."""
        raise NotImplementedError

    def finish(self) -> Iterator[Row]:
        """Yields the rows that follow all steps and the warnings."""
        return iter(())

    def run(self) -> interfaces.renderers.TreeGrid:
        """Returns the grid of the plugin's rows."""
        return plugins.tree(self.plugin, self.grid, self.generate())

    # Methods that a command adds if several processes may read the address spaces. The workers are forked,
    # and have what was made before.

    def divides(self) -> bool:
        """Returns whether the options let several processes do the steps: each alone, in any order."""
        return False

    def portions(self) -> Sequence[WorkerPortion]:
        """Returns the portions of the work: here the steps of each process."""
        found = []
        for _, members in itertools.groupby(self.steps(), self._group):
            steps = list(members)
            space = self.space(steps[0])
            lost = partial(self._shown, Gap(space, status(StatusCode.WORKER_ENDED)))
            whose = f"process {space.pid_text}"
            found.append(WorkerPortion(self.describe(steps[0]), whose, partial(iter, steps), lost))
        return found

    def take(self) -> Any:
        """Returns what was counted in a worker since the last call, and forgets it."""
        taken = (self.found, self.matched, self.unread), self.requested.take(), self.selection.take()
        self.found = self.matched = self.unread = False
        return (*taken, list(self.image.lacking))

    def merge(self, counted: Any) -> None:
        """Adds what a worker counted in the portion that follows."""
        flags, requested_ids, selected, lacking = counted
        self.found, self.matched, self.unread = map(
            operator.or_, flags, (self.found, self.matched, self.unread)
        )
        self.requested.merge(requested_ids)
        self.selection.merge(selected)
        self.image.lacking.update(dict.fromkeys(lacking))

    def standing_for(self, steps: Iterable[Any]) -> Iterable[Any]:
        """Returns what workers would have sent of steps that stand for the steps of an ended worker."""
        return steps if self.joins else self._rows_of_all(steps)

    def finish_portions(self) -> Iterable[Step]:
        """Does what follows the steps of all portions, and returns the steps that are left."""
        return ()

    # The loop.

    def generate(self) -> Iterator[Row]:
        """Returns all rows. At the end it logs the warnings that no row states.

        A listing may have millions of rows, so the parts are chained in C instead of in nested generators.
        """
        return itertools.chain.from_iterable(self._all_parts())

    def _all_parts(self) -> Iterator[Iterator[Row]]:
        with self._open:
            yield from self.image.possible(self._parts())
            yield from self._end()

    def _parts(self) -> Iterator[Iterator[Row]]:
        """Yields the rows of each step."""
        workers = 0
        if self.divides() and not self.option("fetch_symbols"):
            workers = workers_wanted(self.image, self.config.get("workers"))
        if workers:
            yield from self._divided_parts(workers)
        else:
            yield from map(self._rows_of, paused_by_group(self._progress(self.steps()), self._group))

    def _rows_of(self, step: Step) -> Iterator[Row]:
        """Returns the rows of a step. A member missing from the kernel's symbols ends the step."""
        # `map` lists the items when the first is requested: inside `possible`, which catches missing members.
        items = itertools.chain.from_iterable(map(self.items, (step,)))
        return self.image.possible(itertools.chain.from_iterable(map(self._shown, items)))

    def _divided_parts(self, workers: int) -> Iterator[Iterator[Row]]:
        """Yields the rows of all portions, which workers make."""
        portions = self.portions()
        if len(portions) < _WORTH_A_FORK:
            for portion in portions:
                yield self._rows_of_all(portion.steps())
            yield self._rows_of_all(self.finish_portions())
            return

        def progress(place: int) -> None:
            self._percent = 100.0 * place / len(portions)
            text = f"{portions[place].text} ({place + 1} of {len(portions)})"
            self.plugin._progress_callback(self._percent, text)

        rows: Callable[[Iterable[Any]], Iterable[Any]] = iter if self.joins else self._rows_of_all
        divided = Divided(self.image, self._become_worker, rows, self.take, self.merge)
        # This process does not repeat the messages of the workers until its last row.
        log = self._open.enter_context(Log())
        for part in divided.parts(portions, workers, log, progress):
            yield self._rows_of_all(part) if self.joins else iter(part)
        yield self._rows_of_all(self.finish_portions())

    def _rows_of_all(self, steps: Iterable[Step]) -> Iterator[Row]:
        return itertools.chain.from_iterable(map(self._rows_of, self.image.possible(steps)))

    def _become_worker(self) -> None:
        self.plugin._progress_callback = _say_nothing

    def _end(self) -> Iterator[Iterator[Row]]:
        self.unread = self.unread or bool(self.image.lacking)
        self.image.service(file_length)
        for answer in self._answers():
            self.log.warning(answer)
        yield self.finish()

    def _group(self, step: Step) -> object:
        return self.space(step).eprocess

    def _shown(self, item: Union[Item, Gap]) -> Iterator[Row]:
        """Returns the rows of an item, and records that it was found."""
        if isinstance(item, Gap) or self.is_gap(item):
            self.unread = True
            if not self.selection.takes_gap():
                return iter(())
            if isinstance(item, Gap):
                return self.entries.rows(ShownEntry(item.space, item.status, item.cells))
            return self.rows(item, ())
        frames: Optional[Sequence[NamedFrame]] = None
        if self.selects(item):
            frames = self.frames(item)
            if frames is None:
                self.found = True
                return self.rows(item, ())
            if self.selection.takes(frames):
                self.found = self.matched = True
                return self.rows(item, frames)
        # --find and --unbacked do not leave out an item without frames.
        self.found = self.found or frames is None or bool(frames)
        return iter(())

    def mark_found(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Returns rows unchanged, and records that something passed the options if there are any."""
        for row in rows:
            self.matched = True
            return itertools.chain((row,), rows)
        return iter(())

    def with_progress(self, items: Iterable[Any], text: str) -> Iterator[Any]:
        """Yields items unchanged, and reports a text to Volatility's progress callback for every 4096th item.

        A database has a hundred thousand traces, so that no Python step is spent on each.
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
        """Yields steps, and reports the current step to Volatility's progress callback.

        The callback gets the text of a step if it differs from the previous text, for every 4096th step, and
        for each step if the number of steps is known.
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
        """Returns the warnings: each ID that does not exist, and why nothing is shown."""
        lost = self.requested.missing(lambda: self.image)
        answers = [*sentences(lost), *self.requested.unnamed()]
        answers += self._why_nothing(self.requested.all_missing(lost))
        if self.selection.doubtful:
            answers.append(_DOUBTFUL.format(self.selection.doubtful))
        return [answer for answer in answers if answer]

    def _why_nothing(self, all_missing: bool) -> Iterator[str]:
        wider = self.selection.wider
        if self.matched:
            if self.selection.widened:
                yield f"--find '{self.selection.find}' has no '!': it was also tried as '{wider}'"
        elif all_missing:
            return
        elif self.found:
            yield self.requested.nothing_passes(self.things, wider, self.selection.nearest())
        elif self.unread:
            yield UNREAD
        else:
            yield for_input(self.nothing, requested.input_kind(self.plugin))
            if self.to_enable and not self.image.service(process_list).status:
                yield for_input(self.to_enable, requested.input_kind(self.plugin)) + (
                    _ONLY_SELECTED.format("--pid" if self.requested.requested_ids("pid") else "--process")
                    if self.pids is not None
                    else ""
                )
