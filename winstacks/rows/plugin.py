# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grids that plugins return, and the files that they write.

No class here derives from `PluginInterface`: Volatility would list each such class as a plugin.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from typing import Any, Iterable, Iterator, Optional, Sequence

from volatility3.framework import exceptions, interfaces

from ..checkedoptions import FINAL_NAME, output_folder, output_folder_error
from ..columns.tables import BRIEF_WITH, FLAT, brief_columns, column_named
from . import requested
from .exitcode import end_without_reader, fail_at_exit, keep_exit_code, report_lost_output
from .grid import Columns, Grid, Row, grid_of

vollog = logging.getLogger(__name__)

DISABLED = "Disabled"
"""The cell `File output` if no file was requested. Volatility's own plugins use this word."""
FAILED = "Error outputting file"

_ASKING = ("brief", "fold", *(option for ways in BRIEF_WITH.values() for option in ways))
"""Options that choose the columns of --brief."""


def begin(plugin: interfaces.plugins.PluginInterface) -> None:
    """Prepares the process for a plugin that the command line runs; does nothing in other programs. Raises
    RenderException if standard output cannot be written."""
    if _of_command_line(getattr(plugin, "open", None)):
        end_without_reader()
        # Handlers run in reverse order at the exit: the one for the output may write a message.
        keep_exit_code()
        report_lost_output()


def _of_command_line(handler: Any) -> bool:
    """Returns whether files are made by Volatility's command line: only its files have this method."""
    return hasattr(handler, FINAL_NAME)


def tree(
    plugin: interfaces.plugins.PluginInterface, grid: Grid, rows: Iterator[Row], tables: bool = True
) -> interfaces.renderers.TreeGrid:
    """Returns the grid that a plugin's `run` returns: all columns, or the columns of --columns or --brief.
    `tables` says whether the rows need this project's symbol tables. Raises RenderException if an option has
    an invalid value, one of this project's symbol tables is missing, or no file can be written. Volatility
    prints its text and ends with 1."""
    requested.check(plugin)
    columns = shown_columns(plugin, grid.plugin)
    if tables:
        requested.check_tables(plugin)
    if plugin.config.get("dump", False):
        check_folder(plugin)
    return columns_tree(plugin, grid.columns, columns, rows, grid.plugin)


def shown_columns(plugin: interfaces.plugins.PluginInterface, table: str) -> Sequence[str]:
    """Returns the columns that --columns names, or else the columns of --brief; empty for all. Raises
    RenderException if --columns names a column that the plugin lacks."""
    try:
        named = [
            column_named(table, name)
            for names in plugin.config.get("columns") or ()
            for name in names.split(",")
        ]
    except ValueError as error:
        raise exceptions.RenderException(f"--columns: {error}") from error
    options = {name for name in _ASKING if plugin.config.get(name)}
    return list(dict.fromkeys(named)) or (brief_columns(table, options) if "brief" in options else ())


def columns_tree(
    plugin: interfaces.plugins.PluginInterface,
    columns: Columns,
    shown: Sequence[str],
    rows: Iterator[Row],
    table: str,
) -> interfaces.renderers.TreeGrid:
    """Returns the grid of some columns. `shown` names the columns to show; empty for all."""
    brief = plugin.config.get("brief", False)
    if not brief and not shown:
        return grid_of(columns, rows, level=table in FLAT)
    # Most runs do without it.
    from . import briefgrid

    return briefgrid.tree(columns, shown, rows, table) if brief else briefgrid.chosen(columns, shown, rows)


_BLOCK = 0x10000
"""Bytes of a block of a sparse file; a block of zeros is left out."""


class OutputFile:
    """A file in the user's output folder.

    If it cannot be written, the log gives its path and the reason, no part of it remains, and `vol` ends with
    1 after the last row. No part of it remains either if the file is never closed. `name` is the preferred
    name; Volatility adds a number if the name is taken.
    """

    def __init__(self, plugin: interfaces.plugins.PluginInterface, name: str) -> None:
        self._name = plugin.open.sanitize_filename(name)
        self._handler = plugin.open
        self._file: Optional[interfaces.plugins.FileHandlerInterface] = None
        with self._reporting():
            self._file = plugin.open(self._name)
            self._unfinished = weakref.finalize(self, _remove, self._file)

    def write(self, data: bytes) -> bool:
        """Writes data; returns whether these and all data before are written."""
        if self._file is not None:
            with self._reporting():
                self._file.write(data)
        return self._file is not None

    def write_sparse(self, data: bytes) -> bool:
        """Writes data as `write` does; blocks of zeros take no space where the file system has sparse files.

        The last data of a file must be written with `write`, or followed by `end`.
        """
        for start in range(0, len(data), _BLOCK):
            block = data[start : start + _BLOCK]
            if block.count(0) < len(block):
                self.write(block)
            elif self._file is not None:
                with self._reporting():
                    self._file.seek(len(block), os.SEEK_CUR)
        return self._file is not None

    def end(self, size: int) -> bool:
        """Extends a sparse file to its size, and writes what is still in memory."""
        if self._file is not None:
            with self._reporting():
                if size and self._file.seek(0, os.SEEK_END) < size:
                    self._file.seek(size - 1)
                    self._file.write(b"\0")
                self._file.flush()
        return self._file is not None

    def overwrite(self, position: int, data: bytes) -> bool:
        """Overwrites data at a position."""
        if self._file is not None:
            with self._reporting():
                self._file.seek(position)
                self._file.write(data)
        return self._file is not None

    def discard(self) -> None:
        broken, self._file = self._file, None
        if broken is not None:
            self._unfinished()

    def close(self) -> str:
        """Closes the file. Returns the cell for `File output`: the final name of the file, or that it cannot
        be written."""
        named = FAILED
        if self._file is not None:
            with self._reporting():
                # Until the file is closed its name is free. Only the command line's files have this method.
                final = getattr(self._file, FINAL_NAME, None)
                named = str(self._file.preferred_filename) if final is None else os.path.basename(final())
                self._file.close()
                self._unfinished.detach()
        return FAILED if self._file is None else named

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = os.path.join(_folder(self._handler), self._name)
            vollog.error(f"{path} cannot be written: {error.strerror or error}")
            self.discard()
            if _of_command_line(self._handler):
                fail_at_exit()


def _remove(broken: interfaces.plugins.FileHandlerInterface) -> None:
    final = getattr(broken, FINAL_NAME, None)
    with contextlib.suppress(OSError, ValueError):
        # The disk was full: truncation makes room for the data still in memory, so that the file can be
        # closed. Newer Pythons (3.14) have closed it when the data could not be written.
        os.ftruncate(broken.fileno(), 0)
    paths = [getattr(broken, "_name", "")]
    with contextlib.suppress(OSError):
        paths += [] if final is None else [final()]
        broken.close()
    for path in filter(None, paths):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _folder(handler: Any) -> str:
    """Returns the folder of the command line's files; empty for files of another program."""
    with contextlib.suppress(OSError):
        return output_folder(handler) or ""
    return ""


def write_file(plugin: interfaces.plugins.PluginInterface, name: str, pieces: Iterable[bytes]) -> str:
    """Writes a file into the user's output folder. Returns the cell for `File output`: the final name of the
    file, or that it cannot be written."""
    file = OutputFile(plugin, name)
    for piece in pieces:
        if not file.write(piece):
            break
    return file.close()


def check_folder(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException if no file can be created in the user's output folder."""
    error = output_folder_error(plugin.open)
    if error:
        raise exceptions.RenderException(f"-o/--output-dir: {error}")
