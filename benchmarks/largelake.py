# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake of many machines, of rows that are made up.

Half of the stacks of a machine are its own, the others are of a pool in which some are on nearly all machines
and many on a few. Each machine has modules of its own, too, and each fourth one a finding.

    python -m benchmarks.largelake LAKE MACHINES STACKS [--least STACKS] [--writers N] [--together IMAGES]

With --least the machines have from so many to STACKS stacks; most have few. LAKE is a folder or a URI. With
--bulk IMAGES the rows of so many images go into a commit without files of their own and without digests: for
the size of a lake at which the last 512 machines are then added as runs add them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, Tuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from stackfleet.columns import SCHEMAS, UNITED
from stackfleet.database import HALF
from stackfleet.lake import MOST_TOGETHER, Lake, LakeError, NewImage
from stackfleet.layout import (
    FINDINGS,
    IMAGE,
    KEYS,
    MANIFESTS,
    MODULE_SETS,
    MODULES,
    TABLES,
    TRACES,
)
from stackfleet.manifestrows import manifest_rows
from stackfleet.newfiles import Part
from stackfleet.store import Store
from stackfleet.writer import TableFiles
from tests.support import fleetlakes
from winstacks.columns.dictionary import SCHEMA
from winstacks.columns.words import SEVERITIES

CHUNK = 50
_SETS, _OWN_SETS = 50, 5
_POOL = 1_000_000

_STACKS = """\
WITH pooled AS (
    SELECT n, r, floor({pool} * pow((hash(n * 7919 + r) % 1000003) / 1000003.0, 3))::BIGINT AS p
    FROM (SELECT n, unnest(range(stacks)) AS r FROM (VALUES {machines}) a(n, stacks))
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


def make(
    lake: str, machines: int, stacks: int, writers: int = 1, together: int = 0, least: int = 0, first: int = 0
) -> None:
    """Adds machines to a lake, as the workers of runs do, and merges its files as a run does at its end.

    Args:
        lake: folder or URI of the lake
        machines: number of machines
        stacks: stacks of each
        writers: processes that write at the same time
        together: images of a commit; 0 for as many as stackfleet puts into one
        least: the fewest stacks of a machine; 0 for equal machines
        first: number of the first machine
    """
    shares = [
        (lake, range(first + number, first + machines, writers), (least or stacks, stacks), together)
        for number in range(writers)
    ]
    if writers == 1:
        _write(*shares[0])
    else:
        with multiprocessing.get_context("spawn").Pool(writers) as pool:
            pool.starmap(_write, shares)
    Lake(lake).compact(needed=True)


def _write(uri: str, machines: range, stacks: Tuple[int, int], together: int) -> None:
    """Adds the images of some machines; prints now and then how long the last commit took."""
    lake, most = Lake(uri, create=True), together or MOST_TOGETHER
    pid, conflicts = os.getpid(), 0
    for first in range(0, len(machines), most):
        part = machines[first : first + most]
        with tempfile.TemporaryDirectory() as folder:
            images = list(_images(pathlib.Path(folder), part, stacks))
            start, used = time.monotonic(), time.process_time()
            # Another writer may hold the lake longer than Delta tries.
            while True:
                try:
                    lake.add_together(images)
                    break
                except LakeError:
                    conflicts += 1
        if first // most % 20 == 0:
            took, cost = time.monotonic() - start, time.process_time() - used
            print(
                f"{pid} machine {part[0]:>8} commit {took:8.2f} s, {cost:6.2f} s of processor, "
                f"conflicts {conflicts}, log {_log_bytes(uri):>12,}, memory {_most_memory()} MB",
                flush=True,
            )
        if machines.start % machines.step == 0 and first // most % 8 == 7:
            lake.compact(needed=True)


_KEYS = """\
SELECT ImageId, Schema, half(StackKey, 0) AS StackHigh, half(StackKey, 1) AS StackLow,
       half(ShapeKey, 0) AS ShapeHigh, half(ShapeKey, 1) AS ShapeLow, ModuleSet,
       (hash(ImageId) >> 1)::BIGINT AS HostKey, Kind, true AS Sure, count(*) AS Stacks,
       sum(Count)::BIGINT AS Count, max(Unbacked)::BIGINT AS Unbacked
FROM traces GROUP BY ALL ORDER BY ImageId"""


def lay(uri: str, machines: range, stacks: Tuple[int, int], together: int) -> None:
    """Adds machines whose rows never were files, and have no digests."""
    Lake(uri, create=True)
    store = Store(uri, UNITED)
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = 1; {HALF}")
        for first in range(0, len(machines), together):
            part = machines[first : first + together]
            numbers = {number: stacks_of(number, stacks) for number in part}
            connection.register("traces", _traces(connection, numbers))
            rows: Dict[str, List[Any]] = {
                TRACES: [connection.table("traces").to_arrow_table()],
                KEYS: [connection.sql(_KEYS).to_arrow_table()],
            }
            for number in part:
                for table, other in _others(number):
                    rows.setdefault(table, []).append(other)
            used = time.process_time()
            store.commit(store.snapshot(room=0), _parts(rows, numbers), list(map(_id, part)))
            print(f"laid {part[-1]:>8}: {time.process_time() - used:.2f} s of processor", flush=True)
            if first // together % 20 == 19:
                Lake(uri).compact(needed=True)


def _parts(rows: Dict[str, List[Any]], numbers: Dict[int, int]) -> Iterator[Part]:
    for table, parts in rows.items():
        yield Part(table, [_filled(table, pa.concat_tables(parts))])
    tables = {name: {"rows": 0, "digest": "0" * 64} for name in TABLES}
    manifests = []
    for number, stacks in numbers.items():
        counted = {**tables, TRACES: {**tables[TRACES], "rows": stacks}, IMAGE: {**tables[IMAGE], "rows": 1}}
        manifests.append(fleetlakes.manifest(_id(number), counted))
    yield Part(MANIFESTS, [manifest_rows(manifests)])


def _log_bytes(uri: str) -> int:
    """Returns the bytes of the log of a folder; 0 for an object store, which nobody lists here."""
    return sum(path.stat().st_size for path in pathlib.Path(uri, "_delta_log").glob("*"))


def _most_memory() -> int:
    """Returns the most resident memory of this process in MB; without /proc that of its parent, too."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) >> 10


def _images(folder: pathlib.Path, machines: range, stacks: Tuple[int, int]) -> Iterator[NewImage]:
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


def stacks_of(number: int, stacks: Tuple[int, int]) -> int:
    """Returns the number of stacks of a machine: between two bounds, and near the lower one for most."""
    least, most = stacks
    place = number * 2654435761 % (1 << 32) / (1 << 32)
    return int(least * (most / least) ** (place**8))


def _rows(machines: range, stacks: Tuple[int, int]) -> Iterator[Tuple[str, int, Any]]:
    """Yields (table, machine, rows)."""
    with duckdb.connect() as connection:
        for first in range(0, len(machines), CHUNK):
            numbers = {number: stacks_of(number, stacks) for number in machines[first : first + CHUNK]}
            traces, place = _filled(TRACES, _traces(connection, numbers)), 0
            for number, rows in numbers.items():
                yield TRACES, number, traces.slice(place, rows)
                place += rows
                for table, other in _others(number):
                    yield table, number, _filled(table, other)


def _traces(connection: Any, numbers: Dict[int, int]) -> Any:
    """Returns the stacks of machines, of which each has so many."""
    listed = ", ".join(f"({number}, {rows})" for number, rows in numbers.items())
    sql = _STACKS.format(machines=listed, pool=_POOL, sets=_SETS, own=_OWN_SETS)
    return connection.sql(sql).to_arrow_table()


def _others(number: int) -> Iterator[Tuple[str, Any]]:
    """Yields the rows of a machine in the other tables, without columns that are null."""
    yield IMAGE, _with(IMAGE, number, {"ComputerName": [f"PC-{number}"]})
    if number % 4 == 0:
        symbol = "nt!NtCreateFile" if number % 8 else f"<no-module {number:#x}>"
        found = {"Severity": [SEVERITIES[number % 3]], "Finding": ["unbacked"], "Symbol": [symbol]}
        yield FINDINGS, _with(FINDINGS, number, found)
    own = [1_000_000 + number * 10 + place for place in range(_OWN_SETS)]
    level = number % 3
    versions = [*range(100), *(200 + 10 * other + level for other in range(20)), *own]
    known = {"Version": versions, "Module": [f"m{version}" for version in versions]}
    yield MODULES, _with(MODULES, number, known)
    common = [sorted({place % 100, place % 70, place % 41}) for place in range(_SETS)]
    lists = [*common, *([1, 2, version_set] for version_set in own)]
    sets = {"ModuleSet": [*range(_SETS), *own], "Versions": lists}
    yield MODULE_SETS, _with(MODULE_SETS, number, sets)


def _with(table: str, number: int, columns: Dict[str, Any]) -> Any:
    """Returns rows of a machine with the columns that have a value."""
    rows = pa.table(columns)
    for name, value in {**_ALWAYS.get(table, {}), "ImageId": _id(number), "Schema": SCHEMA}.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows


_ALWAYS: Dict[str, Dict[str, Any]] = {
    IMAGE: {
        field.name: value.as_py()
        for field, (value,) in zip(SCHEMAS[IMAGE], fleetlakes.arrow(IMAGE, "", [{}]).columns)
        if value.is_valid and field.name not in ("ImageId", "Schema", "ComputerName")
    }
}
"""Values without which a row of a table does not go."""


def _filled(table: str, rows: Any) -> Any:
    """Returns rows with all columns of a table."""
    columns = [
        rows.column(field.name).cast(field.type).combine_chunks()
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


_WATCH = """\
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)"""
"""A small program that starts another: Linux counts the memory of who starts a program as the program's."""


def asked(words: List[str]) -> None:
    """Runs a command, and prints its cost."""
    start = time.monotonic()
    command = [sys.executable, "-c", _WATCH, sys.executable, "-m", "stackfleet", *words]
    code, cost, memory = subprocess.run(command, stdout=-1, text=True, check=True).stdout.split()
    took = time.monotonic() - start
    used = f"{float(cost):7.2f} s of processor, {memory:>6} MB"
    print(f"{words[0]:<10} {took:7.2f} s, {used}, code {code}", flush=True)


LAST = 512
"""Machines that are added as runs add them, behind those that --bulk lays."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake")
    parser.add_argument("machines", type=int)
    parser.add_argument("stacks", type=int)
    for name, value in (("least", 0), ("writers", 1), ("together", 0), ("bulk", 0), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    lake, start = options.lake, time.monotonic()
    many = (options.least or options.stacks, options.stacks)
    first, end = options.first, options.first + options.machines
    if options.bulk:
        lay(lake, range(first, end - LAST), many, options.bulk)
        first = end - LAST
    make(lake, end - first, options.stacks, options.writers, options.together, options.least, first)
    table = DeltaTable(lake)
    state = f"version {table.version()}, {len(table.file_uris())} files"
    print(f"{options.machines} machines in {time.monotonic() - start:.0f} s: {state}", flush=True)
    start = time.monotonic()
    make(lake, 1, options.stacks, least=options.least, first=end)
    print(f"one image more: {time.monotonic() - start:.2f} s", flush=True)
    for command in (
        ["status", lake],
        ["rare", lake],
        ["findings", lake],
        ["diff", lake, "PC-1", "PC-2"],
        ["sql", lake, "SELECT count(*) FROM traces"],
    ):
        asked(command)


if __name__ == "__main__":
    main()
