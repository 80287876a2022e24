# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the rows of a query: as an aligned table, CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow.parquet as pq

TABLE, CSV, JSONL, PARQUET = "table", "csv", "jsonl", "parquet"
FORMATS = (TABLE, CSV, JSONL, PARQUET)

_ROWS = 4096


def write(table: Any, form: str, stream: IO[bytes]) -> None:
    """Writes rows.

    Args:
        table: an Arrow table
        form: one of FORMATS
        stream: binary stream to which the rows are written
    """
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


def _aligned(table: Any) -> Iterator[str]:
    lines = [table.column_names, *([_cell(value) for value in row.values()] for row in rows(table))]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        yield " | ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()


def _cell(value: object) -> str:
    """Returns a value as a cell of text; see `visible`."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return visible(str(value))
