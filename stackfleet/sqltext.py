# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pieces of SQL for DuckDB: literals, types, conditions, and the rows of files."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

_TYPES = {
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "int64": "BIGINT",
    "uint64": "UBIGINT",
    "double": "DOUBLE",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
}


def quoted(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def sql_list(texts: Sequence[str]) -> str:
    """Returns texts as an SQL list."""
    return f"[{', '.join(map(quoted, texts))}]"


def one_of(column: str, values: Iterable[str]) -> str:
    """Returns the SQL condition that a column has one of several texts."""
    return f"{column} IN ({', '.join(map(quoted, values))})"


def sql_type(kind: Any) -> str:
    """Returns DuckDB's name of an Arrow type."""
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{_named(field.name)} {sql_type(field.type)}' for field in kind)})"
    return _TYPES[str(kind)]


def parquet_rows(table: str, paths: Sequence[str]) -> str:
    """Returns the source of a query that reads files of a table, which several versions may have written.

    A column that a file lacks is null. If every file of the table must have it, DuckDB rejects the query.

    Args:
        table: name of the table
        paths: paths of the files
    """
    # Commands that read no table start faster without Arrow's reader and the plugins' columns.
    from .columns import required, stored

    found, needed = _columns_of(paths), required(table)
    mixed = len(found) > 1 and all(needed <= names for names in found)
    more = ", union_by_name = true" if mixed else ""
    source = f"read_parquet({sql_list(paths)}, hive_partitioning = false{more})"
    known = set().union(*found)
    absent = [field for field in stored(table) if found and field.name not in known | needed]
    if absent:
        columns = ", ".join(f'NULL::{sql_type(field.type)} AS "{field.name}"' for field in absent)
        return f"(SELECT *, {columns} FROM {source})"
    return source


def _columns_of(paths: Iterable[str]) -> set[frozenset[str]]:
    """Returns the different sets of columns of files. A file that cannot be read is left to DuckDB."""
    found = set()
    for path in paths:
        try:
            info = os.stat(path)
            found.add(_names(path, info.st_size, info.st_mtime_ns))
        except (pa.ArrowException, OSError):
            continue
    return found


@functools.lru_cache(maxsize=1 << 10)
def _names(path: str, size: int, modified: int) -> frozenset[str]:
    """Returns the names of the columns of a file as it is now."""
    import pyarrow.parquet as pq

    return frozenset(pq.read_schema(path).names)


def _named(name: str) -> str:
    return f'"{name}"' if name == "of" else name
