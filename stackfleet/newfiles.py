# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The files that a commit adds to a lake, and those that it removes, as actions of Delta.

A file has the columns of its table alone; Delta takes the others as null. It goes into the lake under a name
of its own before the commit names it.
"""

from __future__ import annotations

import io
import json
import pathlib
import shutil
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, Optional, Union

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .lakefiles import RANGE, File
from .snapshots import Snapshot

PARTITION = "Table"
"""The column by which the table of a lake is partitioned."""
_BOUNDED = "ImageId"
"""The column whose least and greatest value the log has."""
OWN_FILE = 1 << 20
"""The bytes from which a finished file enters the lake as it is; smaller ones of a table become one."""
ROW_GROUP, GROUP_BYTES = 1 << 17, 1 << 26
"""The most rows of a row group, which Arrow decodes as a whole; and the bytes of rows that are collected."""


class Part(NamedTuple):
    """Rows that enter a table: record batches, or a finished file of `new_writer`."""

    table: str
    batches: Iterable[Any] = ()
    path: Optional[pathlib.Path] = None


def new_writer(where: Union[pathlib.Path, BinaryIO], schema: Any) -> Any:
    """Returns a writer of Parquet. Statistics of all columns would be most of a small file."""
    return pq.ParquetWriter(
        where, schema, compression="zstd", write_statistics=[_BOUNDED], store_schema=False
    )


class NewFiles:
    """The actions of one commit.

    Args:
        system: Arrow's file system of the lake
    """

    def __init__(self, system: Any) -> None:
        self._system = system
        self.added: list[Any] = []
        self.removed: list[Any] = []

    def add(self, part: Part) -> int:
        """Puts rows into the lake, if there are any; returns their number."""
        if part.path is not None:
            with part.path.open("rb") as finished:
                return self._enter(part.table, finished)
        groups = _groups(part.batches)
        first = next(groups, None)
        if first is None:
            return 0
        with tempfile.TemporaryFile() as file:
            with new_writer(file, first.schema) as writer:
                writer.write_table(first, ROW_GROUP)
                for group in groups:
                    writer.write_table(group, ROW_GROUP)
            return self._enter(part.table, file)

    def remove_rows(
        self, snapshot: Snapshot, image_ids: Collection[str], table: Optional[str] = None
    ) -> None:
        """Removes the files with rows of some images, after what they have of others is in new ones.

        A file that is lost has no rows to keep. A file whose rows are all of one image is not opened.

        Args:
            table: the table from which the rows go; None for all

        Raises:
            StoreError, pa.ArrowException, OSError: a file cannot be read, or unfolds to too much
        """
        gone = pc.is_in(pc.field(_BOUNDED), pa.array(sorted(image_ids), pa.string()))
        for files, are_lost in ((snapshot.files, False), (snapshot.lost, True)):
            for file in files:
                if table not in (None, file.table) or not file.may_have(image_ids):
                    continue
                if are_lost or file.is_of_one or self._keep(snapshot, file, gone):
                    self._remove(file)

    def _keep(self, snapshot: Snapshot, file: File, gone: Any) -> bool:
        """Puts the other rows of a file into a new one; returns False if all of its rows are others."""
        snapshot.look_at([file])
        dataset = snapshot.of_files([file])
        if not dataset.scanner(columns=[], filter=gone).count_rows():
            return False
        there = next(dataset.get_fragments()).physical_schema.names
        names = [name for name in dataset.schema.names if name in there]
        self.add(Part(file.table, dataset.scanner(columns=names, filter=~gone).to_batches()))
        return True

    def _remove(self, file: File) -> None:
        from deltalake.transaction import RemoveAction

        self.removed.append(RemoveAction(file.path, True, _now(), file.size, {PARTITION: file.table}))

    def _enter(self, table: str, file: BinaryIO) -> int:
        from deltalake.transaction import AddAction

        file.seek(0)
        rows, stats = _statistics(pq.read_metadata(file))
        if rows:
            size = file.seek(0, io.SEEK_END)
            path = f"{PARTITION}={table}/part-{uuid.uuid4()}.zstd.parquet"
            file.seek(0)
            self._system.create_dir(f"{PARTITION}={table}")
            with self._system.open_output_stream(path, buffer_size=RANGE) as stream:
                shutil.copyfileobj(file, stream, RANGE)
            self.added.append(AddAction(path, size, {PARTITION: table}, _now(), True, json.dumps(stats)))
        return rows


def _statistics(footer: Any) -> tuple[int, dict[str, Any]]:
    """Returns the number of rows of a file, and what the log says about it."""
    place, rows = footer.schema.names.index(_BOUNDED), footer.num_rows
    found = [footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups)]
    stats: dict[str, Any] = {"numRecords": rows}
    if found and all(one.has_min_max for one in found):
        stats["minValues"] = {_BOUNDED: min(one.min for one in found)}
        stats["maxValues"] = {_BOUNDED: max(one.max for one in found)}
        stats["nullCount"] = {_BOUNDED: sum(one.null_count for one in found)}
    return rows, stats


def _groups(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields batches as tables of a row group each, or a little more."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROW_GROUP or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def _now() -> int:
    """Returns the time in ms."""
    return time.time_ns() // 1_000_000
