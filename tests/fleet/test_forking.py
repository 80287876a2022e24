# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process that forks readers of images: what is imported once, what it holds, and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import IO, Any, Dict, Iterator, List, Tuple

import psutil
import pytest

from stackfleet import child_process, forking
from stackfleet.child_process import ChildProcess
from stackfleet.job import Reading
from tests.fleet.test_smalldumps import DRIVER, dump
from tests.forge import vol
from tests.support.fleetimages import options_for
from tests.support.fleetrun import HOOKS, PATIENCE, called, fleet, gone, manifests, wait
from tests.support.only import only

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not forking.can_fork(), reason="processes are not forked here"),
]

STARTS = """
import os
with open(os.environ["STARTS"], "a") as file:
    file.write(f"{os.getpid()}\\n")
"""


@pytest.fixture
def dumps(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of small dumps."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.dmp").write_bytes(dump(0xD1, "common.sys", DRIVER + number))
    return folder


@pytest.fixture
def options(tmp_path: pathlib.Path) -> Tuple[str, ...]:
    return options_for(tmp_path)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[forking.Readers]:
    """The object that forks, for this test alone."""
    own = forking.Readers()
    monkeypatch.setattr(child_process, "READERS", own)
    yield own
    own.close()


@pytest.fixture
def log() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


@pytest.fixture
def job(dumps: pathlib.Path, options: Tuple[str, ...], readers: forking.Readers) -> Dict[str, Any]:
    reading = Reading(cache_path=str(dumps.parent / "cache"), offline=True)
    (dumps.parent / "tables").mkdir()
    paths = {"path": str(dumps / "0.dmp"), "folder": str(dumps.parent / "tables")}
    return {**paths, "lake": str(dumps.parent / "lake"), "reading": dataclasses.asdict(reading)}


def read(process: ChildProcess, job: Dict[str, Any]) -> Dict[str, Any]:
    """Has a process read its image; returns its last message."""
    process.send(job)
    while True:
        message = process.hear(PATIENCE * 4)
        assert message is not None
        if "identified" in message:
            process.send({"image_id": message["identified"]["image_id"]})
        elif "rows" not in message:
            return message


def warm() -> List[psutil.Process]:
    """The processes of this one that fork readers."""
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and child_process.WARM in process.cmdline():
                found.append(process)
    return found


def test_python_starts_as_often_for_one_image_as_for_many(
    dumps: pathlib.Path, options: Tuple[str, ...]
) -> None:
    """The program, its check of the plugins, and the process that forks: none for an image."""
    hooks, starts = dumps.parent / "hooks", []
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(STARTS, encoding="utf-8")
    for count in (1, 4):
        file = dumps.parent / f"starts{count}"
        variables = {"STARTS": str(file), "PYTHONPATH": f"{hooks}{os.pathsep}{vol.REPOSITORY}"}
        images = sorted(dumps.iterdir())[:count]
        lake = dumps.parent / f"lake{count}"
        fleet("run", *images, "-o", lake, *options, "--workers", 2, variables=variables, code=0)
        assert len(manifests(lake)) == count
        starts.append(len(set(file.read_text().split())))
    assert starts == [3, 3]


def test_it_has_one_thread_and_no_file_and_a_reader_has_its_own_alone(
    job: Dict[str, Any], log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HOOKS}{os.pathsep}{vol.REPOSITORY}")
    folder = pathlib.Path(job["path"]).parent
    paths = [folder / f"waits{number}.raw" for number in range(2)]
    with contextlib.ExitStack() as contexts:
        pids = []
        for path in paths:
            path.write_bytes(b"WAIT" + bytes(1 << 16))
            process = contexts.enter_context(ChildProcess(log, job=job))
            process.send({**job, "path": str(path)})
            pids.append(only(process._known).pid)
        wait(lambda: all(str(path) in opened(pid) for pid, path in zip(pids, paths)), PATIENCE)
        assert str(paths[1]) not in opened(pids[0])
        assert str(paths[0]) not in opened(pids[1])
        forker = only(warm())
        assert forker.num_threads() == 1
        # libffi 3.5 keeps the file of its own code open.
        libraries = {region.path for region in forker.memory_maps()}
        assert {file.path for file in forker.open_files()} <= libraries
        assert {psutil.Process(pid).ppid() for pid in pids} == {forker.pid}
        # A session of its own: a signal to the group of one ends no other.
        assert [os.getsid(pid) for pid in pids] == pids
        held = [pipes(pid) for pid in (*pids, forker.pid)]
        assert all(held)
        assert sum(map(len, held)) == len(frozenset().union(*held))
    assert all(gone(pid)() for pid in pids)


def opened(pid: int) -> List[str]:
    return [file.path for file in psutil.Process(pid).open_files()]


def pipes(pid: int) -> "frozenset[str]":
    """The pipes and sockets of a process."""
    folder = f"/proc/{pid}/fd"
    links = [os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)]
    return frozenset(link for link in links if link.startswith(("pipe:", "socket:")))


def test_exit_codes(job: Dict[str, Any], log: IO[bytes]) -> None:
    with ChildProcess(log, job=job) as process:
        assert read(process, job)["done"]["tables"]["traces"]["rows"] == 1
        assert process.end(PATIENCE) == "0"
    with ChildProcess(log, job=job) as process:
        assert process.end() == "signal 9"
    with ChildProcess(log, job=job) as process:
        process.send({"no": "job"})
        assert process.hear(PATIENCE) == {"ended": True}
        assert process.end(PATIENCE) == "1"
    assert "KeyError" in child_process.tail(log)


def test_it_is_replaced_when_it_was_killed(job: Dict[str, Any], log: IO[bytes]) -> None:
    with ChildProcess(log, job=job) as process:
        first, reader = only(warm()), only(process._known)
        first.kill()
        assert process.hear(PATIENCE) == {"ended": True}
        assert process.end(PATIENCE) == "signal 9"
        wait(gone(reader.pid), PATIENCE)
    wait(lambda: not warm(), PATIENCE)
    # The first reader may find a process that is just ending, and is started then in the other way.
    for _ in range(2):
        with ChildProcess(log, job=job) as process:
            assert "done" in read(process, job)
    assert only(warm()).pid != first.pid


def test_it_ends_when_nobody_asks_for_a_reader(job: Dict[str, Any], log: IO[bytes]) -> None:
    with ChildProcess(log, job=job) as process:
        first = only(warm())
        assert "done" in read(process, job)
        assert not gone(first.pid)()
    wait(gone(first.pid), PATIENCE)
    with ChildProcess(log, job=job) as process:
        assert "done" in read(process, job)
        assert only(warm()).pid != first.pid


def test_other_options_have_another_process(
    job: Dict[str, Any], log: IO[bytes], readers: forking.Readers
) -> None:
    other = {**job, "reading": {**job["reading"], "carve": True}}
    with ChildProcess(log, job=job) as first:
        earlier = only(warm())
        with ChildProcess(log, job=other) as second:
            assert len(warm()) == 2
            # The earlier one has still a reader, whose end ends it, too.
            assert "done" in read(first, job)
            assert "done" in read(second, other)
        first.end(PATIENCE)
        wait(gone(earlier.pid), PATIENCE)
    readers.close()
    wait(lambda: not warm(), PATIENCE)


def test_where_it_cannot_fork_a_reader_is_started(
    job: Dict[str, Any], log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "WARM", "stackfleet.absent")
    for _ in range(2):
        with ChildProcess(log, job=job) as process:
            assert "done" in read(process, job)
            assert only(process._known).ppid() == os.getpid()
    assert not warm()


@pytest.mark.parametrize("forked", [True, False])
def test_a_thread_forbids_it(
    forked: bool, job: Dict[str, Any], log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = pathlib.Path(job["folder"]).parent / "hooks"
    hooks.mkdir()
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    (hooks / "sitecustomize.py").write_text("" if forked else text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{hooks}{os.pathsep}{vol.REPOSITORY}")
    with ChildProcess(log, job=job) as process:
        assert (only(process._known).ppid() != os.getpid()) == forked


def test_the_rows_are_the_same(
    dumps: pathlib.Path, options: Tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for forks in (True, False):
        monkeypatch.setattr(forking, "can_fork", lambda forks=forks: forks)
        lake = dumps.parent / f"lake-{forks}"
        called("run", dumps, "-o", lake, *options, "--workers", 2, code=0)
        found.append({name: manifest["tables"] for name, manifest in manifests(lake).items()})
        assert not warm()
    assert len(found[0]) == 4
    assert found[0] == found[1]


def test_what_reads_an_image_does_not_import_pandas(
    job: Dict[str, Any], log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyArrow imports it for the first array, if it is installed: a third of what a small dump takes."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    monkeypatch.setattr(child_process, "MOST_LOG", 1 << 20)
    with ChildProcess(log) as process:
        assert read(process, job)["done"]["tables"]["traces"]["rows"] == 1
        process.end(PATIENCE)
    imported = {line.rpartition("|")[2].strip() for line in child_process.tail(log).splitlines()}
    assert "pyarrow.lib" in imported
    assert not [name for name in imported if name.startswith("pandas.")]


def test_it_ends_with_its_parent(job: Dict[str, Any]) -> None:
    program = (
        "import sys, time, json, tempfile\n"
        "from stackfleet.child_process import ChildProcess\n"
        "job = json.loads(sys.argv[1])\n"
        "process = ChildProcess(tempfile.TemporaryFile(), job=job)\n"
        "print(process._known[0].pid, process._known[0].ppid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(job)],
        cwd=vol.REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        members = [psutil.Process(int(word)) for word in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    for member in members:
        wait(gone(member.pid), PATIENCE)
