# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The commands `update` and `check`: see `tests.golden`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import List, Sequence

from . import compare, outputs
from .cases import CASES


def main(words: Sequence[str]) -> int:
    """Runs the command that the first word names."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (("update", "make the outputs anew"), ("check", "compare them only")):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("case", nargs="*", help=f"all, or of these: {', '.join(CASES)}")
    chosen = parser.parse_args(words)
    unknown = [name for name in chosen.case if name not in CASES]
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    return _go(chosen.case or list(CASES), chosen.command == "update", not chosen.case)


def _go(names: List[str], update: bool, every: bool) -> int:
    began, changed = time.monotonic(), 0
    for name in names:
        reason = CASES[name].missing()
        if reason:
            print(f"{name}: skipped, {reason}")
            continue
        path = outputs.path_of(name)
        old, new = outputs.load(path), outputs.record(CASES[name])
        if old == new:
            continue
        changed += 1
        print(f"=== {name}")
        print(
            "\n".join(compare.differences(old, new) if old else [f"{len(new)} runs, none of them kept yet"])
        )
        if update:
            outputs.save(path, new)
    for path in outputs.stale() if every else ():
        changed += 1
        print(f"=== {path.name}: there is no such case")
        if update:
            path.unlink()
    seconds = f"{time.monotonic() - began:.0f} s"
    print(f"{changed} of {len(names)} cases changed, {seconds}" if changed else f"nothing changed, {seconds}")
    return 1 if changed and not update else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
