# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Delta table of a lake: opens it, whoever wrote it, and commits rows.

Delta makes a commit whole: a reader sees all of its rows or none. Three things are added here. Names in the
log of somebody else are checked before a file is opened. Files are on the disk before a commit counts as
done, and before what they replace goes, because deltalake never calls fsync. A last commit that a power
failure tore is left out.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Optional

import pyarrow as pa

from . import lakefolder, newfiles
from .lakefiles import File, LakeFiles
from .lakefolder import LOG, MOST_FILES
from .newfiles import PARTITION, NewFiles, Part
from .snapshots import Snapshot
from .storeerrors import ConflictError, StoreError, explained

DATA_FILE = re.compile(r"Table=([a-z]{1,32})/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.parquet")
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_ENDPOINT = re.compile(r"https?://[^\s/]+(/\S*)?")
"""The URL of a server that speaks S3; deltalake panics at others, such as HOST:PORT."""
OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl")
"""Schemes of the object stores that deltalake writes to."""
CHECKPOINT = 100
"""The number of commits after which a checkpoint is made."""
_SETTINGS = {
    "delta.dataSkippingStatsColumns": "ImageId",
    "delta.checkpointInterval": str(CHECKPOINT),
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.enableExpiredLogCleanup": "true",
}
"""Statistics of one column are kept. A checkpoint replaces old commits, which then end with it."""
_THREADS = "TOKIO_WORKER_THREADS"
"""Environment variable with the number of deltalake's threads. One of several takes rows as fast as they come
while another writes them: the memory of a merge grew with its files (deltalake 1.6)."""
_TRIES = 15
"""The most times that a commit is tried behind others that do not touch its images."""


def is_remote(uri: str) -> bool:
    """Returns whether a lake is in an object store, such as s3://BUCKET/PATH, or its name means one."""
    return _REMOTE.match(uri) is not None


class Store:
    """The table of a lake.

    Args:
        uri: folder, or URI of an object store; deltalake takes credentials from the environment
        schema: Arrow schema of the rows, without the column `Table`

    Raises:
        StoreError: the URI is of no object store that deltalake knows, or of a server whose URL is none

    Attributes:
        folder: the folder; None for an object store
        torn: names of commits that cannot be read to their end, and are left out
    """

    def __init__(self, uri: str, schema: Any) -> None:
        self.folder = None if is_remote(uri) else pathlib.Path(uri).resolve()
        scheme, _, place = uri.partition("://")
        if self.folder is None and not (
            scheme in OBJECT_STORES and place.strip("/") == place.rstrip("/") != ""
        ):
            schemes = ", ".join(OBJECT_STORES)
            raise StoreError(
                f"a lake is a folder, or in an object store: SCHEME://BUCKET/PATH, with {schemes}"
            )
        for name, value in os.environ.items() if scheme.startswith("s3") else ():
            if name.startswith("AWS_ENDPOINT") and value and not _ENDPOINT.fullmatch(value):
                raise StoreError(f"{name} is no URL such as https://HOST:PORT: '{value}'")
        self.uri = uri.rstrip("/") if self.folder is None else str(self.folder)
        self.schema = pa.schema([pa.field(PARTITION, pa.string()), *schema])
        self.torn: list[str] = []
        self._files = LakeFiles(self.uri, self.folder)
        # deltalake reads it once in a process.
        os.environ.setdefault(_THREADS, "1")

    def exists(self) -> bool:
        """Returns whether there is a table.

        Raises:
            StoreError: the object store does not answer
        """
        if self.folder is not None:
            return lakefolder.has_log(self.folder, PARTITION)
        from deltalake import DeltaTable

        with explained():
            return DeltaTable.is_deltatable(self.uri)

    def snapshot(self, room: Optional[int] = None) -> Snapshot:
        """Returns the newest version of the table.

        Args:
            room: bytes that a commit which follows needs on a local disk: a table that does not exist is
                created, and torn commits go; None: nothing is written

        Raises:
            StoreError: there is no table that can be read, or written
        """
        taken = time.time()
        opened = self._opened() if room is None else self._writable(room)
        with explained():
            actions = pa.table(opened.get_add_actions(flatten=True))
            if actions.num_rows > MOST_FILES:
                raise StoreError(f"it has more than {MOST_FILES:,} files")
            if actions.num_rows and not {"path", "size_bytes", "num_records"} <= set(actions.column_names):
                raise StoreError("its log lacks the numbers of rows")
            listed = actions.to_pylist()
            sizes = None if self.folder is None else lakefolder.sizes(self.folder, PARTITION)
        files, lost, faults = list[File](), list[File](), dict[str, str]()
        for item in listed:
            path, size, rows = item["path"], item["size_bytes"], item["num_records"]
            match = DATA_FILE.fullmatch(path)
            if match is None:
                faults[path] = "it is no file of this lake"
                continue
            problem = _fault(path, size, rows, sizes)
            file = File(path, match[1], size, rows, item.get("min.ImageId"), item.get("max.ImageId"))
            if problem:
                faults[path] = problem
            (lost if problem else files).append(file)
        # Columns of other versions are read, too: digests cover them.
        stored = pa.schema(opened.schema().to_arrow())
        fields = [field for field in (*stored, *self.schema) if field.name != PARTITION]
        schema = pa.schema({field.name: field for field in reversed(fields)}.values())
        datasets = self._files.datasets(schema, files)
        return Snapshot(files, lost, faults, *datasets, opened, taken)

    def commit(
        self,
        snapshot: Snapshot,
        parts: Iterable[Part],
        changed: Collection[str],
        replaced: Collection[str] = (),
        table: Optional[str] = None,
    ) -> None:
        """Adds rows in one step, which is on the disk when this returns.

        Args:
            snapshot: the version that was looked at
            changed: the images that the commit changes, or the run that it records
            replaced: the images whose rows go
            table: the table from which they go; None for all

        Raises:
            ConflictError: another writer has changed one of the images since that version, or merged a file
                that goes, or the log no longer has that version
            StoreError: the table cannot be written
        """
        before, new = snapshot.opened.version(), NewFiles(self._files.system())
        try:
            with explained():
                for part in parts:
                    new.add(part)
                new.remove_rows(snapshot, replaced, table)
            _write(snapshot.opened, new, changed)
            self._sync(before)
        except StoreError as error:
            if snapshot.is_fresh():
                raise
            raise ConflictError(f"version {before} is no longer in its log: {error}") from error
        if not snapshot.is_fresh():
            newest = self._opened()
            with explained():
                lost = [name for name in changed if newest.transaction_version(name) != before + 1]
            if lost:
                raise ConflictError(f"version {before} is no longer in its log: the commit behind it is lost")
        if snapshot.opened.version() // CHECKPOINT > before // CHECKPOINT:
            # The commit is made: without its checkpoint the log is only longer.
            with contextlib.suppress(StoreError):
                self._make_checkpoint(snapshot.opened)

    def purge(self) -> None:
        """Removes the files that the newest version does not have; readers of older versions lose them.

        Raises:
            StoreError: the files cannot be removed
        """
        _remove_files(self._opened(), 0)

    def compact(self, target_size: int, retention_hours: int) -> None:
        """Merges small files; removes files that no version of the last hours has.

        Args:
            retention_hours: hours in which a reader of an older version may still need its files

        Raises:
            ConflictError, StoreError: see `commit`
        """
        opened = self._writable(0)
        before = opened.version()
        with explained():
            opened.optimize.compact(
                target_size=target_size,
                writer_properties=_writer_properties(),
                post_commithook_properties=_no_checkpoint(),
            )
        self._sync(before)
        # The removal of files and the checkpoint must know what others have committed meanwhile.
        opened = self._opened()
        _remove_files(opened, retention_hours, full=True)
        self._sync(before)
        self._make_checkpoint(opened)

    def _make_checkpoint(self, opened: Any) -> None:
        """Puts a checkpoint into the place of old commits, which go when it is on the disk."""
        with explained():
            opened.create_checkpoint()
            if self.folder is not None:
                lakefolder.sync_checkpoints(self.folder)
            opened.cleanup_metadata()

    def _sync(self, before: int) -> None:
        """Returns when the commits after a version are on the disk; an object store answers when they are."""
        if self.folder is not None:
            with explained():
                lakefolder.sync_commits(self.folder, before, DATA_FILE)

    def _writable(self, room: int) -> Any:
        """Returns the table opened; makes it if there is none, and removes torn commits."""
        from deltalake import DeltaTable

        if self.folder is not None:
            with explained():
                self.folder.mkdir(parents=True, exist_ok=True)
                lakefolder.refuse_full(self.folder, room)
                lakefolder.refuse_read_only(self.folder)
        if not self.exists():
            with explained():
                DeltaTable.create(
                    self.uri, self.schema, mode="ignore", partition_by=[PARTITION], configuration=_SETTINGS
                )
            self._sync(-1)
        if self.folder is not None:
            with explained():
                lakefolder.refuse_links(self.folder, PARTITION)
        opened = self._opened()
        if self.torn and self.folder is not None:
            with explained():
                for name in self.torn:
                    self.folder.joinpath(LOG, name).unlink(missing_ok=True)
            opened = self._opened()
        self._add_columns(opened)
        return opened

    def _add_columns(self, opened: Any) -> None:
        """Adds the columns that an older version did not have when it created the table."""
        known = pa.schema(opened.schema().to_arrow()).names
        missing = [field for field in self.schema if field.name not in known]
        if missing:
            from deltalake import Schema

            with explained():
                opened.alter.add_columns(
                    Schema.from_arrow(pa.schema(missing)).fields, post_commithook_properties=_no_checkpoint()
                )
            self._sync(opened.version() - 1)

    def _opened(self) -> Any:
        from deltalake import DeltaTable

        newest = None
        with explained():
            if self.folder is not None:
                newest, self.torn = lakefolder.look_at_log(self.folder)
            else:
                self._files.look_at_log()
            opened = DeltaTable(self.uri, version=newest if self.torn else None)
            protocol = opened.protocol()
            fields = {field.name: field.type for field in pa.schema(opened.schema().to_arrow())}
        # Version 3 of readers and 7 of writers name their features; a lake needs none of them.
        if protocol.min_reader_version not in (1, 3) or protocol.reader_features:
            raise StoreError("it requires features of Delta that lakes do not use")
        for field in self.schema:
            if fields.get(field.name, field.type) != field.type:
                raise StoreError(f"its column {field.name} is {fields[field.name]}, not {field.type}")
        return opened


def _write(opened: Any, new: NewFiles, changed: Collection[str]) -> None:
    """Makes a commit, behind commits of others if they changed no image and no file of it.

    Delta itself would refuse one that adds rows behind one that removes some.

    Raises:
        ConflictError: another writer has changed one of the images, or merged a file that goes
        StoreError: the table cannot be written
    """
    from deltalake import CommitProperties, Transaction

    properties = CommitProperties(
        max_commit_retries=0,
        app_transactions=[Transaction(name, opened.version() + 1) for name in changed],
    )
    known = list(map(opened.transaction_version, changed))
    for left in reversed(range(_TRIES)):
        try:
            with explained():
                opened.create_write_transaction(
                    [*new.removed, *new.added],
                    "append",
                    opened.schema(),
                    [PARTITION],
                    commit_properties=properties,
                    post_commithook_properties=_no_checkpoint(),
                )
            break
        except ConflictError:
            with explained():
                opened.update_incremental()
                there = set(pa.table(opened.get_add_actions())["path"].to_pylist()) if new.removed else set()
            untouched = known == list(map(opened.transaction_version, changed))
            if not left or not untouched or not there.issuperset(gone.path for gone in new.removed):
                raise
    with explained():
        opened.update_incremental()


def _remove_files(opened: Any, hours: int, full: bool = False) -> None:
    """Removes files that no version of the last hours has; `full`: those that no version ever had, too."""
    with explained():
        opened.vacuum(
            retention_hours=hours,
            dry_run=False,
            enforce_retention_duration=False,
            full=full,
            post_commithook_properties=_no_checkpoint(),
        )


def _no_checkpoint() -> Any:
    """Returns properties without Delta's own checkpoints: old commits go before these are on the disk."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _writer_properties() -> Any:
    """Returns the form of files. Statistics of columns that are null would be most of a small file."""
    from deltalake import ColumnProperties, WriterProperties

    return WriterProperties(
        compression="ZSTD",
        max_row_group_size=newfiles.ROW_GROUP,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={"ImageId": ColumnProperties(statistics_enabled="CHUNK")},
    )


def _fault(path: str, size: object, rows: object, sizes: Optional[Mapping[str, int]]) -> str:
    if type(size) is not int or type(rows) is not int or min(size, rows) < 0:
        return "its log does not state its size and its number of rows"
    if sizes is None:
        return ""
    if path not in sizes:
        return "there is no such file"
    return "" if sizes[path] == size else f"{sizes[path]:,} bytes, but {size:,} in the log"
