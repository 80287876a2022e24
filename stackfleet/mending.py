# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rebuilds a log that cannot be read, from the existing files and the manifests."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Optional

from . import custody, folders
from .agreement import BATCH
from .entries import Entries, Entry
from .layout import CATALOGUE, TABLES, TABLES_FOLDER, file_name
from .tablelog import LOG, DataFile, LogError, TableLog

if TYPE_CHECKING:
    from .lake import Lake


def mend(lake: Lake) -> list[str]:
    """Rebuilds logs; the old ones stay next to the new ones, under another name.

    Args:
        lake: the lake, to which nobody else writes

    Returns:
        The names of the tables.

    Raises:
        LogError, OSError: the log cannot be written
    """
    mended = []
    try:
        entries = Entries(lake.folder)
    except LogError:
        _set_aside(lake, CATALOGUE)
        entries = Entries(lake.folder)
        kept_entries = custody.entries(lake.folder)
        if kept_entries:
            entries.put(kept_entries)
        mended.append(CATALOGUE)
    for table in TABLES:
        try:
            TableLog(lake.folder, table).load()
        except LogError:
            _set_aside(lake, table)
            files = [file for file in _files(lake, table, entries.by_id) if file is not None]
            if files:
                from .columns import stored

                TableLog(lake.folder, table).commit(stored(table), files)
            mended.append(table)
    return mended


def _set_aside(lake: Lake, table: str) -> None:
    """Renames the log of a table."""
    path = lake.folder / TABLES_FOLDER / table
    if folders.folder(lake.folder, TABLES_FOLDER, table) is not None and os.path.lexists(path / LOG):
        os.rename(path / LOG, path / f"unreadable-{time.time_ns()}")


def _files(lake: Lake, table: str, entries: dict[str, Entry]) -> list[Optional[DataFile]]:
    singles = {file_name(item.image_id, item.attempt): item.image_id for item in entries.values()}
    return [
        _file(lake, table, name, singles.get(name, ""))
        for name in folders.list_names(lake.folder, TABLES_FOLDER, table)
        if name in singles or (name.startswith(BATCH) and name.endswith(".parquet"))
    ]


def _file(lake: Lake, table: str, name: str, image_id: str) -> Optional[DataFile]:
    """Returns the log's entry for a file; None if the file cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.suppress(OSError, pa.ArrowException):
        size = folders.size(lake.folder, TABLES_FOLDER, table, name)
        metadata = pq.read_metadata(lake.folder / TABLES_FOLDER / table / name)
        first, last = (image_id, image_id) if image_id else _range(metadata)
        return DataFile(name, size, metadata.num_rows, first, last)
    return None


def _range(known: Any) -> tuple[str, str]:
    """Returns the least and the greatest ImageId of a file."""
    column = known.schema.to_arrow_schema().get_field_index("ImageId")
    column_statistics = [
        known.row_group(number).column(column).statistics for number in range(known.num_row_groups)
    ]
    ranges = [
        statistics for statistics in column_statistics if statistics is not None and statistics.has_min_max
    ]
    return min((value_range.min for value_range in ranges), default=""), max(
        (value_range.max for value_range in ranges), default="~"
    )
