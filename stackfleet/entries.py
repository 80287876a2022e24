# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The catalogue of a lake: the attempt that counts for each image, its manifest, and a summary of this.

A row that no entry names is never shown, so that replacing an entry replaces an image, in one step and in all
tables.
"""

from __future__ import annotations

import json
import pathlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from . import folders
from .layout import CATALOGUE, TABLES_FOLDER
from .manifests import Manifest, written
from .summary import FIELDS, Summary, arrays, summaries, summary
from .tablelog import DataFile, LogError, TableLog

_MANIFEST = "Manifest"
_NAMES = ("ImageId", "Attempt", "Batch")
_SCHEMA = pa.schema([*((name, pa.string()) for name in (*_NAMES, _MANIFEST)), *FIELDS])
MOST_FILES = 32
"""The most files of the catalogue before they are merged."""
MOST_ENTRIES = 1 << 22
MOST_BYTES = 1 << 33
"""The most bytes of all manifests that are read."""


class Entry(NamedTuple):
    """An image of a lake.

    Attributes:
        image_id: the image
        attempt: the attempt that counts; empty if the image failed
        batch: name of the files of many images with its rows; empty if each table has a file of the attempt
        manifest: the text of its manifest; empty if texts were not read
        summary: the members of the manifest that have columns of their own
    """

    image_id: str
    attempt: str
    batch: str
    manifest: str
    summary: Summary


def entry(manifest: Manifest) -> Entry:
    """Returns the entry for the manifest of a new attempt."""
    text = written(manifest).decode()
    return Entry(manifest["image_id"], manifest["attempt"], "", text, summary(json.loads(text)))


class Entries:
    """The catalogue at the time when it was read.

    Args:
        lake: the folder of the lake
        texts: whether the texts of manifests are read; only then can entries be put

    Raises:
        LogError: the catalogue cannot be read
    """

    def __init__(self, lake: pathlib.Path, texts: bool = True) -> None:
        self._lake, self._texts = lake, texts
        self._log = TableLog(lake, CATALOGUE)
        self._files = self._log.load()
        self.by_id: dict[str, Entry] = {}
        bytes_left = MOST_BYTES
        for file in self._files:
            for item in self._read(file):
                self.by_id[item.image_id] = item
                bytes_left -= len(item.manifest)
                if bytes_left < 0 or len(self.by_id) > MOST_ENTRIES:
                    raise LogError(f"{CATALOGUE}: it is larger than the limit of this program")

    def put(self, add: Iterable[Entry], remove: Iterable[str] = ()) -> None:
        """Adds or replaces entries and removes others, in one step.

        Raises:
            LogError, OSError: the catalogue cannot be written
        """
        assert self._texts
        new = {item.image_id: item for item in add}
        removed = set(remove)
        replaced = any(item in self.by_id for item in (*new, *removed))
        remaining = {name: item for name, item in self.by_id.items() if name not in removed}
        whole = replaced or len(self._files) >= MOST_FILES
        self.by_id = {**remaining, **new}
        rows = self.by_id if whole else new
        old = self._files if whole else []
        written_files = [self._write(rows)] if rows else []
        self._log.commit(_SCHEMA, written_files, old)
        self._files = [*(() if whole else self._files), *written_files]
        for item in old:
            folders.remove(self._lake, TABLES_FOLDER, CATALOGUE, item.name)

    def unnamed(self) -> list[str]:
        """Returns the names of files in the catalogue's folder that its log does not name."""
        named = {file.name for file in self._files}
        return [
            name for name in folders.list_names(self._lake, TABLES_FOLDER, CATALOGUE) if name not in named
        ]

    def _read(self, file: DataFile) -> list[Entry]:
        where = f"{TABLES_FOLDER}/{CATALOGUE}/{file.name}"
        names = [name for name in _SCHEMA.names if self._texts or name != _MANIFEST]
        try:
            if folders.size(self._lake, TABLES_FOLDER, CATALOGUE, file.name) != file.size:
                raise LogError(f"{where} does not have the size that its log states")
            with pq.ParquetFile(self._log.folder / file.name) as opened:
                groups = range(opened.metadata.num_row_groups)
                size = sum(opened.metadata.row_group(group).total_byte_size for group in groups)
                if opened.metadata.num_rows > MOST_ENTRIES or size > MOST_BYTES:
                    raise LogError(f"{where} is larger than the limit of this program")
                if not set(names) <= set(opened.schema_arrow.names):
                    raise LogError(f"{where} does not have the columns of a catalogue")
                table = opened.read(names).select(names)
            if any(table.schema.field(name).type != pa.string() for name in _NAMES):
                raise LogError(f"{where} has columns of wrong types")
            return _entries(table.cast(pa.schema([_SCHEMA.field(name) for name in names])))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise LogError(f"{where} cannot be read ({type(error).__name__})") from error

    def _write(self, entries: Mapping[str, Entry]) -> DataFile:
        folder = folders.make_folder(self._lake, TABLES_FOLDER, CATALOGUE)
        names = sorted(entries)
        columns = [pa.array([entries[name][place] for name in names], pa.string()) for place in range(4)]
        columns += arrays([entries[name].summary for name in names])
        path = folder / f"entries.{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.table(columns, schema=_SCHEMA), path, compression="zstd")
        folders.sync(path)
        return DataFile(path.name, path.stat().st_size, len(names), names[0], names[-1])


def _entries(table: Any) -> list[Entry]:
    """Returns the entries of a table with the columns of the catalogue, or all but the manifests."""

    def texts(name: str) -> Sequence[str]:
        return [text or "" for text in table.column(name).to_pylist()]

    manifests = texts(_MANIFEST) if _MANIFEST in table.column_names else [""] * table.num_rows
    found = summaries([table.column(field.name) for field in FIELDS])
    return list(map(Entry, *map(texts, _NAMES), manifests, found))
