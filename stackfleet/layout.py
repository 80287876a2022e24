# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The folders and files of a lake.

LAKE/tables/<table>/                                a table in Delta's format: its log, and its files
LAKE/tables/<table>/<ImageId>.<attempt>.parquet     the rows that one attempt at an image wrote
LAKE/tables/<table>/<batch>.part-<n>.parquet        the rows of many images
LAKE/tables/manifests/                              the catalogue, a table too: the attempts that count
LAKE/manifest/<ImageId>.json                        custody: the catalogue's manifest of the image, as a file
LAKE/runs/<run>.json                                the command line of a run; the SHA-256 of batches
LAKE/cache/<machine>/                               Volatility's cache; it may be deleted between runs
"""

from __future__ import annotations

import os
import pathlib
import platform

TRACES, FRAMES, FINDINGS, IMAGE, TRAP_FRAMES = "traces", "frames", "findings", "image", "trapframes"
MODULES, MODULE_SETS, KEYS = "modules", "modulesets", "keys"

TABLES: dict[str, str] = {
    TRACES: "every stack",
    FRAMES: "the frames of each stack",
    FINDINGS: "suspicious stacks, with the reasons",
    IMAGE: "facts about each image",
    TRAP_FRAMES: "register states that the kernel saved",
    MODULES: "versions of the modules in stacks",
    MODULE_SETS: "the module versions in the key of a stack, by ModuleSet",
    KEYS: "keys of stacks, each with its number: the input of `rare`",
}
"""The tables of a lake and their contents."""

TABLES_FOLDER = "tables"
CATALOGUE = "manifests"
"""The table of manifests."""
MANIFEST = "manifest"
CACHE = "cache"
RUNS = "runs"
"""The folder with the command line of each run: the manifests of its images name the run."""


def file_name(image_id: str, attempt: str) -> str:
    """Returns the name of the file that an attempt writes, in the folder of each table."""
    return f"{image_id}.{attempt}.parquet"


def table_name(table: str, image_id: str, attempt: str) -> str:
    """Returns the path below the lake of the file that an attempt writes for a table."""
    return f"{TABLES_FOLDER}/{table}/{file_name(image_id, attempt)}"


def table_file(lake: str, table: str, image_id: str, attempt: str) -> pathlib.Path:
    """Returns the path of the file that an attempt writes for a table."""
    return pathlib.Path(lake, table_name(table, image_id, attempt))


def cache_names() -> tuple[str, str]:
    """Returns the folders below a lake for Volatility's cache on this machine, if no option names one.

    Volatility's cache of symbol tables drops tables outside the folders of the current process. So two runs
    with different folders of tables, or a run and a `vol` next to it, remove each other's tables, and a
    process that then looks for a table fails.
    """
    return CACHE, platform.node().replace(os.sep, "_").lstrip(".") or "this"


def manifest_file(lake: str, image_id: str) -> pathlib.Path:
    """Returns the path of an image's manifest."""
    return pathlib.Path(lake, MANIFEST, f"{image_id}.json")
