# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The tool `columns`: meanings of columns and words; and the pages of documentation that a server offers."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any, Optional

from winstacks.columns import tables
from winstacks.columns.dictionary import COLUMNS, Column

from .columns import SCHEMAS
from .job import HERE

TOOL = "columns"

PAGES = HERE / "docs" if (HERE / "docs").is_dir() else HERE.parent / "docs"
"""The folder of the pages: a part of an installed package, or beside the package in its tree."""

OF_ANSWERS = {
    "Hosts": "Number of computers that have it.",
    "Among": "Number of hosts with the same versions of all modules of the stack.",
    "Comparable": "Whether Among is large enough for a share to mean anything.",
    "Number": "Number of rows that are equal and shown as one.",
    "Change": "`new`, `gone` or `changed` in the second group of images.",
    "Hostnames": "Names of the computers, the first of them.",
    "ImageIds": "ImageIds of the images, the first 8.",
    "Seconds": "The longest wait that Since shows; of `images`, how long the image was read.",
    "Cycle": "What the threads of a deadlock wait for, in which functions.",
}
"""Columns that only answers have."""

_WORD = re.compile(r"^\| `([^`|]+)` \| (.+) \|$", re.MULTILINE)
_MADE = re.compile(r"<!-- made: words .*? -->\n(.*?)<!-- made: end -->", re.DOTALL)


def explained(name: str) -> dict[str, Any]:
    """Returns the meaning of a column, of a word of a column, or of a word of Status; without a name, the
    columns of each table."""
    if not name:
        listed = {table: list(schema.names) for table, schema in SCHEMAS.items()}
        return {"tables": {**listed, "answers": list(OF_ANSWERS)}, "columns": [], "words": []}
    columns = [_column(column) for column in COLUMNS.values() if column.name.lower() == name.lower()]
    columns += [
        {"name": known, "type": None, "meaning": meaning, "words": {}, "tables": []}
        for known, meaning in OF_ANSWERS.items()
        if known.lower() == name.lower()
    ]
    words = [
        {"word": name, "column": column.name, "meaning": column.values[name]}
        for column in COLUMNS.values()
        if name in column.values
    ]
    if name in status_words():
        words.append({"word": name, "column": "Status", "meaning": status_words()[name]})
    return {"tables": {}, "columns": columns, "words": words}


def _column(column: Column) -> dict[str, Any]:
    where = [
        table for table, listed in tables.TABLES.items() if column.name in {each.name for each in listed}
    ]
    return {
        "name": column.name,
        "type": column.type,
        "meaning": column.meaning,
        "words": column.values,
        "tables": where,
    }


@functools.cache
def status_words() -> dict[str, str]:
    """Returns the words of Status with their meanings, as the pages have them."""
    found: dict[str, str] = {}
    for path in pages():
        for part in _MADE.findall(path.read_text(encoding="utf-8")):
            found.update(_WORD.findall(part))
    return found


def pages() -> list[pathlib.Path]:
    """Returns the pages of the documentation."""
    return sorted(PAGES.glob("*.md"))


def title(page: str) -> Optional[str]:
    """Returns the title of a page from its text."""
    return next((line[2:] for line in page.split("\n") if line.startswith("# ")), None)
