# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake: images with their rows and manifests, which enter it and leave it whole.

All rows of an image and its manifest are one commit, so that any reader of Delta sees all of them or none.
Any number of runs may write to one lake at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Optional, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .columns import MANIFEST_SCHEMA, UNITED
from .digests import compared, useless
from .layout import CACHE, MANIFESTS, RUNS, TABLES
from .manifestrows import manifest_rows, readable, valid_manifests
from .manifests import DONE, Manifest, unopened
from .newfiles import OWN_FILE, Part
from .snapshots import Snapshot, within
from .store import LOG, Store
from .storeerrors import ConflictError, StoreError, first_line
from .together import of_name
from .writer import table_paths

DAMAGED = "damaged"
"""The status of an image whose rows do not agree with its manifest."""

MOST_TOGETHER = 64
"""The most images of one commit. Images that end while another commit is written form the next one."""

LEAST_ROOM = 1 << 22
"""Bytes beside an image's rows that must be free on a local disk for a commit: its log, and room to go on."""
SMALL_FILES = 512
"""The number of files at which the small files of a lake are merged at the end of a run."""
FILE_SIZE = 1 << 27
"""The size in bytes of a merged file."""
KEPT_HOURS = 24
"""Hours in which a query of an older version still finds its files."""

_OLD_FOLDERS = ("manifest", "tables")
_TRIES = 10
_T = TypeVar("_T")


class LakeError(Exception):
    """A lake that cannot be used; the text gives the reason."""


class AddedError(LakeError):
    """Another run has added an image meanwhile; `manifest` is the one that it added."""

    def __init__(self, uri: str, manifest: Manifest) -> None:
        super().__init__(f"{uri}: another run has added this image, from {manifest['path']}")
        self.manifest = manifest


class _RivalError(LakeError):
    """Another run has changed the lake at the same time."""


class Depth(enum.IntEnum):
    """How closely rows are compared with manifests: sizes of files, forms of files, or all rows."""

    SIZE, FORM, CONTENT = range(3)


@dataclasses.dataclass(frozen=True)
class Damaged:
    """An image, or a file, of a lake whose data cannot be relied on.

    Attributes:
        image_id: ImageId, or path of the file below the lake; unprintable letters are escaped
        path: path of the image; empty if unknown
    """

    image_id: str
    reason: str
    path: str = ""

    @property
    def called(self) -> str:
        """The name of the image for people, which may contain any letter."""
        return _shown(f"{self.path} ({self.image_id})" if self.path else self.image_id)


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents of a lake at one version.

    Attributes:
        only: ImageIds to which the contents are restricted; None for all
    """

    snapshot: Optional[Snapshot]
    damaged: Sequence[Damaged] = ()
    only: Optional[Collection[str]] = None


@dataclasses.dataclass(frozen=True)
class NewImage:
    """An image that enters a lake.

    Attributes:
        folder: folder with the files of its tables; None if it failed
        before: attempt of the image of the same ImageId that this one replaces; None if there was none
    """

    manifest: Manifest
    folder: Optional[pathlib.Path] = None
    before: Optional[str] = None

    @property
    def size(self) -> int:
        """Bytes of the files of its tables."""
        return sum(path.stat().st_size for path in self.folder.iterdir()) if self.folder else 0


class Lake:
    """A lake in a folder or an object store.

    Each method raises LakeError if the lake cannot be read, or written.

    Args:
        uri: path of the folder, or URI such as s3://BUCKET/PATH
        create: whether a lake that does not exist is created by its first image

    Attributes:
        uri: absolute path of the folder, or the URI

    Raises:
        LakeError: there is no lake, or it cannot be read
    """

    def __init__(self, uri: str, create: bool = False) -> None:
        try:
            self._store = Store(uri, UNITED)
            self.exists = self._store.exists()
        except StoreError as error:
            raise LakeError(f"{uri}: {error}") from error
        self.uri = self._store.uri
        folder = self._store.folder
        self._is_new = folder is not None and not folder.exists()
        if folder is not None and all(folder.joinpath(name).is_dir() for name in _OLD_FOLDERS):
            raise LakeError(
                f"{uri}: stackfleet 3 wrote this lake in another format. Read the images into a new lake"
            )
        if folder is not None and folder.exists() and not folder.is_dir():
            where = "no lake can be created here: " if create else ""
            raise LakeError(f"{uri}: {where}it is not a folder, and a lake is one")
        if not create and not self.exists:
            raise LakeError(
                f"{uri} is not a stackfleet lake: it has no log of commits in '{LOG}'. "
                f"To create a lake: stackfleet run IMAGE -o {uri}"
            )

    @property
    def torn(self) -> list[str]:
        """Names of commits that a power failure has torn: their images are read again by the next run."""
        return self._store.torn

    def contents(self, depth: Depth = Depth.SIZE) -> Contents:
        """Returns the contents of the lake."""
        snapshot = self._snapshot()
        if snapshot is None:
            return Contents(None)
        if depth > Depth.SIZE:
            snapshot = readable(snapshot)
        damaged: list[Damaged] = []
        if depth == Depth.CONTENT or snapshot.faults:
            wrong: dict[str, str] = {}
            faults: dict[str, str] = {}
            manifests = {item["image_id"]: item for item in self._manifests(snapshot, wrong)}
            tables = TABLES if depth == Depth.CONTENT else set(map(_table, snapshot.faults))
            for name in TABLES:
                if name in tables:
                    found = compared(snapshot, name, manifests, faults, depth == Depth.CONTENT)
                    wrong = {**found, **wrong}
            snapshot = snapshot.without(faults)
            damaged += [
                Damaged(_shown(image_id), why, manifests.get(image_id, {}).get("path", ""))
                for image_id, why in sorted(wrong.items())
            ]
        damaged += [Damaged(_shown(path), why) for path, why in snapshot.faults.items()]
        return Contents(snapshot, damaged)

    def manifests(self, paths: Optional[Collection[str]] = None) -> list[Manifest]:
        """Returns the valid manifests of the images.

        Args:
            paths: paths of images or of copies of images; None for all
        """
        snapshot = self._snapshot()
        if snapshot is None:
            return []
        if paths is None:
            return list(self._manifests(snapshot, {}))
        has_copies = pc.list_value_length(pc.field("Copies")) > 0
        return list(self._manifests(snapshot, {}, condition=_is_in("Path", paths) | has_copies))

    def manifest(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image; None if the lake has none that is valid."""
        snapshot = self._snapshot()
        return None if snapshot is None else next(self._manifests(snapshot, {}, image_ids=[image_id]), None)

    def add(self, image: NewImage) -> None:
        """Adds an image, or replaces it; it is on the disk when this returns.

        Threads that add images at the same time share commits.

        Raises:
            LakeError: the lake cannot be written
            AddedError: another run has added the image meanwhile
        """
        of_name(self.uri, MOST_TOGETHER, LakeError).add(image, self.add_together)

    def add_together(self, images: Sequence[NewImage]) -> None:
        """Adds images in one commit; see `add`."""
        tries = itertools.count()

        def write() -> None:
            # A store may refuse a commit that it has made: the answer was lost, its client asked again.
            left = self._not_added(images) if next(tries) else images
            if left:
                with self._written(LEAST_ROOM + sum(image.size for image in left)) as snapshot:
                    self._commit(snapshot, left)

        _repeated(write)

    def add_copy(self, image_id: str, path: str) -> Manifest:
        """Adds a path to an image whose file has the same bytes; returns the manifest of the image.

        Raises:
            LakeError: the lake cannot be written, or another run has removed the image
        """

        def write() -> Manifest:
            with self._written() as snapshot:
                known = next(self._manifests(snapshot, {}, image_ids=[image_id]), None)
                if known is None or known["status"] != DONE:
                    raise LakeError(
                        f"{self.uri}: another run has removed the image of which {path} is a copy"
                    )
                manifest = {**known, "copies": list(dict.fromkeys((*known["copies"], path)))}
                if manifest != known:
                    self._put(snapshot, manifest)
                return manifest

        return _repeated(write)

    def _put(self, snapshot: Snapshot, manifest: Manifest) -> None:
        """Replaces the manifest of an image whose rows stay."""
        image_id, rows = manifest["image_id"], [manifest_rows([manifest])]
        self._replace(snapshot, [Part(MANIFESTS, rows)], [image_id], [image_id], MANIFESTS)

    def record(self, run: str, facts: dict[str, Any]) -> None:
        """Stores the command line of a run, once for all of its images."""
        row = {"image_id": run, "status": None, "path": None, "copies": [], **facts}
        with self._written() as snapshot:
            self._store.commit(snapshot, [Part(RUNS, [manifest_rows([row])])], [run])

    def forget(self, image_ids: Collection[str]) -> None:
        """Removes images: their manifests and rows leave the lake and its files."""

        def write() -> None:
            with self._written(room=0) as snapshot:
                self._replace(snapshot, [], image_ids, image_ids)

        def purge() -> None:
            with self._written(room=0):
                self._store.purge()

        # Another run may add an image again before its old files are gone: the new rows stay.
        _repeated(write)
        _repeated(purge)

    def compact(self, needed: bool = False) -> None:
        """Merges the small files of the lake, and shortens its log.

        Args:
            needed: whether nothing is done where there are few small files
        """
        snapshot = self._snapshot()
        small = 0 if snapshot is None else sum(file.size < FILE_SIZE // 4 for file in snapshot.files)
        if snapshot is None or (needed and small < SMALL_FILES):
            return
        try:
            snapshot.look_at(snapshot.files)
        except StoreError as error:
            if needed:
                return
            raise LakeError(f"{self.uri}: its files cannot be merged: {error}") from error
        try:
            with self._written():
                self._store.compact(FILE_SIZE, KEPT_HOURS)
        except _RivalError:
            # Another run merges the same files, or replaces an image: the next run finds few or many files.
            if not needed:
                raise

    def files(self) -> int:
        """Returns the number of files with rows."""
        snapshot = self._snapshot()
        return 0 if snapshot is None else len(snapshot.files)

    def remove_if_empty(self) -> None:
        """Removes the cache in a lake that received no image, and the folder if it was not there before."""
        folder = self._store.folder
        if folder is not None and not self._store.exists():
            shutil.rmtree(folder / CACHE, ignore_errors=True)
            if self._is_new and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def _snapshot(self) -> Optional[Snapshot]:
        try:
            return self._store.snapshot() if self._store.exists() else None
        except StoreError as error:
            raise LakeError(f"{self.uri} cannot be read: {error}") from error

    @contextlib.contextmanager
    def _written(self, room: int = LEAST_ROOM) -> Iterator[Snapshot]:
        """Yields the newest version for a commit of so many bytes; turns a StoreError into a LakeError."""
        try:
            yield self._store.snapshot(room)
        except ConflictError as error:
            raise _RivalError(f"{self.uri}: another run has changed the lake: {error}") from error
        except StoreError as error:
            raise LakeError(f"{self.uri}: the lake cannot be written: {error}") from error

    def _commit(self, snapshot: Snapshot, images: Sequence[NewImage]) -> None:
        by_id = {image.manifest["image_id"]: image for image in images}
        # An image that could not be opened before has an ImageId now; it was named after its path then.
        placeholders = {unopened(item.manifest["path"]) for item in images if item.folder is not None}
        replaced = self._rows(snapshot, image_ids={*by_id, *placeholders})
        for there in valid_manifests(replaced, {}):
            image = by_id.get(there["image_id"])
            if image is None or image.folder is None or there["status"] != DONE:
                continue
            if there["attempt"] not in (None, image.before):
                raise AddedError(self.uri, there)
        gone = set(replaced.column("ImageId").to_pylist())
        # The manifest may be in a file that is lost.
        gone.update(name for name in by_id if any(file.may_have([name]) for file in snapshot.lost))
        self._replace(snapshot, _parts(by_id.values()), {*by_id, *gone}, gone)

    def _replace(
        self,
        snapshot: Snapshot,
        parts: Iterable[Part],
        changed: Collection[str],
        gone: Collection[str],
        table: Optional[str] = None,
    ) -> None:
        """Adds rows, and removes the rows of some images; see `Store.commit`."""
        if snapshot.lost:
            lost = useless(snapshot, {item["image_id"]: item for item in self._manifests(snapshot, {})}, gone)
            snapshot = snapshot._replace(lost=lost)
        self._store.commit(snapshot, parts, changed, gone, table)

    def _not_added(self, images: Sequence[NewImage]) -> list[NewImage]:
        """Returns the images whose attempts the lake does not have."""
        snapshot = self._snapshot()
        if snapshot is None:
            return list(images)
        image_ids = [image.manifest["image_id"] for image in images]
        there = {item["attempt"] for item in self._manifests(snapshot, {}, image_ids=image_ids)}
        return [image for image in images if image.manifest["attempt"] not in there]

    def _manifests(self, snapshot: Snapshot, wrong: dict[str, str], **of: Any) -> Iterator[Manifest]:
        """Yields the valid manifests; puts the reason why another is not into `wrong`, by ImageId."""
        return valid_manifests(self._rows(snapshot, **of), wrong)

    def _rows(
        self,
        snapshot: Snapshot,
        condition: Optional[pc.Expression] = None,
        image_ids: Optional[Collection[str]] = None,
    ) -> Any:
        """Returns rows of manifests that fulfil a condition, or are of some images; all without both."""
        if image_ids is not None:
            condition = _is_in("ImageId", image_ids)
        try:
            dataset = snapshot.datasets(MANIFESTS, image_ids)
            scanner = dataset.scanner(columns=MANIFEST_SCHEMA.names, filter=condition)
            return within(scanner.to_batches(), scanner.projected_schema)
        except (pa.ArrowException, OSError, StoreError) as error:
            raise LakeError(f"{self.uri}: its manifests cannot be read: {first_line(error)}") from error


def _repeated(write: Callable[[], _T]) -> _T:
    """Returns what a function returns; it is called again if another run has changed the lake meanwhile."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(_RivalError):
            return write()
    return write()


def _parts(images: Collection[NewImage]) -> Iterator[Part]:
    """Yields the rows of images and their manifests; small files of a table become one."""
    folders = [table_paths(image.folder) for image in images if image.folder is not None]
    for name in TABLES:
        small = []
        for paths in folders:
            if paths[name].stat().st_size < OWN_FILE:
                small.append(paths[name])
            else:
                yield Part(name, path=paths[name])
        yield Part(name, _batches(small))
    yield Part(MANIFESTS, [manifest_rows([image.manifest for image in images])])


def _batches(paths: Sequence[pathlib.Path]) -> Iterator[Any]:
    """Yields the rows of files."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()


def _is_in(column: str, values: Collection[str]) -> pc.Expression:
    """Returns the condition that a column has one of some texts."""
    return pc.is_in(pc.field(column), pa.array(sorted(values), pa.string()))


def _table(path: str) -> str:
    return path.partition("=")[2].partition("/")[0]


def _shown(text: str) -> str:
    return text if text.isprintable() else repr(text)
