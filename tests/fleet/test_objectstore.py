# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake in object storage: a server on this machine that speaks S3, as a program of its own."""

from __future__ import annotations

import json
import pathlib
import shutil
import socket
import subprocess
import sys
from typing import Any, Dict, Iterator, List

import pytest

from tests.support.only import rows_of

pytest.importorskip("moto")

from pyarrow import fs

from stackfleet.lake import Lake, LakeError
from stackfleet.mirror import mirrored
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import called, fleet, wait

LAKE = "s3://bucket/cases/lake"


@pytest.fixture(scope="module")
def server() -> Iterator[Dict[str, str]]:
    """What a process needs to know to find the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait(lambda: _listens(port))
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "name",
                "AWS_SECRET_ACCESS_KEY": "word",
                "AWS_REGION": "us-east-1",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def store(
    server: Dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[fs.S3FileSystem]:
    """An empty bucket; copies of lakes go to a folder of the test."""
    for name, value in {**server, "XDG_CACHE_HOME": str(tmp_path / "copies")}.items():
        monkeypatch.setenv(name, value)
    store = fs.S3FileSystem(
        endpoint_override=server["AWS_ENDPOINT_URL"], allow_bucket_creation=True, allow_bucket_deletion=True
    )
    store.create_dir("bucket")
    yield store
    store.delete_dir("bucket")


def rows(*arguments: object) -> List[Dict[str, Any]]:
    done = called(*arguments, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_lake_in_a_bucket(few: Fleet, store: fs.S3FileSystem, tmp_path: pathlib.Path) -> None:
    """It is run, asked from another machine, made few files, and forgets, as one in a folder."""
    folder = tmp_path / "lake"
    for lake in (LAKE, folder):
        done = fleet("run", *few.paths[:2], "-o", lake, *few.options)
        assert done.returncode == 0, done.stderr
    done = fleet("run", *few.paths[:2], "-o", LAKE, *few.options)
    assert "2 images were done before" in done.stderr
    for requests in (["rare", "--max-hosts", "9"], ["sql", "SELECT * FROM traces ORDER BY ALL"]):
        command, *more = requests
        assert rows(command, LAKE, *more) == rows(command, folder, *more) != []
    shutil.rmtree(tmp_path / "copies")
    assert called("compact", LAKE).returncode == 0
    first, second = rows_of(2, (row["ImageId"] for row in rows("status", LAKE)))
    assert called("forget", LAKE, first).returncode == 0
    shutil.rmtree(tmp_path / "copies")
    assert [row["ImageId"] for row in rows("status", LAKE, "--verify")] == [second]
    kept = [entry.path for entry in store.get_file_info(fs.FileSelector("bucket/cases", recursive=True))]
    assert not [path for path in kept if first in path]


def test_of_two_that_write_one_is_refused(store: fs.S3FileSystem) -> None:
    with mirrored(LAKE, writes=True) as folder:
        fleetlakes.add(Lake(folder, create=True), "i1")
    with pytest.raises(LakeError, match="wrote to this lake"), mirrored(LAKE, writes=True) as folder:
        with mirrored(LAKE, writes=True) as other:
            fleetlakes.add(Lake(other), "i2")
        fleetlakes.add(Lake(folder), "i3")
    assert [row["ImageId"] for row in rows("status", LAKE)] == ["i1", "i2"]


def test_names_that_no_lake_has_are_not_fetched(store: fs.S3FileSystem, tmp_path: pathlib.Path) -> None:
    with mirrored(LAKE, writes=True) as folder:
        fleetlakes.add(Lake(folder, create=True), "i1")
    for name in ("tables/traces/../../../../x.parquet", "cache/pc/x", "tables/other/a.b.parquet", ".profile"):
        with store.open_output_stream(f"bucket/cases/lake/{name}") as stream:
            stream.write(b"planted")
    assert len(rows("status", LAKE)) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes() == b"planted"]


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, store: fs.S3FileSystem) -> None:
    done = called("status", "s3://nowhere/lake", seconds=120)
    assert done.returncode == 2
    assert "s3://nowhere/lake" in done.stderr
