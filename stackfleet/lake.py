# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake: its catalogue, its tables, and the removal of leftovers.

An entry of the catalogue is replaced in one step. A reader sees the entry before or the entry after, with all
its rows. Each image is independent: an image that does not agree with its manifest is damaged, and affects no
other image.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from . import custody, folders, locking, provenance
from .agreement import Depth, StoredTable
from .contents import Contents, Damaged
from .entries import Entries, Entry, entry
from .layout import (
    CACHE,
    CATALOGUE,
    MANIFEST,
    RUNS,
    TABLES,
    TABLES_FOLDER,
    TRACES,
    file_name,
    table_file,
    table_name,
)
from .manifests import DONE, Manifest, ManifestError, is_image_id, parsed
from .summary import of_summary, summary
from .tablelog import DataFile, LogError, TableLog

_LOCK = "lock"


class LakeError(Exception):
    """A lake that cannot be used; the text gives the reason."""


class Lake:
    """A lake in a folder.

    Args:
        folder: path of the lake
        create: whether to create the lake if there is none

    Attributes:
        created: whether this call created the lake

    Raises:
        LakeError: the path is no folder of this machine, or there is no lake
    """

    def __init__(self, folder: str, create: bool = False) -> None:
        self.folder = pathlib.Path(folder).resolve()
        self.manifests_folder = self.folder / MANIFEST
        self.created = False
        try:
            self.created = create and folders.folder(self.folder, MANIFEST) is None
            if self.created:
                self._make()
            if folders.folder(self.folder, MANIFEST) is None:
                raise LakeError(
                    f"{folder} is not a stackfleet lake: it has no folder '{MANIFEST}'. "
                    f"To create a lake: stackfleet run IMAGE -o {folder}"
                )
            if self._listed(TRACES):
                raise LakeError(
                    f"{folder}: an earlier stackfleet wrote this lake in another format. "
                    "Read the images into a new lake"
                )
        except OSError as error:
            what = "no lake can be created here" if create else f"its folder '{MANIFEST}' cannot be used"
            raise LakeError(f"{folder}: {what}: {error.strerror}") from error

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        folders.make_folder(self.folder, MANIFEST)
        for path in (self.folder, self.folder.parent):
            folders.sync(path)

    def contents(self, depth: Depth = Depth.SIZE, whole: bool = True) -> Contents:
        """Returns the contents of the lake.

        Args:
            depth: how closely the files of images are compared with their manifests
            whole: whether manifests are read whole, as they always are with Depth.CONTENT; if not, they have
                the members of `of_summary`

        Raises:
            LakeError: the catalogue cannot be read
        """
        whole = whole or depth >= Depth.CONTENT
        try:
            entries = Entries(self.folder, whole).by_id
        except (LogError, OSError) as error:
            raise LakeError(
                f"{self.folder}: its catalogue cannot be read: {error} (stackfleet run rebuilds it)"
            ) from error
        stored = {name: StoredTable(self.folder, name) for name in TABLES}
        parsed_manifests: list[Manifest] = []
        damaged: list[Damaged] = []
        for image_id in sorted(entries):
            try:
                parsed_manifests.append(_manifest(entries[image_id], whole))
            except ManifestError as error:
                damaged.append(Damaged(_shown(image_id), f"manifest: {error}"))
        if depth > Depth.SIZE:
            digests = self._digests(parsed_manifests) if depth >= Depth.CONTENT else {}
            for table in stored.values():
                table.examine(depth, digests)
        sound: list[Manifest] = []
        for manifest in parsed_manifests:
            at = entries[manifest["image_id"]]
            wrong = next(filter(None, (stored[name].fault(at, manifest) for name in manifest["tables"])), "")
            if not wrong and depth >= Depth.CONTENT:
                wrong = custody.fault(self.folder, at.image_id, at.manifest)
            if wrong:
                damaged.append(Damaged(at.image_id, wrong, manifest))
            else:
                sound.append(manifest)
        if depth >= Depth.CONTENT:
            for image_id in set(self._names()) - set(entries):
                damaged.append(Damaged(_shown(image_id), "its manifest is not in the catalogue"))
            for name, table in stored.items():
                for foreign in table.foreign:
                    fault = "the log of this table names a file that does not belong to it"
                    damaged.append(Damaged(_shown(f"{TABLES_FOLDER}/{name}: {foreign}"), fault))
        return Contents(sound, damaged, stored, entries, whole)

    def manifests(self) -> list[Manifest]:
        """Returns the manifests of the images with sound tables; see `contents`."""
        return self.contents().manifests

    def manifest(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image from its file; None if there is none that can be read."""
        with contextlib.suppress(ManifestError):
            return custody.read(self.folder, image_id)
        return None

    def whole(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image that is done and whose tables are sound; else None."""
        candidate = self.manifest(image_id)
        if candidate is None or candidate["status"] != DONE:
            return None
        try:
            self._singles(candidate)
            return candidate
        except OSError:
            matching = (item for item in self.contents().manifests if item["image_id"] == image_id)
            return next((item for item in matching if item["attempt"] == candidate["attempt"]), None)

    def tables(self, image_id: str, attempt: str, rows: dict[str, int]) -> dict[str, Any]:
        """Returns the tables entry of a manifest for an attempt, whose files are then on the disk.

        Raises:
            OSError: one of the files is missing
        """
        table_entries = {}
        for name in TABLES:
            path = table_file(str(self.folder), name, image_id, attempt)
            for path_to_sync in (path, path.parent):
                folders.sync(path_to_sync)
            table_entries[name] = {
                "file": table_name(name, image_id, attempt),
                "rows": rows[name],
                "bytes": folders.size(self.folder, TABLES_FOLDER, name, path.name),
                "sha256": provenance.sha256(path),
            }
        for path_to_sync in (self.folder / TABLES_FOLDER, self.folder):
            folders.sync(path_to_sync)
        return table_entries

    def keep(self, manifest: Manifest) -> None:
        """Writes the manifest of an image, in one step.

        Raises:
            OSError: the manifest cannot be written, or a file that it names is missing
        """
        if not manifest["copies"]:
            self._singles(manifest)
        custody.write(self.folder, manifest)

    def enter(self, manifests: Iterable[Manifest]) -> None:
        """Adds images, whose manifests are already written, to the tables and then to the catalogue.

        Raises:
            LakeError: the lake cannot be written
        """
        from .columns import stored

        by_id = {item["image_id"]: item for item in manifests}
        try:
            entries = Entries(self.folder)
            old_entries = entries.by_id
            new_entries = [self._with_batch(entry(item), old_entries) for item in by_id.values()]
            # An image that is already in a batch has no files of its own.
            unbatched = [by_id[item.image_id] for item in new_entries if not item.batch]
            unbatched = [item for item in unbatched if item["tables"]]
            for name in TABLES if unbatched else ():
                log = TableLog(self.folder, name)
                there = {item.name for item in log.load()}
                files = [
                    item for item in (_single(name, item) for item in unbatched) if item.name not in there
                ]
                if files:
                    log.commit(stored(name), files)
            # An image that could not be opened before has an ImageId now; it was named after its path then.
            replaced = {unopened(item["path"]) for item in by_id.values() if item["status"] == DONE} & set(
                old_entries
            )
            entries.put(new_entries, replaced)
            if replaced:
                custody.remove(self.folder, replaced)
        except (LogError, OSError) as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error}") from error

    def take_over(self) -> None:
        """Puts images into the lake whose manifests are kept: the run that had them read was killed before.

        Raises:
            LakeError: it cannot be written
        """
        found = []
        try:
            known = Entries(self.folder).by_id
        except (LogError, OSError) as error:
            raise LakeError(f"{self.folder}: its catalogue cannot be read: {error}") from error
        for image_id in self._names():
            manifest = None if image_id in known else self.manifest(image_id)
            if manifest is not None:
                with contextlib.suppress(OSError):
                    self._singles(manifest)
                    found.append(manifest)
        if found:
            self.enter(found)

    @staticmethod
    def _with_batch(new_entry: Entry, old_entries: Mapping[str, Entry]) -> Entry:
        before = old_entries.get(new_entry.image_id)
        if before is not None and before.attempt == new_entry.attempt:
            return new_entry._replace(batch=before.batch)
        return new_entry

    def publish(self, manifest: Manifest) -> None:
        """Writes the manifest of an image and adds the image to the lake; see `keep` and `enter`."""
        self.keep(manifest)
        self.enter([manifest])

    def record(self, run: str, entry: dict[str, Any]) -> None:
        """Stores the command line of a run, once for all of its images.

        Args:
            run: name of the run
            entry: data to store

        Raises:
            LakeError: the data cannot be written
        """
        try:
            custody.record_run(self.folder, run, entry)
        except OSError as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error.strerror}") from error

    def drop(self, image_id: str, attempt: str) -> None:
        """Removes the files of an attempt that no manifest will name."""
        for name in TABLES:
            folders.remove(self.folder, TABLES_FOLDER, name, file_name(image_id, attempt))

    def take_out(self, image_ids: Iterable[str]) -> None:
        """Removes images from the catalogue, and their manifests. Their rows stay in the files.

        Raises:
            LogError, OSError: the catalogue cannot be written, or a manifest cannot be removed
        """
        forgotten = list(image_ids)
        # A manifest that the catalogue lacks would be put into it by the next run.
        custody.remove(self.folder, forgotten)
        Entries(self.folder).put((), forgotten)

    def clean(self) -> int:
        """Removes leftovers: files of ended attempts that no log names; returns the number of files.

        Nothing is removed beyond a link, nor from a table whose log cannot be read.
        """
        leftovers: list[tuple[str, ...]] = [(MANIFEST, name) for name in custody.unfinished(self.folder)]
        for table in (*TABLES, CATALOGUE):
            with contextlib.suppress(LogError, OSError):
                named = {item.name for item in TableLog(self.folder, table).load()}
                for name in self._listed(TABLES_FOLDER, table):
                    if name.endswith(".parquet") and name not in named:
                        leftovers.append((TABLES_FOLDER, table, name))
        for item in leftovers:
            folders.remove(self.folder, *item)
        return len(leftovers)

    def mend(self) -> list[str]:
        """Rebuilds logs that cannot be read, from the existing files; returns the names of their tables.

        Raises:
            LakeError: the lake cannot be written
        """
        from . import mending

        try:
            return mending.mend(self)
        except (LogError, OSError) as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error}") from error

    def remove_if_empty(self) -> None:
        """Removes the folder of a new lake that received no image."""
        with contextlib.suppress(OSError):
            self.manifests_folder.rmdir()
            for name in (RUNS, CACHE, TABLES_FOLDER):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / _LOCK).unlink(missing_ok=True)
            self.folder.rmdir()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other runs from this lake, because they would remove the unfinished files of this run.

        Raises:
            LakeError: another run holds the lake, or it cannot be written
        """
        # Windows lacks the other flags, and does not pass the file to processes that are started.
        others = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
        flags = os.O_RDWR | os.O_CREAT | sum(getattr(os, name, 0) for name in others)
        try:
            descriptor = os.open(self.folder / _LOCK, flags, 0o666)
        except OSError as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LakeError(f"{self.folder}: '{_LOCK}' is not a file")
            try:
                locking.lock(descriptor)
            except OSError as error:
                raise LakeError(f"{self.folder}: another run writes to this lake") from error
            yield
        finally:
            os.close(descriptor)

    def _names(self) -> list[str]:
        """Returns the ImageIds in the names of the manifest files."""
        try:
            return custody.image_ids(self.folder)
        except OSError as error:
            raise LakeError(f"{self.manifests_folder} cannot be read: {error.strerror}") from error

    def _listed(self, *names: str) -> list[str]:
        return folders.list_names(self.folder, *names)

    def _singles(self, manifest: Manifest) -> None:
        """Raises OSError if a file that an attempt wrote is missing, or differs from the manifest."""
        for name, expected in manifest["tables"].items():
            file = file_name(manifest["image_id"], manifest["attempt"])
            length = folders.size(self.folder, TABLES_FOLDER, name, file)
            if length != expected.get("bytes", length):
                raise OSError(
                    f"{expected['file']}: {length:,} bytes, but {expected['bytes']:,} in the manifest"
                )

    def _digests(self, manifests: Iterable[Manifest]) -> dict[str, str]:
        """Returns the expected SHA-256 of each table file, by its path below the lake."""
        digests = {
            item["file"]: item["sha256"] for manifest in manifests for item in manifest["tables"].values()
        }
        return {**digests, **custody.batch_digests(self.folder)}


def _manifest(at: Entry, whole: bool) -> Manifest:
    """Returns the manifest of an entry, or the members that its summary has.

    Raises:
        ManifestError: the entry is invalid, or its parts disagree
    """
    if not is_image_id(at.image_id):
        raise ManifestError("its name is not an ImageId")
    if not whole:
        return of_summary(at.image_id, at.attempt, at.summary)
    manifest = parsed(at.manifest.encode(), at.image_id)
    if manifest["attempt"] != at.attempt:
        raise ManifestError("its attempt differs from the catalogue")
    if summary(manifest) != at.summary:
        raise ManifestError("its values differ from the columns of the catalogue")
    return manifest


def unopened(path: str) -> str:
    """Returns the name in a lake of an image that could not be opened and so has no ImageId."""
    return "u" + hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def other_id(image_id: str, digests: list[str]) -> str:
    """Returns another ImageId for an image whose own belongs to a different image.

    Args:
        image_id: the image's own ImageId
        digests: SHA-256 of all its files
    """
    return "i" + hashlib.sha256("\n".join([image_id, *digests]).encode()).hexdigest()[:32]


def _single(table: str, manifest: Manifest) -> DataFile:
    """Returns the log entry of the file that an attempt wrote for a table."""
    table_entry, image_id = manifest["tables"][table], manifest["image_id"]
    return DataFile(
        file_name(image_id, manifest["attempt"]),
        table_entry["bytes"],
        table_entry["rows"],
        image_id,
        image_id,
    )


def _shown(name: str) -> str:
    """Returns a name with unprintable letters escaped."""
    shown = name.encode("ascii", "backslashreplace").decode()
    return shown if shown.isprintable() else repr(shown)
