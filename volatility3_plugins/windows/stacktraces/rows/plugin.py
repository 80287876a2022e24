# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What plugins do while they run: report progress, warn when there is nothing to show, write files.

No class here derives from `PluginInterface`: Volatility would list each such class as a plugin.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import types
from typing import Callable, Iterable, Iterator, Optional, Sequence, Type, TypeVar

from volatility3.framework import interfaces

from ..base.tables import MissingTableError
from . import brief
from .grid import Grid, Row

vollog = logging.getLogger(__name__)

DISABLED = "Disabled"
"""What `File output` says when no file was asked for. Volatility's own plugins use this word."""
FAILED = "Error outputting file"

_OFTEN = 4096

Item = TypeVar("Item")


class Listing:
    """Surrounds the body of a plugin's generator, and says to the user what no row says.

        with Listing(self, "There is nothing") as listing:
            for thing in listing.each(things, describe):
                listing.found = True
                yield ...

    If one of our symbol tables is missing, the listing stops and the plugin's log gets an error. If the
    listing reaches its end and nothing was found, the log gets a warning.

    Args:
        plugin: the plugin that runs
        nothing: the warning when nothing was found; empty for no warning

    Attributes:
        found: whether there is anything to show, even if the user's options leave all of it out
        nothing: as given
    """

    def __init__(self, plugin: interfaces.plugins.PluginInterface, nothing: str = "") -> None:
        self.found = False
        self.nothing = nothing
        self._plugin = plugin
        self._log = logging.getLogger(type(plugin).__module__)

    def __enter__(self) -> Listing:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> bool:
        if isinstance(error, MissingTableError):
            self._log.error(error)
            return True
        if error is None and self.nothing and not self.found:
            self._log.warning(self.nothing)
        return False

    def each(self, items: Iterable[Item], describe: Callable[[Item], str]) -> Iterator[Item]:
        """Yields items unchanged, and tells Volatility's progress callback what is being worked on.

        Args:
            items: the items
            describe: returns the text for an item. The callback gets it when it differs from the text before,
                and for every 4096th item
        """
        before = ""
        for count, item in enumerate(items):
            now = describe(item)
            if now != before or not count % _OFTEN:
                self._plugin._progress_callback(0, now)
                before = now
            yield item


def tree(
    plugin: interfaces.plugins.PluginInterface, grid: Grid, rows: Iterator[Row], kept: Sequence[str] = ()
) -> interfaces.renderers.TreeGrid:
    """Returns the grid that a plugin's `run` returns: all columns, or those that --brief leaves.

    Args:
        plugin: the plugin that runs
        grid: its columns
        rows: its rows
        kept: the columns that --brief leaves, if they are not those of the grid
    """
    if not plugin.config.get("brief", False):
        return grid.tree(rows)
    stack = {"Symbol": "Stack"} if plugin.config.get("fold", False) else {}
    return brief.tree(grid.names, [stack.get(name, name) for name in kept or grid.brief], rows)


def write_file(plugin: interfaces.plugins.PluginInterface, name: str, pieces: Iterable[bytes]) -> str:
    """Writes a file where the user wants files to go.

    Returns:
        The cell for `File output`: the file's name, or that it cannot be written (the log says why).
    """
    safe_name = plugin.open.sanitize_filename(name)
    try:
        with plugin.open(safe_name) as file:
            for piece in pieces:
                file.write(piece)
            return str(file.preferred_filename)
    except OSError as error:
        vollog.error(f"{safe_name} cannot be written: {error}")
        return FAILED


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keeps Python's collector of cycles from running, and lets it run again at the end if it did before.

    Volatility's grids keep every row. The collector goes through all of them again and again and finds
    nothing, for rows have no cycles: of a hundred thousand rows that takes a quarter of the time. What has no
    cycles is freed as ever. Use it only around what makes many rows and no cycles.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
