# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The commands `harvest`, `replay` and `compare`: see `tests.record`."""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import List

from . import compare, corpus, hooks

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITHOUT = ("tests/fuzz/*", "tests/unwind/*", "tests/record/*", "*/decode/*", "tests/test_packaging.py")
"""Tests that run no plugin."""


def main(words: List[str]) -> int:
    """Runs the command that the first word names."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.record")
    commands = parser.add_subparsers(dest="command", required=True)
    harvest = commands.add_parser("harvest", help="keep what the tests run the plugins on")
    harvest.add_argument("corpus", type=pathlib.Path)
    harvest.add_argument("--jobs", type=int, default=2)
    harvest.add_argument("--tests", nargs="+", default=[], help="only these test files")
    replay = commands.add_parser("replay", help="run it and write down what came out")
    replay.add_argument("corpus", type=pathlib.Path)
    replay.add_argument("out", type=pathlib.Path)
    replay.add_argument("--tree", type=pathlib.Path, default=ROOT, help="the checkout with the plugins")
    replay.add_argument("--python", default=sys.executable, help="another one, with another Volatility")
    replay.add_argument("--matrix", action="store_true", help="also each plugin with each option")
    replay.add_argument("--plain", action="store_true", help="without shortcuts: slow, to prove them")
    replay.add_argument("--jobs", type=int, default=1)
    replay.add_argument(
        "--only", default="", metavar="DIGEST", help="images whose digest starts like this; adds them to OUT"
    )
    difference = commands.add_parser("compare", help="show what differs; 1 if something does")
    difference.add_argument("before", type=pathlib.Path)
    difference.add_argument("after", type=pathlib.Path)
    difference.add_argument("--explained", type=pathlib.Path, help=compare.EXPLAINED)
    chosen = parser.parse_args(words)
    if chosen.command == "harvest":
        return _harvest(chosen.corpus, chosen.jobs, chosen.tests)
    if chosen.command == "replay":
        return _replay(chosen)
    return compare.main(chosen.before, chosen.after, chosen.explained)


def _harvest(folder: pathlib.Path, jobs: int, rest: List[str]) -> int:
    """Runs the tests with hooks. A test that fails is shown and does not stop it."""
    tests = rest or [*(f"--ignore-glob={each}" for each in WITHOUT), "tests"]
    command = [sys.executable, "-m", "pytest", "-p", "tests.record.hooks", "-p", "no:cacheprovider"]
    command += ["-n", str(jobs), *tests]
    environment = {**os.environ, hooks.FOLDER: str(folder.resolve())}
    subprocess.call(command, cwd=str(ROOT), env=environment)
    made = corpus.Corpus(folder).merge()
    print(", ".join(f"{len(each)} {name}" for name, each in made.items()))
    return 0 if made["runs"] else 1


def _replay(chosen: argparse.Namespace) -> int:
    """Starts the replay in a Python whose home is empty, so that nobody's settings are mixed in."""
    words = ["corpus", "out", "tree"]
    places = [str(getattr(chosen, word).resolve()) for word in words]
    rest = [str(int(chosen.matrix)), str(int(chosen.plain)), str(chosen.jobs), chosen.only]
    with tempfile.TemporaryDirectory(prefix="record-home-") as home:
        environment = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "COLUMNS": "110", "TZ": "UTC"}
        environment.update(PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
        command = [chosen.python, "-m", "tests.record.replay", *places, *rest]
        return subprocess.call(command, cwd=str(ROOT), env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
