# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Counts false alarms of whole machines, and techniques that are missed in them.

    .venv/test/bin/python -m tests.machines --seeds 20 --write    measures; the docs' table is made from it
    .venv/test/bin/python -m tests.machines --seeds 1 --share 25 --rows
                                                                  shows the rows of one draw
    .venv/test/bin/python -m tests.machines --seeds 3 --technique Ekko

A seed decides which pages are missing. The docs' table takes hours; --seeds makes it shorter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import List

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)

from . import measuring, planting
from .machines import MACHINES
from .techniques import rooms


def main(arguments: List[str]) -> int:
    """Measures what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--share", type=int, nargs="+", help="percent of the pages that are missing")
    parser.add_argument("--kernel", nargs="+", default=measuring.KERNELS, help="only these")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--technique", nargs="+", default=(), help="only these, and no machine as it is")
    parser.add_argument("--rows", action="store_true", help="print the rows of each draw")
    parser.add_argument("--write", action="store_true", help=f"write {measuring.RESULTS.name}")
    chosen = parser.parse_args(arguments)
    start = time.time()
    shares = [share / 100 for share in chosen.share or ()] or measuring.SHARES
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    print(f"seeds {seeds.start} to {seeds.stop - 1}", flush=True)
    if chosen.rows or chosen.technique:
        for kernel in chosen.kernel:
            for share in shares:
                _show(kernel, share, seeds, chosen.technique, chosen.jobs)
        return 0
    cells = []
    for kernel in chosen.kernel:
        for share in shares:
            for cell in measuring.measure(kernel, share, seeds, rooms(), chosen.jobs):
                print(json.dumps(cell), flush=True)
                cells.append(cell)
    if chosen.write:
        text = ",\n".join(json.dumps(cell, ensure_ascii=False) for cell in cells)
        measuring.RESULTS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    print(f"{time.time() - start:.0f} s")
    return 0


def _show(kernel: str, share: float, seeds: range, names: List[str], jobs: int) -> None:
    """Prints the innocent rows above `low`, and the rows of each technique."""
    for machine in () if names else MACHINES:
        asked = [planting.Draw(machine, kernel, share, seed) for seed in seeds]
        for answer in planting.ask(asked, (), jobs):
            print(answer.draw, f"{answer.missing} pages missing")
            for row in answer.above:
                found = f"{row['Severity']} {row['Finding']} {row['Process']}"
                print(f"    {found}: {row['Symbol']}, {row['Innocent']}")
    for techniques in rooms().values():
        kept = [technique for technique in techniques if not names or technique.name in names]
        asked = [planting.Draw(measuring.PLANTED_IN, kernel, share, seed) for seed in seeds]
        for answer in planting.ask(asked, kept, jobs) if kept else ():
            print(answer.draw)
            for each in answer.shown:
                found = ", ".join(f"{row['Finding']} {row['Severity']}" for row in each.rows)
                print(f"    {each.name}: place {each.place}: {found or 'nothing'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
