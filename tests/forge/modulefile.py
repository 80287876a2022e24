# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Modules as files: what the loader would have read them from. File offsets equal RVAs."""

from __future__ import annotations

import pathlib
from typing import Iterable

from .module import Module


def content(module: Module) -> bytes:
    """The file of a module, as it was before anybody wrote to its image."""
    new_data = bytearray(module.size)
    for rva, data in module.pieces:
        new_data[rva : rva + len(data)] = data
    return bytes(new_data[: module.size])


def save(modules: Iterable[Module], folder: pathlib.Path) -> pathlib.Path:
    """Puts the files of modules into a folder, as a symbol server has them; returns the folder."""
    for module in modules:
        key = f"{module.pe.timestamp:08X}{module.size:x}"
        place = folder / module.name / key
        place.mkdir(parents=True, exist_ok=True)
        (place / module.name).write_bytes(content(module))
    return folder
