# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What naming addresses costs, as ratios of one run: `python3 -m benchmarks.symboliser [--isf KERNEL_ISF]`.

names     100,000 distinct addresses over 200 modules, named (indexes made before), against a bare `bisect`
          of the same addresses over the same labels
first     the same with the making of the 200 indexes, for information
index     the index of a kernel's symbol table against loading that table
addresses 100 return addresses in ntdll against windows.pe_symbols, each from nothing
"""

from __future__ import annotations

import argparse
import bisect
import functools
import gc
import pathlib
import random
import tempfile
import time
from typing import Callable, List, Tuple

from volatility3.framework import contexts
from volatility3.framework.symbols import intermed
from volatility3.plugins.windows import pe_symbols

from benchmarks.images import FUNCTION_SIZE, module_options
from tests.forge import context as forge_context
from tests.forge import kernels
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from winstacks.memory.image import Image
from winstacks.names import pdbsymbols
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces

MODULES = 200
FUNCTIONS = 500
ADDRESSES = 100_000
PROCESSES = 40
NTDLL_FUNCTIONS = 5000
FOREIGN = 100

Row = Tuple[str, float, str, float, float]


def timed(work: Callable[[], object], repeats: int = 3) -> float:
    """Returns the shortest time of some runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def open_drivers(folder: pathlib.Path) -> Tuple[forge_context.Opened, List[Module]]:
    """Opens an image with many drivers."""
    kernel = _kernel()
    drivers = [
        kernel.module(f"driver{number:03}.sys", **module_options(FUNCTIONS)) for number in range(MODULES)
    ]
    return forge_context.open_image(kernel.image(), folder, "drivers.raw"), drivers


def open_processes(folder: pathlib.Path) -> Tuple[forge_context.Opened, Module]:
    """Opens an image with some processes, all of which have an ntdll of the real one's size."""
    kernel = _kernel()
    for number in range(PROCESSES):
        process = kernel.process(f"app{number}.exe", pid=1000 + 4 * number, session=1)
        ntdll = process.module("ntdll.dll", **module_options(NTDLL_FUNCTIONS))
    return forge_context.open_image(kernel.image(), folder, "processes.raw"), ntdll


def _kernel() -> Kernel:
    known = kernels.load("win10-x64")
    return Kernel(known.table, **known.options())


def name_rows(opened: forge_context.Opened, drivers: List[Module]) -> List[Row]:
    """Measures the naming of many addresses."""
    generator = random.Random(1)
    pool = [
        module.base + 0x1000 + offset
        for module in drivers
        for offset in generator.sample(range(1, FUNCTIONS * FUNCTION_SIZE), ADDRESSES // MODULES)
    ]
    generator.shuffle(pool)
    labels = sorted(module.at(name) for module in drivers for name in module.pe.exports)
    space = next(iter(AddressSpaces.list_spaces(opened.image)))

    def bare() -> None:
        for address in pool:
            bisect.bisect_right(labels, address)

    def ours(symbolizer: Symbolizer) -> None:
        name = symbolizer.for_space(space).name
        for address in pool:
            name(address)

    def warm() -> Symbolizer:
        symbolizer = Symbolizer(Image(opened.context, opened.kernel))
        for module in drivers:
            symbolizer.for_space(space).name(module.base + 0x1001)
        return symbolizer

    # What built the image is still in memory; a real run has no such heap to collect.
    gc.collect()
    gc.freeze()
    reference = timed(bare)
    rows = [
        (
            "name 100,000 addresses",
            min(timed(functools.partial(ours, warm()), 1) for _ in range(3)),
            "bare bisect",
            reference,
            10,
        )
    ]
    fresh = timed(lambda: ours(Symbolizer(Image(opened.context, opened.kernel))), 1)
    return [*rows, ("... and make 200 indexes", fresh, "bare bisect", reference, float("inf"))]


def index_rows(path: pathlib.Path) -> List[Row]:
    """Measures the index of a kernel's symbols."""
    tables: List[intermed.IntermediateSymbolTable] = []

    def load() -> None:
        tables.append(
            intermed.IntermediateSymbolTable(contexts.Context(), "benchmark", "nt", path.resolve().as_uri())
        )

    load()
    loading = timed(load)
    return [("index a kernel ISF", timed(lambda: pdbsymbols.from_table(tables[-1])), "load it", loading, 0.5)]


def pe_symbols_rows(opened: forge_context.Opened, ntdll: Module) -> List[Row]:
    """Measures Volatility's own plugin on return addresses in ntdll."""
    generator = random.Random(2)
    addresses = [
        ntdll.base + 0x1000 + offset
        for offset in generator.sample(range(1, NTDLL_FUNCTIONS * FUNCTION_SIZE), FOREIGN)
    ]
    spaces = list(AddressSpaces.list_spaces(opened.image))

    def theirs() -> None:
        opened.rows(
            pe_symbols.PESymbols, source="processes", module="ntdll.dll", addresses=addresses, symbols=None
        )

    def ours() -> None:
        names = Symbolizer(Image(opened.context, opened.kernel)).for_space(spaces[2])
        for address in addresses:
            names.name(address)

    return [("100 addresses of ntdll", timed(ours), "pe_symbols", timed(theirs, 1), 0.01)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--isf", type=pathlib.Path, help="a kernel's symbol table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = name_rows(*open_drivers(pathlib.Path(folder)))
        if arguments.isf:
            rows += index_rows(arguments.isf)
        rows += pe_symbols_rows(*open_processes(pathlib.Path(folder)))
    print(f"{'what':28}{'seconds':>10}  {'against':16}{'seconds':>10}{'ratio':>10}{'goal':>8}")
    for what, seconds, against, reference, goal in rows:
        limit = "" if goal == float("inf") else f"<= {goal:g}"
        print(f"{what:28}{seconds:10.4f}  {against:16}{reference:10.4f}{seconds / reference:10.3f}{limit:>8}")


if __name__ == "__main__":
    main()
