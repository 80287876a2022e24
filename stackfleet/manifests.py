# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a manifest may say. A lake may be somebody else's: each value is looked at before it is used."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Callable

from .layout import IMAGE, TABLES, table_name

Manifest = dict[str, Any]
Fits = Callable[[object], bool]
"""Returns whether a value has its form."""

DONE, FAILED = "done", "failed"
MANIFEST_VERSION = 2

MOST_BYTES = 1 << 26
"""Bytes of a manifest that is read."""

_IMAGE_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_ATTEMPT = re.compile(r"[A-Za-z0-9-]{0,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_NUMBER = 1 << 63


class ManifestError(Exception):
    """A manifest that is none; the text says why."""


def is_image_id(text: object) -> bool:
    """Returns whether a text can be an ImageId: names of files are made of it."""
    return isinstance(text, str) and _IMAGE_ID.fullmatch(text) is not None


def parsed(data: bytes, image_id: str) -> Manifest:
    """Returns a manifest from its file.

    Args:
        data: of the file
        image_id: that by which the file is named

    Raises:
        ManifestError: it is not JSON, of a later version, or a value is not of its form
    """
    try:
        found = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"it cannot be read ({type(error).__name__})") from error
    if not isinstance(found, dict):
        raise ManifestError("it is no record")
    version = found.get("manifest")
    if type(version) is int and version != MANIFEST_VERSION:
        raise ManifestError(f"it has version {version}, and not {MANIFEST_VERSION}")
    made: Manifest = {**found, **{name: found.get(name, _LATER[name]) for name in _LATER}}
    for name, fits in _FORMS.items():
        if name not in made:
            raise ManifestError(f"it does not say {name}")
        if not fits(made[name]):
            raise ManifestError(f"{name} is not of the form that it has in manifests")
    if made["image_id"] != image_id:
        raise ManifestError("image_id is another than that in its name")
    if set(made["tables"]) != (set(TABLES) if made["status"] == DONE else set()):
        raise ManifestError("tables are not those of an image of this status")
    if made["tables"] and made["tables"][IMAGE]["rows"] != 1:
        raise ManifestError("the table image has not one row")
    for name, each in made["tables"].items():
        if each["file"] != table_name(name, image_id, made["attempt"]):
            raise ManifestError(f"the file of the table {name} is not that of its attempt")
    return made


def written(manifest: Manifest) -> bytes:
    """Returns the file of a manifest. Half a character of UTF-16, as an image may have it, becomes `?`."""
    return json.dumps(manifest, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _no_number(text: str) -> None:
    raise ValueError(text)


def _text(value: object) -> bool:
    """Returns whether a value is a text that has a form in UTF-8."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)


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


def _matching(pattern: re.Pattern[str]) -> Fits:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _all(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _each(fits: Fits) -> Fits:
    return lambda value: isinstance(value, dict) and all(map(_text, value)) and all(map(fits, value.values()))


def _record(forms: Mapping[str, Fits]) -> Fits:
    return lambda value: (
        isinstance(value, dict) and all(fits(value.get(name)) for name, fits in forms.items())
    )


_TABLE = _record(
    {"file": _text, "rows": _counted, "sha256": _matching(_SHA256), "bytes": _maybe(_counted)},
)
_FORMS: dict[str, Fits] = {
    "manifest": _number,
    "image_id": is_image_id,
    "status": lambda value: value in (DONE, FAILED),
    **dict.fromkeys(("reason", "path", "probe", "reading_digest", "case", "note", "run"), _text),
    **dict.fromkeys(("worker", "machine", "exit", "log"), _text),
    "attempt": _matching(_ATTEMPT),
    **dict.fromkeys(("size", "memory", "warnings"), _counted),
    "modified": _number,
    "seconds": _seconds,
    "files": _all(_record({"path": _text, "size": _maybe(_number), "sha256": _maybe(_text)})),
    "identity": _maybe(_record({"own": _text, "of": _text, "compared": _text, "digests": _all(_text)})),
    "copies": _all(_text),
    "warning_texts": _all(_text),
    "tables": _each(_TABLE),
    "versions": _each(_text),
    "started": _time,
    "ended": _time,
    "replaces": _all(is_image_id),
}
"""What each value has to be. Others, which only people read, may be anything."""

_LATER: dict[str, Any] = {"replaces": []}
"""What manifests did not say at first, and what that means."""
