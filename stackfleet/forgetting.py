# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Removes images from a lake: images replaced under their path, or added by mistake."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import folders, provenance
from .agreement import StoredTable
from .columns import fitted, stored
from .contents import Contents
from .lake import Lake, LakeError
from .layout import TABLES, TABLES_FOLDER
from .merging import GROUP_ROWS, merge
from .planning import WrongUseError
from .tablelog import DataFile, LogError, TableLog


class Forgotten(NamedTuple):
    """The result of a removal.

    Attributes:
        names: names of the images by ImageId
        unreadable: damaged files, as paths below the lake, that may still have rows of these images: other
            images need them
    """

    names: dict[str, str]
    unreadable: list[str]


def forget(lake: Lake, selectors: Sequence[str], run: str) -> Forgotten:
    """Removes the manifests and rows of images.

    Args:
        lake: the lake, to which nobody else writes
        selectors: complete ImageIds, or paths or names of files
        run: name of the run under which new files with the rows of other images are recorded

    Raises:
        WrongUseError: one of the selectors names no image; nothing was removed
        LakeError: a file cannot be removed
    """
    contents, names = lake.contents(whole=False), {}
    for selector in selectors:
        named = _images(contents, selector)
        if not named:
            raise WrongUseError(
                f"{selector} names no image of this lake: use a complete ImageId, a path or a file name"
            )
        names.update(named)
    unreadable: list[str] = []
    try:
        lake.take_out(names)
        merge(lake, run)
        for table in TABLES:
            unreadable += _strip(lake, table, names, run)
    except (LogError, OSError) as error:
        raise LakeError(f"{lake.folder}: the lake cannot be written: {error}") from error
    lake.clean()
    return Forgotten(names, unreadable)


def _strip(lake: Lake, table: str, image_ids: Collection[str], run: str) -> list[str]:
    """Removes rows from batches that could not be merged, because one of their files or images is damaged.

    Returns:
        Files that may have such rows, and cannot be read, as paths below the lake.
    """
    unreadable = []
    stored_table = StoredTable(lake.folder, table)
    for file in stored_table.files.values():
        if not any(file.first <= image_id <= file.last for image_id in image_ids):
            continue
        try:
            new = None if file.name in stored_table.faults else _without(lake, table, file, image_ids)
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno:
                # The disk is full, for example.
                raise
            new = None
        if new is None:
            unreadable.append(f"{TABLES_FOLDER}/{table}/{file.name}")
        elif new != file:
            path = lake.folder / TABLES_FOLDER / table / new.name
            digest = {f"{TABLES_FOLDER}/{table}/{new.name}": provenance.sha256(path)}
            lake.record(f"{run}-{new.name.split('.')[1]}", {"started": provenance.now(), "files": digest})
            TableLog(lake.folder, table).commit(stored(table), [new], [file])
    return unreadable


def _without(lake: Lake, table: str, file: DataFile, image_ids: Collection[str]) -> DataFile:
    """Writes a file of a batch again without the rows of some images; returns `file` if it has none of them.

    Raises:
        OSError, pa.ArrowException, ValueError: the file cannot be read; an OSError of the system has a number
    """
    folder = folders.make_folder(lake.folder, TABLES_FOLDER, table)
    removed = pa.array(list(image_ids), pa.string())
    batch = file.name.partition(".")[0]
    path, rows = folder / f"{batch}.part-{uuid.uuid4().hex}.parquet", 0
    with pq.ParquetFile(folder / file.name) as source:
        found = (pc.is_in(ids.column(0), removed) for ids in source.iter_batches(columns=["ImageId"]))
        if not any(pc.any(matches).as_py() for matches in found):
            return file
        with pq.ParquetWriter(path, stored(table), compression="zstd") as writer:
            for old in source.iter_batches(GROUP_ROWS):
                rest = fitted(table, old)
                rest = rest.filter(pc.invert(pc.is_in(rest.column("ImageId"), removed)))
                rows += rest.num_rows
                writer.write_batch(rest)
    folders.sync(path)
    return DataFile(path.name, path.stat().st_size, rows, file.first, file.last)


def _images(contents: Contents, selector: str) -> dict[str, str]:
    """Returns the names of the images that a selector matches, by ImageId."""
    matches = {}
    for manifest in contents.manifests:
        names = (manifest["image_id"], manifest["path"], pathlib.PurePath(manifest["path"]).name)
        if selector in names:
            matches[manifest["image_id"]] = manifest["path"]
    for image in contents.damaged:
        path = "" if image.manifest is None else image.manifest["path"]
        if selector in (image.image_id, path, pathlib.PurePath(path).name):
            matches[image.image_id] = path or image.reason
    return matches
