# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Arrow schemas of a lake's tables, made from the dictionary of columns.

The tables of stacks and images are the flat tables of the plugins; those of findings and trap frames are what
these plugins show.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from winstacks.columns import dictionary, tables
from winstacks.columns.dictionary import COLUMNS, Column

from .layout import FINDINGS, FRAMES, IMAGE, MODULE_SETS, MODULES, TRACES, TRAP_FRAMES

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
"""Of a stack: which versions of which modules are in its StackKey; null where none is."""


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _TYPES[column.type], column.nullable)


def _absent(plugin: str) -> list[pa.Field]:
    """Returns the columns of a plugin that is no flat table: any cell may be absent."""
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
}
"""The Arrow schema of each table. A file has it where the table is empty, too."""
