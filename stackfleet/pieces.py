# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a helper read of a share of an image: Arrow streams in a folder of the lake, and a file of JSON.

The file of JSON is there when all streams are whole.
"""

from __future__ import annotations

import json
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from . import folders
from .columns import SCHEMAS
from .layout import TABLES
from .writer import Tables

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class PieceFiles(Tables):
    """The files of one share. A table without rows has none.

    Args:
        path: what `piece_file` returns for the share
    """

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self._path = path
        # Two helpers may read one share, when the first seemed to be lost.
        self._stem = f"{path.stem}-{uuid.uuid4().hex[:12]}"
        self._writers: dict[str, Any] = {}
        # LAKE/pieces/<attempt>: what is there may be somebody else's.
        folders.make_folder(path.parents[2], *path.parent.parts[-2:])

    def put(self, table: str, batch: Any) -> None:
        """Writes an Arrow batch."""
        if table not in self._writers:
            path = self._path.with_name(f"{self._stem}.{table}.arrows")
            self._writers[table] = pa.ipc.new_stream(str(path), SCHEMAS[table], options=_OPTIONS)
        self._writers[table].write_batch(batch)

    def close(self) -> None:
        """Ends the streams."""
        for each in self._writers.values():
            each.close()

    def publish(self, facts: dict[str, Any]) -> None:
        """Says in one step that the share is done.

        Args:
            facts: what is to be known of it beside its rows
        """
        self.close()
        temporary = self._path.with_name(f"{self._stem}.part")
        temporary.write_text(json.dumps({**facts, "stem": self._stem}), encoding="utf-8")
        folders.replace(temporary, self._path)


class Piece:
    """A share that a helper has read.

    Args:
        path: what `piece_file` returns for the share

    Attributes:
        facts: what was said of it
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))

    def batches(self) -> Iterator[tuple[str, Any]]:
        """Yields (table, batch), the batches of a table in their order."""
        for table in TABLES:
            path = self._path.with_name(f"{self.facts['stem']}.{table}.arrows")
            if path.exists():
                with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
                    for batch in stream:
                        yield table, batch
