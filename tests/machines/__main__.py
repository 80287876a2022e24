# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Counts false alarms of whole machines, and techniques that are missed in them.

    .venv/test/bin/python -m tests.machines                       both machines, every technique
    .venv/test/bin/python -m tests.machines --technique Ekko      one technique

Ends with 1 if there are more alarms, or more is missed, than docs/tracefindings.md says.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import List, Sequence

from tests import conftest  # noqa: F401  (our plugins, in front of any installed ones)
from tests.support.only import only

from . import planting
from .machines import MACHINES
from .techniques import all_techniques

ALARMS = {"desktop": 2, "server": 0}
"""The most findings above `low` where nothing is wrong."""
FOUND = 0.95
"""The least share of techniques, of those that stacks can show, that give a finding above `low`."""


def main(arguments: List[str]) -> int:
    """Counts what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="which fifth of the pages is missing; 0: none is")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--technique", nargs="+", help="only these")
    parser.add_argument(
        "--machine", nargs="+", choices=sorted(MACHINES), help="only these, without a technique"
    )
    chosen = parser.parse_args(arguments)
    start, failed = time.time(), False
    for machine in () if chosen.technique else chosen.machine or MACHINES:
        failed |= _alarms(machine, chosen.seed)
    if not chosen.machine:
        failed |= _missed(chosen.technique or (), chosen.seed, chosen.jobs)
    print(f"{time.time() - start:.0f} s")
    return int(failed)


def _alarms(machine: str, seed: int) -> bool:
    """Prints the alarms of a machine; tells whether there are too many."""
    answer = only(planting.ask(machine, seed, (), 1))
    title = f"{machine}: {answer.processes} processes, {answer.missing} pages missing"
    print(f"{title}: {len(answer.rows)} findings above low", flush=True)
    for row in answer.rows:
        print(f"    {row['Severity']} {row['Finding']} {row['Process']}: {row['Symbol']}, {row['Innocent']}")
    return len(answer.rows) > ALARMS[machine]


def _missed(names: Sequence[str], seed: int, jobs: int) -> bool:
    """Prints what each technique gives in the desktop; tells whether too many give nothing."""
    techniques = [technique for technique in all_techniques() if not names or technique.name in names]
    shown = [technique for technique in techniques if technique.shown]
    found = 0
    for technique, answer in zip(shown, planting.ask("desktop", seed, shown, jobs)):
        found += bool(answer.rows)
        findings = ", ".join(dict.fromkeys(f"{row['Finding']} {row['Severity']}" for row in answer.rows))
        if not findings:
            findings = f"MISSED (low: {', '.join(answer.low) or 'nothing'})"
        print(f"    {technique.name} [{technique.source}]: {findings}", flush=True)
    for technique in (technique for technique in techniques if not technique.shown):
        print(f"    {technique.name} [{technique.source}]: stacks do not show it")
    print(f"{len(techniques)} techniques, of which stacks can show {len(shown)}: {found} are above low")
    return found < FOUND * len(shown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
