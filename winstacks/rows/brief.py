# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Texts of --brief that fit a width: a Symbol, a name or a sentence is cut, or broken into lines."""

from __future__ import annotations

import re
from typing import Iterable, List, Sequence

ELLIPSIS = "…"
"""Mark of omitted characters."""

_OFFSET = r"(?:[+ ]0x[0-9a-fA-F]+)?\Z"
_PARTS = re.compile(r"((?:[^!]*!)?)(.*?)(\+0x[0-9a-fA-F]+)?( 0x[0-9a-f]+)?", re.DOTALL)
"""Module, function, offset and address of a Symbol; a name without a module is a function here."""
_WORD = re.compile(r"(?s:.[^A-Z_:]*)")
"""A word of a function's name. No line breaks within it."""
_MOST_LINES = 5
"""The most pieces of a Symbol that stand in lines of their own."""


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
    if len(parts) > _MOST_LINES or max(map(len, parts), default=0) > width:
        parts = [cut_symbol("".join(named), width)]
    return "\n".join(filter(None, _filled((*parts, address), width)))


def _filled(pieces: Iterable[str], width: int, cut: bool = False) -> List[str]:
    """Returns pieces in lines of at most `width` characters; a wider piece is cut, or has its own line."""
    lines = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        if not lines[-1] and len(lines) > 1:
            piece = piece.lstrip()
        lines[-1] += cut_text(piece, width) if cut else piece
    return lines


def _words(name: str, width: int) -> List[str]:
    """Returns a part of a Symbol, in pieces that begin with a word if it is wider than `width` characters."""
    if len(name) <= width:
        return [name] if name else []
    return _filled(re.findall(_WORD, name), width)


def name_lines(name: str, width: int) -> str:
    """Returns a name in lines of at most `width` characters, broken before backslashes and blanks."""
    return "\n".join(_filled(re.split(r"(?=[\\ ])", name.lstrip()), width, cut=True))


def wrapped(text: str, width: int) -> str:
    """Returns a text wrapped into lines of at most `width` characters, broken between its words.

    A word that is wider has a line of its own, which is longer.
    """
    return "\n".join(_filled(re.split("(?= )", text.lstrip(" ")), width))


def wrapped_evidence(text: str, width: int) -> str:
    """Returns an Evidence wrapped between its words.

    A word that is wider than a line is broken behind `_`, before a capital letter and between the ends of a
    range; a part that is still wider loses its middle.
    """
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        elif lines[-1]:
            lines[-1] += " "
        for piece in _pieces(word) if len(word) > width else [word]:
            piece = cut_text(piece, width)
            if len(lines[-1]) + len(piece) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(lines)


def chunks(text: str, width: int) -> str:
    """Returns a text in lines of `width` characters."""
    return "\n".join(text[start : start + width] for start in range(0, len(text), max(width, 1)))


def longest_piece(text: str) -> int:
    """Returns the length of the longest part of a text that no line breaks within."""
    return max(len(piece) for word in text.split(" ") for piece in _pieces(word))


def _pieces(word: str) -> List[str]:
    return re.split(r"(?<=_)(?=[^_])|(?<=[a-z])(?=[A-Z])|(?<=[0-9a-f]-)(?=0x)", word)


def shares(needed: Sequence[int], room: int) -> List[int]:
    """Divides a width: each column gets the width it wants if all can, else an equal part."""
    widths = [0] * len(needed)
    order = sorted(range(len(needed)), key=needed.__getitem__)
    for count, place in enumerate(order):
        widths[place] = min(needed[place], max(room, 0) // (len(order) - count))
        room -= widths[place]
    return widths
