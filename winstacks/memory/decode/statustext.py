# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Parses the text of a status: a file that keeps the column Status as text gives it back as words."""

from __future__ import annotations

import functools
import re
from typing import List, Optional, Pattern, Tuple

from .status import Status, StatusItem, text
from .statuscodes import StatusCode

_NAMES = r"[!-+\--~]+(?: [!-+\--~]+)*"
"""Names of members: printable ASCII without a comma. A dump may have any text."""


def parsed(shown: str) -> Optional[Status]:
    """Returns the status whose text `status.text` made, None if it is no such text."""
    items: List[StatusItem] = []
    position = 0
    while position < len(shown):
        item, end = _said_at(shown, position)
        if item is None:
            return None
        items.append(item)
        position = end
    found = tuple(items)
    return found if text(found) == shown else None


def _said_at(shown: str, position: int) -> Tuple[Optional[StatusItem], int]:
    """Returns the item of a status text at a position, None if there is none, and where the next item
    begins."""
    for word, form in _forms():
        match = form.match(shown, position)
        if match is not None:
            values = match.groupdict()
            number, members = values.get("number"), values.get("members")
            item = StatusItem(
                word,
                None if number is None else int(number),
                tuple(members.split(" ")) if members else (),
            )
            return item, match.end()
    return None, position


def _form(word: StatusCode) -> Pattern[str]:
    """Returns a pattern for the text of a word, up to the end or to the comma before the next word."""
    form = re.escape(word.value).replace(r"\{\}", "(?P<number>-?[0-9]{1,20})")
    form = form.replace(r"\{members\}", f"(?P<members>{_NAMES})")
    return re.compile(f"{form}(?:, |$)")


@functools.lru_cache(maxsize=1)
def _forms() -> Tuple[Tuple[StatusCode, Pattern[str]], ...]:
    """Returns words and patterns, longest text first: one text may begin with another."""
    words = sorted(StatusCode, key=lambda word: len(word.value), reverse=True)
    return tuple((word, _form(word)) for word in words)
