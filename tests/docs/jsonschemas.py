# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The JSON schemas in `docs/`, made from the columns of the tables (`columns/tables.py`).

Those of the flat tables and of windows.tracefindings describe one line of JSON, of `vol -r jsonl` or of
`--dump`. That of minidump.info describes all that `vol -r json` prints: its rows have rows below them.
"""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Dict

from winstacks.columns import dictionary, tables
from winstacks.memory.decode.statuscodes import StatusCode

from .pages import ROOT

TABLES = tuple(tables.FLAT)

PLUGINS = {
    **{table: f"windows.{table}" for table in (*TABLES, "tracefindings")},
    "info": "minidump.info",
}
"""The plugins whose output has a schema, by the names of their tables."""

NESTED = ("info",)
"""Tables whose rows have rows below them: the schema describes a whole output of `-r json`."""

CHILDREN = "__children"
"""Volatility's renderer adds it to each row: the rows below it, of which the flat tables have none."""

_HEXADECIMAL = "^0x(0|[1-9a-f][0-9a-f]*)$"
_TIME = r"^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{6})?\+00:00$"

_UNSIGNED: Dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}

_TYPES: Dict[str, Dict[str, Any]] = {
    dictionary.STR: {"type": "string"},
    dictionary.INT: {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
    dictionary.BOOL: {"type": "boolean"},
    dictionary.HEX: _UNSIGNED,
    dictionary.ADDRESS: _UNSIGNED,
    dictionary.HEXSTR: {"type": "string", "pattern": _HEXADECIMAL},
    dictionary.TIME: {"type": "string", "format": "date-time", "pattern": _TIME},
}

_COLUMNS: Dict[str, Dict[str, Any]] = {
    "ImageId": {"pattern": "^i[0-9a-f]{32}$"},
    "Schema": {"const": dictionary.SCHEMA},
    "Files": {"contentMediaType": "application/json"},
}
"""What is known of a column besides its type."""


def path(table: str) -> pathlib.Path:
    """Returns where the schema of a table stands."""
    name = table if table not in NESTED else PLUGINS[table]
    return ROOT / "docs" / f"{name}.schema.json"


def text(table: str) -> str:
    """Returns the schema of a table as it stands in its file."""
    return json.dumps(make(table), indent=1, ensure_ascii=False) + "\n"


def make(table: str) -> Dict[str, Any]:
    """Returns the schema of a table, with all columns."""
    begin: Dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    if table in TABLES:
        begin["title"] = f"A row of {PLUGINS[table]}, version {dictionary.SCHEMA}"
    elif table in NESTED:
        row = _row(table, {"type": "array", "items": {"$ref": "#/$defs/row"}})
        begin.update(title=f"All rows of {PLUGINS[table]}", type="array", items={"$ref": "#/$defs/row"})
        return {**begin, "$defs": {"row": row}}
    else:
        begin["title"] = f"A row of {PLUGINS[table]}"
    return {**begin, **_row(table, {"type": "array", "maxItems": 0})}


def _row(table: str, children: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the schema of a row.

    Args:
        table: the table
        children: the schema of the rows below the row
    """
    flat = table in TABLES
    properties = {
        column.name: _column(column if flat else _absent(column)) for column in tables.TABLES[table]
    }
    return {
        "type": "object",
        "required": list(properties),
        "properties": {**properties, CHILDREN: children},
        "additionalProperties": False,
    }


def _absent(column: dictionary.Column) -> dictionary.Column:
    """Returns a column as it is outside the flat tables: any cell may be absent, except the ImageId."""
    return column._replace(nullable=column.name != "ImageId")


def _column(column: dictionary.Column) -> Dict[str, Any]:
    schema = {"description": column.meaning, **_TYPES[column.type], **_COLUMNS.get(column.name, {})}
    if column.name == "Status":
        schema["pattern"] = _status()
    if column.name == "Part":
        schema["pattern"] = f"^({'|'.join(column.values)})( [0-9]+)?$"
    elif column.values:
        schema["enum"] = [*column.values, *((None,) if column.nullable else ())]
    if column.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema


def _status() -> str:
    """Returns a pattern of Status: words of the closed list, with `, ` between them."""
    words = "|".join(_word(word.value) for word in StatusCode)
    return f"^(({words})(, ({words}))*)?$"


def _word(word: str) -> str:
    """Returns a pattern of a word of Status: only what has a meaning in a pattern is escaped in it."""
    literal = re.sub(r"([\\^$.*+?()\[\]{}|])", r"\\\1", word)
    return literal.replace(r"\{members\}", "[^,]+").replace(r"\{\}", "-?[0-9]+")
