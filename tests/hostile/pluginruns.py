# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One run of a plugin on an opened image, with all that is required of its output."""

from __future__ import annotations

import importlib.util
import io
import os
import pathlib
import re
import sys
import tempfile
from typing import Any, Dict, Iterator, List, NamedTuple, Set, Tuple

from volatility3 import framework
from volatility3.cli import CommandLine, text_renderer
from volatility3.framework import interfaces

from tests.forge.context import Opened
from winstacks.columns.tables import WRITERS

from .plugins import Options, Plugin, full_name

# The lowest Volatility that is supported has no renderer for Parquet.
if importlib.util.find_spec("volatility3.plugins.renderers"):
    importlib.import_module("volatility3.plugins.renderers.parquet_renderer")

MAX_CELL = 32_766
"""Bytes of a keyword field: the longest that the pipelines take which the output goes into."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IN_WORDS = {
    *("Symbol", "Source", "Backing", "Unbacked", "Status", "Stack", "LocatedBy", "File output", "Process"),
}
"""Columns that say how something was found or named: they may tell of damage elsewhere."""

Row = Tuple[Any, ...]


class Outcome(NamedTuple):
    """The rows, depth first and absent values None, and what is wrong with the output."""

    columns: List[str]
    rows: List[Row]
    wrong: List[str]

    def keys(self, pid: int) -> Set[Row]:
        """What identifies the rows of a process: all but the words."""
        kept = [place for place, name in enumerate(self.columns) if name not in _IN_WORDS]
        where = self.columns.index("PID")
        return {tuple(row[place] for place in kept) for row in self.rows if row[where] == pid}


def perform(opened: Opened, plugin: Plugin, options: Options) -> Outcome:
    """Runs a plugin, prints its grid with every renderer, and checks what it printed and wrote."""
    wrong: List[str] = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        work, output = pathlib.Path(folder, "work"), pathlib.Path(folder, "output")
        work.mkdir()
        output.mkdir()
        os.chdir(work)
        stdout, sys.stdout = sys.stdout, io.StringIO()
        new_plugin = opened.construct(plugin, **options)
        new_plugin.set_open_method(_handler(output))
        grid = new_plugin.run()
        rows: List[Row] = []
        grid.populate(_collect, rows)
        printed, sys.stdout = sys.stdout.getvalue(), stdout
        if printed:
            wrong.append(f"printed beside the grid: {printed[:80]!r}")
        columns = [column.name for column in grid.columns]
        wrong += _cells(columns, rows)
        for renderer in renderers():
            wrong += _rendered(renderer, grid, columns)
        writes = bool(options.get("dump")) or full_name(plugin).partition(".")[2] in WRITERS
        wrong += _files(pathlib.Path(folder), output, writes)
        os.chdir("/")
    return Outcome(columns, rows, wrong)


def renderers() -> List[Any]:
    """Returns the renderers of the command line."""
    found = framework.class_subclasses(text_renderer.CLIRenderer)
    return sorted(found, key=lambda path: str(path.name))


def _handler(folder: pathlib.Path) -> Any:
    line = CommandLine()
    line.output_dir = str(folder)
    return line.file_handler_class_factory()


def _collect(node: Any, rows: List[Row]) -> List[Row]:
    rows.append(tuple(map(plain, node.values)))
    return rows


def plain(value: Any) -> Any:
    """Returns a cell as a plain value, None for an absent one."""
    if isinstance(value, interfaces.renderers.BaseAbsentValue):
        return None
    return int(value) if isinstance(value, int) else value


def _cells(columns: List[str], rows: List[Row]) -> Iterator[str]:
    """Yields what must not be in a cell: whatever moves a cursor, ends a line, or is endless."""
    found: Dict[str, str] = {}
    for row in rows:
        for column, value in zip(columns, row):
            if isinstance(value, str) and (not value.isprintable() or len(value) > MAX_CELL):
                found[column] = value
    for column, value in found.items():
        yield f"{column} holds {value[:80]!r} ({len(value)} characters)"


def _rendered(renderer: Any, grid: Any, columns: List[str]) -> Iterator[str]:
    stdout = sys.stdout
    buffer = io.BytesIO()
    sys.stdout = io.TextIOWrapper(buffer, "utf-8", write_through=True)
    try:
        new_renderer = renderer()
        new_renderer.render(grid)
    finally:
        printed, sys.stdout = buffer.getvalue(), stdout
    if renderer.name in ("csv", "pretty", "JSON") and not printed.strip():
        yield f"{renderer.name} prints nothing"


def _files(folder: pathlib.Path, output: pathlib.Path, allowed: bool) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_dir():
            continue
        if path.parent != output or not allowed:
            yield f"wrote {path.relative_to(folder)}"
        elif not _FILE_NAME.fullmatch(path.name):
            yield f"wrote a file called {path.name!r}"
