# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The form of a row in an answer to a program: what is known to be no text of an image stands apart.

`values` has numbers, times, keys, and words of our own lists. All other text stands in `from_image`: whoever
controlled the machine, or made the lake, may have written it. The column alone decides nothing, because a
query can name its columns as it likes: the value must have the form of its column.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Optional

from winstacks.columns.dictionary import ADDRESS, COLUMNS, HEXSTR
from winstacks.columns.words import ARCHES, KINDS
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.options import CHECKS

from . import output
from .lake import DAMAGED
from .manifests import DONE, FAILED
from .output import visible

Row = dict[str, Any]

_KEY = "[0-9a-f]{32}"
_ADDRESS = "0x[0-9a-f]{1,16}"
_IMAGE_ID = "[a-z][0-9a-f]{1,64}"
_TRACE_ID = (
    f"(?:{'|'.join(KINDS)}):[0-9a-f]{{1,16}}:[0-9a-f]{{1,16}}:(?:{'|'.join(ARCHES)}):[a-z0-9]{{0,16}}:"
    r"[0-9a-f.]{1,99}(?:~\d{1,9})?"
)
_PATTERNS = {
    **dict.fromkeys(("StackKey", "ShapeKey", "CrashKey"), _KEY),
    **dict.fromkeys(("ImageId", "ReplacedBy", "SameIdAs"), _IMAGE_ID),
    **dict.fromkeys(("TraceId", "CrashTraceId"), _TRACE_ID),
    **dict.fromkeys(("BugCheckParameters", "CrashParameters"), f"{_ADDRESS}(?: {_ADDRESS}){{0,15}}"),
    **{column.name: _ADDRESS for column in COLUMNS.values() if column.type in (ADDRESS, HEXSTR)},
    "Technique": r"T\d{4}(?:\.\d{3})?(?:, T\d{4}(?:\.\d{3})?){0,15}",
}
_FORMS = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}

_WORDS: dict[str, Collection[str]] = {
    **{column.name: frozenset(column.values) for column in COLUMNS.values() if column.values},
    "Finding": frozenset((*CHECKS, "lost_stacks", "summary")),
    "Change": ("new", "gone", "changed"),
}
_SINGULAR = {"ImageIds": "ImageId", "Kinds": "Kind", "Addresses": "Address"}
"""Columns of lists, and the columns whose values they list."""

_STATUS = [
    re.compile(
        re.escape(code.value).replace(r"\{\}", r"\d{1,20}").replace(r"\{members\}", r"[0-9a-fx ]{1,99}")
    )
    for code in StatusCode
]
"""The words of Status. Names in them are not accepted: they stay with the text of the image."""

_HIDDEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters that Unicode calls printable and that nobody sees: they can carry a text to a program."""


class Room(NamedTuple):
    """The room that a row has.

    Attributes:
        letters: the most letters of a text
        items: the most items of a list
    """

    letters: int
    items: int


ROOMS = (Room(600, 16), Room(60, 4))
"""The room of a row; the second is for rows that are too long with the first."""


def row_of(row: Mapping[str, Any], room: Room = ROOMS[0]) -> Row:
    """Returns a row in the form of an answer. Absent values are left out of `from_image`, and kept as null in
    `values`; `cut` names the columns that were cut, and is there only if some were."""
    values: Row = {}
    from_image: Row = {}
    cut: list[str] = []
    for name, value in row.items():
        shown = visible_text(name, room.letters)
        form = _SINGULAR.get(name, name)
        if is_own(form, value):
            values[shown] = _plain(value, room)
        else:
            from_image[shown] = _plain(value, room)
        if _is_cut(value, room):
            cut.append(shown)
    found = {"values": values, "from_image": from_image}
    return {**found, "cut": cut} if cut else found


def is_own(name: str, value: object) -> bool:
    """Returns whether a value cannot be a text that an image chose."""
    if value is None or isinstance(value, (bool, int, float, datetime.datetime, datetime.date)):
        return True
    if isinstance(value, list):
        return all(is_own(name, item) for item in value)
    if not isinstance(value, str):
        return False
    if name == "Status":
        return is_status(value)
    if name in _WORDS:
        return value in _WORDS[name]
    return name in _FORMS and _FORMS[name].fullmatch(value) is not None


def is_status(text: str) -> bool:
    """Returns whether a text consists of words of Status, of rows or of images."""
    return text in ("", DONE, FAILED, DAMAGED) or all(
        any(form.fullmatch(part) for form in _STATUS) for part in text.split(", ")
    )


def visible_text(text: str, most: int) -> str:
    """Returns a text of an image: at most so many letters of it, those escaped that nobody sees."""
    shown = visible(text[:most])
    return _HIDDEN.sub(lambda found: found[0].encode("ascii", "backslashreplace").decode(), shown)


def _plain(value: object, room: Room) -> Any:
    if isinstance(value, str):
        return visible_text(value, room.letters)
    if isinstance(value, list):
        return [_plain(item, room) for item in value[: room.items]]
    if isinstance(value, dict):
        items = list(value.items())[: room.items]
        return {visible_text(str(name), room.letters): _plain(item, room) for name, item in items}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    return visible_text(str(value), room.letters)


def _is_cut(value: object, room: Room) -> bool:
    if isinstance(value, str):
        return len(value) > room.letters
    if isinstance(value, (list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return len(value) > room.items or any(_is_cut(item, room) for item in items)
    return False


def size(value: object) -> int:
    """Returns the bytes of a value as JSON."""
    return len(output.json_line({"": value}).encode("utf-8", "replace"))


def quoted_text(text: str, most: int = 600) -> str:
    """Returns a message that may quote an image, as one text of JSON."""
    return json.dumps(visible_text(text.replace("\n", " "), most), ensure_ascii=False)


def first_that_fits(row: Mapping[str, Any], most: int) -> Optional[Row]:
    """Returns a row in the largest room with which it has at most so many bytes; None if there is none."""
    return next((found for room in ROOMS if size(found := row_of(row, room)) <= most), None)
