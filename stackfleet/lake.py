# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake: its manifests, what they name, and what is left over.

A manifest is replaced in one step. Whoever reads sees the one before or the one after, with all its tables.
Each image stands for itself: what does not agree with its manifest is damaged, and harms no other image.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from . import custody, folders, locking
from .agreement import Depth, fault
from .layout import CACHE, MANIFEST, RUNS, TABLES, image_folder, manifest_file, table_file, table_name
from .manifests import DONE, MOST_BYTES, Manifest, ManifestError, is_image_id, parsed, written

_LOCK = "lock"
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
_END = ".json"


class LakeError(Exception):
    """A lake that cannot be used; the text says why."""


@dataclasses.dataclass(frozen=True)
class Damaged:
    """An image of a lake that cannot be relied on.

    Attributes:
        image_id: by which its manifest is named, unprintable letters escaped
        reason: what is wrong
        manifest: what it says; None if it cannot be read
    """

    image_id: str
    reason: str
    manifest: Optional[Manifest] = None

    @property
    def called(self) -> str:
        """What people know the image by, its path if that is known; a path may have any letter."""
        said = self.image_id if self.manifest is None else f"{self.manifest['path']} ({self.image_id})"
        return said if said.isprintable() else repr(said)


@dataclasses.dataclass(frozen=True)
class Contents:
    """What is in a lake.

    Attributes:
        manifests: those with whose tables all is well, by ImageId in ascending order
        damaged: the others
    """

    manifests: list[Manifest]
    damaged: list[Damaged]


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
        remote = _SCHEME.match(folder)
        if remote:
            raise LakeError(
                f"{folder}: a lake lies in a folder of a local or network file system. {remote[1]}:// has no "
                "step that replaces a file at once; write the lake to a folder, and copy it there"
            )
        self.folder = pathlib.Path(folder).resolve()
        self.manifests_folder = self.folder / MANIFEST
        self.made = False
        try:
            self.made = create and folders.folder(self.folder, MANIFEST) is None
            if self.made:
                self._make()
            if folders.folder(self.folder, MANIFEST) is None:
                raise LakeError(f"{folder}: here is no lake (it would have a folder '{MANIFEST}')")
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
            LakeError: the folder of manifests cannot be read
        """
        found, damaged = [], []
        for name in self._names():
            image_id = name[: -len(_END)]
            try:
                manifest = self._read(image_id)
            except ManifestError as error:
                shown = image_id.encode("ascii", "backslashreplace").decode()
                damaged.append(Damaged(shown if shown.isprintable() else repr(shown), f"manifest: {error}"))
                continue
            wrong = fault(self.folder, manifest, depth)
            if wrong:
                damaged.append(Damaged(image_id, wrong, manifest))
            else:
                found.append(manifest)
        return Contents(found, damaged)

    def manifests(self) -> list[Manifest]:
        """Returns the manifests with whose tables all is well; see `contents`."""
        return self.contents().manifests

    def manifest(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image; None if there is none, or none that can be read."""
        with contextlib.suppress(ManifestError):
            return self._read(image_id)
        return None

    def whole(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image that is done, and with whose tables all is well; else None."""
        found = self.manifest(image_id)
        good = found is not None and found["status"] == DONE and not fault(self.folder, found)
        return found if good else None

    def tables(self, image_id: str, attempt: str, rows: dict[str, int]) -> dict[str, Any]:
        """Returns what a manifest says of the tables of an attempt, which are on the disk then.

        Raises:
            OSError: one of the files is not there
        """
        found = {}
        for name in TABLES:
            path = table_file(str(self.folder), name, image_id, attempt)
            for each in (path, path.parent, path.parent.parent):
                folders.sync(each)
            found[name] = {
                "file": table_name(name, image_id, attempt),
                "rows": rows[name],
                "bytes": folders.size(self.folder, name, image_folder(image_id), path.name),
                "sha256": custody.sha256(path),
            }
        folders.sync(self.folder)
        return found

    def publish(self, manifest: Manifest) -> None:
        """Replaces the manifest of an image in one step.

        Raises:
            OSError: it cannot be written, or a file that it names is gone
        """
        wrong = fault(self.folder, manifest)
        if wrong:
            raise OSError(wrong)
        folders.folder(self.folder, MANIFEST)
        path = manifest_file(str(self.folder), manifest["image_id"])
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with temporary.open("xb") as stream:
            stream.write(written(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        folders.replace(temporary, path)
        folders.sync(self.manifests_folder)
        if manifest["status"] == DONE:
            # The path could not be opened before, and was named after itself.
            folders.remove(self.folder, MANIFEST, f"{unopened(manifest['path'])}{_END}")

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
            folders.remove(self.folder, name, image_folder(image_id), f"{attempt}.parquet")

    def forget(self, image_ids: Iterable[str]) -> None:
        """Removes images: their manifests, and then their tables.

        Raises:
            OSError: a manifest cannot be removed; its tables are there then
        """
        for image_id in image_ids:
            manifest_file(str(self.folder), image_id).unlink()
        folders.sync(self.manifests_folder)
        self.clean()

    def clean(self) -> int:
        """Removes what no manifest names: what ended attempts left; returns how many files these were.

        Nothing is removed behind a link, nor the tables of an image whose manifest cannot be read.
        """
        contents = self.contents()
        known = [*contents.manifests, *(each.manifest for each in contents.damaged if each.manifest)]
        named = {each["file"] for manifest in known for each in manifest["tables"].values()}
        unread = {image_folder(each.image_id) for each in contents.damaged if each.manifest is None}
        left: list[tuple[str, ...]] = [
            (MANIFEST, name) for name in self._listed(MANIFEST) if name.startswith(".") and f"{_END}." in name
        ]
        for table in TABLES:
            for image in self._listed(table):
                if image.startswith(image_folder("")) and image not in unread:
                    for name in self._listed(table, image):
                        if name.endswith(".parquet") and f"{table}/{image}/{name}" not in named:
                            left.append((table, image, name))
        for each in left:
            folders.remove(self.folder, *each)
        return len(left)

    def remove_if_empty(self) -> None:
        """Removes the folder of a lake that was made for nothing."""
        with contextlib.suppress(OSError):
            self.manifests_folder.rmdir()
            for made in (RUNS, CACHE):
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
        """Returns the names of the manifests."""
        try:
            return sorted(
                name for name in os.listdir(self.manifests_folder) if name.endswith(_END) and name[0] != "."
            )
        except OSError as error:
            raise LakeError(f"{self.manifests_folder} cannot be read: {error.strerror}") from error

    def _listed(self, *names: str) -> list[str]:
        """Returns the names in a folder of the lake; none if it is a link, or cannot be read."""
        with contextlib.suppress(OSError):
            found = folders.folder(self.folder, *names)
            if found is not None:
                return os.listdir(found)
        return []

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
