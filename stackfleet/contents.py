# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The contents of a lake: its sound images, its damaged images, and the files with their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Optional

from .agreement import StoredTable
from .entries import Entry
from .layout import KEYS, TABLES_FOLDER
from .manifests import Manifest
from .tablelog import DataFile


@dataclasses.dataclass(frozen=True)
class Damaged:
    """An image of a lake whose data cannot be relied on.

    Attributes:
        image_id: ImageId in the name of its manifest, unprintable letters escaped
        reason: description of the damage
        manifest: its manifest; None if it cannot be read
    """

    image_id: str
    reason: str
    manifest: Optional[Manifest] = None

    @property
    def called(self) -> str:
        """The name of the image for people: its path if known, which may contain any letter."""
        name = self.image_id if self.manifest is None else f"{self.manifest['path']} ({self.image_id})"
        return name if name.isprintable() else repr(name)


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents of a lake.

    Attributes:
        manifests: manifests of the images whose tables are sound, by ImageId in ascending order; see `whole`
        damaged: the damaged images
        stored: tables by name
        entries: entries of the catalogue, by ImageId
        whole: whether manifests are whole; if not, they have the members of `summary.of_summary`
    """

    manifests: list[Manifest]
    damaged: list[Damaged]
    stored: Mapping[str, StoredTable]
    entries: Mapping[str, Entry]
    whole: bool = True
    _files: dict[str, list[str]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def only(self, manifests: Sequence[Manifest]) -> Contents:
        """Returns the same contents with some of the images only."""
        return dataclasses.replace(self, manifests=list(manifests), damaged=[])

    def files(self, table: str) -> list[str]:
        """Returns the files with rows of the images, as paths below the lake."""
        if table not in self._files:
            stored = self.stored[table]
            names: set[str] = set()
            last: list[DataFile] = []
            for manifest in self._with_tables():
                found = stored.where(self.entries[manifest["image_id"]])
                # Most images are in the file of the image before.
                if found is not last:
                    names.update(file.name for file in found)
                    last = found
            self._files[table] = sorted(
                f"{TABLES_FOLDER}/{table}/{name}" for name in names if name not in stored.faults
            )
        return self._files[table]

    def attempts(self, table: str) -> list[tuple[str, str]]:
        """Returns (ImageId, attempt) of the rows that count; empty if the files contain no other rows."""
        stored, manifests = self.stored[table], self._with_tables()
        there = sum(stored.files[path.rpartition("/")[2]].rows for path in self.files(table))
        if there == sum(manifest["tables"][table]["rows"] for manifest in manifests):
            return []
        return [(manifest["image_id"], manifest["attempt"]) for manifest in manifests]

    @property
    def counted(self) -> bool:
        """Whether the table of keys is complete: if not, keys must be counted anew, from the stacks."""
        stored, manifests = self.stored[KEYS], self._with_tables()
        where = [stored.where(self.entries[item["image_id"]]) for item in manifests]
        files = {item.name for found in where for item in found}
        there = sum(stored.files[name].rows for name in files)
        rows = sum(item["tables"][KEYS]["rows"] for item in manifests)
        return all(where) and not files & set(stored.faults) and there >= rows

    def _with_tables(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["tables"]]
