# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The form of manifests. A lake may come from somebody else: each value is checked before it is used."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Callable, Optional

from .layout import IMAGE, TABLES

Manifest = dict[str, Any]
Fits = Callable[[object], bool]
"""A function that returns whether a value has its form."""

DONE, FAILED = "done", "failed"
COPY = "copy"
"""The status of an image, in reports alone, that equals an image already read."""
MANIFEST_VERSION = 4

MOST_LETTERS = 1 << 26
"""The most letters of a manifest that is read."""

_IMAGE_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_ATTEMPT = re.compile(r"[A-Za-z0-9-]{0,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_NUMBER = 1 << 63


class ManifestError(Exception):
    """An invalid manifest; the text gives the reason."""


def unopened(path: str) -> str:
    """Returns the name in a lake of an image that could not be opened and so has no ImageId."""
    return "u" + hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def is_image_id(text: object) -> bool:
    """Returns whether a text can be an ImageId: file names are built from it."""
    return isinstance(text, str) and _IMAGE_ID.fullmatch(text) is not None


def parsed(text: str, image_id: str) -> Manifest:
    """Returns a manifest parsed from its text.

    Args:
        image_id: ImageId in the row of the lake

    Raises:
        ManifestError: the text is not JSON, has another version, or a value does not have its form
    """
    if len(text) > MOST_LETTERS:
        raise ManifestError(f"it has more than {MOST_LETTERS:,} letters")
    try:
        content = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"it cannot be read ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise ManifestError("it is not a JSON object")
    version = content.get("manifest")
    if type(version) is int and version != MANIFEST_VERSION:
        raise ManifestError(f"it has version {version}, not {MANIFEST_VERSION}")
    for name, (fits, _) in _MEMBERS.items():
        if name not in content:
            raise ManifestError(f"it lacks {name}")
        if not fits(content[name]):
            raise ManifestError(f"the value of {name} has a wrong form")
    if content["image_id"] != image_id:
        raise ManifestError("its image_id differs from its ImageId")
    if set(content["tables"]) != (set(TABLES) if content["status"] == DONE else set()):
        raise ManifestError("its tables do not fit its status")
    if content["tables"] and content["tables"][IMAGE]["rows"] != 1:
        raise ManifestError("the table image does not have exactly one row")
    return content


def written(manifest: Manifest) -> str:
    """Returns the text of a manifest. An unpaired UTF-16 surrogate from an image becomes `?`."""
    return json.dumps(manifest, ensure_ascii=False).encode("utf-8", "replace").decode()


def cut_text(truncated: Optional[bool], share: Optional[int]) -> str:
    """Returns what a manifest says about a file that ends too early; empty for other files.

    Args:
        truncated: whether the file ends too early, None if unknown
        share: how much is missing, in percent; None if unknown
    """
    if not truncated:
        return ""
    return "the file is truncated" if share is None else f"the file is truncated: {share} % are missing"


def _no_number(text: str) -> None:
    raise ValueError(text)


def _text(value: object) -> bool:
    """Returns whether a value is a text that UTF-8 can encode."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _number(value: object) -> bool:
    return type(value) is int and -_MOST_NUMBER <= value < _MOST_NUMBER


def _counted(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_NUMBER


def _seconds(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _time(value: object) -> bool:
    try:
        return _text(value) and datetime.datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        return False


def _maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _every_item(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _every_value(fits: Fits) -> Fits:
    return lambda value: isinstance(value, dict) and all(map(_text, value)) and all(map(fits, value.values()))


def _record(forms: Mapping[str, Fits]) -> Fits:
    return lambda value: (
        isinstance(value, dict) and all(fits(value.get(name)) for name, fits in forms.items())
    )


def _is_table(value: object) -> bool:
    """Returns whether a value is the entry of a table: a lake has many, so this costs most of a manifest."""
    if not isinstance(value, dict):
        return False
    digest = value.get("digest")
    return _counted(value.get("rows")) and isinstance(digest, str) and _SHA256.fullmatch(digest) is not None


_TEXTS = ["VARCHAR"]
_PLAIN: tuple[Fits, Any] = (_text, "VARCHAR")
_COUNTED: tuple[Fits, Any] = (_counted, "BIGINT")
_TIME: tuple[Fits, Any] = (_time, "TIMESTAMPTZ")

_MEMBERS: dict[str, tuple[Fits, Any]] = {
    "manifest": (_number, None),
    "image_id": (is_image_id, None),
    "probe": (_text, None),
    "reading_digest": (_text, None),
    "modified": (_number, None),
    "status": (lambda value: value in (DONE, FAILED), "VARCHAR"),
    "reason": _PLAIN,
    "truncated": (lambda value: value is None or type(value) is bool, "BOOLEAN"),
    "missing_share": (_maybe(_counted), "BIGINT"),
    "path": _PLAIN,
    "copies": (_every_item(_text), _TEXTS),
    "replaces": (_every_item(is_image_id), _TEXTS),
    "case": _PLAIN,
    "note": _PLAIN,
    "exit": _PLAIN,
    "seconds": (_seconds, "DOUBLE"),
    "memory": _COUNTED,
    "warnings": _COUNTED,
    "attempt": (lambda value: isinstance(value, str) and bool(_ATTEMPT.fullmatch(value)), "VARCHAR"),
    "started": _TIME,
    "ended": _TIME,
    "size": _COUNTED,
    "files": (
        _every_item(_record({"path": _text, "size": _maybe(_number), "sha256": _maybe(_text)})),
        [{"path": "VARCHAR", "size": "BIGINT", "sha256": "VARCHAR"}],
    ),
    "identity": (
        _maybe(_record({"own": _text, "of": _text, "compared": _text, "digests": _every_item(_text)})),
        {"own": "VARCHAR", "of": "VARCHAR", "compared": "VARCHAR", "digests": _TEXTS},
    ),
    "tables": (_every_value(_is_table), "MAP(VARCHAR, STRUCT(rows BIGINT, digest VARCHAR))"),
    "versions": (_every_value(_text), "MAP(VARCHAR, VARCHAR)"),
    "run": _PLAIN,
    "worker": _PLAIN,
    "machine": _PLAIN,
    "warning_texts": (_every_item(_text), _TEXTS),
    "log": _PLAIN,
}
"""The form of each member, and its type in DuckDB, if any. Members that only people read are free."""

SQL_TYPES = {name: kind for name, (_, kind) in _MEMBERS.items() if kind}
"""Types of members in DuckDB; a value of another form becomes null."""
