# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The grids of --brief and --columns: few columns, which fit 120 characters in Volatility's pretty renderer.

A plugin does not know which renderer prints its rows. So each cell of --brief holds the whole value, and only
its `format` is short. Volatility's renderers quick, pretty, csv and mermaid show the `format` of a cell; json
and jsonl show its value. A value that has a short form (`ShortText`) shows that.

Status and Evidence are never cut: they are wrapped into several lines between their words.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence

from volatility3.framework import interfaces

from ..columns.dictionary import STACK_SEPARATOR
from ..columns.tables import KEYS
from ..memory.decode.text import ShortText
from .grid import Cells, Columns, Hex, Row, grid_of

WIDTH = 120
"""Characters of a line."""
ELLIPSIS = "…"
"""Mark of omitted characters."""

_BETWEEN = len(" | ")
_LEAST = 12
"""Least width of a column in characters. Lines are longer than WIDTH if the keys leave less."""
_BESIDE_STACK = 26
"""Width that a Stack leaves for the Status."""
_LONGEST_WORD = 24
"""The longest word of an Evidence that is not cut, in characters; only names in it are longer."""
_LEAST_OF_NAME = 20
"""Least width of a name that is wrapped."""
_OFFSET = r"(?:[+ ]0x[0-9a-fA-F]+)?\Z"
_PARTS = re.compile(r"((?:[^!]*!)?)(.*?)(\+0x[0-9a-fA-F]+)?( 0x[0-9a-f]+)?", re.DOTALL)
"""Module, function, offset and address of a Symbol; a name without a module is a function here."""
_WORD = re.compile(r"(?s:.[^A-Z_:]*)")
"""A word of a function's name. No line breaks within it."""
_MOST_LINES = 5
"""The most pieces of a Symbol that stand in lines of their own."""
_STATUS = "Status"
_STACK = "Stack"
_EVIDENCE = "Evidence"
_SKIPPED = f"{STACK_SEPARATOR}{ELLIPSIS}{STACK_SEPARATOR}"


def cut_text(text: str, width: int) -> str:
    """Returns a text cut to `width` characters: its start and its end, with `…` between."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return text[: max(width - 1 - end, 0)] + ELLIPSIS[:width] + (text[-end:] if end > 0 else "")


def cut_symbol(symbol: str, width: int) -> str:
    """Returns a Symbol cut to `width` characters.

    The offset or address is kept first, then the module, then the start and the end of the function's name.
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


def symbol_lines(symbol: str, width: int) -> str:
    """Returns a Symbol in lines of at most `width` characters.

    It is broken behind the module, before an offset or address, and between the words of a name that is wider
    than a line. A Symbol of more than `_MOST_LINES` lines is cut.
    """
    if len(symbol) <= width:
        return symbol
    found = _PARTS.fullmatch(symbol)
    assert found is not None
    *named, address = found.groups("")
    parts = [piece for part in named for piece in _words(part, width)]
    if len(parts) > _MOST_LINES or max(map(len, parts)) > width:
        parts = [cut_symbol("".join(named), width)]
    lines = [""]
    for part in (*parts, address):
        if len(lines[-1]) + len(part) <= width:
            lines[-1] += part
        else:
            lines.append(part.lstrip())
    return "\n".join(filter(None, lines))


def _words(name: str, width: int) -> List[str]:
    """Returns a part of a Symbol, in pieces that begin with a word if it is wider than `width` characters."""
    if len(name) <= width:
        return [name] if name else []
    pieces = [""]
    for word in re.findall(_WORD, name):
        if len(pieces[-1]) + len(word) <= width:
            pieces[-1] += word
        else:
            pieces.append(word)
    return pieces


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


def stack_lines(stack: str, width: int) -> str:
    """Returns a Stack in lines of at most `width` characters.

    What does not fit into one line has up to three frames: the innermost one, the first one of another module
    (which called what is innermost), and the outermost one.
    """
    if len(stack) <= width:
        return stack
    frames = stack.split(STACK_SEPARATOR)
    last = len(frames) - 1
    caller = next((place for place in range(1, last) if _module(frames[place]) != _module(frames[0])), 0)
    numbers = sorted({0, caller, last})
    ends = [STACK_SEPARATOR if after == place + 1 else _SKIPPED for place, after in zip(numbers, numbers[1:])]
    line = "".join(frames[place] + end for place, end in zip(numbers, [*ends, ""]))
    if len(line) <= width:
        return line if caller else cut_stack(stack, width)
    lines = []
    for place, end in zip(numbers, [*ends, ""]):
        end = end.rstrip()
        lines.append(symbol_lines(frames[place], width))
        if len(lines[-1].rpartition("\n")[2]) + len(end) > width:
            lines[-1] = symbol_lines(frames[place], width - len(end))
        lines[-1] += end
    return "\n".join(lines)


def _module(symbol: str) -> str:
    """Returns the module of a Symbol, or what names its place."""
    return re.split(r"[!+ ]", symbol, maxsplit=1)[0]


def name_lines(name: str, width: int) -> str:
    """Returns a name in lines of at most `width` characters, broken before backslashes and blanks."""
    lines = [""]
    for word in re.split(r"(?=[\\ ])", name):
        part = cut_text(word if lines[-1] else word.lstrip(), width)
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append(part.lstrip())
        else:
            lines[-1] += part
    return "\n".join(lines)


def wrapped(text: str, width: int) -> str:
    """Returns a text wrapped into lines of at most `width` characters, broken between its words.

    A word that is wider has a line of its own, which is longer.
    """
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)


def wrapped_evidence(text: str, width: int) -> str:
    """Returns an Evidence wrapped between its words; a word that is wider than a line loses its middle."""
    return wrapped(" ".join(cut_text(word, width) for word in text.split(" ")), width)


def shares(needed: Sequence[int], room: int) -> List[int]:
    """Divides a width: each column gets the width it wants if all can, else an equal part."""
    widths = [0] * len(needed)
    order = sorted(range(len(needed)), key=needed.__getitem__)
    for count, place in enumerate(order):
        widths[place] = min(needed[place], max(room, 0) // (len(order) - count))
        room -= widths[place]
    return widths


_CUT: Dict[str, Callable[[str, int], str]] = {
    "Symbol": symbol_lines,
    "StartSymbol": symbol_lines,
    _STACK: stack_lines,
    "Flags": cut_text,
    "Value": cut_text,
}
"""Functions that cut the columns without a fixed width."""
_NAMES: Dict[str, Callable[[str, int], str]] = {"ObjectName": name_lines, "OwnerName": name_lines}
"""Functions that wrap names. Their columns share the width that the columns of `_CUT` leave."""
_WRAPPED: Dict[str, Callable[[str, int], str]] = {_EVIDENCE: wrapped_evidence, _STATUS: wrapped}
"""Functions that wrap texts. Their columns share the width that all others leave."""
_NARROW = {"Process": 15, "ImageFileName": 15, "OwnerProcess": 15}
"""Widths of narrow columns: _EPROCESS.ImageFileName has 15 characters, and some become escapes."""


class _Room:
    """The width of a column; it is known after all rows are read."""

    def __init__(self, cut: Callable[[str, int], str], width: int = 0) -> None:
        self.cut = cut
        self.width = width


class CutText(str):
    """A text that is cut only where a text renderer shows it.

    Attributes:
        shown: the text that is cut: the short form if the value has one
        room: the width
    """

    shown: str
    room: _Room

    def __format__(self, form: str) -> str:
        return format(self.room.cut(self.shown, self.room.width), form)


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


def tree(columns: Columns, shown: Sequence[str], rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of some columns, shortened. All rows are read before the first is shown.

    Args:
        columns: the columns of the rows
        shown: names of the columns to show, from left to right
        rows: the rows in the form that a grid takes
    """
    types = dict(columns)
    kinds = [(name, int if types[name] is Hex else types[name]) for name in shown]
    return grid_of(kinds, _shortened([name for name, _ in columns], shown, rows))


def chosen(columns: Columns, shown: Sequence[str], rows: Iterator[Row]) -> interfaces.renderers.TreeGrid:
    """Returns the grid of some columns, each as it is; the arguments are as in `tree`."""
    places = [list(dict(columns)).index(name) for name in shown]
    found = ((depth, tuple([cells[place] for place in places])) for depth, cells in rows)
    return grid_of([columns[place] for place in places], found)


class _Width(NamedTuple):
    """Width that a column needs, in characters: of its longest word, and of its longest text."""

    word: int
    text: int


def _shortened(names: Sequence[str], columns: Sequence[str], rows: Iterator[Row]) -> Iterator[Row]:
    places = [names.index(name) for name in columns]
    ways = {**_CUT, **_NAMES, **_WRAPPED}
    rooms = {name: _Room(ways[name]) for name in columns if name in ways}
    rooms.update({name: _Room(cut_text, width) for name, width in _NARROW.items() if name in columns})
    shortened: List[Row] = []
    widths = [_Width(len(name), len(name)) for name in columns]
    deepest = 0
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
        widths = list(map(_wider, widths, shown))
        shortened.append((depth, shown))
    _divide(columns, widths, rooms, deepest + 1)
    yield from shortened


def _divide(columns: Sequence[str], widths: Sequence[_Width], rooms: Dict[str, _Room], depth: int) -> None:
    """Divides what the columns with a fixed width leave of a line: to those that are cut, then to the others.

    Args:
        columns: names of the columns
        widths: what each column needs
        rooms: receives the widths
        depth: the column in front that shows the depth of a row
    """
    room = WIDTH - depth - _BETWEEN * len(columns)
    least: Dict[str, int] = {}
    widest = dict(zip(columns, widths))
    for name, width in widest.items():
        if name in _CUT:
            least[name] = min(width.text, _LEAST)
        elif name in _NAMES:
            least[name] = min(width.text, _LEAST_OF_NAME)
        elif name in _WRAPPED:
            least[name] = min(width.word, _LONGEST_WORD) if name == _EVIDENCE else width.word
            if _STACK in columns:
                # A stack wants more than any line has.
                least[name] = max(least[name], min(width.text, _BESIDE_STACK))
        else:
            room -= min(width.text, _NARROW.get(name, width.text))
    room -= sum(least.values())
    for ways in (_CUT, _NAMES, _WRAPPED):
        group = [name for name in columns if name in ways]
        for name, part in zip(group, shares([widest[name].text - least[name] for name in group], room)):
            rooms[name].width = least[name] + part
            room -= part


def _cell(name: str, value: object, above: object, room: object) -> object:
    """Returns the cell of a value; a key that equals the one in the row above is left empty."""
    if isinstance(value, interfaces.renderers.BaseAbsentValue):
        return value
    if name in KEYS and value == above:
        return RepeatedText(value) if isinstance(value, str) else RepeatedNumber(value)  # type: ignore[call-overload]
    if isinstance(room, _Room):
        text = CutText(value)
        text.shown = value.short if isinstance(value, ShortText) else str(value)
        text.room = room
        return text
    return HexNumber(value) if isinstance(value, Hex) else value


def _wider(width: _Width, cell: object) -> _Width:
    """Returns what a column needs, with one cell more; uncut."""
    if isinstance(cell, interfaces.renderers.BaseAbsentValue):
        text = "N/A"
    else:
        text = cell.shown if isinstance(cell, CutText) else format(cell)
    if len(text) <= width.word:
        return width
    word = len(text) if " " not in text else max(map(len, text.split(" ")))
    return _Width(max(width.word, word), max(width.text, len(text)))
