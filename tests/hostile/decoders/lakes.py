# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Files of somebody else's lake: manifests, the log of its table, and the headers of Parquet's pages."""

from __future__ import annotations

import importlib.util
import io
import json
import pathlib
import tempfile
from typing import List

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
    from stackfleet import lake, manifests

    try:
        found = manifests.parsed(data.decode("utf-8", "replace"), IMAGE_ID)
    except manifests.ManifestError:
        return
    assert lake.manifest_rows("manifest", [found]).num_rows == 1


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


def targets() -> List[Target]:
    """Returns the targets; none where the libraries of lakes are not installed."""
    if not all(map(importlib.util.find_spec, _LIBRARIES)):
        return []
    return [
        Target("manifest", _manifests, _manifest),
        Target("lakelog", _logs, _log, forks=False),
        Target("parquetpages", _parquets, _parquet),
    ]
