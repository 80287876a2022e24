# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What every `vol` command pays for this pack, also one on a Linux image: Volatility imports all plugins."""

from __future__ import annotations

import pathlib
import shutil
import statistics
from functools import partial
from typing import List, Optional

from tests.forge.vol import REPOSITORY

from . import results
from .measure import launched
from .results import Line

_TURNS = 25
_TREE = ("volatility3_plugins", "winstacks")
_ABSENT = shutil.ignore_patterns("__pycache__")


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures `vol -h` with the pack and without it, where the pack's bytecode can be kept and where not.

    Volatility's own bytecode is in place in all runs, as it is for users: what it takes to compile Volatility
    would hide what it takes to compile the pack. The figures are medians of runs that take turns.
    """
    kept, unwritable = folder / "kept", folder / "unwritable"
    for tree in (kept, unwritable):
        for name in _TREE:
            shutil.copytree(REPOSITORY / name, tree / name, ignore=_ABSENT)
    bytecode = folder / "bytecode"
    works = [
        partial(_help, folder, bytecode, True, None),
        partial(_help, folder, bytecode, True, kept),
        partial(_help, folder, bytecode, False, unwritable),
    ]
    for work in works:
        work()
    if list(bytecode.rglob(f"{unwritable.name}/**/*.pyc")) or not list(
        bytecode.rglob(f"{kept.name}/**/*.pyc")
    ):
        raise RuntimeError("bytecode was written where none may be, or was not written at all")
    turns = [[work() for work in works] for _ in range(_TURNS)]
    theirs, cached, fresh = (statistics.median(column) for column in zip(*turns))
    return [
        results.ratio("`vol -h`, bytecode cached", "without the pack", cached, theirs, 1.06),
        results.ratio("`vol -h`, no bytecode of the pack", "without the pack", fresh, theirs, 1.08),
    ]


def _help(folder: pathlib.Path, bytecode: pathlib.Path, writes: bool, tree: Optional[pathlib.Path]) -> float:
    """Returns the seconds that `vol -h` takes.

    Args:
        folder: Volatility's cache
        bytecode: where Python looks for the bytecode of all modules
        writes: whether Python writes what it misses there
        tree: a copy of the pack, None for Volatility alone
    """
    options = ["-X", f"pycache_prefix={bytecode}", *([] if writes else ["-B"])]
    chosen = [] if tree is None else ["-p", str(tree / "volatility3_plugins")]
    return launched(
        ["-q", "--offline", "--cache-path", str(folder), *chosen, "-h"], folder, options
    ).cost.seconds
