# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether the files of a lake agree with its logs and manifests: after a power failure they may not."""

from __future__ import annotations

import collections
import enum
import pathlib
from collections.abc import Mapping
from typing import Any, Callable, Optional

from . import custody, folders
from .entries import Entry
from .layout import KEYS, TABLES_FOLDER, file_name
from .manifests import Manifest
from .tablelog import DataFile, LogError, TableLog


class Depth(enum.IntEnum):
    """How much of a file is compared."""

    SIZE = 0
    """That it is a regular file below the lake, of so many bytes."""
    FORM = 1
    """Its number of rows and its columns, too: the end of the file is read."""
    CONTENT = 2
    """Its SHA-256, too, that all rows can be read, and how many there are of each attempt."""


class StoredTable:
    """A table of a lake: its files, and what is wrong with some of them.

    Args:
        lake: the folder of the lake
        name: of TABLES

    Attributes:
        files: those that its log names, by name
        foreign: what its log names and is no file of this table
        faults: what is wrong with some of them, by name
        rows: how many rows each attempt has, by (ImageId, attempt); None until files were read
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
            for each in log.load():
                self.files[each.name] = each
                self._batches.setdefault(each.name.partition(".")[0], []).append(each)
            self.foreign = log.foreign
        except (LogError, OSError) as error:
            self._reason = f"{TABLES_FOLDER}/{name}: its log cannot be read: {error}"
        for each in self.files.values():
            self._say(each.name, self._size_differs(each))

    def where(self, entry: Entry) -> list[DataFile]:
        """Returns the files with the rows of an image: one as a rule; none if there is none in the log."""
        if not entry.batch:
            single = self.files.get(file_name(entry.image_id, entry.attempt))
            if single is not None:
                return [single]
        batch = self._batches.get(entry.batch, []) if entry.batch else []
        if self.name == KEYS:
            return batch
        # A run that was killed between two commits has not said which batch it is.
        among = batch or [each for each in self.files.values() if each.name.startswith(BATCH)]
        return [each for each in among if each.first <= entry.image_id <= each.last]

    def fault(self, entry: Entry, manifest: Manifest) -> str:
        """Returns in words what is wrong with the rows of an image; empty if nothing is."""
        said = manifest["tables"][self.name]
        files = self.where(entry)
        own = "" if entry.batch else file_name(entry.image_id, entry.attempt)
        single = bool(files) and files[0].name == own
        if self.name == KEYS and not single:
            # They can be counted anew.
            return ""
        if not files:
            return self._reason or f"{said['file']}: it is not in the log of its table"
        for each in files:
            if each.name in self.faults:
                return f"{TABLES_FOLDER}/{self.name}/{each.name}: {self.faults[each.name]}"
        if single and (files[0].rows, files[0].size) != (said["rows"], said.get("bytes", files[0].size)):
            return f"{said['file']}: its rows or bytes are other than those in the manifest"
        if self.rows is not None:
            rows = self.rows[entry.image_id, entry.attempt]
            if rows != said["rows"]:
                return f"{TABLES_FOLDER}/{self.name}: {rows:,} rows, and {said['rows']:,} in the manifest"
        return ""

    def look(self, depth: Depth, digests: Mapping[str, str]) -> None:
        """Looks more closely at all files.

        Args:
            depth: how closely
            digests: the SHA-256 that a file should have, by its path below the lake
        """
        if depth >= Depth.CONTENT:
            self.rows = collections.Counter()
        for each in self.files.values():
            if each.name in self.faults or depth < Depth.FORM:
                continue
            path = self._lake / TABLES_FOLDER / self.name / each.name
            said = _form(path, self.name, each.rows)
            if not said and self.rows is not None:
                try:
                    found = custody.sha256(path)
                except OSError as error:
                    found, said = "", error.strerror or type(error).__name__
                if not said and digests.get(f"{TABLES_FOLDER}/{self.name}/{each.name}") != found:
                    said = "its SHA-256 is another than that which was kept"
                said = said or _content(path, self.rows)
            self._say(each.name, said)

    def _say(self, name: str, fault: str) -> None:
        if fault:
            self.faults[name] = fault

    def _size_differs(self, file: DataFile) -> str:
        try:
            size = folders.size(self._lake, TABLES_FOLDER, self.name, file.name)
        except OSError as error:
            return error.strerror or type(error).__name__
        return "" if size == file.size else f"{size:,} bytes, and {file.size:,} in the log of its table"


BATCH = "batch"
"""With this the name of a batch begins."""


def _form(path: pathlib.Path, table: str, rows: int) -> str:
    # What asks a lake needs neither Arrow's reader nor the plugins' columns, and starts faster without them.
    from .columns import stored

    def compare(file: Any) -> str:
        if file.metadata.num_rows != rows:
            return f"{file.metadata.num_rows:,} rows, and {rows:,} in the log of its table"
        mine, theirs = stored(table), file.schema_arrow
        if [(each.name, each.type) for each in mine] != [(each.name, each.type) for each in theirs]:
            return "its columns are not those of this table"
        return ""

    return _read(path, compare)


def _content(path: pathlib.Path, rows: collections.Counter[tuple[Any, Any]]) -> str:
    """Reads all rows, and counts those of each attempt."""

    def compare(file: Any) -> str:
        for batch in file.iter_batches():
            grouped = _table(batch).group_by(["ImageId", "Attempt"]).aggregate([([], "count_all")])
            for each in grouped.to_pylist():
                rows[each["ImageId"], each["Attempt"]] += each["count_all"]
        return ""

    return _read(path, compare)


def _table(batch: Any) -> Any:
    import pyarrow as pa

    return pa.table([batch.column("ImageId"), batch.column("Attempt")], names=["ImageId", "Attempt"])


def _read(path: pathlib.Path, compare: Callable[[Any], str]) -> str:
    """Returns what a function says of a Parquet file, or why it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return compare(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
