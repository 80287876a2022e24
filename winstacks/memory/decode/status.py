# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The column Status: remarks of a row about its values.

A status is a tuple of `StatusItem`: a word of the enum `StatusCode`, with a number or the names of members if
the word has them, in the order in which they were found. Code compares words by identity and never searches a
text; `text` makes the text for the column. An empty status means that no problem was found.
"""

from __future__ import annotations

from typing import Iterable, Optional, Tuple, Union

from .records import NamedTuple
from .statuscodes import StatusCode


class StatusItem(NamedTuple):
    """One item of a status.

    Attributes:
        number: number for the `{}` in the code's text; None for a code without one
        members: names for the `{members}` in the code's text, mostly members of a structure
    """

    code: StatusCode
    number: Optional[int] = None
    members: Tuple[str, ...] = ()


Status = Tuple[StatusItem, ...]

NOTHING: Status = ()

Part = Union[StatusCode, StatusItem, Status, None]


def status(*parts: Part) -> Status:
    """Joins words and statuses to one status. Equal items are kept once; None and empty ones add nothing."""
    if not any(parts):
        return NOTHING
    items = []
    for part in parts:
        if isinstance(part, StatusCode):
            items.append(StatusItem(part))
        elif isinstance(part, StatusItem):
            items.append(part)
        elif part:
            items.extend(part)
    return tuple(dict.fromkeys(items))


def naming(word: StatusCode, *members: str) -> Status:
    """Returns a status of one word that names members, and `NOTHING` without members."""
    return (StatusItem(word, None, members),) if members else NOTHING


def contradicted(*members: str) -> Status:
    """Returns a status that the rest of the image contradicts members, and `NOTHING` without members."""
    return naming(StatusCode.CONTRADICTED, *members)


def has_status(items: Status, *words: StatusCode) -> bool:
    """Returns whether a status has one of several words."""
    return bool(items) and any(item.code in words for item in items)


def numbers_of(items: Iterable[StatusItem], *words: StatusCode) -> int:
    """Returns the sum of the numbers that several words of a status have."""
    return sum(item.number or 0 for item in items if item.code in words)


def text(items: Status) -> str:
    """Returns a status as the column Status shows it."""
    return ", ".join(item.code.value.format(item.number, members=" ".join(item.members)) for item in items)
