# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lakes of rows that are written as they are, without images: for questions and benchmarks."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pyarrow as pa
import pyarrow.parquet as pq

from stackfleet import provenance
from stackfleet.columns import SCHEMAS, stored, to_stored
from stackfleet.entries import Entries, entry
from stackfleet.keys import key_rows
from stackfleet.lake import Lake
from stackfleet.layout import IMAGE, KEYS, TABLES, TRACES, manifest_file, table_file
from stackfleet.manifests import DONE, MANIFEST_VERSION, written
from stackfleet.tablelog import DataFile, TableLog
from winstacks.columns import dictionary

Row = Dict[str, Any]

_DEFAULTS: Row = {
    "Schema": dictionary.SCHEMA,
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
    lake.publish(keep(lake, image_id, **tables))


def keep(lake: Lake, image_id: str, **tables: Any) -> Row:
    """Writes the files of an image, and returns its manifest: the lake does not have it yet."""
    host = tables.pop("host", None)
    tables.setdefault("image", [{"ComputerName": host}])
    paths = {name: table_file(str(lake.folder), name, image_id, "attempt") for name in TABLES}
    counted = {}
    for name in (*(table for table in TABLES if table != KEYS), KEYS):
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        rows = tables.get(name, [])
        if name == KEYS:
            batches = [
                dict(zip(SCHEMAS[KEYS].names, key_row)) for key_row in key_rows(paths[TRACES], paths[IMAGE])
            ]
            table = pa.table(batches[0], schema=SCHEMAS[KEYS]) if batches else SCHEMAS[KEYS].empty_table()
        else:
            table = rows if isinstance(rows, pa.Table) else arrow(name, image_id, rows)
        write(paths[name], name, table)
        counted[name] = table.num_rows
    return manifest(image_id, lake.tables(image_id, "attempt", counted))


def enter_again(folder: pathlib.Path, known: Row, table: str = "") -> None:
    """Lets manifest, catalogue and log say the same of an image that has files of its own.

    Args:
        folder: the lake
        known: the manifest
        table: whose file was changed; its bytes, rows and SHA-256 are put into the manifest
    """
    if table:
        path = table_file(str(folder), table, known["image_id"], known["attempt"])
        rows, size = pq.read_metadata(path).num_rows, path.stat().st_size
        known["tables"][table].update(bytes=size, rows=rows, sha256=provenance.sha256(path))
        new = DataFile(path.name, size, rows, known["image_id"], known["image_id"])
        log = TableLog(folder, table)
        log.commit(stored(table), [], [member for member in log.load() if member.name == path.name])
        log.commit(stored(table), [new])
    manifest_file(str(folder), known["image_id"]).write_bytes(written(known))
    Entries(folder).put([entry(known)])


def write(path: pathlib.Path, name: str, table: Any) -> None:
    """Writes the file of a table, as one attempt does."""
    batches = table.combine_chunks().to_batches() or [
        pa.record_batch([pa.array([], column.type) for column in table.schema], schema=table.schema)
    ]
    pq.write_table(pa.Table.from_batches([to_stored(name, batches[0], "attempt")]), path, compression="zstd")


def manifest(image_id: str, tables: Row, **more: Any) -> Row:
    """A manifest of an image that is done."""
    time = "2026-01-01T00:00:00+00:00"
    row: Row = {"manifest": MANIFEST_VERSION, "image_id": image_id, "status": DONE, "reason": "", "case": ""}
    row.update(path=f"/images/{image_id}.raw", size=1, modified=1, probe="", files=[], identity=None)
    row.update(copies=[], tables=tables, reading={}, reading_digest="", versions={}, limits={}, command=[])
    row.update(note="", run="", worker="", machine="", exit="0", seconds=1.0, memory=1, warnings=0)
    row.update(warning_texts=[], log="", attempt="attempt", started=time, ended=time)
    return {**row, **more}
