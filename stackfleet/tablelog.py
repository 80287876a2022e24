# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The log of one table of a lake: the list of the table's files. The format is Delta's.

A commit adds files and removes others in one step. The log of somebody else's lake may name any file, and may
contain links and pipes. It is checked before Delta's own reader opens it, and of the named files only those
of this table are accepted, by names that this package gives.
"""

from __future__ import annotations

import json
import pathlib
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional

from . import folders
from .layout import TABLES_FOLDER

LOG = "_delta_log"
MOST_BYTES = 1 << 30
"""The most bytes of a log that is read."""

_ENTRY = re.compile(r"(\d{20})(\.json|\.checkpoint(\.\d{10}\.\d{10})?\.parquet)|_last_checkpoint|\d{20}\.crc")
_FILE = re.compile(r"[A-Za-z0-9]{1,64}\.[A-Za-z0-9-]{1,64}\.parquet")
_COMMIT = re.compile(r"\d{20}\.json")
_READER, _WRITER = 1, 2
"""The protocol version of tables without any later feature, such as files that list deleted rows."""


_SETTINGS = {"delta.enableExpiredLogCleanup": "false", "delta.logRetentionDuration": "interval 0 seconds"}
"""Commits are removed only when `shorten` is called, and then all of them. By itself Delta's writer removes
old ones before the checkpoint that replaces them is on the disk."""


class LogError(Exception):
    """A log that cannot be read, or is invalid; the text gives the reason."""


class DataFile(NamedTuple):
    """A file of a table.

    Attributes:
        name: name below the folder of the table
        size: size in bytes
        rows: number of rows
        first, last: least and greatest ImageId in the file
    """

    name: str
    size: int
    rows: int
    first: str
    last: str


class TableLog:
    """The log of a table.

    Args:
        lake: the folder of the lake
        table: name of the table

    Attributes:
        foreign: names in the log that are no file of this table; they are left out
    """

    def __init__(self, lake: pathlib.Path, table: str) -> None:
        self._lake, self._names = lake, (TABLES_FOLDER, table)
        self._torn: list[str] = []
        self.foreign: list[str] = []

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the table."""
        return self._lake.joinpath(*self._names)

    def load(self) -> list[DataFile]:
        """Returns the files of the table by name; none if there is no log.

        A power failure may have torn the last commits: the files that they added are then not in the table.

        Raises:
            LogError: the log cannot be read
        """
        opened = self._opened()
        if opened is None:
            return []
        import pyarrow as pa

        try:
            # `pa.table` would import pandas where it is installed, which takes longer than to read the log.
            actions = pa.RecordBatchReader.from_stream(opened.get_add_actions(flatten=True)).read_all()
        except _errors() as error:
            raise LogError(_first_line(error)) from error
        columns = ("path", "size_bytes", "num_records", "min.ImageId", "max.ImageId")
        if not set(columns) <= set(actions.column_names):
            return []
        files: dict[str, DataFile] = {}
        self.foreign = []
        for path, size, rows, first, last in zip(*(actions.column(name).to_pylist() for name in columns)):
            if _FILE.fullmatch(path) and path not in files and _counted(size) and _counted(rows):
                files[path] = DataFile(path, size, rows, first or "", last or "")
            else:
                self.foreign.append(path)
        return sorted(files.values())

    def commit(self, schema: Any, add: Sequence[DataFile], remove: Sequence[DataFile] = ()) -> None:
        """Adds files and removes others in one step, which is on the disk when this returns.

        Args:
            schema: the Arrow schema of the files
            add: files that are on the disk
            remove: files that are no longer read; they stay until somebody removes them

        Raises:
            LogError: the log cannot be written, or somebody else has removed one of the files
            OSError: a folder cannot be created
        """
        from deltalake import DeltaTable, Field, Schema
        from deltalake.transaction import AddAction, RemoveAction

        folders.make_folder(self._lake, *self._names)
        now = int(time.time() * 1000)
        try:
            opened, form = self._writable(), Schema.from_arrow(schema)
            if opened is None:
                opened = DeltaTable.create(str(self.folder), form, configuration=_SETTINGS)
            # Other readers take the columns from the log, which an earlier version may have begun.
            known = {field.name for field in opened.schema().fields}
            new = [item for item in form.fields if item.name not in known]
            if new:
                opened.alter.add_columns([Field(item.name, item.type, nullable=True) for item in new])
            actions: list[Any] = [
                AddAction(added.name, added.size, {}, now, True, _statistics(added)) for added in add
            ]
            actions += [RemoveAction(removed.name, True, now, removed.size, {}) for removed in remove]
            opened.create_write_transaction(actions, "append", form)
        except _errors() as error:
            raise LogError(_first_line(error)) from error
        self._sync()

    def shorten(self) -> None:
        """Replaces all commits by one checkpoint, which is on the disk before they are removed.

        Raises:
            LogError: the log cannot be read or written
            OSError: the log's folder cannot be synced
        """
        try:
            opened = self._writable()
            if opened is None or len(folders.sizes(self._lake, *self._names, LOG, form=_COMMIT)) < 2:
                return
            if not _SETTINGS.items() <= opened.metadata().configuration.items():
                opened.alter.set_table_properties(_SETTINGS)
                opened = self._opened()
                assert opened is not None
            opened.create_checkpoint()
            self._sync()
            opened.cleanup_metadata()
        except _errors() as error:
            raise LogError(_first_line(error)) from error
        self._sync()

    def _sync(self) -> None:
        """Returns when the newest files of the log, and their folders, are on the disk."""
        log = folders.folder(self._lake, *self._names, LOG)
        assert log is not None
        for name in sorted(path.name for path in log.iterdir())[-3:]:
            folders.sync(log / name)
        for item in (log, log.parent, log.parent.parent):
            folders.sync(item)

    def _writable(self) -> Optional[Any]:
        """Returns the table as `_opened` does, after torn commits were removed."""
        opened = self._opened()
        if self._torn:
            for name in self._torn:
                folders.remove(self._lake, *self._names, LOG, name)
            opened = self._opened()
        return opened

    def _opened(self) -> Optional[Any]:
        """Returns the table opened with Delta's reader; None if there is none."""
        version = self._newest()
        if version is None:
            return None
        from deltalake import DeltaTable

        try:
            delta_table = DeltaTable(str(self.folder), version=version if self._torn else None)
            protocol = delta_table.protocol()
        except _errors() as error:
            raise LogError(_first_line(error)) from error
        if (protocol.min_reader_version, protocol.min_writer_version) > (_READER, _WRITER):
            raise LogError("it requires features of Delta that lakes do not use")
        return delta_table

    def _newest(self) -> Optional[int]:
        """Checks all files of the log; returns the version of the last commit that can be read."""
        log = self.folder / LOG
        try:
            sizes = folders.sizes(self._lake, *self._names, LOG, form=_ENTRY)
            for name in sizes:
                if name.endswith(".parquet"):
                    self._look_at_checkpoint(log / name)
        except OSError as error:
            raise LogError(f"{LOG}: {error.strerror or type(error).__name__}") from error
        if sum(sizes.values()) > MOST_BYTES:
            raise LogError(f"it has more than {MOST_BYTES:,} bytes")
        commits = sorted(name for name in sizes if name.endswith(".json"))
        if not commits:
            return None
        self._torn = []
        while commits and not _is_whole(log / commits[-1]):
            self._torn.append(commits.pop())
        if not commits:
            raise LogError("none of its commits can be read")
        return int(commits[-1].partition(".")[0])

    @staticmethod
    def _look_at_checkpoint(path: pathlib.Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Delta's writer makes the column, and leaves it empty.
            named = "sidecar" in pq.read_schema(path).names
            sidecars = pq.read_table(path, columns=["sidecar"]).column("sidecar") if named else None
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"{path.name} cannot be read ({_first_line(error)})") from error
        if sidecars is not None and sidecars.null_count < len(sidecars):
            # A sidecar names further files of the log, anywhere.
            raise LogError(f"{path.name} requires features of Delta that lakes do not use")


def _is_whole(path: pathlib.Path) -> bool:
    """Returns whether a commit can be read to its end."""
    try:
        lines = path.read_bytes().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except (ValueError, RecursionError):
        return False


def _statistics(file: DataFile) -> str:
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {"ImageId": file.first},
            "maxValues": {"ImageId": file.last},
            "nullCount": {"ImageId": 0},
        }
    )


def _counted(value: object) -> bool:
    return type(value) is int and value >= 0


def _errors() -> tuple[type[BaseException], ...]:
    """Returns the exceptions that Delta's reader raises for an invalid log."""
    from deltalake.exceptions import DeltaError, DeltaProtocolError

    return DeltaError, DeltaProtocolError, OSError, ValueError, TypeError, KeyError


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def image_range(files: Iterable[DataFile], image_id: str) -> list[DataFile]:
    """Returns the files that may have rows of an image."""
    return [file for file in files if file.first <= image_id <= file.last]
