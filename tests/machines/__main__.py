# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Counts false alarms of whole machines, and techniques that are missed in them.

    .venv/test/bin/python -m tests.machines --seeds 20 --into FOLDER
                                                                  measures; each draw is a file of FOLDER, and
                                                                  what is there is not measured again
    .venv/test/bin/python -m tests.machines --join FOLDER         makes the docs' table of the files
    .venv/test/bin/python -m tests.machines --seeds 1 --share 25 --rows
                                                                  shows the rows of one draw
    .venv/test/bin/python -m tests.machines --seeds 3 --technique Ekko

A seed decides which pages are missing. The docs' table takes about an hour on two idle cores: --first,
--seeds, --share and --kernel choose a part of it, and the files of several parts may be in one folder.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from typing import List

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)

from . import measuring, planting
from .machines import names_of
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
    parser.add_argument("--rows", action="store_true", help="print the rows of each draw; the default")
    parser.add_argument("--into", type=pathlib.Path, help="the folder for a file of each draw")
    parser.add_argument(
        "--join", type=pathlib.Path, help=f"write {measuring.RESULTS.name} from such a folder"
    )
    chosen = parser.parse_args(arguments)
    if chosen.join:
        cells = measuring.joined(chosen.join)
        lacking = measuring.lacking(cells)
        if lacking:
            parser.error(f"{chosen.join}: no draw of {measuring.KERNELS[0]} with missing pages: {lacking}")
        text = ",\n".join(json.dumps(cell, ensure_ascii=False) for cell in cells)
        measuring.RESULTS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
        return 0
    start = time.time()
    shares = [share / 100 for share in chosen.share or ()] or measuring.SHARES
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    print(f"seeds {seeds.start} to {seeds.stop - 1}", flush=True)
    if chosen.rows or chosen.technique or not chosen.into:
        for kernel in chosen.kernel:
            for share in shares:
                _show(kernel, share, seeds, chosen.technique, chosen.jobs)
        return 0
    for file in measuring.measure(chosen.kernel, shares, seeds, chosen.into, chosen.jobs):
        print(f"{time.time() - start:.0f} s: {file.name}", flush=True)
    print(f"{time.time() - start:.0f} s")
    return 0


def _show(kernel: str, share: float, seeds: range, names: List[str], jobs: int) -> None:
    """Prints the innocent rows above `low`, and the rows of each technique."""
    for machine in () if names else names_of(kernel):
        asked = [planting.Question(planting.Draw(machine, kernel, share, seed)) for seed in seeds]
        for answer in planting.ask(asked, jobs):
            print(answer.draw, f"{answer.missing} pages missing")
            for row in answer.above:
                found = f"{row['Severity']} {row['Finding']} {row['Process']}"
                print(f"    {found}: {row['Symbol']}, {row['Innocent']}")
    for techniques in rooms(kernel).values():
        kept = [technique for technique in techniques if not names or technique.name in names]
        draws = [planting.Draw(measuring.PLANTED_IN, kernel, share, seed) for seed in seeds]
        asked = [planting.Question(draw, kept) for draw in draws if kept]
        for answer in planting.ask(asked, jobs):
            print(answer.draw)
            for each in answer.shown:
                found = ", ".join(f"{row['Finding']} {row['Severity']}" for row in each.rows)
                print(f"    {each.name}: place {each.place}: {found or 'nothing'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
