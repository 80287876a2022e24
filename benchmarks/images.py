# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The images that are measured: forged, raw, each with a symbol directory and a cache of its own."""

from __future__ import annotations

import functools
import pathlib
import random
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from tests.forge import dump, kernels, std_bytes, vol
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.pe import Function
from tests.forge.process import Process
from tests.forge.std import Std

DEPTH = 16
DATABASE = 0x1D2A0000000
PID = 1000
GLOBAL_FLAG = 0x1000
"""+ust: the process keeps a database."""

DRIVERS = 150
DLLS = 30
FUNCTIONS = 500
POINTER_RVA = 0x40
"""Where in ntdll's .data the pointer to the database is."""

FUNCTION_SIZE = 0x80
_CALL_SITE = 0x1D
_UNWIND = b"\x01\0\0\0"


class Image(NamedTuple):
    """An image file and what Volatility needs to open it."""

    file: pathlib.Path
    symbols: pathlib.Path
    cache: pathlib.Path


def save(kernel: Kernel, folder: pathlib.Path, name: str) -> Image:
    """Makes the image of a kernel and writes it into `folder/name`, beside its symbols."""
    return save_image(kernel.image(), folder, name)


def save_image(image: dump.Image, folder: pathlib.Path, name: str) -> Image:
    """Writes a finished image."""
    home = folder / name
    home.mkdir(parents=True)
    found = Image(image.save(home / "image.raw"), image.install(home / "symbols"), home / "cache")
    vol.trust(found.symbols, found.cache)
    return found


def new_kernel(drivers: int = DRIVERS, shuffle: Optional[int] = None) -> Kernel:
    """A Windows 10 with as many drivers as a real one has."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **{**known.options(), "shuffle": shuffle})
    for number in range(drivers):
        kernel.module(f"driver{number:03}.sys", **module_options(8))
    return kernel


def modules(process: Process, dlls: int = DLLS, functions: int = FUNCTIONS) -> List[Module]:
    """Gives a process its program, ntdll and other DLLs, full of functions."""
    names = ["app.exe", "ntdll.dll", *(f"library{number:02}.dll" for number in range(dlls - 1))]
    return [process.module(name, **module_options(functions)) for name in names]


@functools.lru_cache(maxsize=None)
def database(folder: pathlib.Path, entries: int, scattered: bool = False) -> Image:
    """One process whose database has so many traces of 16 frames, as Windows 10 writes it."""
    kernel = new_kernel(shuffle=1 if scattered else None)
    process = kernel.process("app.exe", pid=PID, session=1, nt_global_flag=GLOBAL_FLAG)
    give_database(process, modules(process), entries)
    return save(kernel, folder, f"database-{entries}{'-scattered' if scattered else ''}")


def give_database(process: Process, known: List[Module], entries: int) -> None:
    """Logs traces through the modules of a process (the second of which is ntdll)."""
    log = _logged(tuple(call_sites(known)), entries)
    for address, data in std_bytes.regions(log).items():
        process.region(address, data)
    ntdll = known[1]
    data_rva = next(section.rva for section in ntdll.pe.sections if section.name == ".data")
    process.space.write_int(ntdll.base + data_rva + POINTER_RVA, log.base)


@functools.lru_cache(maxsize=1)
def _logged(sites: Tuple[int, ...], entries: int) -> Std:
    """A database with so many traces: processes with the same modules have the same one."""
    generator = random.Random(entries)
    shuffled = generator.sample(sites, len(sites))
    # A call tree: each level further in, twice as many places may be calling.
    levels = [shuffled[: 4 << level] for level in reversed(range(DEPTH))]
    log = Std("6.1", "x64", DATABASE)
    for _ in range(entries):
        log.log([generator.choice(level) for level in levels])
    return log


def call_sites(known: List[Module]) -> List[int]:
    """Returns a return address in every function of some modules."""
    return [module.base + function.begin + _CALL_SITE for module in known for function in module.pe.functions]


@functools.lru_cache(maxsize=None)
def processes(folder: pathlib.Path, count: int, entries: int = 0) -> Image:
    """Many processes of twelve modules each, every one with a database of so many entries if any."""
    kernel = new_kernel()
    for number in range(count):
        process = kernel.process(
            f"app{number}.exe", pid=PID + 4 * number, session=1, nt_global_flag=GLOBAL_FLAG if entries else 0
        )
        known = modules(process, 12, 8)
        if entries:
            give_database(process, known, entries)
    return save(kernel, folder, f"processes-{count}-{entries}")


@functools.lru_cache(maxsize=None)
def module_options(functions: int) -> Dict[str, Any]:
    """A module full of functions: every second one is exported, all are in the function table."""
    text = 0x1000 + functions * FUNCTION_SIZE
    rdata = -(-text // 0x1000) * 0x1000
    starts = range(0x1000, text, FUNCTION_SIZE)
    return {
        "text": text - 0x1000,
        "rdata": 0x1000 * (2 + functions // 64),
        "exports": {f"Function{index:05}": rva for index, rva in enumerate(starts) if index % 2 == 0},
        "functions": [Function(rva, rva + FUNCTION_SIZE - 8, rdata + 0x800) for rva in starts],
        "contents": {rdata + 0x800: _UNWIND},
        "meta_rva": rdata + 0x1000,
    }
