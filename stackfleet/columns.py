# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The columns of a lake's tables, and the Arrow schemas that are made from them.

The tables of stacks and images are those of the plugins' flat schema, those of findings and trap frames the
columns of the plugins' dictionary. Only the process that reads an image imports this: it needs the plugins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from winstacks.flat.decode import schema
from winstacks.rows.columns import COLUMNS, PLUGINS, Hex

from .layout import FINDINGS, FRAMES, IMAGE, MODULE_SETS, MODULES, TRACES, TRAP_FRAMES

TIME = pa.timestamp("us", tz="UTC")

_OF_SCHEMA = {
    schema.STR: pa.string(),
    schema.INT: pa.int64(),
    schema.BOOL: pa.bool_(),
    schema.HEX: pa.uint64(),
    schema.HEXSTR: pa.string(),
    schema.TIME: TIME,
}
_OF_DICTIONARY = {str: pa.string(), int: pa.int64(), Hex: pa.uint64()}

MODULE_SET = pa.field("ModuleSet", pa.uint64())
"""Of a stack: which versions of which modules are in its StackKey; null where none is."""

_KEYS = [pa.field("ImageId", pa.string(), False), pa.field("Schema", pa.int64(), False)]


def _flat(columns: Sequence[schema.Column]) -> list[pa.Field]:
    return [pa.field(each.name, _OF_SCHEMA[each.type], each.nullable) for each in columns]


def _listed(plugin: str) -> list[pa.Field]:
    return [pa.field(name, _OF_DICTIONARY[COLUMNS[name][0]]) for name in PLUGINS[plugin]]


SCHEMAS: dict[str, Any] = {
    TRACES: pa.schema([*_flat(schema.TRACES), MODULE_SET]),
    FRAMES: pa.schema(_flat(schema.FRAMES)),
    IMAGE: pa.schema(_flat(schema.IMAGE)),
    FINDINGS: pa.schema(_listed("tracefindings")),
    TRAP_FRAMES: pa.schema([*_KEYS, *_listed("trapframes")]),
    MODULES: pa.schema(
        [
            *_KEYS,
            pa.field("Version", pa.uint64(), False),
            pa.field("Module", pa.string(), False),
            pa.field("ModuleStamp", pa.uint64()),
            pa.field("ModuleSize", pa.uint64()),
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
