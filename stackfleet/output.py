# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the rows of a query: as an aligned table, CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Optional

import pyarrow.parquet as pq

TABLE, CSV, JSONL, PARQUET = "table", "csv", "jsonl", "parquet"
FORMATS = (TABLE, CSV, JSONL, PARQUET)

_ROWS = 4096


WIDTH = 120
"""The most letters of a line of an aligned table that is not wide."""
_LEAST = 12
"""The fewest letters to which a column is cut."""


def write(table: Any, form: str, stream: IO[bytes], narrow: Sequence[str] = ()) -> None:
    """Writes rows.

    Args:
        table: an Arrow table
        form: one of FORMATS
        narrow: columns of an aligned table, whose lines are cut to WIDTH; empty for all columns as they are
    """
    if form == TABLE and narrow:
        table = table.select([name for name in narrow if name in table.column_names])
        for line in _aligned(table, WIDTH):
            stream.write(line.encode("utf-8", "replace") + b"\n")
        stream.flush()
        return
    if form == PARQUET:
        # Parquet needs the position in the file, which a pipe lacks.
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        stream.write(buffer.getbuffer())
        return
    lines = {TABLE: _aligned, CSV: _csv, JSONL: _jsonl}[form](table)
    for line in lines:
        stream.write(line.encode("utf-8", "replace") + b"\n")
    stream.flush()


def rows(table: Any) -> Iterator[dict[str, Any]]:
    """Yields rows as plain values, reading one batch at a time."""
    for batch in table.to_batches(max_chunksize=_ROWS):
        yield from batch.to_pylist()


def json_line(row: dict[str, Any]) -> str:
    """Returns a row as a line of JSON; times are in ISO 8601.

    Letters of all languages stay as they are; characters that move a cursor, reverse a line or end it are
    escaped.
    """
    line = json.dumps(row, default=_json, ensure_ascii=False)
    return _visible(line, lambda item: json.dumps(item)[1:-1])


def visible(text: str) -> str:
    """Returns a text with all unprintable characters escaped, as in Python source."""
    return _visible(text, lambda item: repr(item)[1:-1])


def _visible(text: str, escaped: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else escaped(letter) for letter in text)


def _json(value: object) -> object:
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    return str(value)


def _jsonl(table: Any) -> Iterator[str]:
    return map(json_line, rows(table))


def _csv(table: Any) -> Iterator[str]:
    for line in (table.column_names, *([_cell(value) for value in row.values()] for row in rows(table))):
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="").writerow(line)
        yield buffer.getvalue()


def _aligned(table: Any, most: Optional[int] = None) -> Iterator[str]:
    lines = [table.column_names, *([_cell(value) for value in row.values()] for row in rows(table))]
    widths = [max(map(len, column)) for column in zip(*lines)]
    if most is not None:
        room = most - 3 * (len(widths) - 1)
        while sum(widths) > room and max(widths) > _LEAST:
            # The widest column gives, down to the next one.
            place = widths.index(max(widths))
            others = max([width for width in widths if width < widths[place]], default=_LEAST)
            widths[place] -= min(sum(widths) - room, widths[place] - max(others, _LEAST) or 1)
    for line in lines:
        yield " | ".join(_cut(cell, width).ljust(width) for cell, width in zip(line, widths)).rstrip()


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"


def _cell(value: object) -> str:
    """Returns a value as a cell of text; see `visible`."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return visible(str(value))
