# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Merges many small files into few: the rows of many images become a batch, and obsolete rows are dropped.

A batch has the images in the order of their ImageIds, so that one image is in few pages of one file; the
table of keys has its own order. Rows stream through, so memory does not grow with their number. (Delta's own
`optimize` needs a gigabyte for five million rows, and changes the order of an image's rows.)
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import pathlib
import tempfile
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Optional

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from . import folders, provenance
from .agreement import BATCH, Depth, StoredTable
from .columns import fitted, stored
from .contents import Contents, Damaged
from .entries import Entries
from .lake import Lake, LakeError
from .layout import CATALOGUE, KEYS, TABLES, TABLES_FOLDER, file_name
from .manifests import Manifest
from .sqltext import parquet_rows, quoted, sql_list
from .tablelog import DataFile, LogError, TableLog

MOST_SINGLES = 64
"""Number of images with files of their own that triggers a batch."""
PART_ROWS = 1 << 22
"""Approximate number of rows in a file of a batch."""
GROUP_ROWS = 122_880
"""Number of rows that are compressed together: DuckDB reads as many at a time."""
MEMORY = "1GB"
"""The most memory for sorting keys; further data goes to the folder for temporary files."""

Slice = tuple[str, str, Any]
"""(ImageId, attempt, the rows of this attempt as an Arrow batch)."""


class Merged(NamedTuple):
    """The result of a merge: the number of images in the new batch, and the images that stay as they are."""

    images: int
    damaged: list[Damaged]


def merge(lake: Lake, run: str, everything: bool = False, least: int = MOST_SINGLES) -> Merged:
    """Merges images into a batch.

    A batch takes in the images with files of their own, if there are many, and the images of batches that
    have obsolete rows. Damaged images stay as they are.

    Args:
        lake: the lake, to which nobody else writes
        run: name of the run under which the SHA-256 of the files is recorded
        everything: whether all images become one batch
        least: number of images with files of their own from which a batch is made

    Raises:
        LakeError: the lake cannot be written, or a file of a batch cannot be read
    """
    try:
        contents = lake.contents(whole=False)
        if _chosen(contents, everything, least) is None:
            return Merged(0, contents.damaged)
        contents = _without_altered(lake.folder, lake.contents(Depth.FORM))
        chosen = _chosen(contents, everything, least)
        if chosen is None:
            return Merged(0, contents.damaged)
        name = f"{BATCH}{uuid.uuid4().hex}"
        merging = _Merging(lake.folder, contents, chosen, name)
        new_files = {table: merging.write(table) if chosen else {} for table in TABLES}
        digests = {
            f"{TABLES_FOLDER}/{t}/{file.name}": sha for t in TABLES for file, sha in new_files[t].items()
        }
        if digests:
            lake.record(f"{run}-batch-{name[-12:]}", {"started": provenance.now(), "files": digests})
        for table in TABLES:
            unneeded = _not_needed(contents.stored[table], contents, chosen)
            if new_files[table] or unneeded:
                TableLog(lake.folder, table).commit(stored(table), list(new_files[table]), unneeded)
        if chosen:
            moved = (contents.entries[manifest["image_id"]]._replace(batch=name) for manifest in chosen)
            Entries(lake.folder).put(moved)
    except (LogError, OSError, duckdb.Error, pa.ArrowException) as error:
        raise LakeError(f"{lake.folder}: its tables cannot be merged: {error}") from error
    lake.clean()
    return Merged(len(chosen), contents.damaged)


def shorten_logs(lake: Lake) -> None:
    """Replaces the commits of each log by a checkpoint: there is one for each image that was added.

    Raises:
        LakeError: a log cannot be written
    """
    for table in (*TABLES, CATALOGUE):
        try:
            TableLog(lake.folder, table).shorten()
        except (LogError, OSError) as error:
            raise LakeError(
                f"{lake.folder}: the log of the table {table} cannot be written: {error}"
            ) from error


def _without_altered(lake: pathlib.Path, contents: Contents) -> Contents:
    """Returns the contents of a lake in which images with altered files of their own count as damaged."""
    sound: list[Manifest] = []
    damaged = list(contents.damaged)
    for manifest in contents.manifests:
        tables = {} if contents.entries[manifest["image_id"]].batch else manifest["tables"]
        altered = [item["file"] for item in tables.values() if not _has_digest(lake, item)]
        if altered:
            reason = f"{altered[0]}: its SHA-256 differs from the manifest"
            damaged.append(Damaged(manifest["image_id"], reason, manifest))
        else:
            sound.append(manifest)
    return dataclasses.replace(contents, manifests=sound, damaged=damaged)


def _has_digest(lake: pathlib.Path, expected: dict[str, Any]) -> bool:
    """Returns whether the file of a table has the SHA-256 that its manifest states."""
    try:
        folders.size(lake, *expected["file"].split("/"))
        return provenance.sha256(lake / expected["file"]) == expected["sha256"]
    except OSError:
        # A run that was killed has merged the image, and has not recorded that.
        return True


def _chosen(contents: Contents, everything: bool, least: int) -> Optional[list[Manifest]]:
    """Returns the images that become a batch; None if there is nothing to do."""
    done = [manifest for manifest in contents.manifests if manifest["tables"]]
    singles = [manifest for manifest in done if not contents.entries[manifest["image_id"]].batch]
    batches: dict[str, list[Manifest]] = {}
    for manifest in done:
        batches.setdefault(contents.entries[manifest["image_id"]].batch, []).append(manifest)
    batches.pop("", None)
    damaged = (contents.entries.get(image.image_id) for image in contents.damaged)
    hurt = {entry.batch for entry in damaged if entry is not None}
    mixed = {name for name in batches if name not in hurt and _is_mixed(contents, name, batches[name])}
    whole = {name for name in batches if name not in hurt}
    if everything:
        mixed = whole if singles or mixed or len(whole) > 1 else set()
    chosen = [manifest for name in sorted(mixed) for manifest in batches[name]]
    if everything or len(singles) >= least:
        chosen += singles
    chosen.sort(key=itemgetter("image_id"))
    idle = not any(_not_needed(contents.stored[table], contents, ()) for table in TABLES)
    return None if not chosen and idle else chosen


def _is_mixed(contents: Contents, batch: str, images: Sequence[Manifest]) -> bool:
    """Returns whether a batch has obsolete rows."""
    for table in TABLES:
        files = [item for item in contents.stored[table].files.values() if _batch(item) == batch]
        if sum(item.rows for item in files) != sum(item["tables"][table]["rows"] for item in images):
            return True
    return False


def _not_needed(table: StoredTable, contents: Contents, chosen: Collection[Manifest]) -> list[DataFile]:
    """Returns the files of a table that no image needs, once the chosen images are in a new batch."""
    moved = {item["image_id"] for item in chosen}
    # A failed image has no rows.
    all_manifests = (*contents.manifests, *(item.manifest for item in contents.damaged if item.manifest))
    moved |= {item["image_id"] for item in all_manifests if not item["tables"]}
    needed = {
        file.name
        for image_id, entry in contents.entries.items()
        if image_id not in moved
        for file in table.where(entry)
    }
    return [item for name, item in table.files.items() if name not in needed]


def _batch(file: DataFile) -> str:
    return file.name.partition(".")[0]


class _Merging:
    """Writes the tables of a batch.

    Args:
        lake: the folder of the lake
        contents: what is in it
        chosen: manifests of the images, by ImageId in ascending order
        name: name of the batch
    """

    def __init__(self, lake: pathlib.Path, contents: Contents, chosen: Sequence[Manifest], name: str) -> None:
        self._lake, self._contents, self._name = lake, contents, name
        self._chosen = {item["image_id"]: item for item in chosen}
        self._entries = [contents.entries[image_id] for image_id in self._chosen]

    def write(self, table: str) -> dict[DataFile, str]:
        """Writes a table; returns its files with their SHA-256."""
        parts = Parts(self._lake, table, self._name)
        if table == KEYS:
            self._write_keys(parts)
            return parts.end()
        # Images without rows belong to a file, too.
        waiting = iter(self._chosen)
        for image_id, _, rows in heapq.merge(*self._streams(table), key=itemgetter(0)):
            while parts.image != image_id:
                parts.begin(next(waiting))
            parts.write(rows)
        for item in waiting:
            parts.begin(item)
        return parts.end()

    def _streams(self, table: str) -> Iterator[Iterator[Slice]]:
        """Yields streams of rows, each in the order of ImageIds."""
        batches: dict[str, dict[str, None]] = {}
        for entry in self._entries:
            for file in self._contents.stored[table].where(entry):
                single = file.name == file_name(entry.image_id, entry.attempt)
                batches.setdefault("" if single else _batch(file), {})[file.name] = None
        for names in batches.values():
            yield self._slices(table, list(names))

    def _slices(self, table: str, names: Iterable[str]) -> Iterator[Slice]:
        for name in names:
            with pq.ParquetFile(self._path(table, name)) as file:
                for batch in file.iter_batches(GROUP_ROWS):
                    for image_id, attempt, rows in _runs(fitted(table, batch)):
                        manifest = self._chosen.get(image_id)
                        if manifest is not None and manifest["attempt"] == attempt:
                            yield image_id, attempt, rows

    def _path(self, table: str, name: str) -> pathlib.Path:
        """Returns the path of a file; OSError if it is not a regular file below the lake."""
        folders.size(self._lake, TABLES_FOLDER, table, name)
        return self._lake / TABLES_FOLDER / table / name

    def _write_keys(self, parts: Parts) -> None:
        names = {
            file.name: None for entry in self._entries for file in self._contents.stored[KEYS].where(entry)
        }
        paths = [str(self._path(KEYS, name)) for name in names]
        files = sql_list(paths)
        counted = ", ".join(f"({quoted(item.image_id)}, {quoted(item.attempt)})" for item in self._entries)
        with tempfile.TemporaryDirectory(prefix="stackfleet-") as folder, duckdb.connect() as connection:
            for statement in (
                f"SET temp_directory = {quoted(folder)}",
                f"SET memory_limit = {quoted(MEMORY)}",
                f"SET allowed_paths = {files}",
                "SET enable_external_access = false",
            ):
                connection.execute(statement)
            columns = ", ".join(f'"{item}"' for item in stored(KEYS).names)
            query = (
                f"SELECT {columns} FROM {parquet_rows(KEYS, paths)} "
                f"SEMI JOIN (VALUES {counted}) AS counted(ImageId, Attempt) USING (ImageId, Attempt) "
                "ORDER BY StackHigh, StackLow, ImageId"
            )
            parts.begin(self._entries[0].image_id)
            for batch in connection.sql(query).to_arrow_reader(GROUP_ROWS):
                parts.write(pa.record_batch(batch.columns, schema=stored(KEYS)))
                parts.image_end(self._entries[-1].image_id)
            parts.image_end(self._entries[-1].image_id)


class Parts:
    """The files of one table of a batch. Each image is in one of them.

    Args:
        lake: the folder of the lake
        table: name of the table
        name: name of the batch
    """

    def __init__(self, lake: pathlib.Path, table: str, name: str) -> None:
        self._folder = folders.make_folder(lake, TABLES_FOLDER, table)
        self._table, self._name = table, name
        self._done: dict[DataFile, str] = {}
        self._writer: Any = None
        self._pending: list[Any] = []
        self._rows = self._count = 0
        self._first = self.image = ""

    def begin(self, image_id: str) -> None:
        """Announces the image of the next rows."""
        if self._rows + self._count >= PART_ROWS:
            self._end_part()
        if not self._first:
            self._first = image_id
        self.image = image_id

    def image_end(self, image_id: str) -> None:
        """Ends the images up to this one: the next rows may belong to any later image."""
        self.image = image_id
        if self._rows + self._count >= PART_ROWS:
            first = self._first
            self._end_part()
            self._first = first

    def write(self, rows: Any) -> None:
        """Writes rows."""
        self._pending.append(rows)
        self._count += rows.num_rows
        if self._count >= GROUP_ROWS:
            self._flush()

    def end(self) -> dict[DataFile, str]:
        """Closes the last file, and returns all files with their SHA-256 when they are on the disk."""
        if self._count or self._writer is not None or not self._done:
            self._end_part()
        folders.sync(self._folder)
        return self._done

    @property
    def _path(self) -> pathlib.Path:
        return self._folder / f"{self._name}.part-{len(self._done):05}.parquet"

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, stored(self._table), compression="zstd")
        if self._pending:
            table = pa.Table.from_batches(self._pending).combine_chunks()
            self._writer.write_table(table, row_group_size=2 * GROUP_ROWS)
        self._rows += self._count
        self._pending, self._count = [], 0

    def _end_part(self) -> None:
        self._flush()
        self._writer.close()
        path = self._path
        folders.sync(path)
        data_file = DataFile(path.name, path.stat().st_size, self._rows, self._first, self.image)
        self._done[data_file] = provenance.sha256(path)
        self._writer, self._rows, self._first = None, 0, ""


def _runs(batch: Any) -> Iterator[Slice]:
    """Yields the rows of a batch, image by image."""
    if not batch.num_rows:
        return
    names = [batch.column(batch.schema.get_field_index(name)) for name in ("ImageId", "Attempt")]
    ends = sorted({0, batch.num_rows, *(end for column in names for end in _ends(column))})
    for start, end in itertools.pairwise(ends):
        yield names[0][start].as_py() or "", names[1][start].as_py() or "", batch.slice(start, end - start)


def _ends(column: Any) -> list[int]:
    import pyarrow.compute as pc

    ends: list[int] = pc.run_end_encode(column).run_ends.to_pylist()
    return ends
