# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Compares the rows of images with their manifests: their numbers, or all of their values."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .columns import ROW, schema_of
from .digests import RowDigest
from .manifests import Manifest
from .store import READ_AT_A_TIME, Snapshot, StoreError, within


def _batches(snapshot: Snapshot, table: str, names: Sequence[str], faults: dict[str, str]) -> Iterator[Any]:
    """Yields the rows of a table; puts the reason why a file cannot be read into `faults`, by its path."""
    files = [file for file in snapshot.files if file.table == table]
    dataset = snapshot.of_files(files)
    for fragment, file in zip(dataset.get_fragments(), files):
        try:
            yield from fragment.to_batches(schema=dataset.schema, columns=list(names), **READ_AT_A_TIME)
        except (pa.ArrowException, OSError, ValueError) as error:
            faults[file.path] = f"it cannot be read: {str(error).splitlines()[0]}"


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
        if there != known["rows"]:
            wrong[image_id] = f"{table}: {there:,} rows, but {known['rows']:,} in the manifest"
        elif rows and there and _digest(snapshot, table, image_id, names, digests) != known["digest"]:
            wrong[image_id] = f"{table}: its rows differ from the digest in the manifest"
    return wrong


def _digest(
    snapshot: Snapshot, table: str, image_id: str, names: Sequence[str], digests: Mapping[str, RowDigest]
) -> str:
    """Returns the digest of the rows of an image; they are sorted first if their order was changed."""
    if digests[image_id].in_order:
        return digests[image_id].text()
    digest = RowDigest()
    condition = pc.field("ImageId") == image_id
    scanner = snapshot.datasets(table, [image_id]).scanner(columns=list(names), filter=condition)
    try:
        rows = within(scanner.to_batches(), scanner.projected_schema)
    except StoreError as error:
        return str(error)
    for batch in rows.sort_by(ROW.name).to_batches():
        digest.add(batch)
    return digest.text()


def _by_image(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yields the runs of rows of one image each."""
    ids = batch.column(batch.schema.names.index("ImageId")).to_pylist()
    first = 0
    for place in range(1, len(ids) + 1):
        if place == len(ids) or ids[place] != ids[first]:
            yield ids[first] or "", batch.slice(first, place - first)
            first = place
