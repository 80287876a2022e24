# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake: its catalogue, its tables, its custody, and what is left over.

An entry of the catalogue is replaced in one step. Whoever reads sees the one before or the one after, with
all its rows. Each image stands for itself: what does not agree with its manifest is damaged, and harms no
other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from . import custody, folders, locking
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
    manifest_file,
    table_file,
    table_name,
)
from .manifests import DONE, MOST_BYTES, Manifest, ManifestError, is_image_id, parsed, written
from .tablelog import DataFile, LogError, TableLog

_LOCK = "lock"
_END = ".json"


class LakeError(Exception):
    """A lake that cannot be used; the text says why."""


class Lake:
    """A lake in a folder.

    Args:
        folder: where it is, or is to be
        create: whether it is made where there is none

    Attributes:
        made: whether it was made just now

    Raises:
        LakeError: it is no folder of this machine, or there is none
    """

    def __init__(self, folder: str, create: bool = False) -> None:
        self.folder = pathlib.Path(folder).resolve()
        self.manifests_folder = self.folder / MANIFEST
        self.made = False
        try:
            self.made = create and folders.folder(self.folder, MANIFEST) is None
            if self.made:
                self._make()
            if folders.folder(self.folder, MANIFEST) is None:
                raise LakeError(f"{folder}: here is no lake (it would have a folder '{MANIFEST}')")
            if self._listed(TRACES):
                raise LakeError(
                    f"{folder}: an earlier stackfleet wrote this lake, and this one cannot read its tables. "
                    "Read the images into a new lake"
                )
        except OSError as error:
            what = "no lake can be made here" if create else f"its folder '{MANIFEST}' cannot be used"
            raise LakeError(f"{folder}: {what}: {error.strerror}") from error

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        folders.make_folder(self.folder, MANIFEST)
        for path in (self.folder, self.folder.parent):
            folders.sync(path)

    def contents(self, depth: Depth = Depth.SIZE) -> Contents:
        """Returns what is in the lake.

        Args:
            depth: how far the files of images are compared with their manifests

        Raises:
            LakeError: the catalogue cannot be read
        """
        try:
            entries = Entries(self.folder).by_id
        except (LogError, OSError) as error:
            raise LakeError(
                f"{self.folder}: its catalogue cannot be read: {error} (stackfleet run makes it anew)"
            ) from error
        stored = {name: StoredTable(self.folder, name) for name in TABLES}
        known: list[Manifest] = []
        damaged: list[Damaged] = []
        for image_id in sorted(entries):
            try:
                if not is_image_id(image_id):
                    raise ManifestError("its name is no ImageId")
                manifest = parsed(entries[image_id].manifest.encode(), image_id)
                if manifest["attempt"] != entries[image_id].attempt:
                    raise ManifestError("its attempt is another than that in the catalogue")
                known.append(manifest)
            except ManifestError as error:
                damaged.append(Damaged(_shown(image_id), f"manifest: {error}"))
        if depth > Depth.SIZE:
            digests = self._digests(known) if depth >= Depth.CONTENT else {}
            for table in stored.values():
                table.look(depth, digests)
        found: list[Manifest] = []
        for manifest in known:
            at = entries[manifest["image_id"]]
            wrong = next(filter(None, (stored[name].fault(at, manifest) for name in manifest["tables"])), "")
            if not wrong and depth >= Depth.CONTENT:
                wrong = self.custody_fault(at.image_id, at.manifest)
            if wrong:
                damaged.append(Damaged(at.image_id, wrong, manifest))
            else:
                found.append(manifest)
        if depth >= Depth.CONTENT:
            for image_id in set(self._names()) - set(entries):
                damaged.append(Damaged(_shown(image_id), "its manifest is not in the catalogue"))
            for name, table in stored.items():
                for each in table.foreign:
                    said = "the log of this table names a file that is none of its own"
                    damaged.append(Damaged(_shown(f"{TABLES_FOLDER}/{name}: {each}"), said))
        return Contents(found, damaged, stored, entries)

    def manifests(self) -> list[Manifest]:
        """Returns the manifests with whose tables all is well; see `contents`."""
        return self.contents().manifests

    def manifest(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image, as its file has it; None if it has none that can be read."""
        with contextlib.suppress(ManifestError):
            return self._read(image_id)
        return None

    def whole(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image that is done, and with whose tables all is well; else None."""
        found = self.manifest(image_id)
        if found is None or found["status"] != DONE:
            return None
        try:
            self._singles(found)
            return found
        except OSError:
            known = (each for each in self.contents().manifests if each["image_id"] == image_id)
            return next((each for each in known if each["attempt"] == found["attempt"]), None)

    def tables(self, image_id: str, attempt: str, rows: dict[str, int]) -> dict[str, Any]:
        """Returns what a manifest says of the tables of an attempt, which are on the disk then.

        Raises:
            OSError: one of the files is not there
        """
        found = {}
        for name in TABLES:
            path = table_file(str(self.folder), name, image_id, attempt)
            for each in (path, path.parent):
                folders.sync(each)
            found[name] = {
                "file": table_name(name, image_id, attempt),
                "rows": rows[name],
                "bytes": folders.size(self.folder, TABLES_FOLDER, name, path.name),
                "sha256": custody.sha256(path),
            }
        for each in (self.folder / TABLES_FOLDER, self.folder):
            folders.sync(each)
        return found

    def keep(self, manifest: Manifest) -> None:
        """Writes the manifest of an image, in one step.

        Raises:
            OSError: it cannot be written, or a file that it names is gone
        """
        if not manifest["copies"]:
            self._singles(manifest)
        folders.folder(self.folder, MANIFEST)
        path = manifest_file(str(self.folder), manifest["image_id"])
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with temporary.open("xb") as stream:
            stream.write(written(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        folders.replace(temporary, path)
        folders.sync(self.manifests_folder)

    def enter(self, manifests: Iterable[Manifest]) -> None:
        """Puts images whose manifests are kept into the tables, and then into the catalogue.

        Raises:
            LakeError: it cannot be written
        """
        from .columns import stored

        wanted = {each["image_id"]: each for each in manifests}
        try:
            entries = Entries(self.folder)
            known = entries.by_id
            made = [self._with_batch(entry(each), known) for each in wanted.values()]
            # What is in a batch already has no files of its own.
            new = [wanted[each.image_id] for each in made if not each.batch]
            new = [each for each in new if each["tables"]]
            for name in TABLES if new else ():
                log = TableLog(self.folder, name)
                there = {each.name for each in log.load()}
                files = [each for each in (_single(name, each) for each in new) if each.name not in there]
                if files:
                    log.commit(stored(name), files)
            # What could not be opened before has an ImageId now, and was named after its path.
            gone = {unopened(each["path"]) for each in wanted.values() if each["status"] == DONE} & set(known)
            entries.put(made, gone)
        except (LogError, OSError) as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error}") from error
        for image_id in gone:
            folders.remove(self.folder, MANIFEST, f"{image_id}{_END}")

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
    def _with_batch(made: Entry, known: Mapping[str, Entry]) -> Entry:
        before = known.get(made.image_id)
        if before is not None and before.attempt == made.attempt:
            return made._replace(batch=before.batch)
        return made

    def publish(self, manifest: Manifest) -> None:
        """Writes the manifest of an image, and puts the image into the lake; see `keep` and `enter`."""
        self.keep(manifest)
        self.enter([manifest])

    def custody_fault(self, image_id: str, text: str) -> str:
        """Returns what is wrong with the file of a manifest; empty if it is what the catalogue has."""
        try:
            data = folders.read(self.folder, MANIFEST, f"{image_id}{_END}", most=MOST_BYTES)
        except OSError as error:
            return f"{MANIFEST}/{image_id}{_END}: {error.strerror or type(error).__name__}"
        return "" if data == text.encode() else f"{MANIFEST}/{image_id}{_END} is not what the catalogue has"

    def record(self, run: str, said: dict[str, Any]) -> None:
        """Keeps what a run was asked, once for all of its images.

        Args:
            run: its name
            said: what is kept

        Raises:
            LakeError: it cannot be written
        """
        try:
            path = folders.make_folder(self.folder, RUNS) / f"{run}{_END}"
            with path.open("xb") as stream:
                stream.write(written({"run": run, **said}))
            for each in (path, path.parent, self.folder):
                folders.sync(each)
        except OSError as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error.strerror}") from error

    def drop(self, image_id: str, attempt: str) -> None:
        """Removes the files of an attempt that no manifest will name."""
        for name in TABLES:
            folders.remove(self.folder, TABLES_FOLDER, name, file_name(image_id, attempt))

    def take_out(self, image_ids: Iterable[str]) -> None:
        """Takes images out of the catalogue, and removes their manifests. Their rows are there still.

        Raises:
            LogError, OSError: the catalogue cannot be written, or a manifest cannot be removed
        """
        gone = list(image_ids)
        # A manifest that the catalogue lacks would be put into it by the next run.
        for image_id in filter(is_image_id, gone):
            manifest_file(str(self.folder), image_id).unlink(missing_ok=True)
        folders.sync(self.manifests_folder)
        Entries(self.folder).put((), gone)

    def clean(self) -> int:
        """Removes what no log names: what ended attempts left; returns how many files these were.

        Nothing is removed behind a link, nor from a table whose log cannot be read.
        """
        left: list[tuple[str, ...]] = [
            (MANIFEST, name) for name in self._listed(MANIFEST) if name.startswith(".") and f"{_END}." in name
        ]
        for table in (*TABLES, CATALOGUE):
            with contextlib.suppress(LogError, OSError):
                named = {each.name for each in TableLog(self.folder, table).load()}
                for name in self._listed(TABLES_FOLDER, table):
                    if name.endswith(".parquet") and name not in named:
                        left.append((TABLES_FOLDER, table, name))
        for each in left:
            folders.remove(self.folder, *each)
        return len(left)

    def mend(self) -> list[str]:
        """Makes logs anew that cannot be read, of the files that are there; returns what they were called.

        Raises:
            LakeError: the lake cannot be written
        """
        from . import mending

        try:
            return mending.mend(self)
        except (LogError, OSError) as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error}") from error

    def kept(self) -> list[Entry]:
        """Returns what the catalogue should have of the manifests that lie in files and can be read."""
        found = []
        for image_id in self._names():
            with contextlib.suppress(ManifestError, OSError):
                manifest = self._read(image_id)
                data = folders.read(self.folder, MANIFEST, f"{image_id}{_END}", most=MOST_BYTES)
                found.append(Entry(image_id, manifest["attempt"], "", data.decode()))
        return found

    def remove_if_empty(self) -> None:
        """Removes the folder of a lake that was made for nothing."""
        with contextlib.suppress(OSError):
            self.manifests_folder.rmdir()
            for made in (RUNS, CACHE, TABLES_FOLDER):
                shutil.rmtree(self.folder / made, ignore_errors=True)
            (self.folder / _LOCK).unlink(missing_ok=True)
            self.folder.rmdir()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other runs from this lake: what one has not finished, the other would take for left over.

        Raises:
            LakeError: another run has it, or it cannot be written
        """
        # Windows has none of the others, and gives no file to the processes that are started.
        others = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
        flags = os.O_RDWR | os.O_CREAT | sum(getattr(os, name, 0) for name in others)
        try:
            held = os.open(self.folder / _LOCK, flags, 0o666)
        except OSError as error:
            raise LakeError(f"{self.folder}: the lake cannot be written: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(held).st_mode):
                raise LakeError(f"{self.folder}: '{_LOCK}' is no file")
            try:
                locking.lock(held)
            except OSError as error:
                raise LakeError(f"{self.folder}: another run writes to this lake") from error
            yield
        finally:
            os.close(held)

    def _names(self) -> list[str]:
        """Returns what the files of manifests are called: ImageIds."""
        try:
            names = os.listdir(self.manifests_folder)
            return sorted(name[: -len(_END)] for name in names if name.endswith(_END) and name[0] != ".")
        except OSError as error:
            raise LakeError(f"{self.manifests_folder} cannot be read: {error.strerror}") from error

    def _listed(self, *names: str) -> list[str]:
        return folders.listed(self.folder, *names)

    def _singles(self, manifest: Manifest) -> None:
        """Raises OSError if a file that an attempt wrote is not there, or not as the manifest says."""
        for name, said in manifest["tables"].items():
            file = file_name(manifest["image_id"], manifest["attempt"])
            found = folders.size(self.folder, TABLES_FOLDER, name, file)
            if found != said.get("bytes", found):
                raise OSError(f"{said['file']}: {found:,} bytes, and {said['bytes']:,} in the manifest")

    def _digests(self, manifests: Iterable[Manifest]) -> dict[str, str]:
        """Returns the SHA-256 that each file of a table should have, by its path below the lake."""
        found = {
            each["file"]: each["sha256"] for manifest in manifests for each in manifest["tables"].values()
        }
        for name in self._listed(RUNS):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                said = json.loads(folders.read(self.folder, RUNS, name, most=MOST_BYTES))
                files = said.get("files") if isinstance(said, dict) else None
                for path, digest in files.items() if isinstance(files, dict) else ():
                    found[path] = str(digest)
        return found

    def _read(self, image_id: str) -> Manifest:
        if not is_image_id(image_id):
            raise ManifestError("its name is no ImageId")
        try:
            data = folders.read(self.folder, MANIFEST, f"{image_id}{_END}", most=MOST_BYTES)
        except OSError as error:
            raise ManifestError(f"it cannot be read ({error.strerror or type(error).__name__})") from error
        return parsed(data, image_id)


def unopened(path: str) -> str:
    """Returns the name in a lake of an image that could not be opened: it has no ImageId."""
    return "u" + hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def other_id(image_id: str, digests: list[str]) -> str:
    """Returns another ImageId for an image whose own is that of an unequal one.

    Args:
        image_id: its own
        digests: SHA-256 of all its files
    """
    return "i" + hashlib.sha256("\n".join([image_id, *digests]).encode()).hexdigest()[:32]


def _single(table: str, manifest: Manifest) -> DataFile:
    """Returns the file that an attempt wrote for a table, as its log is to have it."""
    said, image_id = manifest["tables"][table], manifest["image_id"]
    return DataFile(file_name(image_id, manifest["attempt"]), said["bytes"], said["rows"], image_id, image_id)


def _shown(name: str) -> str:
    """Returns a name as it can be printed."""
    shown = name.encode("ascii", "backslashreplace").decode()
    return shown if shown.isprintable() else repr(shown)
