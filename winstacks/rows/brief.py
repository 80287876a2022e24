# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grid of --brief: few columns, which fit 120 characters in Volatility's pretty renderer.

A plugin does not know which renderer prints its rows. So each cell here holds the whole value, and only its
`format` is short. Volatility's renderers quick, pretty, csv and mermaid show the `format` of a cell; json and
jsonl show its value.

Status is never cut: it is wrapped into several lines if it is too wide.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterator, List, Sequence

from volatility3.framework import interfaces

from ..columns.dictionary import COLUMNS, STACK_SEPARATOR
from ..columns.tables import KEYS
from .grid import Cells, Hex, Row, grid_of, typed

WIDTH = 120
"""Characters of a line."""
ELLIPSIS = "…"
"""Mark of omitted characters."""

_BETWEEN = len(" | ")
_LEAST = 12
"""Least width of a column in characters. Lines are longer than WIDTH if the keys leave less."""
_OFFSET = r"(?:\+0x[0-9a-fA-F]+)?\Z"
_WORDS = ", "
_STATUS = "Status"
_SKIPPED = f"{STACK_SEPARATOR}{ELLIPSIS}{STACK_SEPARATOR}"


def cut_text(text: str, width: int) -> str:
    """Returns a text cut to `width` characters: its start and its end, with `…` between."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return text[: max(width - 1 - end, 0)] + ELLIPSIS[:width] + (text[-end:] if end > 0 else "")


def cut_symbol(symbol: str, width: int) -> str:
    """Returns a Symbol cut to `width` characters.

    The offset is kept first, then the module, then the start and the end of the function's name.
    """
    if len(symbol) <= width:
        return symbol
    place = re.search(_OFFSET, symbol)
    begin = len(symbol) if place is None else place.start()
    body, offset = symbol[:begin], symbol[begin:]
    module, bang, function = body.partition("!")
    if bang and len(module) + len("!…") + len(offset) <= width:
        return f"{module}!{cut_text(function, width - len(module) - 1 - len(offset))}{offset}"
    rest = f"!{ELLIPSIS}{offset}" if bang else offset
    if len(rest) < width:
        return cut_text(module, width - len(rest)) + rest
    return cut_text(symbol, width)


def cut_stack(stack: str, width: int) -> str:
    """Returns a Stack cut to `width` characters: as many of the first and last frames as fit.

    The innermost and the outermost frame are always kept, cut as a Symbol is.
    """
    if len(stack) <= width:
        return stack
    frames = stack.split(STACK_SEPARATOR)
    if len(frames) == 1:
        return cut_symbol(stack, width)
    between = STACK_SEPARATOR if len(frames) == 2 else _SKIPPED
    room = width - len(between)
    if room < 2:
        return cut_text(stack, width)
    first, last = [frames.pop(0)], [frames.pop()]
    room -= len(first[0]) + len(last[0])
    if room < 0:
        widths = shares([len(first[0]), len(last[0])], width - len(between))
        return between.join(map(cut_symbol, (first[0], last[0]), widths))
    while len(frames) > 1:
        front = len(first) <= len(last)
        room -= len(frames[0 if front else -1]) + len(STACK_SEPARATOR)
        if room < 0:
            break
        if front:
            first.append(frames.pop(0))
        else:
            last.insert(0, frames.pop())
    return between.join((STACK_SEPARATOR.join(first), STACK_SEPARATOR.join(last)))


def wrapped(text: str, width: int) -> str:
    """Returns a Status wrapped into lines of at most `width` characters, broken after its words."""
    lines = [""]
    for word in text.split(_WORDS):
        if lines[-1] and len(lines[-1]) + len(_WORDS) + len(word) >= width:
            lines[-1] += ","
            lines.append(word)
        else:
            lines[-1] += (_WORDS if lines[-1] else "") + word
    return "\n".join(lines)


def shares(wanted: Sequence[int], room: int) -> List[int]:
    """Divides a width: each column gets the width it wants if all can, else an equal part."""
    widths = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for count, place in enumerate(order):
        widths[place] = min(wanted[place], max(room, 0) // (len(order) - count))
        room -= widths[place]
    return widths


_CUT: Dict[str, Callable[[str, int], str]] = {
    "Symbol": cut_symbol,
    "Stack": cut_stack,
    "Flags": cut_text,
    "Value": cut_text,
    "Evidence": cut_text,
}
"""Functions that cut the columns without a fixed width."""
_NARROW = {"Process": 15, "ImageFileName": 15}
"""Widths of narrow columns: _EPROCESS.ImageFileName has 15 characters, and some become escapes."""


class _Room:
    """The width of a column; it is known after all rows are read."""

    def __init__(self, cut: Callable[[str, int], str], width: int = 0) -> None:
        self.cut = cut
        self.width = width


class CutText(str):
    """A text that is cut only where a text renderer shows it."""

    room: _Room

    def __format__(self, form: str) -> str:
        return format(self.room.cut(str(self), self.room.width), form)


class HexNumber(int):
    """A number shown as Volatility's Hex, whose renderer would not call `format`."""

    def __format__(self, form: str) -> str:
        return format(f"0x{int(self):x}", form)


class RepeatedText(str):
    """A text that text renderers leave empty because the row above has the same."""

    def __format__(self, form: str) -> str:
        return ""


class RepeatedNumber(int):
    """A number that text renderers leave empty because the row above has the same."""

    def __format__(self, form: str) -> str:
        return ""


def tree(names: Sequence[str], columns: Sequence[str], rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of the kept columns. All rows are read before the first is shown.

    Args:
        names: the columns of the rows
        columns: the columns to keep; the last is Status
        rows: the rows in the form that a grid takes
    """
    kinds = [(name, int if kind is Hex else kind) for name, kind in typed(map(COLUMNS.__getitem__, columns))]
    return grid_of(kinds, _shortened(names, columns, rows))


def _shortened(names: Sequence[str], columns: Sequence[str], rows: Iterator[Row]) -> Iterator[Row]:
    places = [names.index(name) for name in columns]
    rooms = {name: _Room(_CUT.get(name, wrapped)) for name in columns if name in _CUT or name == _STATUS}
    rooms.update({name: _Room(cut_text, width) for name, width in _NARROW.items() if name in columns})
    shortened: List[Row] = []
    widths, deepest, word = [len(name) for name in columns], 0, len(_STATUS)
    above: Cells = ()
    for depth, cells in rows:
        values = tuple(cells[place] for place in places)
        shown = tuple(
            map(
                _cell,
                columns,
                values,
                above if depth else (None,) * len(values),
                map(rooms.get, columns),
            )
        )
        above = above if depth else values
        deepest = max(deepest, depth)
        widths = list(map(max, widths, map(_wanted, shown)))
        word = max(word, *map(len, wrapped(str(values[-1]), 0).split("\n")))
        shortened.append((depth, shown))
    _divide(columns, widths, word, rooms, deepest + 1)
    yield from shortened


def _divide(
    columns: Sequence[str], widths: Sequence[int], word: int, rooms: Dict[str, _Room], depth: int
) -> None:
    """Divides the rest of a line among the columns without a fixed width.

    Args:
        columns: names of the columns
        widths: width of each column without any cut
        word: width of the longest word of a Status
        rooms: receives the widths
        depth: the column in front that shows the depth of a row
    """
    free = [place for place, name in enumerate(columns) if name in _CUT or name == _STATUS]
    room = WIDTH - depth - _BETWEEN * len(columns)
    for place, name in enumerate(columns):
        if place not in free:
            room -= min(widths[place], _NARROW.get(name, widths[place]))
    parts = shares([widths[place] for place in free[:-1]], room - word)
    parts.append(max(word, room - sum(parts)))
    for place, part in zip(free, parts):
        rooms[columns[place]].width = max(part, _LEAST)


def _cell(name: str, value: object, above: object, room: object) -> object:
    """Returns the cell of a value; a key that equals the one in the row above is left empty."""
    if isinstance(value, interfaces.renderers.BaseAbsentValue):
        return value
    if name in KEYS and value == above:
        return RepeatedText(value) if isinstance(value, str) else RepeatedNumber(value)  # type: ignore[call-overload]
    if isinstance(room, _Room):
        text = CutText(value)
        text.room = room
        return text
    return HexNumber(value) if isinstance(value, Hex) else value


def _wanted(cell: object) -> int:
    """Returns the width of a cell without any cut."""
    if isinstance(cell, interfaces.renderers.BaseAbsentValue):
        return len("N/A")
    return len(str(cell) if isinstance(cell, CutText) else format(cell))
