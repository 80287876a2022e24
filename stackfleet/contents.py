# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is in a lake: the images that can be relied on, the others, and the files with their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Optional

from .agreement import StoredTable
from .entries import Entry
from .layout import KEYS, TABLES_FOLDER
from .manifests import Manifest


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
        stored: the tables by name
        entries: the catalogue, by ImageId
    """

    manifests: list[Manifest]
    damaged: list[Damaged]
    stored: Mapping[str, StoredTable]
    entries: Mapping[str, Entry]

    def only(self, manifest: Manifest) -> Contents:
        """Returns the same with one image."""
        return dataclasses.replace(self, manifests=[manifest], damaged=[])

    def files(self, table: str) -> list[str]:
        """Returns the files with rows of the images, by their paths below the lake."""
        stored, found = self.stored[table], set()
        for manifest in self._with_tables():
            for each in stored.where(self.entries[manifest["image_id"]]):
                if each.name not in stored.faults:
                    found.add(f"{TABLES_FOLDER}/{table}/{each.name}")
        return sorted(found)

    def attempts(self, table: str) -> list[tuple[str, str]]:
        """Returns (ImageId, attempt) of the rows that count; empty where the files have no others."""
        stored, manifests = self.stored[table], self._with_tables()
        there = sum(stored.files[path.rpartition("/")[2]].rows for path in self.files(table))
        if there == sum(each["tables"][table]["rows"] for each in manifests):
            return []
        return [(each["image_id"], each["attempt"]) for each in manifests]

    @property
    def counted(self) -> bool:
        """Whether the table of keys is whole: else keys are to be counted anew, from the stacks."""
        stored, manifests = self.stored[KEYS], self._with_tables()
        where = [stored.where(self.entries[each["image_id"]]) for each in manifests]
        files = {each.name for found in where for each in found}
        there = sum(stored.files[name].rows for name in files)
        rows = sum(each["tables"][KEYS]["rows"] for each in manifests)
        return all(where) and not files & set(stored.faults) and there >= rows

    def _with_tables(self) -> list[Manifest]:
        return [each for each in self.manifests if each["tables"]]
