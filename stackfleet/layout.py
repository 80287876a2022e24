# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where things are in a lake.

LAKE/<table>/image=<ImageId>/<attempt>.parquet      the tables that one attempt at an image wrote
LAKE/runs/<run>.json                                what a run was asked
LAKE/manifest/<ImageId>.json                        which attempt counts; no other table is ever read
LAKE/cache/<machine>/                               what Volatility keeps; it may be deleted between runs
"""

from __future__ import annotations

import os
import pathlib
import platform

TRACES, FRAMES, FINDINGS, IMAGE, TRAP_FRAMES = "traces", "frames", "findings", "image", "trapframes"
MODULES, MODULE_SETS = "modules", "modulesets"

TABLES: dict[str, str] = {
    TRACES: "every stack",
    FRAMES: "their frames",
    FINDINGS: "which stacks matter, and why",
    IMAGE: "what the image is",
    TRAP_FRAMES: "register states that the kernel saved",
    MODULES: "versions of modules that are in stacks",
    MODULE_SETS: "of which of these the key of a stack is made, by its ModuleSet",
}
"""The tables of a lake and what they hold."""

MANIFEST = "manifest"
CACHE = "cache"
RUNS = "runs"
"""The folder of what each run was asked: the manifests of its images name it."""


def table_name(table: str, image_id: str, attempt: str) -> str:
    """Returns what a manifest calls the file that an attempt writes for a table: its path below the lake."""
    return f"{table}/{image_folder(image_id)}/{attempt}.parquet"


def image_folder(image_id: str) -> str:
    """Returns the name of the folder with the files of a table that attempts at an image write."""
    return f"image={image_id}"


def table_file(lake: str, table: str, image_id: str, attempt: str) -> pathlib.Path:
    """Returns the file that an attempt writes for a table."""
    return pathlib.Path(lake, table_name(table, image_id, attempt))


def cache_names() -> tuple[str, str]:
    """Returns the folders below a lake where Volatility caches on this machine, if nobody has said where.

    Its cache of symbol tables forgets what is not in the folders of the process that looks at it. So two runs
    with other folders of tables, or a run and a `vol` beside it, take each other's tables away, and what then
    looks for a table in vain fails.
    """
    return CACHE, platform.node().replace(os.sep, "_").lstrip(".") or "this"


def manifest_file(lake: str, image_id: str) -> pathlib.Path:
    """Returns the manifest of an image."""
    return pathlib.Path(lake, MANIFEST, f"{image_id}.json")
