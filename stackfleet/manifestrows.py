# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Manifests as rows of a lake, and the files that can be read as such."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from .columns import MANIFEST_SCHEMA
from .layout import MANIFESTS
from .manifests import Manifest, ManifestError, parsed, written
from .snapshots import Snapshot, within
from .storeerrors import StoreError, first_line


def manifest_rows(manifests: Iterable[Manifest]) -> Any:
    """Returns manifests, or records of runs, as a record batch."""
    rows = [
        (item["image_id"], item["status"], item["path"], item["copies"], written(item)) for item in manifests
    ]
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows), MANIFEST_SCHEMA)]
    return pa.record_batch(columns, schema=MANIFEST_SCHEMA)


def valid_manifests(rows: Any, wrong: dict[str, str]) -> Iterator[Manifest]:
    """Yields the valid manifests of rows, one for each ImageId."""
    seen = set()
    for row in rows.select(["ImageId", "Status", "Manifest"]).to_pylist():
        image_id = row["ImageId"] or ""
        try:
            if image_id in seen:
                raise ManifestError("the lake has two manifests of this image")
            seen.add(image_id)
            manifest = parsed(row["Manifest"] or "", image_id)
            if manifest["status"] != row["Status"]:
                raise ManifestError("its status differs from the column Status")
            yield manifest
        except ManifestError as error:
            wrong[image_id] = f"manifest: {error}"


def readable(snapshot: Snapshot) -> Snapshot:
    """Returns the version without files that are no Parquet, unfold to too much, or have other rows.

    Manifests are read whole: one that is not UTF-8 would end every command.
    """
    faults = {}
    for file in snapshot.files:
        whole = file.table == MANIFESTS
        try:
            scanner = snapshot.of_files([file]).scanner(columns=MANIFEST_SCHEMA.names if whole else [])
            rows = (
                within(scanner.to_batches(), scanner.projected_schema).num_rows
                if whole
                else scanner.count_rows()
            )
            if rows != file.rows:
                faults[file.path] = f"{rows:,} rows, but {file.rows:,} in the log"
        except (pa.ArrowException, OSError, StoreError, ValueError) as error:
            faults[file.path] = f"it cannot be read: {first_line(error)}"
    return snapshot.without(faults)
