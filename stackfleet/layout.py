# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The form of a lake: one Delta table, partitioned by the column `Table`.

LAKE/Table=<table>/<file>.parquet     the rows of many images, of one table each
LAKE/_delta_log/                      the log: a commit adds all rows of an image, or of several images
LAKE/_cache/<machine>/                Volatility's cache; it may be deleted between runs
"""

from __future__ import annotations

import os
import platform

TRACES, FRAMES, FINDINGS, IMAGE, TRAP_FRAMES = "traces", "frames", "findings", "image", "trapframes"
MODULES, MODULE_SETS, KEYS, WAITS = "modules", "modulesets", "keys", "waits"

TABLES: dict[str, str] = {
    TRACES: "every stack",
    FRAMES: "the frames of each stack",
    FINDINGS: "suspicious stacks, with the reasons",
    IMAGE: "facts about each image",
    TRAP_FRAMES: "register states that the kernel saved",
    WAITS: "what threads wait for, who owns it, and deadlocks",
    MODULES: "versions of the modules in stacks",
    MODULE_SETS: "the module versions in the key of a stack, by ModuleSet",
    KEYS: "keys of stacks, each with its number: the input of `rare`",
}
"""The tables with the rows of an image, and their contents."""

MANIFESTS, RUNS = "manifests", "runs"
"""The table with one row for each image, and the table with the command line of each run."""

CACHE = "_cache"
"""Delta leaves folders alone whose names begin with an underscore."""


def cache_names() -> tuple[str, str]:
    """Returns the folders below a lake for Volatility's cache on this machine, if no option names one.

    Volatility's cache of symbol tables drops tables outside the folders of the current process. So two runs
    with different folders of tables, or a run and a `vol` next to it, remove each other's tables, and a
    process that then looks for a table fails.
    """
    return CACHE, platform.node().replace(os.sep, "_").lstrip(".") or "this"
