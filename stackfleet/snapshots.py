# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One version of a lake: its files, and their rows through Arrow."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

import pyarrow as pa

from .lakefiles import File
from .storeerrors import StoreError, first_line

FRESH = 1800
"""Seconds after which a commit is looked for in the log: half of the time for which commits are kept there.
A writer that sleeps longer may commit behind a checkpoint that no longer has the place of its commit."""

MOST_BYTES = 1 << 30
"""The most bytes of rows that are held together."""


class Snapshot(NamedTuple):
    """The table at one version.

    Attributes:
        files: the files that can be read, or that no listing contradicts
        lost: files that a listing contradicts
        faults: reasons why other files are left out, by path
        of_files: returns the Arrow dataset of files
        at_a_time: returns the limits of a scanner of the files of some paths; raises an OSError or an
            ArrowException if one of them cannot be read, or unfolds to too much
        opened: the table of Delta at this version
        taken: the time before it was opened
    """

    files: Sequence[File]
    lost: Sequence[File]
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
