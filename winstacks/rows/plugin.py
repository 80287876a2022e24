# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What plugins do while they run: report progress, warn when there is nothing to show, write files.

No class here derives from `PluginInterface`: Volatility would list each such class as a plugin.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import tempfile
import types
from typing import Callable, Iterable, Iterator, Optional, Sequence, Type, TypeVar

from volatility3.framework import exceptions, interfaces

from ..memory.image import Image
from ..process.processlist import ProcessList
from . import brief, requested
from .command import Command
from .frames import Selection
from .grid import Grid, Row
from .requested import UNREAD, Asked, sentences

vollog = logging.getLogger(__name__)

DISABLED = "Disabled"
"""What `File output` says when no file was asked for. Volatility's own plugins use this word."""
FAILED = "Error outputting file"

_OFTEN = 4096
_AT_ONCE = 64
"""Items that are made before any is shown: so few that they are still in the cache of the processor."""


_DOUBTFUL = (
    "{} more may be what --find and --unbacked ask for: they have frames that cannot be read, or no names"
)

Item = TypeVar("Item")


class Listing:
    """Surrounds the body of a plugin's generator, and says to the user what no row says.

        with Listing(self, "There is nothing", "things") as listing:
            for thing in listing.each(things, describe):
                listing.found = True
                if listing.selection.takes(frames):
                    listing.matched = True
                    yield ...

    If the listing reaches its end, the log gets a warning for each ID that was asked for and is not there,
    and one that says why there is nothing to show.

    Args:
        command: the command of the plugin that runs
        nothing: the warning when nothing was found, as a rule how Windows is made to keep it; may be empty
        things: what the plugin lists, in plural
        kernel: whether the plugin takes PID 0 for the kernel or the processors

    Attributes:
        found: whether there is anything to show, even if the user's options leave all of it out
        matched: whether the options leave any of it
        unread: whether something could not be read
        nothing: as given
        asked: the IDs that the user asks for
        selection: what --find and --unbacked ask for. If they left out what could not be judged, the log gets
            a warning that says how many
    """

    def __init__(
        self,
        command: Command,
        nothing: str = "",
        things: str = "",
        kernel: bool = True,
    ) -> None:
        self.found = self.matched = self.unread = False
        self.nothing = nothing
        config = command.config
        self.asked = Asked(config, kernel)
        self.selection = Selection(config.get("find"), config.get("unbacked", False))
        self._things = things
        self._command = command
        self._plugin = command.plugin
        self._log = logging.getLogger(type(command.plugin).__module__)
        self._percent = 0.0

    def __enter__(self) -> Listing:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        if error is None:
            for answer in self._answers():
                self._log.warning(answer)
            if self.selection.doubtful:
                self._log.warning(_DOUBTFUL.format(self.selection.doubtful))

    def each(
        self, items: Iterable[Item], describe: Callable[[Item], str], total: int = 0, grouped: bool = False
    ) -> Iterator[Item]:
        """Yields items unchanged, and tells Volatility's progress callback what is being worked on.

        Args:
            items: the items
            describe: returns the text for an item. The callback gets it when it differs from the text before,
                for every 4096th item, and for each item where `total` counts items
            total: how many items there are, or with `grouped` how many different texts; 0 if that is unknown
            grouped: whether items with the same text are one step of the progress
        """
        before, groups = "", 0
        for count, item in enumerate(items):
            now = describe(item)
            changed = now != before
            groups += changed
            if changed or (total and not grouped) or not count % _OFTEN:
                place = groups - 1 if grouped else count
                if total:
                    self._percent = 100.0 * min(place, total) / total
                self._plugin._progress_callback(
                    self._percent, f"{now} ({min(place + 1, total)} of {total})" if total else now
                )
                before = now
            yield item

    def many(self, items: Iterable[Item], text: str) -> Iterator[Item]:
        """Yields items unchanged, and tells Volatility's progress callback a text for every 4096th item.

        A database has a hundred thousand traces: here each costs no step of Python.
        """
        items = iter(items)
        for count in itertools.count():
            some = tuple(itertools.islice(items, _AT_ONCE))
            if not some:
                return
            if not count % (_OFTEN // _AT_ONCE):
                self._plugin._progress_callback(self._percent, text)
            yield from some

    def noting(self, rows: Iterator[Item]) -> Iterator[Item]:
        """Returns rows unchanged, and takes note that there are any."""
        for row in rows:
            self.matched = True
            return itertools.chain((row,), rows)
        return iter(())

    def _answers(self) -> Iterator[str]:
        lost = self.asked.lost(lambda: self._command.image)
        yield from sentences(lost)
        wider = self.selection.wider
        if self.matched:
            if self.selection.widened:
                yield f"--find '{self.selection.find}' has no '!': it was taken as '{wider}' too"
        elif self.asked.in_vain(lost):
            return
        elif self.found:
            answer = self.asked.nothing_passes(self._things, wider)
            if answer:
                yield answer
        elif self.unread:
            yield UNREAD
        elif self.nothing:
            yield self.nothing


def tree(
    plugin: interfaces.plugins.PluginInterface, grid: Grid, rows: Iterator[Row], kept: Sequence[str] = ()
) -> interfaces.renderers.TreeGrid:
    """Returns the grid that a plugin's `run` returns: all columns, or those that --brief leaves.

    Args:
        plugin: the plugin that runs
        grid: its columns
        rows: its rows
        kept: the columns that --brief leaves, if they are not those of the grid

    Raises:
        RenderException: an option has a value that means nothing, one of our symbol tables is missing, or no
            file can be written: no row would be what was asked for. Volatility prints what it says, and ends
            with 1
    """
    requested.check(plugin)
    requested.check_tables(plugin)
    if plugin.config.get("dump", False):
        check_folder(plugin)
    if not plugin.config.get("brief", False):
        return grid.tree(rows)
    stack = {"Symbol": "Stack"} if plugin.config.get("fold", False) else {}
    return brief.tree(grid.names, [stack.get(name, name) for name in kept or grid.brief], rows)


def advice(image: Image, text: str) -> str:
    """Returns a warning that tells what to enable; none where the list of processes is damaged."""
    return "" if image.service(ProcessList).status else text


class OutputFile:
    """A file where the user wants files to go. If it cannot be written, the log says why.

    Args:
        plugin: the plugin that runs
        name: what it is to be called; Volatility adds a number to a name that is taken
    """

    def __init__(self, plugin: interfaces.plugins.PluginInterface, name: str) -> None:
        self._name = plugin.open.sanitize_filename(name)
        self._file: Optional[interfaces.plugins.FileHandlerInterface] = None
        with self._reporting():
            self._file = plugin.open(self._name)

    def write(self, data: bytes) -> bool:
        """Writes data; returns whether that could be done, with all data before."""
        if self._file is not None:
            with self._reporting():
                self._file.write(data)
        return self._file is not None

    def close(self) -> str:
        """Closes the file.

        Returns:
            The cell for `File output`: the name that the file got, or that it cannot be written.
        """
        named = FAILED
        if self._file is not None:
            with self._reporting():
                # The name is free until the file is closed. Only the command line's files have this method.
                final = getattr(self._file, "_get_final_filename", None)
                named = str(self._file.preferred_filename) if final is None else os.path.basename(final())
                self._file.close()
        return FAILED if self._file is None else named

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            vollog.error(f"{self._name} cannot be written: {error}")
            broken, self._file = self._file, None
            with contextlib.suppress(OSError):
                if broken is not None:
                    broken.close()


def write_file(plugin: interfaces.plugins.PluginInterface, name: str, pieces: Iterable[bytes]) -> str:
    """Writes a file where the user wants files to go.

    Returns:
        The cell for `File output`: the name that the file got, or that it cannot be written.
    """
    file = OutputFile(plugin, name)
    for piece in pieces:
        if not file.write(piece):
            break
    return file.close()


def check_folder(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException when no file can be made where the user wants files to go."""
    # Only the command line's files have this method; it needs nothing of a file but its name.
    final = getattr(plugin.open, "_get_final_filename", None)
    if final is None:
        return
    folder = ""
    try:
        folder = os.path.dirname(final(types.SimpleNamespace(preferred_filename="file")))
        with tempfile.TemporaryFile(dir=folder or os.curdir):
            return
    except OSError as error:
        raise exceptions.RenderException(f"No file can be written to '{folder}': {error.strerror}") from error


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keeps Python's collector of cycles from running, and lets it run again at the end if it did before.

    Grids keep every row. The collector goes through all of them again and again and finds nothing to free: of
    a hundred thousand rows that takes a quarter of the time. What no cycle holds is freed as ever, and what
    was made meanwhile counts as old afterwards, without being looked at. Use it around what makes many rows
    and few cycles.
    """
    if not gc.isenabled():
        yield
        return
    # The circles that were made before this are young: they would be old afterwards.
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        # This moves all that is young to what is old. What somebody has frozen for good would be moved, too.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
