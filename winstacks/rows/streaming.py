# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rows that a renderer prints while they are made, so that no grid has to keep them.

Volatility's renderers of text print a row when they visit it. Those of JSON lines and Parquet collect all
rows as dictionaries, and print them when the grid is read. A row of the top level is complete when the next
one comes: here it is printed then, by the renderer's own methods, and taken out of the collection.

Volatility's default renderer calls three functions for each cell. Its rows are printed here with a call for
few of their cells.
"""

from __future__ import annotations

import datetime
import functools
import io
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from volatility3.framework.renderers.format_hints import Hex

_TEXT = "volatility3.cli.text_renderer"
_PARQUET = ("volatility3.plugins.renderers.parquet_renderer", "ParquetRenderer")
_QUICK = "QuickTextRenderer"
_AT_ONCE = (_QUICK, "CSVRenderer", "NoneRenderer")
"""Volatility's renderers that print a row when they visit it, and never come back to it."""
_TEXTS = 1 << 8
"""The texts of so many cells are kept for each column."""
ROW_GROUP = 1 << 13
"""At least so many rows are together in a part of a Parquet file; the last part has fewer."""
_ID, _PARENT_ID = "_vol_id", "_vol_parent_id"

Visitor = Callable[[Any, Any], Any]
_Collected = Tuple[Dict[str, Any], List[Dict[str, Any]]]


def visitor(grid: Any, function: Any, collected: Any) -> Optional[Visitor]:
    """Returns the function that visits each row of a grid once, in place of a renderer's own; None: the
    renderer comes back to rows, and the grid has to keep them. `collected` is what the renderer passes to it
    at first."""
    renderer = _renderer_of(function)
    kind = type(renderer).__module__, type(renderer).__name__
    if kind == (_TEXT, _QUICK) and not getattr(renderer, "column_hide_list", None):
        return _QuickLines(grid, renderer)
    module = getattr(function, "__module__", "")
    if module == _TEXT and getattr(function, "__qualname__", "").partition(".")[0] in _AT_ONCE:
        at_once: Visitor = function
        return at_once
    if kind == (_TEXT, "JsonLinesRenderer"):
        return _Batches(function, collected, 1, lambda rows: renderer.output_result(sys.stdout, rows))
    if kind == _PARQUET:
        return _Batches(function, collected, ROW_GROUP, _ParquetFile(grid, renderer).print)
    return None


def _renderer_of(function: Any) -> Any:
    """Returns the renderer whose method made a function that visits rows; None if no method did."""
    code = getattr(function, "__code__", None)
    cells = dict(zip(code.co_freevars, function.__closure__ or ())) if code else {}
    return cells["self"].cell_contents if "self" in cells else None


class _QuickLines:
    """Prints rows as Volatility's QuickTextRenderer does when it hides no column. A text is printed as it is,
    any other cell by the renderer's function for the type of its column."""

    def __init__(self, grid: Any, renderer: Any) -> None:
        by_type = renderer._type_renderers
        self._texts = [
            _text_maker(column.type, by_type.get(column.type, by_type["default"])) for column in grid.columns
        ]
        self._filter = getattr(renderer, "filter", None)

    def __call__(self, node: Any, out: Any) -> Any:
        line = [cell if cell.__class__ is str else text(cell) for cell, text in zip(node.values, self._texts)]
        if self._filter and self._filter.filter(line):
            return out
        depth = node.path_depth - 1
        out.write(f"\n{'*' * depth}{' ' if depth else ''}" + "\t".join(line))
        out.flush()
        return out


def _text_maker(kind: type, make: Callable[[Any], str]) -> Callable[[Any], str]:
    """Returns the function that makes the text of a cell from the renderer's own for the type of its column.

    Many rows have the same number or time. Equal texts may have different short forms, which are printed.
    """
    # To call Volatility's object is a shortcut for calling its function.
    make = getattr(make, "render", make)
    return make if kind not in (int, Hex, datetime.datetime) else functools.lru_cache(_TEXTS)(make)


class _Batches:
    """Has a renderer print what it has collected whenever there are enough complete rows.

    Args:
        visit: the renderer's function that visits rows
        enough: number of rows
    """

    def __init__(
        self, visit: Visitor, collected: _Collected, enough: int, output: Callable[[List[Any]], None]
    ) -> None:
        self._visit, self._enough, self._output = visit, enough, output
        self._by_path, self._rows = collected

    def __call__(self, node: Any, collected: Any) -> Any:
        if node.path_depth == 1 and len(self._by_path) >= self._enough:
            self._output(self._rows)
            self._rows.clear()
            self._by_path.clear()
        return self._visit(node, collected)


class _ParquetFile:
    """A Parquet file that gets its rows in parts.

    Volatility adds two columns if any row is below another. Until then the file is kept, in its compressed
    form; from then on it goes to the standard output. If no row can be below another, it goes there at once.
    """

    def __init__(self, grid: Any, renderer: Any) -> None:
        module: Any = sys.modules[type(renderer).__module__]
        self._arrow, self._parquet = module.pa, module.pq
        self._grid, self._renderer = grid, renderer
        self._kept = io.BytesIO()
        self._writer: Any = None
        self._nested = False
        self._rows = 0
        # The renderer prints what is left at the end: that, too, has to go into this file.
        renderer.write_table = self._write

    def print(self, rows: List[Any]) -> None:
        """Has the renderer make a table of rows, which adds it to the file."""
        schema = self._renderer.to_arrow_schema(self._grid)
        self._renderer.output_result(schema, sys.stdout, rows)

    def _write(self, table: Any, out: Any) -> None:
        if not self._nested and _ID in table.column_names:
            self._go_out(table.schema, out)
        elif self._writer is None:
            self._writer = self._begin(out.buffer if self._grid.level else self._kept, table.schema)
        self._add(table)
        if self._grid.populated:
            self._writer.close()
            if not self._nested and not self._grid.level:
                out.buffer.write(self._kept.getbuffer())

    def _go_out(self, schema: Any, out: Any) -> None:
        """Begins the file on the standard output with the rows so far, which are all of the top level."""
        before, kept = self._writer, self._kept
        self._writer, self._kept = self._begin(out.buffer, schema), io.BytesIO()
        self._nested, self._rows = True, 0
        if before is not None:
            before.close()
            file = self._parquet.ParquetFile(kept)
            for number in range(file.num_row_groups):
                self._add(file.read_row_group(number))

    def _begin(self, file: Any, schema: Any) -> Any:
        return self._parquet.ParquetWriter(file, schema, compression="snappy")

    def _add(self, table: Any) -> None:
        """Adds a table. The renderer has counted its rows from 0, if it has counted them."""
        if self._nested:
            parents = table[_PARENT_ID].to_pylist() if _ID in table.column_names else [None] * len(table)
            rows = range(self._rows, self._rows + len(table))
            above = [None if parent is None else rows[parent] for parent in parents]
            table = table.select([name for name in table.column_names if name not in (_ID, _PARENT_ID)])
            for name, numbers in ((_ID, rows), (_PARENT_ID, above)):
                table = table.append_column(name, self._arrow.array(numbers, self._arrow.uint64()))
        self._rows += len(table)
        self._writer.write_table(table)
