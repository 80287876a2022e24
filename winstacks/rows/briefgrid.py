# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grids of --brief and --columns: few columns, which fit the terminal in Volatility's pretty renderer.

Each cell of --brief holds the whole value, and only its `format` is short. Volatility's text renderers show
the `format` of a cell; json and jsonl show its value. Only the pretty renderer keeps the lines of a cell
together, so the cells are cut and wrapped for this renderer alone: others show each text in one line. A value
that has a short form (`ShortText`) shows that.

Status, Evidence, Innocent and Value are never cut: they are wrapped into several lines between their words.
"""

from __future__ import annotations

import datetime
import logging
import os
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

from volatility3.framework import interfaces

from ..columns.tables import BRIEF_SPARE, KEYS
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import ShortText, short_of
from .brief import (
    chunks,
    cut_text,
    longest_piece,
    name_lines,
    shares,
    symbol_lines,
    wrapped,
    wrapped_evidence,
)
from .briefstacks import Stacks
from .grid import Columns, Hex, Row, grid_of
from .treegrid import RowGrid

vollog = logging.getLogger(__name__)

WIDTH = 120
"""Characters of a line where there is no terminal."""
_NARROWEST = 40
"""Least width in characters that is taken from a terminal."""
_PRETTY = "PrettyTextRenderer"
"""Volatility's renderer that keeps the lines of a cell together. It passes its own function to a grid."""

_BETWEEN = len(" | ")
_LEAST = 12
"""Least width of a column in characters. Lines are longer than the terminal if the keys leave less."""
_LEAST_OF_SYMBOL = 14
"""Least width of a Symbol: an address of 48 bits is never broken."""
_LEAST_OF_STACK = _LEAST_OF_SYMBOL + len("; …")
_TIME = "2024-03-07 12:00:00.000000 UTC"
"""A time as Volatility's renderers show it."""
_BESIDE_STACK = 26
"""Width that a Stack leaves for the Status."""
_LONGEST_WORD = 24
"""The longest word of an Evidence or a Value that is not cut, in characters; only names in it are longer."""
_LEAST_OF_NAME = 20
"""Least width of a name that is wrapped."""
_STATUS = "Status"
_STACK = "Stack"
_FINDING = "Finding"
_IN_PIECES = ("Evidence", "Innocent", "Value", _FINDING)
"""Columns whose words are broken if they are wider than a line."""


def line_width() -> int:
    """Returns the characters of a line: COLUMNS, else the terminal's, `WIDTH` if there is no terminal."""
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
        columns = columns if columns > 0 else os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    return max(columns, _NARROWEST) if columns > 0 else WIDTH


_CUT: Dict[str, Callable[[str, int], str]] = {
    "Symbol": symbol_lines,
    "StartSymbol": symbol_lines,
    "Flags": cut_text,
    "Value": wrapped_evidence,
    _FINDING: wrapped_evidence,
}
"""Functions that cut the columns without a fixed width. The Stack is one of these columns."""
_NAMES: Dict[str, Callable[[str, int], str]] = {
    "ObjectName": name_lines,
    "OwnerName": name_lines,
    "TraceId": chunks,
}
"""Functions that wrap names. Their columns share the width that the columns of `_CUT` leave."""
_WRAPPED: Dict[str, Callable[[str, int], str]] = {
    "Evidence": wrapped_evidence,
    "Innocent": wrapped_evidence,
    "Explanation": wrapped,
    _STATUS: wrapped,
}
"""Functions that wrap texts. Their columns share the width that all others leave."""
_NARROW = {"Process": 15, "ImageFileName": 15, "OwnerProcess": 15}
"""Widths of narrow columns: _EPROCESS.ImageFileName has 15 characters, and some become escapes."""


class _Shown:
    """A value that renderers of text show in another form."""

    shown: str

    def __format__(self, form: str) -> str:
        return format(self.shown, form)


class ShownText(_Shown, str):
    """A text that is shown in another form."""


class ShownNumber(_Shown, int):
    """A number that is shown in another form."""


def _as(shown: str, value: Any) -> object:
    """Returns the cell of a value that is shown in another form."""
    cell: _Shown = ShownText(value) if isinstance(value, str) else ShownNumber(value)
    cell.shown = shown
    return cell


def _whole(value: object) -> object:
    """Returns the cell of a value that is not cut: a text in its short form, Hex in hexadecimal.

    Volatility's renderers do not call `format` for Hex.
    """
    if isinstance(value, ShortText):
        return _as(value.short, value)
    return _as(f"{int(value):#x}", value) if isinstance(value, Hex) else value


class BriefGrid(RowGrid):
    """A grid that learns from its first visitor whether it is printed by the pretty renderer.

    Then all rows are read before the first is shown, and columns are left out: those without any value, and
    those for which the width has no room.
    """

    def __init__(self, columns: Columns, rows: Iterator[Row], page: _Page) -> None:
        super().__init__(list(columns), rows)
        self._columns: List[interfaces.renderers.Column] = self._columns
        self._generator: Iterator[Row] = self._generator
        self._page = page

    def populate(
        self, function: Any = None, initial_accumulator: Any = None, fail_on_errors: bool = True
    ) -> Optional[Exception]:
        """Reads the rows as Volatility's grid does."""
        if not self.populated:
            if getattr(function, "__qualname__", "").startswith(f"{_PRETTY}."):
                rows = list(self._generator)
                kept = self._page.fit(rows, line_width())
                # The renderer compares columns with those that it has to hide: they stay the same objects.
                self._columns = [self._columns[place] for place in kept]
                self._generator = self._page.cells(rows, kept)
            else:
                self._generator = ((depth, tuple(map(_whole, cells))) for depth, cells in self._generator)
        return super().populate(function, initial_accumulator, fail_on_errors)


def tree(
    columns: Columns, shown: Sequence[str], rows: Iterator[Row], plugin: str = ""
) -> interfaces.renderers.TreeGrid:
    """Returns the grid of some columns, shortened where the pretty renderer prints it. `plugin` is the name
    of the plugin in TABLES; empty for none."""
    kinds = [(name, int if kind is Hex else kind) for name, kind in _named(columns, shown)]
    return BriefGrid(kinds, _picked(columns, shown, rows), _Page(shown, plugin))


def chosen(columns: Columns, shown: Sequence[str], rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of some columns, each as it is; the arguments are as in `tree`."""
    return grid_of(_named(columns, shown), _picked(columns, shown, rows))


def _named(columns: Columns, shown: Sequence[str]) -> Columns:
    types = dict(columns)
    return [(name, types[name]) for name in shown]


def _picked(columns: Columns, shown: Sequence[str], rows: Iterator[Row]) -> Iterator[Row]:
    places = [list(dict(columns)).index(name) for name in shown]
    return ((depth, tuple([cells[place] for place in places])) for depth, cells in rows)


class _Width(NamedTuple):
    """Width that a column needs, in characters: of its longest word, and of its longest text."""

    word: int
    text: int


class _Page:
    """The cells of a grid of --brief, and how they share a line. `plugin` is the name of the plugin in
    TABLES; empty for none."""

    def __init__(self, columns: Sequence[str], plugin: str) -> None:
        self._columns, self._plugin, self._stacks = columns, plugin, Stacks()
        self._ways = {
            **_CUT,
            _STACK: self._stacks.lines,
            **_NAMES,
            **_WRAPPED,
            **dict.fromkeys(_NARROW, cut_text),
        }
        self._widths = dict(_NARROW)

    def cells(self, rows: Iterable[Row], kept: Sequence[int]) -> Iterator[Row]:
        """Yields rows of the kept columns, which `fit` returned: cut, wrapped, without repeated keys."""
        names = [self._columns[place] for place in kept]
        above: Sequence[object] = ()
        for depth, cells in rows:
            values = [cells[place] for place in kept]
            before = above if depth else [None] * len(values)
            above = above if depth else values
            yield depth, tuple(map(self._cell, names, values, before))

    def _cell(self, name: str, value: object, above: object) -> object:
        """Returns the cell of a value; a key that equals the one in the row above is left empty."""
        if isinstance(value, interfaces.renderers.BaseAbsentValue):
            return value
        if name in KEYS and value == above:
            return _as("", value)
        if name in self._ways:
            return _as(self._ways[name](f"{_whole(value)}", self._widths[name]), value)
        return _whole(value)

    def fit(self, rows: Sequence[Row], width: int) -> List[int]:
        """Divides a line among the columns, and returns the places of those that are shown. `width` counts
        the characters of a line."""
        widths = {name: _Width(len(name), len(name)) for name in self._columns}
        valued = set(self._columns) if not rows else {_STATUS}
        for _, cells in rows:
            for name, cell in zip(self._columns, cells):
                if not isinstance(cell, interfaces.renderers.BaseAbsentValue):
                    valued.add(name)
                widths[name] = _wider(widths[name], name, cell)
                if name == _STACK and isinstance(cell, str):
                    self._stacks.add(short_of(cell))
        kept = [name for name in self._columns if name in valued]
        depth = 1 + max((depth for depth, _ in rows), default=0)
        left_out: List[str] = []
        # Columns with the most information stand to the left; the first column and the texts stay.
        spare = (name for name in reversed(kept[1:]) if name not in (*_CUT, *_NAMES, *_WRAPPED, _STACK))
        for name in (*BRIEF_SPARE.get(self._plugin, ()), *spare):
            if self._least(kept, widths, width - depth) >= 0:
                break
            if name in kept:
                kept.remove(name)
                left_out.append(name)
        if left_out:
            vollog.warning(
                f"{width} characters have no room for {', '.join(left_out)}: "
                "a wider terminal (or the variable COLUMNS) shows them"
            )
        self._divide(kept, widths, width - depth)
        return [place for place, name in enumerate(self._columns) if name in kept]

    def _needs(self, columns: Sequence[str], widths: Dict[str, _Width]) -> Dict[str, int]:
        least = {}
        for name in columns:
            word, text = widths[name]
            if name == _FINDING:
                least[name] = word
            elif name == "Value":
                least[name] = min(word, _LONGEST_WORD)
            elif name == _STACK:
                least[name] = min(text, _LEAST_OF_STACK)
            elif name in _CUT:
                least[name] = min(text, _LEAST_OF_SYMBOL if _CUT.get(name) is symbol_lines else _LEAST)
            elif name in _NAMES:
                least[name] = min(text, _LEAST_OF_NAME)
            elif name in _WRAPPED:
                least[name] = word if name == _STATUS else min(word, _LONGEST_WORD)
                if _STACK in columns:
                    # A stack wants more than any line has.
                    least[name] = max(least[name], min(text, _BESIDE_STACK))
            else:
                least[name] = min(text, _NARROW.get(name, text))
        return least

    def _least(self, columns: Sequence[str], widths: Dict[str, _Width], room: int) -> int:
        """Returns the characters that the least widths of columns leave of a line; negative: they lack."""
        return room - _BETWEEN * len(columns) - sum(self._needs(columns, widths).values())

    def _divide(self, columns: Sequence[str], widths: Dict[str, _Width], room: int) -> None:
        """Divides what the least widths leave: to the columns that are cut, then to names, then to texts."""
        least, left = self._needs(columns, widths), self._least(columns, widths, room)
        for ways in ({*_CUT, _STACK}, _NAMES, _WRAPPED):
            group = [name for name in columns if name in ways]
            for name, part in zip(group, shares([widths[name].text - least[name] for name in group], left)):
                self._widths[name] = least[name] + part
                left -= part


def _wider(width: _Width, name: str, cell: object) -> _Width:
    """Returns what a column needs, with one cell more; uncut."""
    if isinstance(cell, interfaces.renderers.BaseAbsentValue):
        text = "N/A"
    elif isinstance(cell, datetime.datetime):
        text = _TIME
    else:
        text = f"{_whole(cell)}"
    if len(text) <= width.word:
        return width
    if name in _IN_PIECES:
        word = longest_piece(text)
    else:
        word = max(map(len, text.split(" ")))
    return _Width(max(width.word, word), max(width.text, len(text)))
