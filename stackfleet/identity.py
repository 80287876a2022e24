# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decides on the ImageId of an image whose own ImageId another image of the lake already has.

An ImageId is computed from parts of an image. Two images that differ only in other parts have the same
ImageId: before one of them is skipped as a copy, both are read completely.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, Callable, Optional

from . import provenance
from .job import Job
from .lake import Lake
from .manifests import DONE, Manifest

Poll = Callable[[], None]


class Identities:
    """Decides on the ImageId of one image.

    Args:
        lock: function of an ImageId and `poll`, which returns when no other task holds the ImageId

    Attributes:
        known: entry `identity` of the manifest: the own ImageId, path of the other image, result of the
            comparison in words, and SHA-256 of all files; None unless another image has the same ImageId
        before: attempt at the image that is in the lake; None if there is none
        copy_of: ImageId of the equal image; empty if there is none
    """

    def __init__(self, job: Job, lake: Lake, lock: Callable[[str, Poll], None]) -> None:
        self._job, self._lake, self._lock = job, lake, lock
        self.known: Optional[dict[str, Any]] = None
        self.copy_of = ""
        self.before: Optional[str] = None

    def decide(self, identified: dict[str, Any], poll: Poll) -> Optional[str]:
        """Returns the ImageId; None if the image is a copy of an image already read.

        Args:
            identified: the image's own ImageId, and its files
            poll: function that is called regularly, and may raise

        Raises:
            OSError: a file of the image cannot be read
            LakeError: the lake cannot be read
        """
        own = identified["image_id"]
        self._lock(own, poll)
        other = self._whole(own)
        if other is None:
            return str(own)
        digests = [provenance.sha256(file["path"], poll) for file in identified["files"] if file["local"]]
        compared = _compared(other, digests, poll)
        self.known = {"own": own, "of": other["path"], "compared": compared, "digests": digests}
        if compared == EQUAL:
            self.copy_of = other["image_id"]
            return None
        image_id = _other_id(own, digests)
        other = self._whole(image_id)
        if other is None:
            return image_id
        # This ImageId is computed from all bytes: another image with it is equal.
        self.copy_of = image_id
        return None

    def _whole(self, image_id: str) -> Optional[Manifest]:
        """Returns the manifest of another path's image that is done; None if the ImageId is this path's."""
        other = self._lake.manifest(image_id)
        if other is None or other["status"] != DONE:
            return None
        if other["path"] != self._job.path:
            return other
        self.before = other["attempt"]
        return None


EQUAL = "equal: all bytes of both were compared by SHA-256"
UNEQUAL = "unequal: all bytes of both were compared by SHA-256"
CHANGED = "not compared: the file of the earlier image is gone or was changed, and has no recorded SHA-256"


def _compared(other: Manifest, digests: list[str], poll: Poll) -> str:
    """Returns the result of comparing an image with an image already read."""
    recorded = [file.get("sha256") for file in other["files"]]
    if other["identity"] is not None:
        recorded = other["identity"]["digests"]
    if not recorded or None in recorded:
        try:
            info = os.stat(other["path"])
            if (info.st_size, info.st_mtime_ns) != (other["size"], other["modified"]):
                return CHANGED
            recorded = [provenance.sha256(file["path"], poll) for file in other["files"]]
        except OSError:
            return CHANGED
    return EQUAL if recorded == digests else UNEQUAL


def _other_id(image_id: str, digests: Sequence[str]) -> str:
    """Returns another ImageId for an image whose own belongs to a different image."""
    return "i" + hashlib.sha256("\n".join([image_id, *digests]).encode()).hexdigest()[:32]
