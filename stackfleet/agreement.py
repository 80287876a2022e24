# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks whether the files of a lake agree with its logs and manifests: a power failure may damage them."""

from __future__ import annotations

import collections
import enum
import pathlib
from collections.abc import Mapping
from typing import Any, Callable, Optional

from . import folders, provenance
from .entries import Entry
from .layout import KEYS, TABLES_FOLDER, file_name, table_name
from .manifests import Manifest
from .tablelog import DataFile, LogError, TableLog


class Depth(enum.IntEnum):
    """How closely a file is compared."""

    SIZE = 0
    """Whether it is a regular file below the lake, with the expected size."""
    FORM = 1
    """In addition its number of rows and its columns: the end of the file is read."""
    CONTENT = 2
    """In addition its SHA-256, whether all rows can be read, and the number of rows of each attempt."""


class StoredTable:
    """A table of a lake: its files, and their faults.

    Args:
        lake: the folder of the lake
        name: name of the table, one of TABLES

    Attributes:
        files: files named by the table's log, by name
        foreign: names in the log that are no file of this table
        faults: faults of files, by name
        rows: number of rows of each attempt, by (ImageId, attempt); None until files were read
    """

    def __init__(self, lake: pathlib.Path, name: str) -> None:
        self._lake, self.name, self._reason = lake, name, ""
        self.files: dict[str, DataFile] = {}
        self.foreign: list[str] = []
        self.faults: dict[str, str] = {}
        self.rows: Optional[collections.Counter[tuple[Any, Any]]] = None
        self._batches: dict[str, list[DataFile]] = {}
        try:
            log = TableLog(lake, name)
            for file in log.load():
                self.files[file.name] = file
                self._batches.setdefault(file.name.partition(".")[0], []).append(file)
            self.foreign = log.foreign
        except (LogError, OSError) as error:
            self._reason = f"{TABLES_FOLDER}/{name}: its log cannot be read: {error}"
        self._in_batches = [file for file in self.files.values() if file.name.startswith(BATCH)]
        for file in self.files.values():
            self._add_fault(file.name, self._size_differs(file))

    def where(self, entry: Entry) -> list[DataFile]:
        """Returns the files with the rows of an image: usually one; none if the log has none."""
        if not entry.batch:
            single = self.files.get(file_name(entry.image_id, entry.attempt))
            if single is not None:
                return [single]
        batch = self._batches.get(entry.batch, []) if entry.batch else []
        if self.name == KEYS:
            return batch
        if len(batch) == 1 and batch[0].first <= entry.image_id <= batch[0].last:
            return batch
        # A run that was killed between two commits has not recorded its batch.
        return [file for file in batch or self._in_batches if file.first <= entry.image_id <= file.last]

    def fault(self, entry: Entry, manifest: Manifest) -> str:
        """Returns in words what is wrong with the rows of an image; empty if nothing is."""
        files = self.where(entry)
        if files and entry.batch and not self.faults and self.rows is None:
            return ""
        expected = manifest["tables"][self.name]
        own = "" if entry.batch else file_name(entry.image_id, entry.attempt)
        single = bool(files) and files[0].name == own
        if self.name == KEYS and not single:
            # Keys can be counted anew.
            return ""
        if not files:
            own_path = table_name(self.name, entry.image_id, entry.attempt)
            return self._reason or f"{own_path}: it is not in the log of its table"
        for file in files:
            if file.name in self.faults:
                return f"{TABLES_FOLDER}/{self.name}/{file.name}: {self.faults[file.name]}"
        if single and (files[0].rows, files[0].size) != (
            expected["rows"],
            expected.get("bytes", files[0].size),
        ):
            own_path = table_name(self.name, entry.image_id, entry.attempt)
            return f"{own_path}: its number of rows or bytes differs from the manifest"
        if self.rows is not None:
            rows = self.rows[entry.image_id, entry.attempt]
            if rows != expected["rows"]:
                return f"{TABLES_FOLDER}/{self.name}: {rows:,} rows, but {expected['rows']:,} in the manifest"
        return ""

    def examine(self, depth: Depth, digests: Mapping[str, str]) -> None:
        """Compares all files more closely.

        Args:
            depth: how closely
            digests: expected SHA-256 of files, by path below the lake
        """
        if depth >= Depth.CONTENT:
            self.rows = collections.Counter()
        for file in self.files.values():
            if file.name in self.faults or depth < Depth.FORM:
                continue
            path = self._lake / TABLES_FOLDER / self.name / file.name
            problem = _form(path, self.name, file.rows)
            if not problem and self.rows is not None:
                try:
                    digest = provenance.sha256(path)
                except OSError as error:
                    digest, problem = "", error.strerror or type(error).__name__
                if not problem and digests.get(f"{TABLES_FOLDER}/{self.name}/{file.name}") != digest:
                    problem = "its SHA-256 differs from the recorded one"
                problem = problem or _content(path, self.rows)
            self._add_fault(file.name, problem)

    def _add_fault(self, name: str, fault: str) -> None:
        if fault:
            self.faults[name] = fault

    def _size_differs(self, file: DataFile) -> str:
        try:
            size = folders.size(self._lake, TABLES_FOLDER, self.name, file.name)
        except OSError as error:
            return error.strerror or type(error).__name__
        return "" if size == file.size else f"{size:,} bytes, but {file.size:,} in the log of its table"


BATCH = "batch"
"""Prefix of the names of batches."""


def _form(path: pathlib.Path, table: str, rows: int) -> str:
    # Commands that query a lake need neither Arrow's reader nor the plugins' columns, and start faster
    # without them.
    from .columns import misfit

    def compare(file: Any) -> str:
        if file.metadata.num_rows != rows:
            return f"{file.metadata.num_rows:,} rows, but {rows:,} in the log of its table"
        different = misfit(table, file.schema_arrow)
        return f"it does not have the columns of this table: {different}" if different else ""

    return _read(path, compare)


def _content(path: pathlib.Path, rows: collections.Counter[tuple[Any, Any]]) -> str:
    """Reads all rows, and counts the rows of each attempt."""

    def compare(file: Any) -> str:
        for batch in file.iter_batches():
            grouped = _table(batch).group_by(["ImageId", "Attempt"]).aggregate([([], "count_all")])
            for item in grouped.to_pylist():
                rows[item["ImageId"], item["Attempt"]] += item["count_all"]
        return ""

    return _read(path, compare)


def _table(batch: Any) -> Any:
    import pyarrow as pa

    return pa.table([batch.column("ImageId"), batch.column("Attempt")], names=["ImageId", "Attempt"])


def _read(path: pathlib.Path, compare: Callable[[Any], str]) -> str:
    """Returns a function's result for a Parquet file, or the reason why the file cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return compare(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
