# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which ImageId an image gets, when another one of a lake has its own already.

An ImageId is made of parts of an image. Two images that differ elsewhere only have the same: before one of
them is passed over as a copy, both are read whole.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Optional

from . import custody
from .job import Job
from .lake import Lake, other_id
from .manifests import Manifest

Tick = Callable[[], None]


@dataclasses.dataclass
class Known:
    """What is known of an image whose own ImageId another one has.

    Attributes:
        own: its own ImageId
        of: path of the other one
        compared: how they compare, in words
        digests: SHA-256 of all files of this one
    """

    own: str
    of: str
    compared: str
    digests: list[str]

    def said(self) -> dict[str, Any]:
        """Returns what the manifest says of it."""
        return dataclasses.asdict(self)


class Identities:
    """Decides on the ImageId of one image.

    Args:
        job: the image
        lake: where others are
        lock: takes an ImageId and `tick`, and returns when no other task has it

    Attributes:
        known: set where another image has the same ImageId
        copy: the manifest of the equal image, with this path added; None if there is none
    """

    def __init__(self, job: Job, lake: Lake, lock: Callable[[str, Tick], None]) -> None:
        self._job, self._lake, self._lock = job, lake, lock
        self.known: Optional[Known] = None
        self.copy: Optional[Manifest] = None

    def decide(self, identified: dict[str, Any], tick: Tick) -> Optional[str]:
        """Returns the ImageId; None if the image is a copy of one that was read.

        Args:
            identified: its own ImageId, and its files
            tick: is called now and then, may raise

        Raises:
            OSError: a file of the image cannot be read
        """
        own = identified["image_id"]
        self._lock(own, tick)
        other = self._lake.whole(own)
        if other is None or self._job.path == other["path"]:
            return str(own)
        digests = [custody.sha256(file["path"], tick) for file in identified["files"] if file["local"]]
        self.known = Known(own, other["path"], _compared(other, digests, tick), digests)
        if self.known.compared == EQUAL:
            self.copy = self._copy_of(other)
            return None
        image_id = other_id(own, digests)
        other = self._lake.whole(image_id)
        # Its name is made of all its bytes: whoever has it is equal.
        if other is None or self._job.path == other["path"]:
            return image_id
        self.copy = self._copy_of(other)
        return None

    def _copy_of(self, other: Manifest) -> Manifest:
        copies = dict.fromkeys((*other["copies"], self._job.path))
        return {**other, "copies": list(copies)}


EQUAL = "equal: all bytes of both were compared by SHA-256"
UNEQUAL = "unequal: all bytes of both were compared by SHA-256"
CHANGED = "not compared: the file of the other one is gone or was changed since, and no SHA-256 was kept"


def _compared(other: Manifest, digests: list[str], tick: Tick) -> str:
    """Returns how an image compares with one that was read."""
    kept = [file.get("sha256") for file in other["files"]]
    if other["identity"] is not None:
        kept = other["identity"]["digests"]
    if not kept or None in kept:
        try:
            found = os.stat(other["path"])
            if (found.st_size, found.st_mtime_ns) != (other["size"], other["modified"]):
                return CHANGED
            kept = [custody.sha256(file["path"], tick) for file in other["files"]]
        except OSError:
            return CHANGED
    return EQUAL if kept == digests else UNEQUAL
