# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake: its manifests, what they name, and what is left over.

A manifest is replaced in one step. Whoever reads sees the one before or the one after, with all its tables.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterator
from typing import Any, Optional

from . import custody
from .layout import MANIFEST, PIECES, TABLES, manifest_file, pieces_folder, table_file

Manifest = dict[str, Any]

DONE, FAILED = "done", "failed"
MANIFEST_VERSION = 1

_LOCK = "lock"
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")


class LakeError(Exception):
    """A lake that cannot be used; the text says why."""


class Lake:
    """A lake in a folder.

    Args:
        folder: where it is, or is to be
        create: whether it is made where there is none

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
        if create:
            try:
                self.manifests_folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LakeError(f"{folder}: no lake can be made here: {error.strerror}") from error
        if not self.manifests_folder.is_dir():
            raise LakeError(f"{folder}: here is no lake (it would have a folder '{MANIFEST}')")

    def manifests(self) -> list[Manifest]:
        """Returns all manifests, sorted by their names.

        Raises:
            LakeError: one cannot be read, or is of a later version
        """
        return [self._read(path) for path in sorted(self.manifests_folder.glob("*.json"))]

    def manifest(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of an image; None if there is none."""
        path = manifest_file(str(self.folder), image_id)
        return self._read(path) if path.exists() else None

    def by_path(self) -> dict[str, Manifest]:
        """Returns by path the newest manifest that is about it, also as a copy."""
        found: dict[str, Manifest] = {}
        for each in sorted(self.manifests(), key=lambda each: str(each["ended"])):
            for path in (each["path"], *each.get("copies", ())):
                found[path] = each
        return found

    def tables(self, image_id: str, attempt: str, rows: dict[str, int]) -> dict[str, Any]:
        """Returns what a manifest says of the tables of an attempt, which are on the disk then.

        Raises:
            OSError: one of the files is not there
        """
        found = {}
        for name in TABLES:
            path = table_file(str(self.folder), name, image_id, attempt)
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
            found[name] = {
                "file": path.relative_to(self.folder).as_posix(),
                "rows": rows[name],
                "sha256": custody.sha256(path),
            }
        return found

    def publish(self, manifest: Manifest) -> None:
        """Replaces the manifest of an image in one step.

        Raises:
            OSError: it cannot be written, or a file that it names is gone
        """
        for each in manifest["tables"].values():
            (self.folder / each["file"]).stat()
        path = manifest_file(str(self.folder), manifest["image_id"])
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with temporary.open("w", encoding="utf-8") as stream:
            json.dump(manifest, stream, indent=1)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        if manifest["status"] == DONE:
            # The path could not be opened before, and was named after itself.
            manifest_file(str(self.folder), unopened(manifest["path"])).unlink(missing_ok=True)

    def forget(self, image_id: str, attempt: str) -> None:
        """Removes the files of an attempt that no manifest will name."""
        for name in TABLES:
            path = table_file(str(self.folder), name, image_id, attempt)
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.parent.rmdir()

    def drop_pieces(self, attempt: str) -> None:
        """Removes what the helpers of an attempt wrote."""
        folder = pieces_folder(str(self.folder), attempt)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()

    def clean(self) -> int:
        """Removes what no manifest names: what ended attempts left; returns how many files these were."""
        named = {each["file"] for known in self.manifests() for each in known["tables"].values()}
        left = [path for path in self.manifests_folder.glob(".*.json.*") if path.is_file()]
        for name in TABLES:
            files = (self.folder / name).glob("image=*/*.parquet")
            left += [path for path in files if path.relative_to(self.folder).as_posix() not in named]
        shutil.rmtree(self.folder / PIECES, ignore_errors=True)
        for path in left:
            path.unlink(missing_ok=True)
            if path.parent != self.manifests_folder:
                with contextlib.suppress(OSError):
                    path.parent.rmdir()
        return len(left)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other runs from this lake: what one has not finished, the other would take for left over.

        Raises:
            LakeError: another run has it
        """
        try:
            import fcntl
        except ImportError:
            yield
            return
        with (self.folder / _LOCK).open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LakeError(f"{self.folder}: another run writes to this lake") from error
            yield

    def _read(self, path: pathlib.Path) -> Manifest:
        try:
            found: Manifest = json.loads(path.read_text(encoding="utf-8"))
            version = found["manifest"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise LakeError(f"{path}: this manifest cannot be read ({type(error).__name__})") from error
        if version != MANIFEST_VERSION:
            raise LakeError(f"{path}: this manifest has version {version}, and not {MANIFEST_VERSION}")
        return found


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
