# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forged machine of the benchmarks, small: Volatility and the plugins find in it what was put there."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Tuple

import pytest

from benchmarks import machine
from benchmarks.images import Image
from benchmarks.machine import Machine
from tests.forge import vol

SCALE = 0.01

MachineImage = Tuple[Machine, Image]


@pytest.fixture(scope="module")
def machine_image(tmp_path_factory: pytest.TempPathFactory) -> MachineImage:
    return machine.make(tmp_path_factory.mktemp("machine"), SCALE, dump=True)


def _run(image: Image, plugin: str, *options: str, dump: bool = False) -> List[vol.Row]:
    file = image.file.with_name(machine.DUMP) if dump else image.file
    return vol.run(file, plugin, *options, symbols=image.symbols, cache=image.cache, timeout=600).rows


def test_processes_and_modules_are_those_that_were_forged(machine_image: MachineImage) -> None:
    size, image = machine_image[0].size, machine_image[1]
    modules = Counter(row["PID"] for row in _run(image, "windows.dlllist"))
    assert modules == {process.pid: size.modules for process in machine_image[0].processes}
    assert len(modules) == size.processes


def test_frames_are_those_that_were_forged(machine_image: MachineImage) -> None:
    """All frames of every thread whose stacks are in memory are found; of others Status tells."""
    forged, image = machine_image
    found: Dict[int, List[int]] = {}
    doubted = set()
    for row in _run(image, "windows.callstacks"):
        frames = [frame["Address"] for frame in row["__children"]]
        # The kernel's part comes first, and each part's innermost frame.
        found[row["TID"]] = frames[::-1] + found.get(row["TID"], [])
        doubted |= {row["TID"]} if row["Status"] else set()
    mask = (1 << 48) - 1
    expected = {tid: [address & mask for address in frames] for tid, frames in forged.frames.items()}
    assert {tid: found[tid] for tid in expected} == expected
    assert all(len(frames) == machine.FRAMES for frames in expected.values())
    assert len(found) == forged.size.threads
    assert doubted == {thread.tid for thread in forged.listed} - set(expected)


def test_the_crash_dump_holds_the_same(machine_image: MachineImage) -> None:
    raw, dump = (_run(machine_image[1], "windows.callstacks", "--fold", dump=dump) for dump in (False, True))
    assert raw == dump
