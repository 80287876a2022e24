# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where things are in a lake.

LAKE/<table>/image=<ImageId>/<attempt>.parquet      the tables that one attempt at an image wrote
LAKE/manifest/<ImageId>.json                        which attempt counts; nothing else is ever read
"""

from __future__ import annotations

import pathlib

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
PIECES = "pieces"
"""The folder of what helpers read of an image, until its own process has put it into the tables."""


def table_file(lake: str, table: str, image_id: str, attempt: str) -> pathlib.Path:
    """Returns the file that an attempt writes for a table."""
    return pathlib.Path(lake, table, f"image={image_id}", f"{attempt}.parquet")


def pieces_folder(lake: str, attempt: str) -> pathlib.Path:
    """Returns the folder into which the helpers of an attempt write."""
    return pathlib.Path(lake, PIECES, attempt)


def piece_file(folder: pathlib.Path, number: int) -> pathlib.Path:
    """Returns the file that is there when a helper has read a share.

    Args:
        folder: what `pieces_folder` returns
        number: of the share
    """
    return folder / f"{number}.json"


def manifest_file(lake: str, image_id: str) -> pathlib.Path:
    """Returns the manifest of an image."""
    return pathlib.Path(lake, MANIFEST, f"{image_id}.json")
