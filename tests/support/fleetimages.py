# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small images of many machines: generations, patch levels, stacks of their own, damage.

A machine has a kernel database with stacks that all machines of its kind have, and with some through a driver
that no other machine has in this version.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
from typing import Dict, List, Optional, Tuple

from tests.forge import kernels, vol
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.std import Std
from tests.support.environments import system_process

GENERATIONS = ("xp-x86", "win7-x86", "win7-x64", "win10-x86", "win10-x64", "win11-x64")
_DATABASES = {"xp-x86": "5.1"}
PATCH_LEVELS = 5

DRIVERS = ("disk.sys", "volmgr.sys", "tcpip.sys", "afd.sys")
_FUNCTIONS = 40
_FUNCTION = 0x40
_FIRST = 0x1000
COMMON = 30
"""Stacks that all machines of a generation and patch level have."""

PLANTED = "planted.exe"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine at one time.

    Attributes:
        number: its name is made of it
        generation: of GENERATIONS
        patch: its patch level
        boot: where things are loaded
        own: how many stacks only it has
        planted: whether code outside all modules has left a stack
        paging: a seed for what is paged out; None for nothing
    """

    number: int
    generation: str = "win10-x64"
    patch: int = 0
    boot: int = 0
    own: int = 0
    planted: bool = False
    paging: Optional[int] = None

    @property
    def host(self) -> str:
        return f"PC-{self.number:03}"


def forge(machine: Machine) -> Kernel:
    """Builds a machine."""
    known = kernels.load(machine.generation)
    options = known.options()
    wide = known.arch == "x64"
    options["base"] += machine.boot * 0x200000
    kernel = Kernel(known.table, **{**options, "nt_global_flag": 0x2000})
    step = 0x100000 * machine.boot
    kernel._driver_arena += step
    # A patch changes two drivers at a time.
    stamps = [0x60000000 + (machine.patch if number < 2 else 0) for number in range(len(DRIVERS))]
    drivers = [_driver(kernel, name, stamp) for name, stamp in zip(DRIVERS, stamps)]
    own = _driver(kernel, f"oem{machine.number}.sys", 0x70000000 + machine.number)
    system_process(kernel, "services.exe", pid=600, computer=machine.host)
    chance = random.Random(machine.generation)
    sites = [driver.base + site for driver in drivers for site in _sites()]
    nt = [kernel.symbol(name) + 0x10 for name in ("NtCreateFile", "IopParseDevice", "ExpWorkerThread")]
    traces = [[*chance.sample(sites, 6), *chance.sample(nt, 2)] for _ in range(COMMON)]
    mine = random.Random(machine.number)
    for _ in range(machine.own):
        inner = [own.base + site for site in mine.sample(_sites(), 3)]
        traces.append([*inner, *mine.sample(sites, 3), nt[0]])
    if machine.planted:
        hidden = 0xFFFFAB8009991000 if wide else 0x99991000
        traces.append([hidden + 0x88, *nt])
    _database(kernel, _DATABASES.get(machine.generation, "6.1"), traces)
    if machine.paging is not None:
        _page_out(kernel, drivers, random.Random(machine.paging))
    return kernel


def _driver(kernel: Kernel, name: str, stamp: int) -> Module:
    exports = {f"Function{number:02}": site - 0x10 for number, site in enumerate(_sites())}
    return kernel.module(name, exports=exports, timestamp=stamp)


def _sites() -> List[int]:
    return [_FIRST + number * _FUNCTION + 0x10 for number in range(_FUNCTIONS)]


def _database(kernel: Kernel, generation: str, traces: List[List[int]]) -> None:
    arch = "x64" if kernel.bits == 64 else "x86"
    base = kernel.space.reserve(0x210000) + 0xFFFF & ~0xFFFF
    std = Std(generation, arch, base, kernel=True, reserve=0x80000)
    for trace in traces:
        std.log(trace)
    for address, data in std.regions().items():
        kernel.space.write(address, data)
    assert kernel.set("RtlpStackTraceDatabase", base) or kernel.set("RtlpStackTraceDataBase", base)


def _page_out(kernel: Kernel, drivers: List[Module], chance: random.Random) -> None:
    """Takes pages away from drivers: their headers, and what exports they have."""
    for driver in drivers:
        if chance.random() < 0.5:
            page = driver.base + 0x1000 * chance.randrange(2)
            kernel.space.set_state(page, 0x1000, State.PAGEFILE)


@dataclasses.dataclass
class Fleet:
    """Images in a folder, and what Volatility needs to read them.

    Attributes:
        folder: where they are
        images: by machine
    """

    folder: pathlib.Path
    images: Dict[Machine, pathlib.Path] = dataclasses.field(default_factory=dict)

    @property
    def symbols(self) -> pathlib.Path:
        return self.folder / "symbols"

    @property
    def options(self) -> Tuple[str, ...]:
        """The options of `stackfleet run` that name it."""
        cache = self.folder / "cache"
        return "--symbol-dirs", str(self.symbols), "--cache-path", str(cache), "--offline"

    @property
    def paths(self) -> List[str]:
        return [str(path) for path in self.images.values()]

    def add(self, machine: Machine, name: str = "") -> pathlib.Path:
        """Builds a machine, and saves its image."""
        return self.add_image(forge(machine).image(), name or f"{machine.host}-{machine.boot}", machine)

    def add_image(self, image: Image, name: str, machine: Optional[Machine] = None) -> pathlib.Path:
        """Saves an image."""
        image.install(self.symbols)
        path = image.save(self.folder / f"{name}.dmp")
        if machine is not None:
            self.images[machine] = path
        return path

    def ready(self) -> None:
        """Spares Volatility the check of the tables, which takes seconds."""
        vol.trust(self.symbols, self.folder / "cache")


def new_fleet(folder: pathlib.Path) -> Fleet:
    """Returns a fleet without images."""
    (folder / "symbols").mkdir(parents=True)
    return Fleet(folder)


def options_for(folder: pathlib.Path, *images: Image) -> Tuple[str, ...]:
    """The options of `stackfleet run` for images, with their tables in a folder."""
    fleet = new_fleet(folder)
    for image in images:
        image.install(fleet.symbols)
    fleet.ready()
    return fleet.options
