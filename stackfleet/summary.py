# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The members of a manifest that have columns of their own in the catalogue: all that most questions need.

A manifest has several kilobytes of JSON, most of them hashes. Whoever asks ten thousand images how they are
reads these columns, and parses no manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from .layout import TABLES
from .manifests import LATER, Manifest, ManifestError, check, check_tables

_TEXT, _TEXTS = pa.string(), pa.list_(pa.string())
_MEMBERS: dict[str, tuple[str, Any]] = {
    "Status": ("status", _TEXT),
    "Reason": ("reason", _TEXT),
    "Path": ("path", _TEXT),
    "Copies": ("copies", _TEXTS),
    "Replaces": ("replaces", _TEXTS),
    "Truncated": ("truncated", pa.bool_()),
    "MissingShare": ("missing_share", pa.int64()),
    "Case": ("case", _TEXT),
    "Note": ("note", _TEXT),
    "Exit": ("exit", _TEXT),
    "Seconds": ("seconds", pa.float64()),
    "Memory": ("memory", pa.int64()),
    "Warnings": ("warnings", pa.int64()),
    "Started": ("started", _TEXT),
    "Ended": ("ended", _TEXT),
}
"""Members of the manifest that are columns, with their Arrow types."""

SAME_ID_AS, ROWS = "SameIdAs", "Rows"

FIELDS: tuple[Any, ...] = (
    *(pa.field(name, kind) for name, (_, kind) in _MEMBERS.items()),
    pa.field(SAME_ID_AS, _TEXT),
    pa.field(ROWS, pa.struct([(table, pa.int64()) for table in TABLES])),
)
"""The columns. `SameIdAs` is how an image was compared with another one of the same ImageId; `Rows` has the
number of rows in each table, null for an image that failed."""

Summary = tuple[Any, ...]
"""The values of an image, in the order of FIELDS; the last is a tuple with a number for each table."""


def summary(manifest: Mapping[str, Any]) -> Summary:
    """Returns the values of a valid manifest."""
    values = [manifest.get(member, LATER.get(member)) for member, _ in _MEMBERS.values()]
    rows = tuple(manifest["tables"].get(table, {}).get("rows") for table in TABLES)
    return (*values, (manifest["identity"] or {}).get("compared"), rows)


def arrays(summaries: Sequence[Summary]) -> list[Any]:
    """Returns the columns of images as Arrow arrays."""
    columns = [[values[place] for values in summaries] for place in range(len(FIELDS))]
    tables = [[None if rows is None else rows[place] for rows in columns[-1]] for place in range(len(TABLES))]
    rows = pa.StructArray.from_arrays([pa.array(counts, pa.int64()) for counts in tables], names=list(TABLES))
    return [*(pa.array(values, field.type) for values, field in zip(columns, FIELDS[:-1])), rows]


def summaries(columns: Sequence[Any]) -> Iterator[Summary]:
    """Yields the values of images.

    Args:
        columns: columns of an Arrow table, in the order of FIELDS

    Raises:
        ValueError: a text is not UTF-8
    """
    rows = zip(*(counts.to_pylist() for counts in columns[-1].flatten()))
    return zip(*(column.to_pylist() for column in columns[:-1]), rows)


def of_summary(image_id: str, attempt: str, values: Summary) -> Manifest:
    """Returns the members of a manifest that a summary has; tables have `rows` only.

    Its member `same_id_as` is `compared` of the `identity` in the whole manifest.

    Raises:
        ManifestError: a value does not have its form
    """
    manifest: Manifest = {member: value for (member, _), value in zip(_MEMBERS.values(), values)}
    manifest["attempt"], same_id_as = attempt, values[-2]
    check(manifest, manifest)
    manifest["image_id"], manifest["same_id_as"] = image_id, same_id_as
    manifest["tables"] = {
        table: {"rows": rows} for table, rows in zip(TABLES, values[-1]) if rows is not None
    }
    check_tables(manifest)
    if any(item["rows"] < 0 for item in manifest["tables"].values()):
        raise ManifestError("a table has a negative number of rows")
    return manifest
