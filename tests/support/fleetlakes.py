# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lakes of rows that are written as they are, without images: for questions and benchmarks."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import Any, Dict, Iterator, List

import pyarrow as pa
import pytest

from stackfleet import lake as lake_module
from stackfleet.columns import SCHEMAS
from stackfleet.lake import Lake, NewImage
from stackfleet.manifests import DONE, MANIFEST_VERSION, Manifest
from stackfleet.newfiles import NewFiles, Part
from stackfleet.writer import TableFiles

Row = Dict[str, Any]

_DEFAULTS: Row = {
    "Schema": 4,
    "Kind": "std",
    "PID": 0,
    "Process": "nt",
    "Arch": "x64",
    "Count": 1,
    "KeyQuality": "exact",
    "Incomplete": False,
    "Unbacked": 0,
    "Status": "",
    "Files": "[]",
    "VolatilityVersion": "2",
    "PluginVersion": "2",
    "Processes": 1,
    "ProcessesFoundOtherwise": 0,
    "ProcessesUnreadable": 0,
    "StacksKnown": "{}",
    "StacksRead": "{}",
    "StructuresAbsent": "{}",
    "Warnings": 0,
    "WarningText": "",
    "InputKind": "image",
}


def new_lake(folder: pathlib.Path) -> Lake:
    return Lake(str(folder), create=True)


def arrow(table: str, image_id: str, rows: List[Row]) -> Any:
    """Rows of a table, in which what they do not say is what most rows have."""
    schema, filled = SCHEMAS[table], []
    for number, row in enumerate(rows):
        known = {**_DEFAULTS, "ImageId": image_id, "TraceId": f"std:{number}", **row}
        filled.append({field.name: _fitting(known.get(field.name), field.type) for field in schema})
    return pa.Table.from_pylist(filled, schema=schema)


def _fitting(value: Any, kind: Any) -> Any:
    """A number in a column of texts is an address."""
    return f"{value:#x}" if kind == pa.string() and isinstance(value, int) else value


@contextlib.contextmanager
def of_columns(schema: pa.Schema) -> Iterator[None]:
    """Lakes that are made, and rows that are added, have the columns of a schema, as by another version."""
    add = NewFiles.add

    def of_schema(new: NewFiles, part: Part) -> int:
        return add(new, Part(part.table, map(_of_schema, part.batches)))

    def _of_schema(batch: Any) -> Any:
        fields = [field for field in schema if field.name not in batch.schema.names]
        for field in fields:
            batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        return batch.select(schema.names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_module, "UNITED", schema)
        patch.setattr(NewFiles, "add", of_schema)
        yield


def add(lake: Lake, image_id: str, **tables: Any) -> None:
    """Adds an image to a lake.

    Args:
        lake: the lake
        image_id: the image
        tables: rows by table, or a table of Arrow; `host` names the computer
    """
    with tempfile.TemporaryDirectory() as folder:
        lake.add(new_image(pathlib.Path(folder), image_id, **tables))


def put_manifest(lake: Lake, manifest: Manifest) -> None:
    """Replaces the manifest of an image whose rows stay."""
    with lake._written() as snapshot:
        lake._put(snapshot, manifest)


def new_image(folder: pathlib.Path, image_id: str, **tables: Any) -> NewImage:
    """Writes the rows of an image to a folder, and returns the image, which no lake has yet."""
    host, before, attempt = (tables.pop(name, None) for name in ("host", "before", "attempt"))
    tables.setdefault("image", [{"ComputerName": host}])
    files = TableFiles(folder)
    for name, rows in tables.items():
        table = rows if isinstance(rows, pa.Table) else arrow(name, image_id, rows)
        for batch in table.combine_chunks().to_batches():
            files.write(name, batch.columns)
    return NewImage(manifest(image_id, files.close(), attempt=attempt or "attempt"), folder, before)


def manifest(image_id: str, tables: Row, **more: Any) -> Row:
    """A manifest of an image that is done."""
    time = "2026-01-01T00:00:00+00:00"
    row: Row = {"manifest": MANIFEST_VERSION, "image_id": image_id, "status": DONE, "reason": "", "case": ""}
    row.update(path=f"/images/{image_id}.raw", size=1, modified=1, probe="", files=[], identity=None)
    row.update(copies=[], replaces=[], truncated=None, missing_share=None, tables=tables, reading={})
    row.update(reading_digest="", versions={}, limits={}, command=[], note="", run="", worker="", machine="")
    row.update(exit="0", seconds=1.0, memory=1, warnings=0, warning_texts=[], log="", attempt="attempt")
    return {**row, "started": time, "ended": time, **more}
