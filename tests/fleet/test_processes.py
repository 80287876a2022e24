# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""No process that reads an image outlives who wanted it: the process table is looked at."""

from __future__ import annotations

import os
import pathlib
import signal
from typing import Iterator, Tuple

import psutil
import pytest

from stackfleet.child_process import PROGRAM
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import PATIENCE, children, fleet, kill, manifests, started, wait

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(os.name == "nt", reason="sends signals that Windows lacks"),
]


@pytest.fixture(params=["WAIT", "HANG"])
def stuck(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[Tuple[pathlib.Path, pathlib.Path]]:
    """An image that keeps its process busy for hours, and a lake."""
    assert not children()
    image = tmp_path / "stuck.raw"
    image.write_bytes(request.param.encode() + bytes(1 << 16))
    yield image, tmp_path / "lake"
    for pid in children():
        kill(pid)


def gone() -> None:
    wait(lambda: not children(), PATIENCE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_the_program_is_ended(number: int, stuck: Tuple[pathlib.Path, pathlib.Path], few: Fleet) -> None:
    image, lake = stuck
    with started("run", image, "-o", lake, *few.options) as process:
        wait(lambda: reading(image))
        process.send_signal(number)
        gone()
        process.wait(PATIENCE)
    if number == signal.SIGINT:
        assert process.returncode == 130
    assert not manifests(lake)


def test_a_timeout(stuck: Tuple[pathlib.Path, pathlib.Path], few: Fleet) -> None:
    image, lake = stuck
    fleet("run", image, "-o", lake, "--timeout", "3", *few.options, code=3)
    assert not children()
    found = manifests(lake)["stuck.raw"]
    assert found["exit"] == "signal 9"
    assert 3 <= found["seconds"] < 3 + PATIENCE


def reading(image: pathlib.Path) -> bool:
    """Whether a process has opened the image."""
    for pid in children():
        try:
            process = psutil.Process(pid)
            if PROGRAM in process.cmdline() and str(image) in {file.path for file in process.open_files()}:
                return True
        except psutil.Error:
            continue
    return False
