# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Files of a stranger's lake: manifests, the log, footers and pages of Parquet files; digests of rows."""

from __future__ import annotations

import importlib.util
import io
import json
import pathlib
import struct
import sys
import tempfile
from types import FrameType
from typing import Any, List

from .target import Target

IMAGE_ID = "i1"
_LIBRARIES = ("deltalake", "pyarrow")
_DIGEST = "0" * 64


def _manifests() -> List[bytes]:
    from stackfleet.layout import IMAGE, TABLES
    from stackfleet.manifests import FAILED
    from tests.support import fleetlakes

    tables = {name: {"rows": int(name == IMAGE), "digest": _DIGEST} for name in TABLES}
    files = [{"path": "/images/i1.raw", "size": 1, "sha256": _DIGEST}]
    identity = {"own": "i1", "of": "i2", "compared": "", "digests": [_DIGEST]}
    found = [
        fleetlakes.manifest(IMAGE_ID, tables, files=files, identity=identity, versions={"winstacks": "4"}),
        fleetlakes.manifest(IMAGE_ID, {}, status=FAILED, reason="no layer"),
    ]
    return [json.dumps(manifest).encode() for manifest in found]


def _manifest(data: bytes, whole: bytes) -> None:
    """A manifest that is accepted can be written to a lake again."""
    from stackfleet import manifestrows, manifests

    try:
        found = manifests.parsed(data.decode("utf-8", "replace"), IMAGE_ID)
    except manifests.ManifestError:
        return
    assert manifestrows.manifest_rows([found]).num_rows == 1


def _logs() -> List[bytes]:
    from stackfleet.columns import UNITED
    from stackfleet.store import Store

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        Store(folder, UNITED).snapshot(room=0)
        begun = pathlib.Path(folder, "_delta_log", f"{0:020}.json").read_bytes()
    stats = json.dumps({"numRecords": 1, "minValues": {"ImageId": "i1"}, "maxValues": {"ImageId": "i1"}})
    file = {
        "path": "Table=image/part-0.parquet",
        "partitionValues": {"Table": "image"},
        "size": 100,
        "modificationTime": 1,
        "dataChange": True,
        "stats": stats,
    }
    return [begun, begun.rstrip() + b"\n" + json.dumps({"add": file}).encode() + b"\n"]


def _log(data: bytes, whole: bytes) -> None:
    """All files that a log of any text names are files of this lake."""
    from stackfleet.columns import UNITED
    from stackfleet.store import DATA_FILE, Store
    from stackfleet.storeerrors import StoreError

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        log = pathlib.Path(folder, "_delta_log")
        log.mkdir()
        (log / f"{0:020}.json").write_bytes(data)
        try:
            found = Store(folder, UNITED).snapshot()
        except StoreError:
            return
        assert all(DATA_FILE.fullmatch(file.path) for file in found.files)
        assert not found.files, "a file that is not there"


def _parquets() -> List[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table({"ImageId": ["i1", "i1", None], "Row": [0, 1, 2], "Frames": [[1, 2], [], None]})
    ways = ({"use_dictionary": True}, {"use_dictionary": False}, {"data_page_version": "2.0"})
    found = []
    for way in ways:
        for compression in ("zstd", "none"):
            written = io.BytesIO()
            pq.write_table(rows, written, compression=compression, store_schema=False, **way)
            found.append(written.getvalue())
    return found


def _parquet(data: bytes, whole: bytes) -> None:
    """The memory that a file unfolds to is measured, or the file is refused."""
    import pyarrow as pa

    from stackfleet.parquetpages import MOST_ROWS, rows_at_a_time

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = pathlib.Path(folder, "part-0.parquet")
        path.write_bytes(data)
        try:
            rows = rows_at_a_time(path)
        except (pa.ArrowException, OSError):
            return
    assert 1 <= rows <= MOST_ROWS


def _structures() -> List[bytes]:
    """Footers of files, and a structure with lists of numbers, of truth values and of lists."""
    footers = [data[-8 - int.from_bytes(data[-8:-4], "little") : -8] for data in _parquets()[:2]]
    return [*footers, bytes.fromhex("1500 19250204 19210102 19191502 1c150400 00")]


def _structure(data: bytes, whole: bytes) -> None:
    """Each step of the decoder takes a byte; what it keeps is counted by bytes, too."""
    from stackfleet import thrift

    calls = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        fields, end = thrift.structure(data)
    except (IndexError, ValueError):
        return
    finally:
        sys.setprofile(before)
        assert calls <= 4 * len(data) + 4
    assert end > 0 and _values(fields) <= len(data)


def _values(value: Any) -> int:
    """Returns how many values are in a structure."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(1 + _values(item) for item in inner)


def _rows(data: bytes) -> Any:
    """Rows of all types of columns, with absent values; the texts of one are of any bytes."""
    import pyarrow as pa

    numbers = [number for (number,) in struct.iter_unpack("<q", data[: len(data) // 8 * 8])]
    ends = pa.py_buffer(struct.pack(f"<{len(numbers) + 1}i", *range(len(numbers) + 1)))
    some = [number if number % 3 else None for number in numbers]
    columns = {
        "Row": pa.array(range(len(numbers)), pa.int64()),
        "Stack": pa.array([None if number is None else "x" * (number % 9) for number in some]),
        "Bytes": pa.Array.from_buffers(pa.string(), len(numbers), [None, ends, pa.py_buffer(data)]),
        "Number": pa.array(some, pa.int64()),
        "Time": pa.array(some, pa.timestamp("us", "UTC")),
        "Truth": pa.array([None if number is None else number % 2 == 0 for number in some]),
        "Frames": pa.array([None if number is None else [number] * (number % 4) for number in some]),
    }
    kinds = {"Stack": pa.string(), "Truth": pa.bool_(), "Frames": pa.list_(pa.int64())}
    return pa.record_batch(
        {name: column.cast(kinds.get(name, column.type)) for name, column in columns.items()}
    )


def _digest(data: bytes, whole: bytes) -> None:
    """Rows have one digest, whatever the size of their batches; rows that differ have another."""
    from stackfleet.digests import RowDigest

    rows, found = _rows(data), set()
    for size in (1, 3, 1 << 10):
        digest = RowDigest()
        for start in range(0, rows.num_rows, size):
            digest.add(rows.slice(start, size))
        assert digest.in_order and digest.rows == rows.num_rows
        found.add(digest.text())
    assert len(found) == 1
    if whole and len(data) == len(whole) and not rows.equals(_rows(whole)):
        other = RowDigest()
        other.add(_rows(whole))
        assert other.text() not in found


def targets() -> List[Target]:
    """Returns the targets; none where the libraries of lakes are not installed."""
    if not all(map(importlib.util.find_spec, _LIBRARIES)):
        return []
    return [
        Target("manifest", _manifests, _manifest),
        Target("lakelog", _logs, _log, forks=False),
        Target("parquetpages", _parquets, _parquet),
        Target("thrift", _structures, _structure),
        Target("rowdigest", lambda: [bytes(range(200))], _digest),
    ]
