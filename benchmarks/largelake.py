# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake of many machines, of rows that are made up.

Half of the stacks of a machine are its own, the others are of a pool in which some are on nearly all machines
and many on a few. Each machine has modules of its own, too.

    python -m benchmarks.largelake FOLDER MACHINES STACKS
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Tuple

import duckdb
import pyarrow as pa

from stackfleet.columns import SCHEMAS, stored, to_stored
from stackfleet.entries import Entries, entry
from stackfleet.keys import halves, host_key
from stackfleet.lake import Lake
from stackfleet.layout import IMAGE, KEYS, MODULE_SETS, MODULES, TABLES, TRACES, manifest_file, table_name
from stackfleet.manifests import written
from stackfleet.merging import Parts
from stackfleet.tablelog import TableLog
from tests.support import fleetlakes

BATCH = 1_000
"""Machines of a batch."""
CHUNK = 50
_SETS, _OWN_SETS = 200, 5
_POOL = 1_000_000

_STACKS = """\
WITH pooled AS (
    SELECT n, r, floor({pool} * pow((hash(n * 7919 + r) % 1000003) / 1000003.0, 3))::BIGINT AS p
    FROM range({first}, {last}) a(n), range({stacks}) b(r)
)
SELECT format('i{{:06d}}', n) AS ImageId, 'std:0:' || r AS TraceId,
       md5(CASE WHEN r % 2 = 0 THEN 'own ' || n || ' ' || r ELSE 'pool ' || p END) AS StackKey,
       md5(CASE WHEN r % 2 = 0 THEN 'shape ' || n || ' ' || r // 8 ELSE 'shape ' || p // 50 END) AS ShapeKey,
       'm' || r % 40 || '!Function' || r % 9973 || '+0x1d; nt!NtCreateFile+0x79' AS Stack,
       (CASE WHEN r % 20 = 0 THEN 1000000 + n * 10 + r // 20 % {own}
        ELSE hash(StackKey) % {sets} END)::UBIGINT AS ModuleSet,
       1 AS Count, 0 AS Unbacked, 2 AS Schema, r % 97 AS PID, false AS Incomplete, 'std' AS Kind,
       'p' || r % 97 || '.exe' AS Process, 'x64' AS Arch, 'exact' AS KeyQuality, '' AS Status
FROM pooled ORDER BY n, r"""


def make(folder: pathlib.Path, machines: int, stacks: int) -> None:
    """Writes the lake, as `stackfleet compact` leaves one: in batches."""
    lake = Lake(str(folder), create=True)
    for first in range(0, machines, BATCH):
        _add(lake, f"batch{first:08}", range(first, min(first + BATCH, machines)), stacks)


def _add(lake: Lake, name: str, machines: range, stacks: int) -> None:
    tables = {table: Parts(lake.folder, table, name) for table in TABLES}
    keys: List[Any] = []
    rows: Dict[str, Dict[str, int]] = {_id(number): dict.fromkeys(TABLES, 0) for number in machines}
    for table, number, batch in _rows(machines, stacks, keys):
        tables[table].begin(_id(number))
        tables[table].write(to_stored(table, batch, "attempt"))
        rows[_id(number)][table] = batch.num_rows
    for table in TABLES:
        for number in machines:
            if table != KEYS and not rows[_id(number)][table]:
                tables[table].begin(_id(number))
    kept = pa.concat_tables(keys).sort_by([("StackHigh", "ascending"), ("StackLow", "ascending")])
    tables[KEYS].begin(_id(machines[0]))
    for batch in kept.to_batches(max_chunksize=1 << 17):
        tables[KEYS].write(to_stored(KEYS, batch, "attempt"))
        tables[KEYS].image_end(_id(machines[-1]))
    files = {table: tables[table].end() for table in TABLES}
    lake.record(
        name,
        {"files": {f"tables/{t}/{member.name}": files[t][member] for t in TABLES for member in files[t]}},
    )
    for table in TABLES:
        TableLog(lake.folder, table).commit(stored(table), list(files[table]))
    columns = []
    for image_id, counted in rows.items():
        counted[KEYS] = stacks
        figures = {
            table: {
                "file": table_name(table, image_id, "attempt"),
                "rows": counted[table],
                "sha256": "0" * 64,
            }
            for table in TABLES
        }
        manifest = fleetlakes.manifest(image_id, figures)
        manifest_file(str(lake.folder), image_id).write_bytes(written(manifest))
        columns.append(entry(manifest)._replace(batch=name))
    Entries(lake.folder).put(columns)


def _id(number: int) -> str:
    return f"i{number:06}"


def _rows(machines: range, stacks: int, keys: List[Any]) -> Iterator[Tuple[str, int, Any]]:
    """Yields (table, machine, rows), and adds the rows of the table of keys to a list."""
    with duckdb.connect() as connection:
        for first in range(machines.start, machines.stop, CHUNK):
            last = min(first + CHUNK, machines.stop)
            values = {"pool": _POOL, "sets": _SETS, "own": _OWN_SETS, "stacks": stacks}
            table = connection.sql(_STACKS.format(first=first, last=last, **values)).to_arrow_table()
            for number in range(first, last):
                mine = table.slice((number - first) * stacks, stacks)
                yield TRACES, number, _filled(TRACES, mine)
                keys.append(_keys(number, mine))
                yield (
                    IMAGE,
                    number,
                    fleetlakes.arrow(IMAGE, _id(number), [{"ComputerName": f"PC-{number}"}]).to_batches()[0],
                )
                yield from _modules(number)


def _modules(number: int) -> Iterator[Tuple[str, int, Any]]:
    own = [1_000_000 + number * 10 + place for place in range(_OWN_SETS)]
    level = number % 3
    common = [*range(100), *(200 + 10 * number + level for number in range(20))]
    versions = [{"Version": version, "Module": f"m{version}"} for version in (*common, *own)]
    sets = [
        {"ModuleSet": number, "Versions": sorted({number % 100, number % 70, number % 41})}
        for number in range(_SETS)
    ]
    sets += [{"ModuleSet": version_set, "Versions": [1, 2, version_set]} for version_set in own]
    for table, found in ((MODULES, versions), (MODULE_SETS, sets)):
        yield table, number, fleetlakes.arrow(table, _id(number), found).to_batches()[0]


def _filled(table: str, rows: Any) -> Any:
    """Returns rows with all columns of a table."""
    columns = [
        rows.column(field.name).combine_chunks().cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in SCHEMAS[table]
    ]
    columns = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return pa.record_batch(columns, schema=SCHEMAS[table])


def _keys(number: int, rows: Any) -> Any:
    """Returns the rows of the table of keys of a machine: no key is twice on it, or in few cases only."""
    stack, shape = (
        [halves(key) for key in rows.column(name).to_pylist()] for name in ("StackKey", "ShapeKey")
    )
    count = rows.num_rows
    known = {
        "ImageId": pa.array([_id(number)] * count),
        "StackHigh": pa.array([pair[0] for pair in stack]),
        "StackLow": pa.array([pair[1] for pair in stack]),
        "ShapeHigh": pa.array([pair[0] for pair in shape]),
        "ShapeLow": pa.array([pair[1] for pair in shape]),
        "ModuleSet": rows.column("ModuleSet"),
        "HostKey": pa.array([host_key(f"PC-{number}")] * count),
        "Kind": pa.array(["std"] * count),
        "Sure": pa.array([True] * count),
        "Stacks": pa.array([1] * count),
        "Count": pa.array([1] * count),
        "Unbacked": pa.array([0] * count),
        "Schema": pa.array([2] * count),
    }
    return pa.table([known[field.name].cast(field.type) for field in SCHEMAS[KEYS]], schema=SCHEMAS[KEYS])


def drop_caches(folder: pathlib.Path) -> None:
    """Lets the system forget what files hold, as far as it does so without rights."""
    for path in folder.rglob("*.parquet"):
        subprocess.run(
            ["dd", f"of={path}", "oflag=nocache", "conv=notrunc,fdatasync", "count=0"], stderr=-3, check=False
        )


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
