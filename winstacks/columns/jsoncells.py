# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The cells of windows.traceimage that hold JSON: how they are written, and read again.

A lake may come from somebody else: a cell whose text does not have its form is None, never an exception.

This module does not need Volatility.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

_MOST_NUMBER = 1 << 63


class FileCell(NamedTuple):
    """A file of an image, in the column Files."""

    path: str
    size: Optional[int]
    """Bytes; None: unknown."""
    sha256: Optional[str]
    """Hexadecimal digits; None: the file was not hashed."""


def counts_text(counts: Mapping[str, int]) -> str:
    """Returns the cell of counts by name: of StacksKnown, StacksRead, StructuresAbsent."""
    return json.dumps(counts, sort_keys=True)


def counts(text: object) -> Optional[Dict[str, int]]:
    """Returns the counts by name of a cell, each below 2^63; None: the cell does not have this form."""
    found = _parsed(text)
    if not isinstance(found, dict) or not all(map(_is_count, found.values())):
        return None
    return found


def files_text(files: List[FileCell]) -> str:
    """Returns the cell of the column Files."""
    return json.dumps([file._asdict() for file in files])


def files(text: object) -> Optional[List[FileCell]]:
    """Returns the files of a cell; None: the cell does not have this form."""
    found = _parsed(text)
    if not isinstance(found, list) or not all(map(_is_file, found)):
        return None
    return [FileCell(*(file[name] for name in FileCell._fields)) for file in found]


def _parsed(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_NUMBER


def _is_file(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("path"), str):
        return False
    size, sha256 = value.get("size", ""), value.get("sha256", 0)
    return (size is None or _is_count(size)) and (sha256 is None or isinstance(sha256, str))
