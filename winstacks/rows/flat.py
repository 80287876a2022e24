# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grids of the flat tables, and the files that `windows.traces --dump` writes."""

from __future__ import annotations

from functools import cached_property
from typing import Iterable, Iterator, List, Sequence

from volatility3.framework import interfaces

from ..columns.tables import FLAT, FRAMES, IMAGE, TRACES, WAITS
from ..columns.words import THREAD_KINDS
from ..memory.decode.memo import Memo
from ..stacklist.frames import MAX_FRAMES, NamedFrame
from ..stacklist.imagefacts import Facts, Warnings, gather
from ..stacklist.stack import StackFilter, StackRecord
from ..stacklist.tables import FRAME, FlatTables, Values, image_values, json_line
from ..stacklist.threadwaits import ThreadWaits, WaitRow
from ..stacklist.traces import StackCollector, unwatched
from . import requested
from .frames import stack_cell
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, TYPES, UNREADABLE, Hex, Row, grid_of, typed
from .plugin import OutputFile, columns_tree, shown_columns
from .stackcommand import StackCommand

_HOW = [column.name for column in FRAMES].index("How") - FRAME - 1
"""Index of How among the cells after Frame; ReturnRegister follows. The second of these cells is Sp."""

_ABSENT = {
    **dict.fromkeys(("Depth", "Address"), UNREADABLE),
    **dict.fromkeys(("Count", "ModulePath", "ModuleStamp", "ModuleSize"), NOT_AVAILABLE),
    **dict.fromkeys(("ProcessCreateTime", "ThreadCreateTime"), NOT_AVAILABLE),
    **dict.fromkeys(("PageProtection", "AllocationPrivateBytes"), NOT_AVAILABLE),
}
"""Absent value of these columns."""


class FlatCommand(StackCommand):
    """The work of a plugin that shows all stacks of an image, from every source."""

    table = ""
    things = "stacks"
    nothing = "No stack is selected"

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self.warnings = Warnings()

    @cached_property
    def tables(self) -> FlatTables:
        return FlatTables(self.image)

    def items(self, step: StackRecord) -> Iterable[StackRecord]:
        for tid in step.tids:
            self.requested.mark_seen("tid", tid)
        return (step,)

    def is_gap(self, item: StackRecord) -> bool:
        return item.counted is None

    def frames(self, item: StackRecord) -> Sequence[NamedFrame]:
        return item.frames

    def rows(self, item: StackRecord, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        """Yields nothing: rows that are made of all stacks follow them."""
        return iter(())

    def generate(self) -> Iterator[Row]:
        with self.warnings:
            yield from super().generate()

    def facts(self) -> Facts:
        """Returns the identity of the image, and the counts and warnings of reading its stacks."""
        return gather(self.image, self.totals, self.warnings, self.option("sha256"))

    @cached_property
    def columns(self) -> Sequence[str]:
        """The columns that --columns or --brief choose; empty for all. Raises RenderException if --columns
        names a column that does not exist."""
        return shown_columns(self.plugin, self.table)

    def run(self) -> interfaces.renderers.TreeGrid:
        requested.check(self.plugin)
        # An unknown word ends the command before any row.
        _ = self.columns, self.stacks_wanted
        return self.shown()

    def shown(self) -> interfaces.renderers.TreeGrid:
        """Returns the grid; called after the options are checked."""
        return columns_tree(self.plugin, typed(FLAT[self.table]), self.columns, self.generate(), self.table)


class WaitCommand(FlatCommand):
    """The work of a plugin that lists the waits of threads. `listing_waits` says whether the options ask for
    them."""

    listing_waits = True

    @cached_property
    def _waits(self) -> ThreadWaits:
        return ThreadWaits(self.symbolizer, self.named, self.pids)

    @cached_property
    def _collector(self) -> StackCollector:
        # The chain behind a thread leads to other threads: --tid selects rows, and reads all threads.
        watch = self._waits.add if self.listing_waits and self.stacks_wanted.tids is None else unwatched
        return StackCollector(self.symbolizer, self.named, watch)

    def waits(self) -> Iterator[WaitRow]:
        """Yields the rows of waits; called after all stacks."""
        wanted = self.stacks_wanted
        if wanted.tids is not None and wanted.has(*THREAD_KINDS):
            whole = StackFilter(THREAD_KINDS, wanted.pids)
            for _ in StackCollector(self.symbolizer, self.named, self._waits.add).list_stacks(whole):
                pass
        return self._waits.rows(wanted.tids)


class FlatCells:
    """Makes cells of the rows of a table.

    Args:
        table: name of the table in FLAT
        absent: the absent value for columns with no value of their own
    """

    def __init__(self, table: str, absent: interfaces.renderers.BaseAbsentValue = NOT_APPLICABLE) -> None:
        columns = FLAT[table]
        self._absent = [_ABSENT.get(column.name, absent) for column in columns]
        self._hex = [place for place, column in enumerate(columns) if TYPES[column.type] is Hex]
        self._stack = [place for place, column in enumerate(columns) if column.name == "Stack"]

    def row(self, values: Values) -> Row:
        return 0, tuple(self._cells(values, 0))

    def _cells(self, values: Values, first: int) -> List[object]:
        """Returns cells for consecutive columns; the first value belongs to column number `first`."""
        cells = [absent if value is None else value for absent, value in zip(self._absent[first:], values)]
        for place in self._hex:
            value = values[place - first] if place >= first else None
            if value is not None:
                cells[place - first] = Hex(value)
        for place in self._stack:
            stack = values[place - first]
            if isinstance(stack, str):
                cells[place - first] = stack_cell(stack)
        return cells


class FrameTable(FlatCells):
    """Makes the rows of frames. The cells of an address are made once and shared by its rows."""

    def __init__(self, tables: FlatTables) -> None:
        super().__init__("traceframes")
        self._tables = tables
        self._recorded: Memo[NamedFrame, List[object]] = Memo(self._printed, MAX_FRAMES)

    def _printed(self, frame: NamedFrame) -> List[object]:
        return self._cells(self._tables.frame(frame), FRAME + 1)

    def rows(self, stack: StackRecord) -> Iterator[Row]:
        """Yields the rows of the frames of a stack, innermost first."""
        values, walked = self._tables.key(stack), stack.walked
        key = [absent if value is None else value for absent, value in zip(self._absent, values)]
        for number in stack.shown:
            frame = stack.frames[number]
            if not walked:
                yield 0, (*key, number, *self._recorded[frame])
            elif walked[number].sure:
                cells, found = self._recorded[frame], walked[number]
                sp = NOT_APPLICABLE if found.stack_pointer is None else f"{found.stack_pointer:#x}"
                how = found.how, found.return_register or NOT_APPLICABLE
                yield 0, (*key, number, cells[0], sp, *cells[2:_HOW], *how, *cells[_HOW + 2 :])
            else:
                yield self.row((*values, number, *self._tables.frame(frame, walked[number])))


def files(rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of the files that `--dump` wrote."""
    return grid_of([("Table", str), ("Rows", int), ("File output", str)], rows)


class FlatDump:
    """Writes the tables as JSON Lines files while the stacks are walked; it keeps no stack."""

    def __init__(self, plugin: interfaces.plugins.PluginInterface, tables: FlatTables) -> None:
        self._tables = tables
        self._files = {name: OutputFile(plugin, f"{name}.jsonl") for name in FLAT}
        self._rows = dict.fromkeys(FLAT, 0)

    def add(self, stack: StackRecord) -> None:
        self._write("traces", [json_line(TRACES, self._tables.trace(stack))])
        self._write("traceframes", self._tables.frame_lines(stack))

    def finish(self, waits: Iterable[WaitRow], facts: Facts) -> Iterator[Row]:
        """Writes the waits and the facts of the image, closes the files, and yields a row for each file."""
        self._write("tracewaits", [json_line(WAITS, self._tables.wait(row)) for row in waits])
        self._write("traceimage", [json_line(IMAGE, image_values(facts))])
        for name, file in self._files.items():
            yield 0, (name, self._rows[name], file.close())

    def _write(self, table: str, lines: List[str]) -> None:
        if self._files[table].write("".join(lines).encode("utf-8", "replace")):
            self._rows[table] += len(lines)
