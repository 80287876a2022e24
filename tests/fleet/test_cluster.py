# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs on a real `dask scheduler` with two `dask worker` processes, any of which may be killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from concurrent.futures import CancelledError
from typing import Dict, Iterator, List, Optional
from unittest import mock

import distributed
import psutil
import pytest

from stackfleet import engine
from tests.conftest import ROOT
from tests.support.fleetimages import Fleet, Machine, new_fleet
from tests.support.fleetrun import (
    COMMAND,
    ENDLESS,
    PATIENCE,
    children,
    environment,
    fleet,
    gone,
    kill,
    manifests,
    rows,
    started,
    wait,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals that Windows lacks")

SCHEDULER = (sys.executable, "-m", "distributed.cli.dask_scheduler")
WORKER = (sys.executable, "-m", "distributed.cli.dask_worker")
HERE = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
NUMBER = 6
TABLES = ("traces", "frames", "findings", "image", "trapframes", "waits", "modules", "modulesets")


class Cluster:
    """A scheduler and its workers."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._file = folder / "scheduler.json"
        self._log = (folder / "log").open("wb")
        options = ["--port", "0", *HERE, "--scheduler-file", str(self._file)]
        self.scheduler = self._start(SCHEDULER, options)
        wait(self._address)
        self.workers = [self.worker(), self.worker()]

    @property
    def address(self) -> str:
        return str(self._address())

    def worker(self, first_path: Optional[pathlib.Path] = None) -> "subprocess.Popen[bytes]":
        options = [self.address, "--nthreads", "1", *HERE, "--local-directory", str(self._folder)]
        return self._start(WORKER, options, first_path)

    def log_text(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def end(self) -> None:
        for process in (self.scheduler, *self.workers):
            kill(process.pid)
            process.wait()
        self._log.close()

    def _address(self) -> Optional[str]:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(self._file.read_text())["address"])
        return None

    def _start(
        self, command: "tuple[str, ...]", options: List[str], first_path: Optional[pathlib.Path] = None
    ) -> "subprocess.Popen[bytes]":
        known: Dict[str, str] = environment()
        if first_path is not None:
            known["PYTHONPATH"] = os.pathsep.join((str(first_path), known["PYTHONPATH"]))
        return subprocess.Popen(
            [*command, *options], env=known, cwd=self._folder, stdout=self._log, stderr=self._log
        )


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    new_cluster = Cluster(tmp_path)
    try:
        yield new_cluster
    finally:
        new_cluster.end()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    fleet_images = new_fleet(tmp_path_factory.mktemp("images") / "images")
    for number in range(NUMBER):
        fleet_images.add(Machine(number, own=5, paging=number))
    fleet_images.ready()
    return fleet_images


@pytest.fixture(scope="module")
def undisturbed(images: Fleet, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The lake of a run in which nothing happened."""
    lake = tmp_path_factory.mktemp("undisturbed") / "lake"
    fleet("run", *images.paths, "-o", lake, *images.options, code=0)
    return lake


def equal(lake: pathlib.Path, other: pathlib.Path) -> None:
    for table in TABLES:
        assert rows(lake, table) == rows(other, table), table


def begun(lake: pathlib.Path) -> bool:
    """Whether an image is in the lake."""
    return (lake / "_delta_log").is_dir() and bool(manifests(lake))


def killed_worker() -> bool:
    """Kills the worker that reads an image, if one is read; the process that reads it ends, too."""
    for pid in children():
        with contextlib.suppress(psutil.NoSuchProcess):
            worker = psutil.Process(pid).parent()
            if worker is not None:
                worker.kill()
                wait(gone(pid), PATIENCE)
                return True
    return False


def arguments(images: Fleet, lake: pathlib.Path, cluster: Cluster, *more: pathlib.Path) -> List[object]:
    return ["run", *images.paths, *more, "-o", lake, "--scheduler", cluster.address, *images.options]


def test_a_scheduler_without_workers_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A run there waits, and would say nothing."""
    empty = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=engine.LOOPBACK)
    with empty, engine.connected(empty.scheduler_address, 1):
        said = f"stackfleet: {empty.scheduler_address} has no workers: the images wait until one joins\n"
        assert capsys.readouterr().err == said


def test_a_killed_worker_costs_nothing(
    cluster: Cluster, images: Fleet, undisturbed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    lake = tmp_path / "lake"
    with started(*arguments(images, lake, cluster)) as client:
        wait(lambda: begun(lake) and killed_worker())
        assert client.wait(ENDLESS) == 0
    assert len(manifests(lake)) == NUMBER
    equal(lake, undisturbed)


@pytest.mark.parametrize("victim", ["scheduler", "client"])
def test_the_second_run_does_only_what_was_unfinished(
    victim: str, cluster: Cluster, images: Fleet, undisturbed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    lake = tmp_path / "lake"
    with started(*arguments(images, lake, cluster)) as client:
        wait(lambda: begun(lake) and children())
        (cluster.scheduler if victim == "scheduler" else client).send_signal(signal.SIGKILL)
        wait(lambda: not children(), PATIENCE)
        assert client.wait(ENDLESS) == (3 if victim == "scheduler" else -signal.SIGKILL)
    # A task whose process had ended may still be writing its manifest.
    for worker in cluster.workers:
        worker.terminate()
        worker.wait(ENDLESS)
    done = {name: manifest["attempt"] for name, manifest in manifests(lake).items()}
    assert 0 < len(done) < NUMBER
    again = fleet("run", *images.paths, "-o", lake, *images.options, code=0)
    number = "1 image was" if len(done) == 1 else f"{len(done)} images were"
    assert f"{number} done before" in again.stderr
    found = manifests(lake)
    assert len(found) == NUMBER
    assert {name: found[name]["attempt"] for name in done} == done
    equal(lake, undisturbed)


def other_version(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the package that says another version."""
    shutil.copytree(ROOT / "stackfleet", folder / "stackfleet", ignore=shutil.ignore_patterns("__pycache__"))
    module = folder / "stackfleet" / "__init__.py"
    module.write_text(module.read_text().replace('VERSION = "', 'VERSION = "99.'))
    return folder


def test_a_worker_of_another_version_is_refused_before_work(
    cluster: Cluster, images: Fleet, tmp_path: pathlib.Path
) -> None:
    cluster.workers.append(cluster.worker(other_version(tmp_path / "other")))
    wait(lambda: cluster.log_text().count("Registered to") == 3)
    done = fleet(*arguments(images, tmp_path / "lake", cluster), code=2)
    assert "worker tcp://127.0.0.1:" in done.stderr
    assert "stackfleet 99." in done.stderr
    assert not manifests(tmp_path / "lake")


def test_a_worker_of_another_version_that_joins_later_gets_no_work(
    cluster: Cluster, images: Fleet, tmp_path: pathlib.Path
) -> None:
    lake = tmp_path / "lake"
    for name in ("a", "b"):
        (tmp_path / f"{name}.raw").write_bytes(b"WAIT" + bytes(1 << 16))
    waiting = [tmp_path / "a.raw", tmp_path / "b.raw"]
    command = [*COMMAND, *map(str, [*arguments(images, lake, cluster, *waiting), "--timeout", "25"])]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True) as client:
        wait(lambda: begun(lake))
        late = cluster.worker(other_version(tmp_path / "other"))
        cluster.workers.append(late)
        late.wait(ENDLESS)
        _, errors = client.communicate(timeout=ENDLESS)
    assert client.returncode == 3
    assert "refused: worker tcp://127.0.0.1:" in errors
    assert "stackfleet 99." in errors
    found = manifests(lake)
    assert len(found) == NUMBER + 2
    assert not any(known["versions"]["stackfleet"].startswith("99.") for known in found.values())


def test_a_result_that_goes_with_its_scheduler_is_unfinished() -> None:
    future = mock.Mock(status="finished")
    future.result.side_effect = CancelledError()
    report = engine._ended(future, mock.Mock(path="/images/1.raw"), mock.Mock())
    assert (report["path"], report["status"]) == ("/images/1.raw", "unfinished")
