# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Work that forked processes do: results in order, ended workers, limits, and bytes that are right."""

from __future__ import annotations

import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import time
from typing import Any, Iterator, List, Tuple

import pytest
from volatility3.framework import contexts, interfaces
from volatility3.framework.layers import physical

from winstacks.memory import workers as workers_module
from winstacks.memory.reopening import reopen_files, unknown_layers
from winstacks.memory.workers import Ended, Workers, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not fork")

ROOT = pathlib.Path(__file__).resolve().parents[3]
READS = 60_000


def _nothing() -> None:
    pass


def _two(number: int) -> Iterator[object]:
    yield number, "first"
    yield number, "second"


@pytest.mark.parametrize("count", [1, 2, 8])
def test_results_come_in_order(count: int) -> None:
    def work(number: int) -> Iterator[object]:
        if number == 0:
            # The others overtake the first portion.
            time.sleep(0.2)
        return _two(number)

    found = list(Workers(_nothing, work, count).results(50))
    assert found == [(number, (number, word)) for number in range(50) for word in ("first", "second")]
    assert list(Workers(_nothing, work, count).results(0)) == []


def test_each_worker_takes_portions_of_its_own() -> None:
    """Of two workers one is held by its first portion until the other has done the rest."""
    read, write = os.pipe()

    def work(number: int) -> Iterator[object]:
        if number == 0:
            select.select([read], [], [], 300)
        yield os.getpid()
        if number == 19:
            os.write(write, b"done")

    pids = [pid for _, pid in Workers(_nothing, work, 2).results(20)]
    os.close(read)
    os.close(write)
    assert os.getpid() not in pids
    assert pids.count(pids[0]) == 1
    assert len(set(pids)) == 2


def test_more_portions_than_a_pipe_holds() -> None:
    found = list(Workers(_nothing, lambda number: iter((number,)), 2).results(20_000))
    assert found == [(number, number) for number in range(20_000)]


def test_results_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second worker stops when so many bytes wait for their turn, and ends its work later."""
    monkeypatch.setattr(workers_module, "MOST_KEPT", 1 << 16)
    size, most = 1 << 12, []

    def work(number: int) -> Iterator[object]:
        if number == 0:
            time.sleep(0.5)
        for _ in range(200):
            yield bytes(size)

    workers = Workers(_nothing, work, 2)
    for _ in workers.results(4):
        most.append(workers._bytes)
    assert len(most) == 800
    assert max(most) < 2 * (1 << 16)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_worker_that_is_killed_costs_its_portion(count: int) -> None:
    def work(number: int) -> Iterator[object]:
        yield "before"
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield "after"

    found: List[Tuple[int, object]] = list(Workers(_nothing, work, count).results(9))
    lost = [(number, result) for number, result in found if isinstance(result, Ended)]
    assert lost == [(3, Ended("signal 9"))]
    expected: List[Tuple[int, object]] = [
        (number, word) for number in range(9) for word in ("before", "after")
    ]
    expected[expected.index((3, "after"))] = (3, Ended("signal 9"))
    assert found == expected


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_portion_that_a_worker_took_in_silence_is_lost(count: int) -> None:
    """The worker ends between taking the number and saying so."""
    read = os.read

    def dying(descriptor: int, size: int) -> bytes:
        taken = read(descriptor, size)
        if taken == (2).to_bytes(4, "little"):
            os._exit(1)
        return taken

    def prepare() -> None:
        # In the worker only.
        os.read = dying

    found = list(Workers(prepare, lambda number: iter((number,)), count).results(5))
    expected = [(number, number) for number in range(5)]
    assert found == [*expected[:2], (2, Ended("it ended at once")), *expected[3:]]


def test_a_worker_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    def work(number: int) -> Iterator[object]:
        yield 1 // (number - 1)

    found = list(Workers(_nothing, work, 1).results(3))
    assert found == [(0, -1), (1, Ended("exit code 1")), (2, 1)]
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_an_error_that_the_user_sees_is_raised_here() -> None:
    def work(number: int) -> Iterator[object]:
        yield number
        raise KeyError("word")

    with pytest.raises(KeyError, match="word"):
        list(Workers(_nothing, work, 2, raised=(KeyError,)).results(2))


def test_a_portion_has_its_share_of_memory() -> None:
    def work(number: int) -> Iterator[object]:
        yield len(bytearray(1 << 30 if number == 1 else 1 << 10))

    found = list(Workers(_nothing, work, 2, share=256 << 20).results(3))
    assert found[0] == (0, 1 << 10)
    assert found[2] == (2, 1 << 10)
    assert isinstance(found[1][1], Ended)
    assert "256 MiB" in found[1][1].reason


def _alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


_ENDLESS = """
import os, sys, time
from winstacks.memory.workers import Workers

def work(number):
    yield os.getpid()
    while True:
        time.sleep(0.01)

for _, pid in Workers(lambda: None, work, 2).results(2):
    print(pid, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_first_process(number: signal.Signals) -> None:
    """Ctrl-C reaches all processes of the group; the other signals only the first."""
    command = [sys.executable, "-c", _ENDLESS]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, start_new_session=True
    ) as first:
        assert first.stdout is not None
        seen = int(first.stdout.readline())
        group = [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdecimal()]
        group = [pid for pid in group if pid != first.pid and _group(pid) == first.pid]
        assert seen in group
        assert len(group) == 2
        if number == signal.SIGINT:
            os.killpg(first.pid, number)
        else:
            first.send_signal(number)
        assert first.wait(300) != 0
        # The kernel has sent the signal; a busy machine may need a moment to deliver it.
        for _ in range(1200):
            if not any(map(_alive, group)):
                break
            time.sleep(0.05)
        assert not any(map(_alive, group))


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _context(path: pathlib.Path) -> Any:
    context = contexts.Context()
    context.config["file.location"] = path.as_uri()
    context.add_layer(physical.FileLayer(context, "file", "file"))
    return context


def test_the_bytes_of_workers_are_those_of_one_process(tmp_path: pathlib.Path) -> None:
    """Two processes read the same file at the same time, as often as showed wrong bytes before."""
    path = tmp_path / "image"
    path.write_bytes(random.Random(5).randbytes(1 << 22))
    context = _context(path)
    layer = context.layers["file"]
    content = path.read_bytes()
    offsets = random.Random(6)
    places = [(offsets.randrange((1 << 22) - 4096), offsets.randrange(1, 4096)) for _ in range(READS)]
    assert layer.read(0, 16) == content[:16]

    def work(number: int) -> Iterator[object]:
        # Both workers read at once: each does one half.
        yield sum(
            layer.read(offset, length) != content[offset : offset + length]
            for offset, length in places[number::2]
        )

    workers = Workers(lambda: reopen_files(context), work, 2)
    assert list(workers.results(2)) == [(0, 0), (1, 0)]
    assert layer.read(16, 16) == content[16:32]


class _Device(interfaces.layers.DataLayerInterface):
    """A layer that holds something that is no file."""

    maximum_address = minimum_address = 0

    def is_valid(self, offset: int, length: int = 1) -> bool:
        return False

    def read(self, offset: int, length: int, pad: bool = False) -> bytes:
        return b""

    def write(self, offset: int, data: bytes) -> None:
        pass


def test_a_layer_that_cannot_be_opened_again_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(bytes(16))
    context = _context(path)
    assert unknown_layers(context) == ""
    context.add_layer(_Device(context, "device", "device"))
    assert unknown_layers(context) == "device"
