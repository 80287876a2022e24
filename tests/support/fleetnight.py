# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images and lakes that several tests of stackfleet look at: fixtures."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import subprocess
from typing import Any, Callable, Dict, Optional, Set

import pytest

from stackfleet.lake import Lake
from tests.support import fleetlakes
from tests.support.fleetimages import GENERATIONS, PATCH_LEVELS, Fleet, Machine, new_fleet
from tests.support.fleetrun import fleet

IMAGES = int(os.environ.get("STACKFLEET_IMAGES", "24"))
"""How many images the large test has: `STACKFLEET_IMAGES=200 dev.py test tests/fleet/test_night.py`."""
OWN_STACKS = 50
GARBAGE = max(IMAGES // 40, 2)
HOSTILE = IMAGES * 3 // 20


@dataclasses.dataclass
class Night:
    """Images of a night, what was done with them, and where the tables went.

    `overwritten`: the hosts whose images are overwritten at random.
    """

    fleet: Fleet
    lake: pathlib.Path
    code: int
    stderr: str
    bad: Dict[str, pathlib.Path]
    planted: Machine
    overwritten: Set[str]


def machines(count: int) -> Dict[int, Machine]:
    """Most machines are of one generation, as in a company."""
    found = {}
    for number in range(count):
        generation = "win10-x64" if number % 2 else GENERATIONS[number // 2 % len(GENERATIONS)]
        patch = 0 if number % 3 else number % PATCH_LEVELS
        found[number] = Machine(
            number, generation, patch, number % 7, OWN_STACKS, planted=number == 1, paging=number
        )
    return found


def hostile(data: bytes, seed: int) -> bytes:
    """An image in which pages, and words of pages, are overwritten at random."""
    chance, changed = random.Random(seed), bytearray(data)
    for _ in range(60):
        place = chance.randrange(0x2000, len(changed) - 8)
        changed[place : place + 8] = chance.choice((bytes(8), b"\xff" * 8, chance.randbytes(8)))
    return bytes(changed)


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """The large run: all kinds of images, some of which cannot be read."""
    folder = tmp_path_factory.mktemp("fleet")
    images = new_fleet(folder / "images")
    known, overwritten = machines(IMAGES - GARBAGE - 2), set()
    for number, machine in known.items():
        path = images.add(machine)
        if 2 <= number < 2 + HOSTILE:
            path.write_bytes(hostile(path.read_bytes(), number))
            overwritten.add(machine.host)
    bad = {}
    for number in range(GARBAGE):
        bad[f"garbage{number}"] = random.Random(number).randbytes(1 << 18)
    bad.update(hangs=b"WAIT" + bytes(1 << 16), eats=b"EATS" + bytes(1 << 16))
    paths = {name: images.folder / f"{name}.raw" for name in bad}
    for name, data in bad.items():
        paths[name].write_bytes(data)
    images.ready()
    lake = folder / "lake"
    limits = ("--timeout", "40", "--memory", "600M", "--workers", "2", "--case", "night", "--note", "a test")
    done = fleet("run", *images.paths, *paths.values(), "-o", lake, *limits, *images.options, timeout=3600)
    return Night(images, lake, done.returncode, done.stderr, paths, known[1], overwritten)


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Three images that all can be read."""
    images = new_fleet(tmp_path_factory.mktemp("few") / "images")
    for number in range(3):
        images.add(Machine(number, own=3))
    images.ready()
    return images


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fresh(tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder of the lake of a test, which is not there yet."""
    return tmp_path / "lake"


@pytest.fixture
def new_lake(fresh: pathlib.Path) -> Lake:
    """A lake in that folder, which has no image yet."""
    return fleetlakes.new_lake(fresh)


@pytest.fixture(scope="module")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake for all tests of a module, which has no image yet."""
    return fleetlakes.new_lake(tmp_path_factory.mktemp("shared") / "lake")


@pytest.fixture
def run(few: Fleet, fresh: pathlib.Path) -> Run:
    """Reads images into that folder; see `fleet`, whose `code` is 0 here."""

    def run(*words: object, code: Optional[int] = 0, **more: Any) -> "subprocess.CompletedProcess[str]":
        return fleet("run", *words, "-o", fresh, *few.options, code=code, **more)

    return run
