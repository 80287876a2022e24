# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images of running ReactOS systems, which nobody of this project wrote."""

from __future__ import annotations

import lzma
import pathlib
import shutil

from tests.conftest import SHARED

IMAGES = sorted(
    (*(SHARED / "reactos").glob("*.raw.xz"), *(SHARED / "reactos_x64" / "images").glob("*.raw.xz"))
)


def unpacked(packed: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Returns one of IMAGES unpacked in a folder, which gets the system's symbols as its `symbols`."""
    image = folder / "image.raw"
    with lzma.open(packed) as source, image.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    system = SHARED / ("reactos_x64" if packed.name.startswith("rosx64") else "reactos")
    shutil.copytree(system / "isf", folder / "symbols")
    return image
