# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Configurations for `vol -c`: the layers and the kernel are given, nothing is searched for."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict

from .dump import Image

_LAYERS = "volatility3.framework.layers"
_CRASH = {64: f"{_LAYERS}.crash.WindowsCrashDump64Layer", 32: f"{_LAYERS}.crash.WindowsCrashDump32Layer"}
_INTEL = {64: f"{_LAYERS}.intel.WindowsIntel32e", 32: f"{_LAYERS}.intel.WindowsIntelPAE"}
_SPACE = {64: (1 << 48) - 1, 32: (1 << 32) - 1}


def values(image: Image, file: pathlib.Path, symbols: pathlib.Path) -> Dict[str, Any]:
    """Returns the configuration of an image that was saved and whose tables were installed.

    Args:
        image: the image
        file: where it was saved (raw, or a full crash dump)
        symbols: the directory that its tables were installed in

    Returns:
        Volatility's values by their paths below a plugin's own.
    """
    base = image.kernel_base & _SPACE[image.bits]
    kernel = image.tables[0]
    table = symbols / "windows" / kernel.pdb / f"{kernel.guid}-{kernel.age}.json"
    memory = "kernel.layer_name.memory_layer."
    config = {
        "kernel.class": "volatility3.framework.contexts.Module",
        "kernel.layer_name.class": _INTEL[image.bits],
        "kernel.layer_name.kernel_virtual_offset": base,
        "kernel.layer_name.page_map_offset": image.dtb,
        "kernel.layer_name.swap_layers": True,
        "kernel.layer_name.swap_layers.number_of_elements": 0,
        "kernel.offset": base,
        "kernel.symbol_table_name.class": (
            "volatility3.framework.symbols.windows.WindowsKernelIntermedSymbols"
        ),
        "kernel.symbol_table_name.isf_url": table.resolve().as_uri(),
        "kernel.symbol_table_name.symbol_mask": 0,
    }
    if file.suffix == ".dmp":
        config[memory + "class"] = _CRASH[image.bits]
        memory += "base_layer."
    config[memory + "class"] = f"{_LAYERS}.physical.FileLayer"
    config[memory + "location"] = file.resolve().as_uri()
    return config


def write(image: Image, file: pathlib.Path, symbols: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Writes `values` to the path of a configuration file."""
    path.write_text(json.dumps(values(image, file, symbols), indent=1), encoding="utf-8")
    return path
