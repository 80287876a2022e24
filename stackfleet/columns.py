# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Arrow schemas of a lake, built from the dictionary of columns.

The tables of stacks and images are the flat tables of the plugins; the tables of findings and trap frames
have the columns of those plugins. Addresses and registers are hexadecimal text everywhere: Delta has no
unsigned numbers of 64 bits. A row of the lake has the columns of all tables; those that its table lacks are
null.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from winstacks.columns import dictionary, tables
from winstacks.columns.dictionary import COLUMNS, Column

from .layout import (
    FINDINGS,
    FRAMES,
    IMAGE,
    KEYS,
    MANIFESTS,
    MODULE_SETS,
    MODULES,
    RUNS,
    TRACES,
    TRAP_FRAMES,
    WAITS,
)

TIME = pa.timestamp("us", tz="UTC")

_TYPES = {
    dictionary.STR: pa.string(),
    dictionary.INT: pa.int64(),
    dictionary.BOOL: pa.bool_(),
    dictionary.HEX: pa.int64(),
    dictionary.ADDRESS: pa.string(),
    dictionary.REGISTER: pa.string(),
    dictionary.HEXSTR: pa.string(),
    dictionary.TIME: TIME,
}

MODULE_SET = pa.field("ModuleSet", pa.int64())
"""Number of the set of module versions in a stack's StackKey; null if there is none."""


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _TYPES[column.type], column.nullable)


def _absent(plugin: str) -> list[pa.Field]:
    """Returns the columns of a plugin without a flat table: any cell may be absent."""
    return [_field(column._replace(nullable=True)) for column in tables.TABLES[plugin]]


_KEYS = [_field(COLUMNS["ImageId"]), _field(COLUMNS["Schema"])]


def _numbers(*names: str, nullable: bool = True) -> list[pa.Field]:
    return [pa.field(name, pa.int64(), nullable) for name in names]


SCHEMAS: dict[str, Any] = {
    TRACES: pa.schema([*map(_field, tables.TRACES), MODULE_SET]),
    FRAMES: pa.schema(map(_field, tables.FRAMES)),
    WAITS: pa.schema(map(_field, tables.WAITS)),
    IMAGE: pa.schema(map(_field, tables.IMAGE)),
    FINDINGS: pa.schema(_absent("tracefindings")),
    TRAP_FRAMES: pa.schema([*_KEYS, *_absent("trapframes")]),
    MODULES: pa.schema(
        [
            *_KEYS,
            *_numbers("Version", nullable=False),
            pa.field("Module", pa.string(), False),
            _field(COLUMNS["ModuleStamp"]),
            _field(COLUMNS["ModuleSize"]),
        ]
    ),
    MODULE_SETS: pa.schema(
        [*_KEYS, *_numbers("ModuleSet", nullable=False), pa.field("Versions", pa.list_(pa.int64()), False)]
    ),
    KEYS: pa.schema(
        [
            *_KEYS,
            *_numbers("StackHigh", "StackLow", "ShapeHigh", "ShapeLow", "ModuleSet"),
            *_numbers("HostKey", nullable=False),
            pa.field("Kind", pa.string(), False),
            pa.field("Sure", pa.bool_(), False),
            *_numbers("Stacks", nullable=False),
            *_numbers("Count", "Unbacked"),
        ]
    ),
}
"""The Arrow schema of each table."""

ROW = pa.field("Row", pa.int64())
"""The number of a row in its table and image, from 0: programs that merge files may change their order."""

MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("ImageId", pa.string()),
        pa.field("Status", pa.string()),
        pa.field("Path", pa.string()),
        pa.field("Copies", pa.list_(pa.string())),
        pa.field("Manifest", pa.string()),
    ]
)
"""The columns of the tables of manifests and runs; Manifest is JSON."""


def _united() -> Any:
    """Returns the columns of all tables, each once and nullable.

    Raises:
        ValueError: two tables have columns of one name and different types
    """
    united = {ROW.name: ROW}
    for schema in (*SCHEMAS.values(), MANIFEST_SCHEMA):
        for field in schema:
            nullable = field.with_nullable(True)
            if united.setdefault(field.name, nullable).type != field.type:
                raise ValueError(f"{field.name} has two types")
    return pa.schema(united.values())


UNITED = _united()
"""The Arrow schema of the lake's rows, without the column of the table's name."""


def schema_of(table: str) -> Any:
    """Returns the Arrow schema of a table, also of the tables of manifests and runs."""
    return MANIFEST_SCHEMA if table in (MANIFESTS, RUNS) else SCHEMAS[table]
