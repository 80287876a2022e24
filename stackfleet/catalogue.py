# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The manifests of a lake as a table: the state of each image."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from .contents import Contents, Damaged
from .layout import manifest_file
from .sqltext import sql_list, sql_type

MANIFESTS = "manifests"
"""Name of the view of all manifests, including failed and damaged images."""

DAMAGED = "damaged"
"""The status of an image whose files do not agree with its manifest."""

_TEXTS = pa.list_(pa.string())
_SUMMARY: dict[str, Any] = {
    "image_id": pa.string(),
    "status": pa.string(),
    "reason": pa.string(),
    "truncated": pa.bool_(),
    "missing_share": pa.int64(),
    "path": pa.string(),
    "copies": _TEXTS,
    "replaces": _TEXTS,
    "case": pa.string(),
    "note": pa.string(),
    "exit": pa.string(),
    "seconds": pa.float64(),
    "memory": pa.int64(),
    "warnings": pa.int64(),
    "attempt": pa.string(),
    "started": pa.timestamp("us", tz="UTC"),
    "ended": pa.timestamp("us", tz="UTC"),
}
"""The columns that the catalogue has without the texts of manifests."""

_MANIFEST: dict[str, Any] = {
    "size": pa.int64(),
    "files": pa.list_(
        pa.struct([("path", pa.string()), ("size", pa.int64()), ("sha256", pa.string())]),
    ),
    "identity": pa.struct(
        [("own", pa.string()), ("of", pa.string()), ("compared", pa.string()), ("digests", _TEXTS)],
    ),
    "tables": pa.map_(
        pa.string(),
        pa.struct([("file", pa.string()), ("rows", pa.int64()), ("sha256", pa.string())]),
    ),
    "versions": pa.map_(pa.string(), pa.string()),
    "run": pa.string(),
    "worker": pa.string(),
    "machine": pa.string(),
    "warning_texts": _TEXTS,
    "log": pa.string(),
}
"""The columns that only whole manifests have."""

_COLUMNS = {**_SUMMARY, **_MANIFEST}

_MADE = {
    "rows": "coalesce(list_sum([each.rows for each in map_values(tables)]), 0)::BIGINT",
    "same_id_as": "identity.compared",
}
"""Columns made of others: the number of rows in all tables, and the comparison with an image of the same
ImageId."""


def table(contents: Contents) -> Any:
    """Returns the view as an Arrow table, including damaged images.

    It has the columns of whole manifests only if the contents have these.
    """
    rows: Sequence[Mapping[str, Any]] = [*contents.manifests, *map(_of_damaged, contents.damaged)]
    kinds = _COLUMNS if contents.whole else _SUMMARY
    columns = {name: pa.array(_values(rows, name, kind), kind) for name, kind in kinds.items()}
    columns["rows"] = pa.array([_row_count(row) for row in rows], pa.int64())
    columns["same_id_as"] = pa.array([_same_id_as(row) for row in rows], pa.string())
    return pa.table(columns)


def view(lake: str, contents: Contents) -> str:
    """Returns the statement that creates the view in DuckDB's own command line, without damaged images."""
    kinds = {name: sql_type(kind) for name, kind in _COLUMNS.items()}
    if not contents.manifests:
        empty = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in kinds.items())
        computed = 'NULL::BIGINT AS "rows", NULL::VARCHAR AS same_id_as'
        return f"CREATE VIEW {MANIFESTS} AS SELECT {empty}, {computed} WHERE false"
    columns = ", ".join(f"\"{name}\": '{kind}'" for name, kind in kinds.items())
    files = sql_list([str(manifest_file(lake, manifest["image_id"])) for manifest in contents.manifests])
    computed = ", ".join(f'{value} AS "{name}"' for name, value in _MADE.items())
    return (
        f"CREATE VIEW {MANIFESTS} AS SELECT *, {computed} FROM read_json({files}, "
        f"format = 'unstructured', maximum_object_size = 268435456, columns = {{{columns}}})"
    )


def _of_damaged(damaged: Damaged) -> dict[str, Any]:
    manifest = damaged.manifest or {}
    return {**manifest, "image_id": damaged.image_id, "status": DAMAGED, "reason": damaged.reason}


def _row_count(row: Mapping[str, Any]) -> int:
    return sum(item["rows"] for item in (row.get("tables") or {}).values())


def _same_id_as(row: Mapping[str, Any]) -> Any:
    if "same_id_as" in row:
        return row["same_id_as"]
    return (row.get("identity") or {}).get("compared")


def _values(rows: Sequence[Mapping[str, Any]], name: str, kind: Any) -> list[Any]:
    """Returns the values of a column as Arrow takes them."""
    values = [row.get(name) for row in rows]
    if pa.types.is_timestamp(kind):
        return [None if value is None else datetime.datetime.fromisoformat(value) for value in values]
    if pa.types.is_map(kind):
        return [None if value is None else list(value.items()) for value in values]
    return values
