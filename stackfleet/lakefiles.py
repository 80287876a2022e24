# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The files of a lake as Arrow reads them: each is looked at once, before anything of it is decoded.

In an object store each page would be a request. A file comes whole, in one request, and Arrow reads it from
memory; it would make three or more. What the limit of memory leaves comes in large ranges.
"""

from __future__ import annotations

import io
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import pyarrow as pa

from . import lakefolder
from .parquetpages import MOST_ROWS, look_at, rows_at_a_time

AT_ONCE = 16
"""The most requests that are made at the same time."""
MOST_KEPT = 1 << 28
"""The most bytes of files of an object store that are kept."""
RANGE = 1 << 22
"""The bytes of a request for a part of a file."""
READ_AT_A_TIME = {"batch_size": MOST_ROWS, "batch_readahead": 2, "fragment_readahead": 2}
"""Limits of a scanner of Arrow; its own are 131,072 rows of 16 batches of 4 files, which have any size."""


class File(NamedTuple):
    """A file of the table.

    Attributes:
        path: path below the lake
        first, last: the least and the greatest ImageId; None if the log does not state it
    """

    path: str
    table: str
    size: int
    rows: int
    first: Optional[str]
    last: Optional[str]

    @property
    def is_of_one(self) -> bool:
        """Whether all rows are of one image, as the log states."""
        return self.first is not None and self.first == self.last

    def may_have(self, image_ids: Collection[str]) -> bool:
        """Returns whether the file may have rows of one of some images."""
        if self.first is None or self.last is None:
            return bool(image_ids)
        return any(self.first <= image_id <= self.last for image_id in image_ids)


class LakeFiles:
    """The files of a lake.

    Args:
        uri: folder, or URI of an object store
    """

    def __init__(self, uri: str, folder: Optional[pathlib.Path]) -> None:
        self._uri, self._folder = uri, folder
        self._rows: dict[str, int] = {}
        self._kept: dict[str, Any] = {}
        self._room = MOST_KEPT

    def look_at_log(self) -> None:
        """Checks the log of a lake in an object store; see `lakefolder.look_at_names`."""
        import pyarrow.fs as pfs

        objects = self.system()
        listed = objects.get_file_info(pfs.FileSelector(lakefolder.LOG, allow_not_found=True))
        lakefolder.look_at_names(
            {info.base_name: info.size for info in listed},
            lambda name: io.BufferedReader(objects.open_input_file(f"{lakefolder.LOG}/{name}"), RANGE),
        )

    def datasets(
        self, schema: Any, files: Sequence[File]
    ) -> tuple[Callable[[Sequence[File]], Any], Callable[[Iterable[str]], Mapping[str, int]]]:
        """Returns the functions `of_files` and `at_a_time` of a `Snapshot`.

        Args:
            schema: schema of the rows
            files: all files of the snapshot
        """
        import pyarrow.dataset as pds

        sizes = {file.path: file.size for file in files}
        form, system = pds.ParquetFileFormat(), self.system(sizes)

        def limits(paths: Iterable[str]) -> Mapping[str, int]:
            paths = list(paths)
            self._look_at(system, [path for path in paths if path not in self._rows], sizes)
            rows = min(map(self._rows.__getitem__, paths), default=MOST_ROWS)
            return {**READ_AT_A_TIME, "batch_size": rows}

        def fragment(path: str) -> Any:
            kept = self._kept.get(path)
            return form.make_fragment(path, system) if kept is None else form.make_fragment(kept)

        class Bounded(pds.FileSystemDataset):
            """Few rows are held at a time: a file of 8 KB may have millions of long texts."""

            def scanner(self, **options: Any) -> Any:
                options.update(limits(self.files))
                fragments = list(map(fragment, self.files))
                read = pds.FileSystemDataset(fragments, schema, form, system)
                if options.get("filter") is None or not _have_views(fragments):
                    return read.scanner(**options)
                # Arrow compares no text with the statistics of a view of texts.
                asked = {name: options.pop(name) for name in ("columns", "filter") if name in options}
                rows = read.scanner(**options).to_batches()
                return pds.Scanner.from_batches(rows, schema=schema, **asked)

        def dataset(files: Sequence[File]) -> Any:
            return Bounded([form.make_fragment(file.path, system) for file in files], schema, form, system)

        return dataset, limits

    def system(self, sizes: Mapping[str, int] = MappingProxyType({})) -> Any:
        """Returns Arrow's file system of the lake; `sizes` are the known sizes of files."""
        import pyarrow.fs as pfs

        if self._folder is not None:
            return pfs.SubTreeFileSystem(str(self._folder), pfs.LocalFileSystem())
        # This import starts threads, and a process with threads of its own cannot be forked.
        from deltalake.fs import DeltaStorageHandler

        return pfs.PyFileSystem(DeltaStorageHandler(self._uri, None, dict(sizes)))

    def _look_at(self, system: Any, paths: Sequence[str], sizes: Mapping[str, int]) -> None:
        """Looks at files, and fetches some at the same time."""
        if self._folder is not None:
            self._rows.update((path, rows_at_a_time(self._folder / path)) for path in paths)
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for first in range(0, len(paths), AT_ONCE):
                some = paths[first : first + AT_ONCE]
                fitting, room = [], self._room
                for path in some:
                    if sizes[path] <= room // 2:
                        room -= sizes[path]
                        fitting.append(path)
                for path, data in zip(fitting, pool.map(lambda path: _fetched(system, path), fitting)):
                    self._kept[path] = data
                    self._room -= len(data)
                for path in some:
                    kept = self._kept.get(path)
                    file = system.open_input_file(path) if kept is None else pa.BufferReader(kept)
                    with io.BufferedReader(file, RANGE) as looked:
                        self._rows[path] = look_at(looked).at_a_time


def _fetched(system: Any, path: str) -> Any:
    """Returns a file in memory that is Arrow's own: threads of Arrow wait for no lock of Python with it."""
    with system.open_input_file(path) as file:
        data = file.read()
    memory = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(memory).write(data)
    return memory


def _have_views(fragments: Iterable[Any]) -> bool:
    """Returns whether the writer of one of some files had views of texts in memory."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        schemas = pool.map(lambda fragment: str(fragment.physical_schema.types), fragments)
        return any("_view" in types for types in schemas)
