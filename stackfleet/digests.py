# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The digest of the rows of an image in one table, and the comparison of rows with manifests.

It depends on the values and their order, and not on files: Delta may merge files and split row groups. It
covers each column that has a value, in the order of names: the name, which values are null, and the values.
"""

from __future__ import annotations

import collections
import hashlib
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .columns import ROW, schema_of
from .lakefiles import File
from .layout import TABLES
from .manifests import Manifest
from .snapshots import Snapshot, within
from .storeerrors import StoreError, first_line

MOST_SORTED = 1 << 19
"""The most rows that are sorted at a time. The files of their image are read again for each so many."""

_OFFSET = struct.Struct("=i")
"""The place in an array of texts where one begins."""


class RowDigest:
    """The digest of rows that come in batches, in the order of their numbers.

    Attributes:
        rows: number of rows so far
        in_order: whether the numbers in the column `Row` were 0, 1, 2 ... so far
    """

    def __init__(self) -> None:
        self.rows = 0
        self.in_order = True
        self._columns: dict[str, Any] = {}

    def add(self, batch: Any) -> None:
        """Adds rows.

        Args:
            batch: record batch with the column `Row`; columns that it lacks are null
        """
        count = batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns):
            if name == ROW.name:
                expected = pa.array(range(self.rows, self.rows + count), pa.int64())
                self.in_order = self.in_order and column.equals(expected)
            elif column.null_count < count:
                if name not in self._columns:
                    self._columns[name] = _Column(self.rows)
                self._columns[name].add(column)
            elif name in self._columns:
                self._columns[name].nulls(count)
        for name, known in self._columns.items():
            if name not in batch.schema.names:
                known.nulls(count)
        self.rows += count

    def text(self) -> str:
        """Returns the digest as hexadecimal text."""
        whole = hashlib.sha256(str(self.rows).encode())
        for name in sorted(self._columns):
            whole.update(f"\0{name}\0{self._columns[name].text()}".encode())
        return whole.hexdigest()


class _Column:
    """The digest of a column; the rows before its first value are null.

    Lengths of texts and lists, and their contents, are hashed apart: so the size of batches does not matter.
    """

    def __init__(self, before: int) -> None:
        self._validity, self._lengths, self._values = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self.nulls(before)

    def nulls(self, count: int) -> None:
        self._validity.update(bytes(count))

    def add(self, column: Any) -> None:
        self._validity.update(_bytes(pc.is_valid(column), pa.int8()))
        values = pc.drop_null(column)
        if pa.types.is_list(values.type):
            self._lengths.update(_bytes(pc.list_value_length(values), pa.int64()))
            self._values.update(_bytes(values.flatten(), pa.int64()))
        elif pa.types.is_string(values.type):
            self._lengths.update(_bytes(pc.binary_length(values), pa.int64()))
            self._values.update(_letters(values))
        else:
            self._values.update(_bytes(values, pa.int64()))

    def text(self) -> str:
        return f"{self._validity.hexdigest()} {self._lengths.hexdigest()} {self._values.hexdigest()}"


def _bytes(values: Any, form: Any) -> Any:
    """Returns whole numbers, times or truth values as bytes of a form: Arrow's own buffer.

    Arrow's conversion to NumPy needs that package, which Arrow no longer installs.
    """
    if pa.types.is_temporal(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.int64())
    values = values.cast(form, safe=False)
    if values.null_count:
        values = values.fill_null(-1 << 63)
    size = form.byte_width
    return values.buffers()[1].slice(values.offset * size, len(values) * size) if len(values) else b""


def _letters(texts: Any) -> Any:
    """Returns the bytes of all texts, one behind the other: Arrow's own buffer."""
    _, offsets, data = texts.buffers()
    first, end = (
        _OFFSET.unpack_from(offsets, _OFFSET.size * at)[0] for at in (texts.offset, texts.offset + len(texts))
    )
    return data.slice(first, end - first) if end > first else b""


def _batches(snapshot: Snapshot, table: str, names: Sequence[str], faults: dict[str, str]) -> Iterator[Any]:
    """Yields the rows of a table; puts the reason why a file cannot be read into `faults`, by its path."""
    for file in snapshot.files:
        if file.table == table:
            try:
                for batch in snapshot.of_files([file]).scanner(columns=list(names)).to_batches():
                    batch.validate(full=True)
                    yield batch
            except (pa.ArrowException, OSError, ValueError) as error:
                faults[file.path] = f"it cannot be read: {first_line(error)}"


def compared(
    snapshot: Snapshot, table: str, manifests: dict[str, Manifest], faults: dict[str, str], rows: bool
) -> dict[str, str]:
    """Returns how the rows of images in a table differ from their manifests.

    Args:
        manifests: manifests by ImageId
        faults: receives the reasons why files cannot be read, by their paths
        rows: whether all rows are compared with their digests, and not only their numbers
    """
    schema = snapshot.of_files([]).schema
    names = [name for name in schema.names if name in {*schema_of(table).names, ROW.name}]
    digests: dict[str, RowDigest] = collections.defaultdict(RowDigest)
    for batch in _batches(snapshot, table, names if rows else ["ImageId", ROW.name], faults):
        for image_id, part in _by_image(batch):
            digests[image_id].add(part)
    wrong = {}
    for image_id in {*digests, *manifests}:
        known = manifests.get(image_id, {"tables": {}})["tables"].get(table, {"rows": 0, "digest": ""})
        there = digests[image_id].rows
        try:
            if there != known["rows"]:
                wrong[image_id] = f"{table}: {there:,} rows, but {known['rows']:,} in the manifest"
            elif rows and there and _digest(snapshot, table, image_id, names, digests) != known["digest"]:
                wrong[image_id] = f"{table}: its rows differ from the digest in the manifest"
        except (pa.ArrowException, OSError, StoreError) as error:
            wrong[image_id] = f"{table}: its rows cannot be compared: {first_line(error)}"
    return wrong


def useless(snapshot: Snapshot, manifests: dict[str, Manifest], gone: Collection[str]) -> list[File]:
    """Returns the lost files that may leave the log when some images go.

    The others show, without a look at all rows, that images which stay lack rows; or they had several
    manifests, and there may be rows without one.
    """
    short = {
        name: compared(snapshot, name, manifests, {}, rows=False).keys() - set(gone)
        for name in TABLES.keys() & {file.table for file in snapshot.lost}
    }
    return [
        file
        for file in snapshot.lost
        if (not file.may_have(short[file.table]) if file.table in short else file.is_of_one)
    ]


def _digest(
    snapshot: Snapshot, table: str, image_id: str, names: Sequence[str], digests: Mapping[str, RowDigest]
) -> str:
    """Returns the digest of the rows of an image; empty if their numbers are not 0, 1, 2 ...

    Delta's writer mixes the rows of a large table, and so may who merges files. Some are sorted at a time,
    and half as many where these need too much memory.

    Raises:
        pa.ArrowException, OSError, StoreError: rows cannot be read, or a single one needs too much memory
    """
    if digests[image_id].in_order:
        return digests[image_id].text()
    digest, dataset, number = RowDigest(), snapshot.datasets(table, [image_id]), pc.field(ROW.name)
    first, held = 0, MOST_SORTED
    while first < digests[image_id].rows:
        some = (pc.field("ImageId") == image_id) & (number >= first) & (number < first + held)
        scanner = dataset.scanner(columns=list(names), filter=some)
        try:
            rows = within(scanner.to_batches(), scanner.projected_schema)
        except StoreError:
            if held == 1:
                raise
            held //= 2
            continue
        for batch in rows.sort_by(ROW.name).to_batches():
            digest.add(batch)
        first, held = first + held, min(2 * held, MOST_SORTED)
    return digest.text() if digest.in_order else ""


def _by_image(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yields the runs of rows of one image each."""
    runs, first = pc.run_end_encode(batch.column("ImageId")), 0
    for image_id, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist()):
        yield image_id or "", batch.slice(first, end - first)
        first = end
