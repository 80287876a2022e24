# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small kernel dumps: a plugin on one, and `stackfleet run` on a folder of them, with `stackfleet rare`.

Each dump has 160 drivers, a stack with 30 return addresses, and of each of these the code around it, as
Windows keeps it.
"""

from __future__ import annotations

import pathlib
import random
import statistics
import time
from functools import partial
from typing import List

from tests.forge.smalldump import Driver, SmallDump, context

from . import results
from .fleet import _run
from .images import Image
from .listing import cost
from .results import Line

DUMPS = 1000
_DRIVERS, _FRAMES, _SIZE = 160, 30, 0x80000
_KERNEL, _STACK = 0xFFFFF80312200000, 0xFFFFD00012340000
_CODES = (0xA, 0x1E, 0x3B, 0x50, 0x7E, 0xD1, 0x139)
_PLACES = 0x440, 0x5A8, 0x478
"""UniqueProcessId, ImageFileName and Cid of 19041."""
_AROUND = 0x80
_CALL = b"\xe8\0\0\0\0"
_WORKERS = 2
_OPENING = "minidump.opening"
_PLUGINS = ("minidump.info", "minidump.callstacks")
_PAIRS = 15


def dump(number: int) -> bytes:
    """Returns the dump of a machine; every tenth has a driver that no other has."""
    chance = random.Random(number)
    drivers = [Driver("\\SystemRoot\\system32\\ntoskrnl.exe", _KERNEL, 0x800000)]
    for place in range(1, _DRIVERS):
        base = _KERNEL + 0x1000000 + place * _SIZE
        name = f"own{number}.sys" if place == 1 and not number % 10 else f"driver{place}.sys"
        drivers.append(Driver(f"\\SystemRoot\\System32\\drivers\\{name}", base, _SIZE))
    dump, stack = SmallDump(), bytearray(0x1800)
    places = [drivers[1].base + 0x1234]
    for frame in range(_FRAMES):
        driver = drivers[chance.randrange(12)]
        places.append(driver.base + 0x1000 + 0x100 * chance.randrange(256) + 0x80)
        at = 0x40 + frame * 0xC0
        stack[at : at + 8] = places[-1].to_bytes(8, "little")
    code = _CODES[number % len(_CODES)]
    dump.crash(code, (number, 2, 0, places[0]), context(True, places[0], _STACK))
    dump.stack(_STACK, bytes(stack))
    dump.offsets.update(SizeEThread=0x900, SizeEProcess=0xC00)
    dump.thread(0xFFFFA00001234080, 0xFFFFA00001230080, _STACK + 0x1700, _STACK, 0, 0)
    dump.identify(_PLACES, 4000 + 4 * (number % 100), b"service.exe", 5000)
    dump.drivers(drivers)
    for place in sorted(set(places)):
        dump.block(place - _AROUND, bytes(_AROUND - len(_CALL)) + _CALL + bytes(_AROUND))
    return dump.file()


def one(folder: pathlib.Path) -> List[Line]:
    """Measures plugins on one dump against opening it: medians of the ratios of pairs that take turns."""
    file = folder / "one.dmp"
    file.write_bytes(dump(1))
    image = Image(file, folder, folder / "cache")
    works = [partial(cost, image, plugin, "none") for plugin in (_OPENING, *_PLUGINS)]
    turns = [[work().seconds for work in works] for _ in range(_PAIRS + 1)][1:]
    found = []
    for number, plugin in enumerate(_PLUGINS, 1):
        ratios = sorted(turn[number] / turn[0] for turn in turns)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {_PAIRS} pairs"
        what = f"`{plugin}`, a small kernel dump of {len(file.read_bytes()) >> 10} KB"
        found.append(
            Line(what, "opening it", statistics.median(ratios), 1.15, results.AT_MOST, f"median; {spread}")
        )
    return found


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures the run and the two questions."""
    dumps, lake = folder / "Minidump", folder / "lake"
    dumps.mkdir()
    for number in range(DUMPS):
        (dumps / f"{number:04}.dmp").write_bytes(dump(number))
    begin = time.monotonic()
    ran = _run("run", dumps, "-o", lake, "--workers", _WORKERS, "--offline")
    took, spent = time.monotonic() - begin, ran.cost.seconds
    unit = f"s of processors, {spent / DUMPS:.2f} s for each; {took:.0f} s of the clock"
    what = f"`stackfleet run`, {DUMPS:,} small kernel dumps, {_WORKERS} workers"
    lines = [Line(what, "seconds", spent, 1.0 * DUMPS, results.AT_MOST, unit)]
    for by in ("StackKey", "Driver", "BugCheck"):
        begin = time.monotonic()
        more = ["--partial"] if by == "StackKey" else []
        _run("rare", lake, "--by", by, "--max-hosts", DUMPS, *more, "--output", folder / by)
        took = time.monotonic() - begin
        unit = "s of the clock"
        lines.append(Line(f"`stackfleet rare --by {by}` on it", "seconds", took, 30, results.AT_MOST, unit))
    return lines
