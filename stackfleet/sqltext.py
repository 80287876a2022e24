# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pieces of SQL for DuckDB: literals, conditions and rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional


def quoted(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def sql_list(texts: Sequence[str]) -> str:
    """Returns texts as an SQL list."""
    return f"[{', '.join(map(quoted, texts))}]"


def one_of(column: str, values: Iterable[str]) -> str:
    """Returns the SQL condition that a column has one of several texts; it is false if there are none."""
    listed = ", ".join(map(quoted, values))
    return f"{column} IN ({listed})" if listed else "false"


def chosen(column: str, values: Optional[Iterable[str]]) -> str:
    """Returns the SQL condition that a column has one of several texts; true for any text if None."""
    return "true" if values is None else one_of(column, values)


def sql_rows(rows: Iterable[Sequence[str]], names: Sequence[str]) -> str:
    """Returns rows of texts as an SQL table, which may be empty."""
    values = ", ".join(f"({', '.join(map(quoted, row))})" for row in rows)
    columns = ", ".join(names)
    if values:
        return f"(SELECT * FROM (VALUES {values}) AS listed({columns}))"
    return f"(SELECT {', '.join(f'NULL::VARCHAR AS {name}' for name in names)} WHERE false)"


MOST_VALUES = 8
"""The most hosts, images or processes in a row."""


def some(column: str) -> str:
    """Returns the SQL selection of the least values of a column."""
    values = f"list(DISTINCT {column}) FILTER (WHERE {column} IS NOT NULL)"
    return f"list_sort({values})[1:{MOST_VALUES}]"
