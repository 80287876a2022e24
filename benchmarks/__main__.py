# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs benchmarks, without names all, and writes RESULTS.md: `python3 -m benchmarks [NAME...]`."""

from __future__ import annotations

import argparse
import pathlib
import tempfile
from typing import Callable, Dict, List

from . import (
    checks,
    cores,
    decoding,
    drawing,
    dumps,
    files,
    flat,
    fleet,
    growth,
    holding,
    hostilefiles,
    listing,
    realprocesses,
    realsize,
    results,
    smalldumps,
    startup,
)
from .results import Line

BENCHMARKS: Dict[str, Callable[[pathlib.Path], List[Line]]] = {
    "decoding": decoding.lines,
    "databases": listing.databases,
    "grids": listing.grids,
    "threads": listing.threads,
    "flags": listing.flags,
    "filters": listing.filters,
    "flat": flat.lines,
    "checks": checks.lines,
    "dumps": dumps.lines,
    "files": files.lines,
    "fleet": fleet.lines,
    "smalldump": smalldumps.one,
    "smalldumps": smalldumps.lines,
    "drawing": drawing.lines,
    "holding": holding.lines,
    "rows": holding.rows,
    "hostilefiles": hostilefiles.lines,
    "growth": growth.lines,
    "startup": startup.lines,
    "machine": realsize.lines,
    "cores": cores.lines,
    "processes": realprocesses.lines,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    for name in names or BENCHMARKS:
        with tempfile.TemporaryDirectory() as folder, results.Circumstances() as circumstances:
            table = results.table(BENCHMARKS[name](pathlib.Path(folder)))
        text = f"{circumstances.text}\n\n{table}"
        print(f"{text}\n", flush=True)
        # At once: a later benchmark may fail, and all of them take hours.
        results.write({name: text}, list(BENCHMARKS))


if __name__ == "__main__":
    main()
