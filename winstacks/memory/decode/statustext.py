# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A status from its text: a file that keeps what the column Status showed gives it back as words."""

from __future__ import annotations

import functools
import re
from typing import List, Optional, Pattern, Tuple

from .status import Said, Status, Word


def parsed(shown: str) -> Optional[Status]:
    """Returns the status of which `text` made a text, None if it did not make it."""
    found: List[Said] = []
    position = 0
    while position < len(shown):
        said, end = _said_at(shown, position)
        if said is None:
            return None
        found.append(said)
        position = end
    return tuple(found)


def _said_at(shown: str, position: int) -> Tuple[Optional[Said], int]:
    """Returns what a text says from a position on, and where the next begins."""
    for word, form in _forms():
        match = form.match(shown, position)
        if match is not None:
            values = match.groupdict()
            number, members = values.get("number"), values.get("members")
            said = Said(
                word,
                None if number is None else int(number),
                tuple(members.split(" ")) if members else (),
            )
            return said, match.end()
    return None, position


def _form(word: Word) -> Pattern[str]:
    """Returns how a word stands in a text: to its end, or up to the comma before the next."""
    form = re.escape(word.value).replace(r"\{\}", "(?P<number>-?[0-9]{1,20})")
    form = form.replace(r"\{members\}", "(?P<members>[^,]*)")
    return re.compile(f"{form}(?:, |$)")


@functools.lru_cache(maxsize=1)
def _forms() -> Tuple[Tuple[Word, Pattern[str]], ...]:
    """Returns the words by the length of their texts: a text may begin as another does."""
    words = sorted(Word, key=lambda word: len(word.value), reverse=True)
    return tuple((word, _form(word)) for word in words)
