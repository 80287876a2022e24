# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.tracegraph`, and the files that it and `windows.tracereport` write."""

from __future__ import annotations

from typing import Iterable, Iterator, Tuple

from volatility3.framework import interfaces

from ..memory.decode.status import Part, status, text
from ..memory.decode.statuscodes import StatusCode
from .grid import Grid, Row
from .plugin import FAILED, check_folder, write_file

GRID = Grid.for_plugin("tracegraph")


def tree(plugin: interfaces.plugins.PluginInterface, rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of the files that the plugin writes. Raises RenderException if no file can be
    written."""
    check_folder(plugin)
    return GRID.tree(rows)


def write(plugin: interfaces.plugins.PluginInterface, name: str, pieces: Iterable[str]) -> str:
    """Writes a file; returns the cell for `File output`."""
    return write_file(plugin, name, (piece.encode("utf-8", "replace") for piece in pieces))


def row(file_output: str, kind: str, figures: Tuple[int, int, int], *remarks: Part) -> Row:
    """Returns the row of a kind of stacks in a file.

    Args:
        file_output: what `write` returned
        remarks: parts of the Status of the file
    """
    failed = StatusCode.NOT_WRITTEN if file_output == FAILED else None
    return 0, (file_output, kind, *figures, text(status(failed, *remarks)))
