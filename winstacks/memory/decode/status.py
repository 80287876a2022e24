# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The column Status: remarks of a row about its values.

A status is a tuple of `Said`: a word of the enum `Word`, with a number or the names of members if the word
has them, in the order in which they were found. Code compares words by identity and never searches a text;
`text` makes the text for the column. An empty status means that no problem was found.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple, Union

from .statuswords import Word


class Said(NamedTuple):
    """One item of a status.

    Attributes:
        word: the word
        number: number for the `{}` in the word's text; None for a word without one
        members: names for the `{members}` in the word's text, mostly members of a structure
    """

    word: Word
    number: Optional[int] = None
    members: Tuple[str, ...] = ()


Status = Tuple[Said, ...]

NOTHING: Status = ()

Part = Union[Word, Said, Status, None]


def status(*parts: Part) -> Status:
    """Joins words and statuses to one status. Equal items are kept once; None and empty ones add nothing."""
    if not any(parts):
        return NOTHING
    items = []
    for part in parts:
        if isinstance(part, Word):
            items.append(Said(part))
        elif isinstance(part, Said):
            items.append(part)
        elif part:
            items.extend(part)
    return tuple(dict.fromkeys(items))


def says(said: Status, *words: Word) -> bool:
    """Returns whether a status has one of several words."""
    return any(item.word is word for item in said for word in words)


def text(said: Status) -> str:
    """Returns a status as the column Status shows it."""
    return ", ".join(item.word.value.format(item.number, members=" ".join(item.members)) for item in said)
