# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""--workers on the real command line: bytes of output, messages and pages, and Ctrl-C."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import List, Tuple

import pytest

from tests.forge import sample, vol
from winstacks.memory.workers import can_fork

pytestmark = [
    pytest.mark.cli,
    pytest.mark.once,
    pytest.mark.skipif(not can_fork(), reason="this system does not fork"),
]

_MADE = re.compile(r'\["(Command line|Report made)",[^\]]*\]')
_SLEEPING = """
import os, runpy, sys, time

fork = os.fork

def endless(*_):
    print("begun", flush=True)
    time.sleep(3600)
    yield

def forked():
    pid = fork()
    if not pid:
        sys.modules["winstacks.stacklist.traces"].StackCollector.stacks_of = endless
    return pid

os.fork = forked
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A `vol` whose workers never end."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Tuple[pathlib.Path, pathlib.Path]:
    """The sample's image, and the folder of its symbols."""
    folder = tmp_path_factory.mktemp("workers")
    made = sample.build().image()
    return made.save(folder / "image.raw"), made.install(folder / "symbols")


@pytest.mark.parametrize(
    ("plugin", "options"),
    [
        ("windows.tracereport", []),
        ("windows.tracegraph", ["--format", "html"]),
        ("windows.waits", []),
        ("windows.trapframes", []),
    ],
)
def test_bytes_are_those_of_one_process(
    plugin: str, options: List[str], image: Tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    printed = []
    for workers in (1, 2, 8):
        folder = tmp_path / str(workers)
        folder.mkdir()
        done = vol.run(
            image[0],
            plugin,
            *options,
            "--workers",
            str(workers),
            symbols=image[1],
            renderer="jsonl",
            arguments=["-o", str(folder)],
        )
        pages = [_MADE.sub("", path.read_text(encoding="utf-8")) for path in folder.iterdir()]
        printed.append((done.returncode, done.stdout, done.stderr, pages))
    assert printed[0][0] == 0
    assert printed[0][1]
    assert printed[1:] == printed[:1] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_ctrl_c_ends_all(image: Tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path) -> None:
    command, environment = vol.prepare(
        image[0], "windows.tracereport", "--workers", "2", symbols=image[1], arguments=["-o", str(tmp_path)]
    )
    command = [command[0], "-c", _SLEEPING, *command[1:]]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    ) as first:
        assert first.stdout is not None
        for _ in range(2):
            while first.stdout.readline().strip() != b"begun":
                assert first.poll() is None
        os.killpg(first.pid, signal.SIGINT)
        assert first.wait(300) != 0
        for _ in range(1200):
            if not _group(first.pid):
                break
            time.sleep(0.05)
        assert not _group(first.pid)
    assert not list(tmp_path.glob("*.html"))


def _group(leader: int) -> List[int]:
    """The processes of a group that have not ended."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            content = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        state, _, group = content.rpartition(")")[2].split()[:3]
        if int(group) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found
