# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rows whose cells are set by the names of their columns, and the cells that need a type of Volatility.

    GRID = Grid("PID", "Address", "Status")
    process_row = GRID.maker("PID", "Status")
    process_row(4, "unreadable")

The dictionary of columns gives the type of each.

A column that a row does not name holds NOT_APPLICABLE.
"""

from __future__ import annotations

import datetime
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..columns import dictionary
from ..columns.dictionary import COLUMNS, Column
from ..columns.tables import TABLES
from .treegrid import RowGrid

Cells = Tuple[object, ...]
Row = Tuple[int, Cells]
"""Depth and cells of a row, in the form that a grid takes."""

Columns = Sequence[Tuple[str, type]]
"""Name and type of each column, in the form that a grid takes."""

Hex = format_hints.Hex
TYPES: Dict[str, type] = {
    dictionary.STR: str,
    dictionary.INT: int,
    dictionary.BOOL: bool,
    dictionary.HEX: Hex,
    dictionary.ADDRESS: Hex,
    dictionary.REGISTER: Hex,
    dictionary.HEXSTR: str,
    dictionary.TIME: datetime.datetime,
}
"""Volatility's types by type of the dictionary."""

NOT_APPLICABLE = renderers.NotApplicableValue()
"""The value does not exist in this row."""
NOT_AVAILABLE = renderers.NotAvailableValue()
"""The value exists, but its content is unknown."""
UNREADABLE = renderers.UnreadableValue()
"""The value is not in the image."""
UNPARSABLE = renderers.UnparsableValue()
"""The value is in the image, and is invalid."""


def typed(columns: Iterable[Column]) -> List[Tuple[str, type]]:
    """Returns name and type of columns, in the form that a grid takes."""
    return [(column.name, TYPES[column.type]) for column in columns]


def grid_of(columns: Columns, rows: Iterator[Row], level: bool = False) -> interfaces.renderers.TreeGrid:
    """Returns the grid of rows. `level` says whether it is known that no row is below another."""
    grid = RowGrid(list(columns), rows)
    grid.level = level
    return grid


class Grid:
    """The columns of a plugin.

    Args:
        names: names of the dictionary of columns, from left to right
        plugin: name of the plugin in TABLES; empty for none
    """

    def __init__(self, *names: str, plugin: str = "") -> None:
        self.columns = typed(COLUMNS[name] for name in names)
        self.names = names
        self.plugin = plugin
        self._makers: Dict[str, Callable[..., Any]] = {}

    @classmethod
    def for_plugin(cls, plugin: str) -> Grid:
        """Returns the columns of a plugin, by its name in TABLES."""
        return cls(*(column.name for column in TABLES[plugin]), plugin=plugin)

    def maker(self, *names: str) -> Callable[..., Cells]:
        """Returns a function that makes a row from the cells of the named columns, in their order. Raises
        ValueError if a column does not exist or is named twice."""
        return self._compiled(tuple(self._places(names).values()), f"return {self._code(names)}")

    def value_maker(
        self, names: Sequence[str], unreadable: Collection[str], mask: int
    ) -> Callable[..., Cells]:
        """Returns a function like `maker` that takes values: the types of columns give the cells their form.

        Args:
            unreadable: columns in which None is a value that cannot be read; elsewhere it does not exist
            mask: bits of an address that the columns show
        """
        places = self._places(names)
        body = []
        for name, place in places.items():
            absent = "unreadable" if name in unreadable else "absent"
            form = {dictionary.HEX: f"Hex({place})", dictionary.ADDRESS: f"Hex({place} & {mask:#x})"}
            body.append(f"if {place} is None: {place} = {absent}")
            if COLUMNS[name].type in form:
                body.append(f"elif isinstance({place}, int): {place} = {form[COLUMNS[name].type]}")
        return self._compiled(tuple(places.values()), *body, f"return {self._code(names)}")

    def cells(self, cells: Dict[str, object], unreadable: Collection[str], mask: int) -> Cells:
        """Returns a row of values by column; the other arguments are as in `value_maker`."""
        return self.value_maker(tuple(cells), unreadable, mask)(*cells.values())

    def frames_maker(self, *names: str) -> Callable[..., Iterator[Row]]:
        """Returns a function that makes the rows of a stack's frames, one level below the row of the stack.

        The function takes the cells that all frames share, in the order of the names, and then the cells of
        each
        frame: Address, Symbol, Source, Backing and Status. The column Frame numbers the frames.

        A listing may have two hundred thousand of these rows. For speed the compiled code builds each row as
        one tuple without a function call. Raises ValueError if a column does not exist or is named twice.
        """
        own = ("Address", "Symbol", "Source", "Backing", "Status")
        places = self._places((*names, "Frame", *own))
        cells = ", ".join(places[name] for name in own)
        body = (
            f"for {places['Frame']}, ({cells}) in enumerate(frames):",
            f"    yield 1, {self._code((*names, 'Frame', *own))}",
        )
        return self._compiled((*(places[name] for name in names), "frames"), *body)

    def tree(self, rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
        """Returns the grid that a plugin's `run` returns."""
        return grid_of(self.columns, rows)

    def _places(self, names: Collection[str]) -> Dict[str, str]:
        """Returns the name of the variable for each column in the compiled code."""
        unknown = set(names) - set(self.names)
        if unknown or len(set(names)) < len(names):
            raise ValueError(f"no column, or one that comes twice: {sorted(unknown or names)}")
        return {name: f"cell{self.names.index(name)}" for name in names}

    def _code(self, names: Sequence[str]) -> str:
        places = self._places(names)
        return f"({', '.join(places.get(name, 'absent') for name in self.names)},)"

    def _compiled(self, arguments: Tuple[str, ...], *body: str) -> Callable[..., Any]:
        """Returns a function with these arguments and this body, compiled once with `exec`.

        The exec is safe because nothing from an image or a user gets into the code: columns appear as
        variables `cell0`, `cell1`, ... (see `_places`), and all else is text of this module. Python's own
        `namedtuple` makes its constructor in the same way, and for the same reason: speed.
        """
        code = "\n    ".join((f"def make({', '.join(arguments)}):", *body))
        if code not in self._makers:
            space: Dict[str, Any] = {"absent": NOT_APPLICABLE, "unreadable": UNREADABLE, "Hex": Hex}
            exec(code, space)
            self._makers[code] = space["make"]
        return self._makers[code]


def or_not_applicable(value: Optional[object]) -> object:
    """Returns the cell of a value; None: the value does not exist."""
    return NOT_APPLICABLE if value is None else value


def or_unreadable(value: Optional[object]) -> object:
    """Returns the cell of a value; None: the value cannot be read."""
    return UNREADABLE if value is None else value
