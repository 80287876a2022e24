# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake of many machines, of rows that are made up.

Half of the stacks of a machine are its own, the others are of a pool in which some are on nearly all machines
and many on a few. Each machine has modules of its own, too.

    python -m benchmarks.largelake FOLDER MACHINES STACKS [--writers N] [--together IMAGES]
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, Tuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from stackfleet.columns import SCHEMAS
from stackfleet.lake import MOST_TOGETHER, Lake, LakeError, NewImage
from stackfleet.layout import IMAGE, MODULE_SETS, MODULES, TRACES
from stackfleet.writer import TableFiles
from tests.support import fleetlakes

CHUNK = 50
_SETS, _OWN_SETS = 200, 5
_POOL = 1_000_000

_STACKS = """\
WITH pooled AS (
    SELECT n, r, floor({pool} * pow((hash(n * 7919 + r) % 1000003) / 1000003.0, 3))::BIGINT AS p
    FROM (VALUES {machines}) a(n), range({stacks}) b(r)
)
SELECT format('i{{:06d}}', n) AS ImageId, 'std:0:' || r AS TraceId,
       md5(CASE WHEN r % 2 = 0 THEN 'own ' || n || ' ' || r ELSE 'pool ' || p END) AS StackKey,
       md5(CASE WHEN r % 2 = 0 THEN 'shape ' || n || ' ' || r // 8 ELSE 'shape ' || p // 50 END) AS ShapeKey,
       'm' || r % 40 || '!Function' || r % 9973 || '+0x1d; nt!NtCreateFile+0x79' AS Stack,
       (CASE WHEN r % 20 = 0 THEN 1000000 + n * 10 + r // 20 % {own}
        ELSE hash(StackKey) % {sets} END)::BIGINT AS ModuleSet,
       1 AS Count, 0 AS Unbacked, 2 AS Schema, r % 97 AS PID, false AS Incomplete, 'std' AS Kind,
       'p' || r % 97 || '.exe' AS Process, 'x64' AS Arch, 'exact' AS KeyQuality, '' AS Status
FROM pooled ORDER BY n, r"""


def make(folder: pathlib.Path, machines: int, stacks: int, writers: int = 1, together: int = 0) -> None:
    """Adds machines to a lake, as the workers of runs do, and merges its files as a run does at its end.

    Args:
        folder: the lake
        machines: number of machines
        stacks: stacks of each
        writers: processes that write at the same time
        together: images of a commit; 0 for as many as stackfleet puts into one
    """
    shares = [(str(folder), range(first, machines, writers), stacks, together) for first in range(writers)]
    if writers == 1:
        _write(*shares[0])
    else:
        with multiprocessing.get_context("spawn").Pool(writers) as pool:
            pool.starmap(_write, shares)
    Lake(str(folder)).compact(needed=True)


def _write(uri: str, machines: range, stacks: int, together: int) -> None:
    """Adds the images of some machines; tells after each thousandth part how long the last commit took."""
    lake, most = Lake(uri, create=True), together or MOST_TOGETHER
    for first in range(0, len(machines), most):
        part = machines[first : first + most]
        with tempfile.TemporaryDirectory() as folder:
            images = list(_images(pathlib.Path(folder), part, stacks))
            start = time.monotonic()
            # Another writer may hold the lake longer than Delta tries.
            while True:
                with contextlib.suppress(LakeError):
                    lake.add_together(images)
                    break
            if first // most % 100 == 0:
                log = sum(path.stat().st_size for path in pathlib.Path(uri, "_delta_log").iterdir())
                print(f"{part[0]:>8} {time.monotonic() - start:8.2f} s  log {log:>12,}", flush=True)
            if first // most % 50 == 49:
                lake.compact(needed=True)


def _images(folder: pathlib.Path, machines: range, stacks: int) -> Iterator[NewImage]:
    files: Dict[int, TableFiles] = {}
    for table, number, batch in _rows(machines, stacks):
        if number not in files:
            folder.joinpath(_id(number)).mkdir()
            files[number] = TableFiles(folder / _id(number))
        files[number].write(table, batch.columns)
    for number, written in files.items():
        manifest = fleetlakes.manifest(_id(number), written.close())
        yield NewImage(manifest, folder / _id(number))


def _id(number: int) -> str:
    return f"i{number:06}"


def _rows(machines: range, stacks: int) -> Iterator[Tuple[str, int, Any]]:
    """Yields (table, machine, rows)."""
    with duckdb.connect() as connection:
        for first in range(0, len(machines), CHUNK):
            numbers = machines[first : first + CHUNK]
            values = {"pool": _POOL, "sets": _SETS, "own": _OWN_SETS, "stacks": stacks}
            listed = ", ".join(f"({number})" for number in numbers)
            table = connection.sql(_STACKS.format(machines=listed, **values)).to_arrow_table()
            for place, number in enumerate(numbers):
                yield TRACES, number, _filled(TRACES, table.slice(place * stacks, stacks))
                image = fleetlakes.arrow(IMAGE, _id(number), [{"ComputerName": f"PC-{number}"}])
                yield IMAGE, number, image.to_batches()[0]
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


def drop_caches(folder: pathlib.Path) -> None:
    """Lets the system forget what files hold, as far as it does so without rights."""
    for path in folder.rglob("*.parquet"):
        subprocess.run(
            ["dd", f"of={path}", "oflag=nocache", "conv=notrunc,fdatasync", "count=0"], stderr=-3, check=False
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("machines", type=int)
    parser.add_argument("stacks", type=int)
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--together", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    make(options.folder, options.machines, options.stacks, options.writers, options.together)
    table = DeltaTable(str(options.folder))
    files = len(table.file_uris())
    took = time.monotonic() - start
    print(f"{options.machines} machines in {took:.0f} s: version {table.version()}, {files} files")
    for command in (["status"], ["rare"], ["findings"], ["sql", "SELECT count(*) FROM traces"]):
        words = [sys.executable, "-m", "stackfleet", command[0], str(options.folder), *command[1:]]
        start = time.monotonic()
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            _, _, usage = os.wait4(process.pid, 0)
        print(f"{command[0]:<10} {time.monotonic() - start:7.2f} s  {usage.ru_maxrss >> 10:>6} MB")


if __name__ == "__main__":
    main()
