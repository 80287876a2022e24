# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether the files of an image agree with its manifest: after a power failure they may not."""

from __future__ import annotations

import enum
import pathlib
from typing import Any, Callable

from . import custody, folders
from .layout import TABLES, image_folder
from .manifests import Manifest


class Depth(enum.IntEnum):
    """How much of a file is compared."""

    SIZE = 0
    """That it is a regular file below the lake, of so many bytes."""
    FORM = 1
    """Its number of rows and its columns, too: the end of the file is read."""
    CONTENT = 2
    """Its SHA-256, too, that all rows can be read, and that all are of this image."""


def fault(lake: pathlib.Path, manifest: Manifest, depth: Depth = Depth.SIZE) -> str:
    """Returns in words what is wrong with the files that a manifest names; empty if nothing is.

    Args:
        lake: the folder of the lake
        manifest: of one image, as `manifests.parsed` returns it
        depth: how much is compared
    """
    for name, said in manifest["tables"].items():
        names = (name, image_folder(manifest["image_id"]), f"{manifest['attempt']}.parquet")
        try:
            found = _compared(lake, names, said, manifest["image_id"], depth)
        except OSError as error:
            found = error.strerror or type(error).__name__
        if found:
            return f"{said['file']}: {found}"
    return ""


def _compared(lake: pathlib.Path, names: tuple[str, str, str], said: Any, image_id: str, depth: Depth) -> str:
    size, expected = folders.size(lake, *names), said.get("bytes")
    if expected is not None and size != expected:
        return f"{size:,} bytes, and {expected:,} in the manifest"
    path = lake.joinpath(*names)
    if depth >= Depth.FORM:
        found = _form(path, names[0], said["rows"])
        if found:
            return found
    if depth >= Depth.CONTENT:
        if custody.sha256(path) != said["sha256"]:
            return "its SHA-256 is another than that in the manifest"
        return _content(path, image_id)
    return ""


def _form(path: pathlib.Path, table: str, rows: int) -> str:
    # What asks a lake needs neither Arrow's reader nor the plugins' columns, and starts faster without them.
    from .columns import SCHEMAS

    def compare(file: Any) -> str:
        if file.metadata.num_rows != rows:
            return f"{file.metadata.num_rows:,} rows, and {rows:,} in the manifest"
        mine, theirs = SCHEMAS[table], file.schema_arrow
        if [(each.name, each.type) for each in mine] != [(each.name, each.type) for each in theirs]:
            return "its columns are not those of this table"
        return ""

    assert table in TABLES
    return _read(path, compare)


def _content(path: pathlib.Path, image_id: str) -> str:
    def compare(file: Any) -> str:
        for batch in file.iter_batches():
            if set(batch.column("ImageId").unique().to_pylist()) - {image_id}:
                return "it has rows of another image"
        return ""

    return _read(path, compare)


def _read(path: pathlib.Path, compare: Callable[[Any], str]) -> str:
    """Returns what a function says of a Parquet file, or why it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return compare(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
