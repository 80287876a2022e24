# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What every `vol` command pays for this pack, also one on a Linux image: Volatility imports all plugins."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import List, Optional

from tests.forge.vol import PLUGINS

from . import results
from .measure import Cost, in_turns, launched
from .results import Line

_TURNS = 15


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures `vol -h` with the pack and without it, with Python's bytecode written and without."""
    found = []
    cached = ["-X", f"pycache_prefix={folder / 'cached'}"]
    fresh = ["-B", "-X", f"pycache_prefix={folder / 'none'}"]
    for options, bytecode in ((cached, "bytecode cached"), (fresh, "bytecode neither read nor written")):
        ours, theirs = in_turns(
            [partial(_help, options, folder, PLUGINS), partial(_help, options, folder, None)], _TURNS
        )
        goal = 1.2 if options is cached else None
        found.append(
            results.ratio(f"`vol -h`, {bytecode}", "without the pack", ours.seconds, theirs.seconds, goal)
        )
    return found


def _help(options: List[str], folder: pathlib.Path, plugins: Optional[pathlib.Path]) -> Cost:
    chosen = [] if plugins is None else ["-p", str(plugins)]
    return launched(["-q", "--offline", "--cache-path", str(folder), *chosen, "-h"], folder, options).cost
