# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Attacks the decoders (tier 1), the plugins (tier 2) and the command line (tier 3) with damaged images, and
the plugins with small images that claim to hold much (tier 4).

    python3 -m tests.hostile --tier 2 --runs 5000 --seed 1
    python3 -m tests.hostile --tier 2 --seed 1 --only 1234       the same run once more

Ends with 1 if a run violated what is required of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import List

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)

from . import forking, tier1, tier2, tier3, tier4
from .amplifiers import AMPLIFIERS

RUNS = {1: 100_000, 2: 5000, 3: 500, 4: len(AMPLIFIERS)}
TIERS = {1: tier1.parts, 2: tier2.parts, 3: tier3.parts, 4: tier4.parts}


def main(arguments: List[str]) -> int:
    """Makes the runs that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tier", type=int, choices=sorted(TIERS), required=True)
    parser.add_argument("--runs", type=int, help="default: 100000, 5000, 500, or each amplifier once")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of single runs")
    chosen = parser.parse_args(arguments)
    numbers = chosen.only or range(chosen.runs or RUNS[chosen.tier])
    start, found = time.time(), 0
    for violations in forking.spread(TIERS[chosen.tier](chosen.seed, numbers), chosen.jobs):
        for number, what, _ in violations:
            found += 1
            print(f"--- run {number}: {what}\n", flush=True)
    minutes = (time.time() - start) / 60
    title = f"tier {chosen.tier}, seed {chosen.seed}"
    print(f"{title}: {len(numbers)} runs, {found} violations, {minutes:.0f} minutes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
