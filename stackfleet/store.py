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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

import pyarrow as pa

from . import lakefolder
from .lakefiles import File, LakeFiles
from .lakefolder import LOG, MOST_FILES
from .storeerrors import ConflictError, StoreError, explained, first_line

_PARTITION = "Table"
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
FRESH = 1800
"""Seconds after which a commit is looked for in the log: half of the time for which commits are kept there.
A writer that sleeps longer may commit behind a checkpoint that no longer has the place of its commit."""

ROW_GROUP = 1 << 17
"""The most rows of a row group, which Arrow decodes as a whole; deltalake's own are 8 times as many."""

MOST_BYTES = 1 << 30
"""The most bytes of rows that are held together."""

_THREADS = "TOKIO_WORKER_THREADS"
"""Environment variable with the number of deltalake's threads. One of several takes rows as fast as they come
while another writes them: memory grew with the image, to 1.4 GB for 6 million frames. One thread holds
0.4 GB, with as much processor time, and a commit takes a sixth to a third longer (deltalake 1.6)."""
_TRIES = 15
"""The most times that Delta moves a commit behind others that do not touch its images."""


class Snapshot(NamedTuple):
    """The table at one version.

    Attributes:
        files: the files that can be read, or that no listing contradicts
        faults: reasons why other files are left out, by path
        of_files: returns the Arrow dataset of files
        at_a_time: returns the limits of a scanner of the files of some paths; raises an OSError or an
            ArrowException if one of them cannot be read, or unfolds to too much
        opened: the table of Delta at this version
        taken: the time before it was opened
    """

    files: Sequence[File]
    faults: Mapping[str, str]
    of_files: Callable[[Sequence[File]], Any]
    at_a_time: Callable[[Iterable[str]], Mapping[str, int]]
    opened: Any
    taken: float

    def is_fresh(self) -> bool:
        """Returns whether the log still has all commits since this version."""
        return time.time() - self.taken < FRESH

    def datasets(self, table: str, image_ids: Optional[Collection[str]] = None) -> Any:
        """Returns the Arrow dataset of a table; with ImageIds, of the files that may have rows of these."""
        files = [file for file in self.files if file.table == table]
        if image_ids is not None:
            files = [file for file in files if file.may_have(image_ids)]
        return self.of_files(files)

    def look_at(self, files: Iterable[File]) -> None:
        """Looks at files that Delta reads whole, before it does so: it has no limit of memory.

        Raises:
            StoreError: a file cannot be read, or unfolds to too much
        """
        for file in files:
            try:
                self.at_a_time([file.path])
            except (pa.ArrowException, OSError) as error:
                raise StoreError(f"{file.path}: {first_line(error)}") from error

    def without(self, faults: Mapping[str, str]) -> Snapshot:
        """Returns the version without some of its files."""
        files = [file for file in self.files if file.path not in faults]
        return self._replace(files=files, faults={**self.faults, **faults})


def within(batches: Iterable[Any], schema: Any) -> Any:
    """Returns rows as one table.

    Raises:
        StoreError: they need more than MOST_BYTES
        pa.ArrowInvalid: a text is not UTF-8: Parquet has bytes, which Arrow does not look at
    """
    held, size = [], 0
    for batch in batches:
        batch.validate(full=True)
        size += batch.nbytes
        if size > MOST_BYTES:
            raise StoreError(f"its rows need more than {MOST_BYTES:,} bytes of memory")
        held.append(batch)
    return pa.Table.from_batches(held, schema)


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
        self.schema = pa.schema([pa.field(_PARTITION, pa.string()), *schema])
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
            return lakefolder.has_log(self.folder, _PARTITION)
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
            sizes = None if self.folder is None else lakefolder.sizes(self.folder, _PARTITION)
        files, faults = [], {}
        for item in listed:
            path, size, rows = item["path"], item["size_bytes"], item["num_records"]
            match = DATA_FILE.fullmatch(path)
            problem = _fault(path, size, rows, sizes) if match else "it is no file of this lake"
            if match is None or problem:
                faults[path] = problem
            else:
                bounds = item.get("min.ImageId"), item.get("max.ImageId")
                files.append(File(path, match[1], size, rows, *bounds))
        # Columns of other versions are read, too: digests cover them.
        stored = pa.schema(opened.schema().to_arrow())
        fields = [field for field in (*stored, *self.schema) if field.name != _PARTITION]
        schema = pa.schema({field.name: field for field in reversed(fields)}.values())
        datasets = self._files.datasets(schema, files)
        return Snapshot(files, faults, *datasets, opened, taken)

    def commit(
        self, snapshot: Snapshot, batches: Iterator[Any], changed: Collection[str], replaced: str = ""
    ) -> None:
        """Adds rows in one step, which is on the disk when this returns.

        Args:
            snapshot: the version that was looked at
            batches: record batches with the schema of the table
            changed: the images that the commit changes, or the run that it records
            replaced: SQL condition for the rows that the new ones replace; empty for none

        Raises:
            ConflictError: another writer has changed one of the images since that version, or the log no
                longer has that version
            StoreError: the table cannot be written
        """
        from deltalake import CommitProperties, Transaction, write_deltalake

        if replaced:
            # Files with rows of one image are replaced whole, without a look into them.
            several = (file for file in snapshot.files if file.first is None or file.first != file.last)
            snapshot.look_at(file for file in several if file.may_have(changed))
        before = snapshot.opened.version()
        # Delta refuses a transaction whose name a later version has, too.
        properties = CommitProperties(
            max_commit_retries=_TRIES,
            app_transactions=[Transaction(name, before + 1) for name in changed],
        )
        replacing: dict[str, Any] = {"mode": "overwrite", "predicate": replaced} if replaced else {}
        try:
            with explained():
                write_deltalake(
                    snapshot.opened,
                    pa.RecordBatchReader.from_batches(self.schema, batches),
                    # An older version may have created the lake with fewer columns.
                    **{"mode": "append", "schema_mode": "merge", **replacing},
                    commit_properties=properties,
                    writer_properties=_writer_properties(),
                    post_commithook_properties=_no_checkpoint(),
                )
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
                    self.uri, self.schema, mode="ignore", partition_by=[_PARTITION], configuration=_SETTINGS
                )
            self._sync(-1)
        if self.folder is not None:
            with explained():
                lakefolder.refuse_links(self.folder, _PARTITION)
        opened = self._opened()
        if self.torn and self.folder is not None:
            with explained():
                for name in self.torn:
                    self.folder.joinpath(LOG, name).unlink(missing_ok=True)
            opened = self._opened()
        return opened

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
        max_row_group_size=ROW_GROUP,
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
