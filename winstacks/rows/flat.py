# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grids of the flat tables, and the files that `windows.traces --dump` writes."""

from __future__ import annotations

import datetime
from typing import Dict, Iterator, List, Optional, Tuple

from volatility3.framework import exceptions, interfaces

from ..flat.decode import schema
from ..flat.frames import OfFrames
from ..flat.imagefacts import Totals, Warnings, gather
from ..flat.stack import FlatStack, FlatWanted
from ..flat.tables import FRAME, FlatTables, Values, image_values, json_line
from ..flat.traces import FlatTraces
from ..memory.image import Image
from . import requested
from .columns import Hex
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, UNREADABLE, Row, grid_of
from .plugin import Listing, OutputFile, collector_paused

TYPES: Dict[str, type] = {
    schema.STR: str,
    schema.INT: int,
    schema.BOOL: bool,
    schema.HEX: Hex,
    schema.HEXSTR: str,
    schema.TIME: datetime.datetime,
}
"""Volatility's types for those of the schema."""

_HOW = [column.name for column in schema.FRAMES].index("How") - FRAME - 1
"""The place of How among the cells behind Frame. Of these the second is Sp."""

NOTHING = "No stack is in what is shown"

_ABSENT = {
    **dict.fromkeys(("Depth", "Address"), UNREADABLE),
    **dict.fromkeys(("Count", "ModulePath", "ModuleStamp", "ModuleSize"), NOT_AVAILABLE),
    **dict.fromkeys(("ProcessCreateTime", "ThreadCreateTime"), NOT_AVAILABLE),
}
"""What stands for no value in these columns."""


def wanted(plugin: interfaces.plugins.PluginInterface) -> FlatWanted:
    """Returns which stacks the options of a plugin ask for.

    Raises:
        RenderException: --kinds names a kind that there is not
    """
    config = plugin.config
    kinds = tuple(config.get("kinds") or ())
    unknown = [kind for kind in kinds if kind not in schema.KINDS]
    if unknown:
        known = ", ".join(schema.KINDS)
        raise exceptions.RenderException(f"--kinds: there is no {', '.join(unknown)}; there are {known}")
    return FlatWanted(
        kinds,
        tuple(config.get("pid") or ()),
        tuple(config.get("tid") or ()),
        carve=config.get("carve", False),
        scan_stacks=config.get("scan_stacks", False),
        scan_threads=config.get("scan_threads", False),
        processors=config.get("processors", False),
    )


def stacks(
    plugin: interfaces.plugins.PluginInterface,
    image: Image,
    listing: Listing,
    asked: FlatWanted,
    totals: Optional[Totals] = None,
) -> Iterator[FlatStack]:
    """Yields the stacks that a plugin's options ask for.

    Args:
        plugin: the plugin that runs
        image: its image
        listing: takes note of what is found
        asked: which stacks are wanted
        totals: counts them, those that --find and --unbacked leave out too
    """
    lister = FlatTraces(requested.symbolizer(plugin, image), collector_paused)
    for stack in listing.each(lister.list_stacks(asked, totals), _work):
        for tid in stack.tids:
            listing.asked.saw("tid", tid)
        if stack.frames:
            listing.found = True
        else:
            listing.unread = True
        if listing.selection.takes(stack.frames):
            listing.matched = True
            yield stack


class FlatCells:
    """Makes cells of the rows of a table.

    Args:
        table: its name in schema.TABLES
        absent: what stands for no value where nothing else is known of the column
    """

    def __init__(self, table: str, absent: interfaces.renderers.BaseAbsentValue = NOT_APPLICABLE) -> None:
        columns = schema.TABLES[table]
        self._absent = [_ABSENT.get(column.name, absent) for column in columns]
        self._hex = [place for place, column in enumerate(columns) if column.type == schema.HEX]

    def row(self, values: Values) -> Row:
        """Returns a row of the grid."""
        return 0, tuple(self._cells(values, 0))

    def _cells(self, values: Values, first: int) -> List[object]:
        """Returns the cells of values, the first of which belongs into a column that is not the first."""
        cells = [absent if value is None else value for absent, value in zip(self._absent[first:], values)]
        for place in self._hex:
            value = values[place - first] if place >= first else None
            if value is not None:
                cells[place - first] = Hex(value)
        return cells


class FrameTable(FlatCells):
    """Makes the rows of frames. The cells of an address are made once, and rows share them.

    Args:
        tables: makes their values
    """

    def __init__(self, tables: FlatTables) -> None:
        super().__init__("traceframes")
        self._tables = tables
        self._recorded = OfFrames(lambda frame: self._cells(tables.frame(frame), FRAME + 1))

    def rows(self, stack: FlatStack) -> Iterator[Row]:
        """Yields the rows of the frames of a stack, innermost first."""
        key, walked = self._tables.key(stack), stack.walked
        for number, frame in enumerate(stack.frames):
            if not walked:
                yield 0, (*key, number, *self._recorded[frame])
            elif walked[number].sure:
                cells, found = self._recorded[frame], walked[number]
                sp = f"{found.sp:#x}"
                yield 0, (*key, number, cells[0], sp, *cells[2:_HOW], found.how, *cells[_HOW + 1 :])
            else:
                yield self.row((*key, number, *self._tables.frame(frame, walked[number])))


def columns_of(table: str) -> List[Tuple[str, type]]:
    """Returns name and type of each column of a table, which is named as in schema.TABLES."""
    return [(each.name, TYPES[each.type]) for each in schema.TABLES[table]]


def tree(table: str, rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of a table.

    Args:
        table: its name in schema.TABLES
        rows: its rows
    """
    return grid_of(columns_of(table), rows)


def files(rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of the files that `--dump` writes."""
    return grid_of([("Table", str), ("Rows", int), ("File output", str)], rows)


class FlatDump:
    """Writes the three tables as files of JSON lines while the stacks are walked; no stack is kept.

    Args:
        plugin: the plugin that runs
        image: its image
    """

    def __init__(self, plugin: interfaces.plugins.PluginInterface, image: Image) -> None:
        self._plugin = plugin
        self._image = image
        self._tables = FlatTables(image)
        self._files = {name: OutputFile(plugin, f"{name}.jsonl") for name in schema.TABLES}
        self._rows = dict.fromkeys(schema.TABLES, 0)

    def add(self, stack: FlatStack) -> None:
        """Writes a stack and its frames."""
        self._write("traces", [json_line(schema.TRACES, self._tables.trace(stack))])
        self._write("traceframes", self._tables.frame_lines(stack))

    def finish(self, totals: Totals, warnings: Warnings) -> Iterator[Row]:
        """Writes what the image is, closes the files, and yields a row for each.

        Args:
            totals: what the walk counted
            warnings: those that were logged meanwhile
        """
        facts = gather(self._image, totals, warnings, self._plugin.config.get("sha256", False))
        self._write("traceimage", [json_line(schema.IMAGE, image_values(facts))])
        for name, file in self._files.items():
            yield 0, (name, self._rows[name], file.close())

    def _write(self, table: str, lines: List[str]) -> None:
        if self._files[table].write("".join(lines).encode("utf-8", "replace")):
            self._rows[table] += len(lines)


def _work(stack: FlatStack) -> str:
    return f"Reading the stacks of kind {stack.kind} of process {stack.space.pid}"
