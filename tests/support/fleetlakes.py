# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lakes of rows that are written as they are, without images: for questions and benchmarks."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pyarrow as pa
import pyarrow.parquet as pq

from stackfleet.columns import SCHEMAS
from stackfleet.lake import Lake
from stackfleet.layout import TABLES, table_file
from stackfleet.manifests import DONE, MANIFEST_VERSION

Row = Dict[str, Any]

_DEFAULTS: Row = {
    "Schema": 1,
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
        filled.append({name: known.get(name) for name in schema.names})
    return pa.Table.from_pylist(filled, schema=schema)


def add(lake: Lake, image_id: str, **tables: Any) -> None:
    """Adds an image to a lake.

    Args:
        lake: the lake
        image_id: the image
        tables: rows by table, or a table of Arrow; `host` names the computer
    """
    host = tables.pop("host", None)
    tables.setdefault("image", [{"ComputerName": host}])
    counted = {}
    for name in TABLES:
        path = table_file(str(lake.folder), name, image_id, "attempt")
        path.parent.mkdir(parents=True, exist_ok=True)
        given = tables.get(name, [])
        table = given if isinstance(given, pa.Table) else arrow(name, image_id, given)
        pq.write_table(table, path, compression="zstd")
        counted[name] = table.num_rows
    lake.publish(manifest(image_id, lake.tables(image_id, "attempt", counted)))


def manifest(image_id: str, tables: Row, **more: Any) -> Row:
    """A manifest of an image that is done."""
    time = "2026-01-01T00:00:00+00:00"
    made: Row = {"manifest": MANIFEST_VERSION, "image_id": image_id, "status": DONE, "reason": "", "case": ""}
    made.update(path=f"/images/{image_id}.raw", size=1, modified=1, probe="", files=[], identity=None)
    made.update(copies=[], tables=tables, reading={}, reading_digest="", versions={}, limits={}, command=[])
    made.update(note="", run="", worker="", machine="", exit="0", seconds=1.0, memory=1, warnings=0)
    made.update(warning_texts=[], log="", attempt="attempt", started=time, ended=time)
    return {**made, **more}
