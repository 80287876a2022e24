# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What plugins do while they run: report progress, warn when there is nothing to show, write files.

No class here derives from `PluginInterface`: Volatility would list each such class as a plugin.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import types
from typing import Callable, Iterable, Iterator, Optional, Type, TypeVar

from volatility3.framework import interfaces

from ..base.image import Image
from ..base.processlist import ProcessList
from ..base.tables import MissingTableError
from .frames import Selection

vollog = logging.getLogger(__name__)

DISABLED = "Disabled"
"""What `File output` says when no file was asked for. Volatility's own plugins use this word."""
FAILED = "Error outputting file"

_OFTEN = 4096

_DOUBTFUL = (
    "{} more may be what --find and --unbacked ask for: they have frames that cannot be read, or no names"
)

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
        selection: what the plugin's --find and --unbacked ask for. If they left out what could not be
            judged, the log gets a warning that says how many
    """

    def __init__(self, plugin: interfaces.plugins.PluginInterface, nothing: str = "") -> None:
        self.found = False
        self.nothing = nothing
        self.selection = Selection(plugin.config.get("find"), plugin.config.get("unbacked", False))
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
        if error is None and self.selection.doubtful:
            self._log.warning(_DOUBTFUL.format(self.selection.doubtful))
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


def advice(image: Image, text: str) -> str:
    """Returns a warning that tells what to enable; none where the list of processes is damaged."""
    return "" if image.part(ProcessList).status else text


def write_file(plugin: interfaces.plugins.PluginInterface, name: str, pieces: Iterable[bytes]) -> str:
    """Writes a file where the user wants files to go.

    Returns:
        The cell for `File output`: the name that the file got (Volatility adds a number to one that is
        taken), or that it cannot be written (the log says why).
    """
    safe_name = plugin.open.sanitize_filename(name)
    try:
        with plugin.open(safe_name) as file:
            for piece in pieces:
                file.write(piece)
            # The name is free until the file is closed. Only the command line's files have this method.
            final = getattr(file, "_get_final_filename", None)
            return os.path.basename(final()) if final is not None else str(file.preferred_filename)
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
