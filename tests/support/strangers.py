# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images of running ReactOS systems, which nobody of this project wrote, and what gdb finds in them."""

from __future__ import annotations

import collections
import itertools
import json
import lzma
import pathlib
import random
import shutil
import struct
from typing import Collection, Dict, Set, Tuple

from tests.conftest import SHARED
from winstacks.memory.decode.pagetable import PAGE_SIZE

LIME = 0x4C694D45
ADDRESS = (1 << 48) - 1
LOWEST = 0x10000
OUTERMOST = ("KiThreadStartup", "KiFastCallEntry", "KiSystemService")

Part = Tuple[int, int, str]
"""PID, TID and part of a stack: kernel or user."""

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


def with_holes(image: pathlib.Path, share: float, seed: int) -> pathlib.Path:
    """Writes an image (LiME) that lacks this share of the pages, drawn by the seed; returns its path.

    The first page stays: Volatility opens no image without one.
    """
    draw = random.Random(seed)
    pages = range(1, image.stat().st_size // PAGE_SIZE)
    return without_pages(image, {number for number in pages if draw.random() < share}, f"{share}.{seed}")


def without_pages(image: pathlib.Path, missing: Collection[int], name: str = "holes") -> pathlib.Path:
    """Writes an image (LiME) that lacks the physical pages of these numbers; returns its path."""
    data = image.read_bytes()
    kept = [number for number in range(len(data) // PAGE_SIZE) if number not in missing]
    path = image.with_suffix(f".{name}.lime")
    with path.open("wb") as file:
        for _, run in itertools.groupby(enumerate(kept), lambda item: item[1] - item[0]):
            numbers = [number for _, number in run]
            start, end = numbers[0] * PAGE_SIZE, (numbers[-1] + 1) * PAGE_SIZE
            file.write(struct.pack("<IIQQQ", LIME, 1, start, end - 1, 0))
            file.write(data[start:end])
    return path


def walked_by_gdb(packed: pathlib.Path) -> Dict[Part, Set[int]]:
    """Returns the addresses, in 48 bits, of the frames of each part of a thread's stack, as gdb unwound them.

    What gdb finds behind the first frame of a thread, or of an entry into the kernel, is left out.
    """
    x64 = packed.name.startswith("rosx64-")
    name, folder = packed.name.partition(".")[0], packed.parents[1] if x64 else packed.parent
    with lzma.open(folder / "truth" / f"{name}.truth.json.xz") as file:
        threads = json.load(file)["threads"]
    walked: Dict[Part, Set[int]] = collections.defaultdict(set)
    for thread in threads:
        for walk in filter(None, map(thread.get, ("stack", "kernel", "kernel_trap", "user"))):
            for address, _, function, *_ in walk["frames"]:
                if address > LOWEST:
                    part = "kernel" if address >= (1 << 47 if x64 else 1 << 31) else "user"
                    walked[thread["pid"], thread["tid"], part].add(address & ADDRESS)
                if (function or "").lstrip("@_").partition("@")[0] in OUTERMOST:
                    break
        if thread.get("switch"):
            walked[thread["pid"], thread["tid"], "kernel"].add(thread["switch"]["ret"] & ADDRESS)
    return walked
