# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The package beside the plugins: what it imports, what is missing, what listens, which files are equal."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import psutil
import pytest

from stackfleet import provenance, task
from stackfleet.engine import connected
from stackfleet.job import Job, Reading
from stackfleet.joining import Joining
from stackfleet.versions import differences, of_packages
from tests.conftest import ROOT
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import environment, fleet

pytestmark = pytest.mark.once


def test_a_module_is_no_longer_than_a_subject() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "stackfleet").glob("*.py")}
    assert sources and not [name for name, text in sources.items() if text.count("\n") > 450]


def test_no_plugin_imports_it() -> None:
    plugins = (ROOT / "volatility3_plugins").rglob("*.py")
    assert not [path for path in plugins if "stackfleet" in path.read_text(encoding="utf-8")]


def test_without_its_extra_it_says_what_is_missing() -> None:
    command = [sys.executable, "-S", "-m", "stackfleet", "status", "lake"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "stackfleet needs deltalake, distributed, duckdb" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lake_needs_no_numpy(few: Fleet, tmp_path: pathlib.Path) -> None:
    """The extra does not install it, and Arrow no longer brings it."""
    tmp_path.joinpath("numpy.py").write_text("raise ImportError('there is no NumPy')\n")
    path = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    for command in (["run", few.paths[0], *few.options, "-o"], ["status", "--verify"]):
        done = fleet(*command, tmp_path / "lake", variables={"PYTHONPATH": path})
        assert done.returncode == 0, done.stdout + done.stderr


def listening() -> set[tuple[str, int]]:
    """Returns the addresses at which this process waits for connections."""
    mine = [connection for connection in psutil.net_connections("inet") if connection.pid == os.getpid()]
    return {
        (connection.laddr[0], connection.laddr[1]) for connection in mine if connection.status == "LISTEN"
    }


def test_nothing_listens_but_to_this_machine() -> None:
    before = listening()
    with connected(None, 1):
        here = listening()
    assert {host for host, _ in here - before} <= {"127.0.0.1"}


def test_other_versions_are_named() -> None:
    mine = of_packages()
    assert differences(mine, mine) == []
    assert differences(mine, {**mine, "pyarrow": "1"}) == [f"pyarrow 1 instead of {mine['pyarrow']}"]
    assert "dask is missing" in differences(mine, {k: v for k, v in mine.items() if k != "dask"})[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: None, ""),
        (
            lambda path: path.write_bytes(b"longer" * 100000),
            "600000 bytes, but 100000 at the start of the run",
        ),
        (lambda path: path.write_bytes(bytes(99999) + b"x"), "other content"),
        (lambda path: path.unlink(), "cannot be read: "),
    ],
)
def test_a_path_that_leads_to_another_file_is_named(
    change: object, message: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "a.raw"
    path.write_bytes(bytes(100000))
    seen = provenance.probe(str(path))
    change(path)  # type: ignore[operator]
    assert message in provenance.difference(str(path), 100000, seen)
    assert (task.named("inproc://10.0.0.2/7/4"), task.named("tcp://a:8786")) == ("", "worker tcp://a:8786: ")
    job = Job(str(path), 100000, 0, seen, str(tmp_path), Reading())
    joining = Joining(Reading(), of_packages(), [job] * 9, "topic")
    assert bool(message) == ("and 6 more paths" in joining._describe_files())
