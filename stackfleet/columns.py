# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Arrow schemas of a lake's tables, built from the dictionary of columns.

The tables of stacks and images are the flat tables of the plugins; the tables of findings and trap frames
have the columns of those plugins. Files have these columns in Delta's types, and one more column: see
`stored`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from winstacks.columns import dictionary, tables
from winstacks.columns.dictionary import COLUMNS, Column

from .layout import FINDINGS, FRAMES, IMAGE, KEYS, MODULE_SETS, MODULES, TRACES, TRAP_FRAMES

TIME = pa.timestamp("us", tz="UTC")

_TYPES = {
    dictionary.STR: pa.string(),
    dictionary.INT: pa.int64(),
    dictionary.BOOL: pa.bool_(),
    dictionary.HEX: pa.uint64(),
    dictionary.ADDRESS: pa.uint64(),
    dictionary.REGISTER: pa.uint64(),
    dictionary.HEXSTR: pa.string(),
    dictionary.TIME: TIME,
}

MODULE_SET = pa.field("ModuleSet", pa.uint64())
"""Number of the set of module versions in a stack's StackKey; null if there is none."""


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _TYPES[column.type], column.nullable)


def _absent(plugin: str) -> list[pa.Field]:
    """Returns the columns of a plugin without a flat table: any cell may be absent."""
    return [_field(column._replace(nullable=True)) for column in tables.TABLES[plugin]]


_KEYS = [_field(COLUMNS["ImageId"]), _field(COLUMNS["Schema"])]

SCHEMAS: dict[str, Any] = {
    TRACES: pa.schema([*map(_field, tables.TRACES), MODULE_SET]),
    FRAMES: pa.schema(map(_field, tables.FRAMES)),
    IMAGE: pa.schema(map(_field, tables.IMAGE)),
    FINDINGS: pa.schema(_absent("tracefindings")),
    TRAP_FRAMES: pa.schema([*_KEYS, *_absent("trapframes")]),
    MODULES: pa.schema(
        [
            *_KEYS,
            pa.field("Version", pa.uint64(), False),
            pa.field("Module", pa.string(), False),
            _field(COLUMNS["ModuleStamp"]),
            _field(COLUMNS["ModuleSize"]),
        ]
    ),
    MODULE_SETS: pa.schema(
        [
            *_KEYS,
            pa.field("ModuleSet", pa.uint64(), False),
            pa.field("Versions", pa.list_(pa.field("item", pa.uint64(), False)), False),
        ]
    ),
    KEYS: pa.schema(
        [
            *_KEYS,
            pa.field("StackHigh", pa.int64()),
            pa.field("StackLow", pa.int64()),
            pa.field("ShapeHigh", pa.int64()),
            pa.field("ShapeLow", pa.int64()),
            pa.field("ModuleSet", pa.uint64()),
            pa.field("HostKey", pa.int64(), False),
            pa.field("Kind", pa.string(), False),
            pa.field("Sure", pa.bool_(), False),
            pa.field("Stacks", pa.int64(), False),
            pa.field("Count", pa.int64()),
            pa.field("Unbacked", pa.int64()),
        ]
    ),
}
"""The Arrow schema of each table."""

ATTEMPT = pa.field("Attempt", pa.string())
"""The column of files that names the attempt that wrote a row: only one attempt at an image counts."""


_ALWAYS = (_KEYS[0].name, ATTEMPT.name)
"""The columns by which a row counts."""


def stored(table: str) -> Any:
    """Returns the schema of the files of a table.

    Delta has no unsigned numbers: signed numbers with the same bits are stored. Versions added columns to the
    table `image`, so that the rows of earlier ones have nulls there.
    """
    fields = [
        pa.field(field.name, _signed(field.type), field.nullable or (table == IMAGE and field not in _KEYS))
        for field in SCHEMAS[table]
    ]
    return pa.schema([*fields, ATTEMPT])


def to_stored(table: str, batch: Any, attempt: str) -> Any:
    """Returns rows in the form of files.

    Args:
        table: name of the table
        batch: Arrow batch with the table's own schema
        attempt: the attempt that wrote the rows
    """
    columns = [_viewed(column) for column in batch.columns]
    columns.append(pa.repeat(pa.scalar(attempt, ATTEMPT.type), batch.num_rows))
    return pa.record_batch(columns, schema=stored(table))


def misfit(table: str, schema: Any) -> str:
    """Returns in words why the rows of a file cannot be rows of a table; empty if they can.

    A file of another version may lack columns that are not `required`, and may have further columns.

    Args:
        table: name of the table
        schema: Arrow schema of the file
    """
    needed = required(table)
    for field in stored(table):
        places = schema.get_all_field_indices(field.name)
        if len(places) > 1:
            return f"it has {len(places)} columns {field.name}"
        if not places and field.name in needed:
            return f"it lacks the column {field.name}"
        if places and schema.field(places[0]).type != field.type:
            return f"the type of {field.name} is {schema.field(places[0]).type} instead of {field.type}"
    return ""


def required(table: str) -> set[str]:
    """Returns the columns that each file of a table has, whatever version wrote it."""
    return {field.name for field in stored(table) if not field.nullable or field.name in _ALWAYS}


def fitted(table: str, batch: Any) -> Any:
    """Returns stored rows of any version, which `misfit` accepts, in the form of this version."""
    schema, names = stored(table), batch.schema.names
    columns = [
        batch.column(names.index(field.name)) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def _signed(kind: Any) -> Any:
    if pa.types.is_uint64(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _signed(kind.value_type), kind.value_field.nullable))
    return kind


def _viewed(column: Any) -> Any:
    if pa.types.is_uint64(column.type):
        return column.view(pa.int64())
    if pa.types.is_list(column.type):
        values = _viewed(column.flatten())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), _ends(column)])
        return pa.ListArray.from_arrays(offsets, values, type=_signed(column.type))
    return column


def _ends(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.cumulative_sum(pc.list_value_length(column)).cast(pa.int32())
