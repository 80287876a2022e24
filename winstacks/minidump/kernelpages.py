# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pages of a crash dump of a kernel that Volatility does not read, and what is wrong with them."""

from __future__ import annotations

from typing import List, Tuple

from volatility3.framework import interfaces

from ..columns.words import COMPLETENESSES, PARTIAL_DUMPS
from ..memory import bulk
from ..memory.decode.pagetable import PAGE_SIZE
from .decode import bitmap, pageranges
from .decode.bitmap import Bitmap, BitmapError, read_bitmap
from .decode.pageranges import PageBlock, believed_pages, read_block, read_live


def block(layer: interfaces.layers.DataLayerInterface, wide: bool) -> PageBlock:
    """Returns the list of pages of a complete dump in the layer of a file; `wide` as in `read_block`."""
    return read_block(bulk.file_reader(layer), wide)


def pages(
    layer: interfaces.layers.DataLayerInterface, dump_type: int, header_pages: int, wide: bool
) -> Tuple[Bitmap, List[str]]:
    """Returns the pages in the layer of a file, none if it has no readable list of them, and what is wrong.

    Args:
        header_pages: size of the header in pages
        wide: whether the header is DUMP_HEADER64
    """
    try:
        found, faults = _pages(layer, dump_type, header_pages * PAGE_SIZE, wide)
    except BitmapError as error:
        return Bitmap([], 0), [f"Crash dump of type {dump_type}: {error}"]
    if dump_type in PARTIAL_DUMPS:
        faults.append(f"The crash dump is {COMPLETENESSES[PARTIAL_DUMPS[dump_type]]}")
    if not found.runs:
        faults.append("The list of pages of the dump names no page of the file")
    if found.lost:
        faults.append(f"The file ends before {found.lost} pages that its header names: they are absent")
    if found.stated not in (None, found.counted) and not found.cut:
        faults.append(
            f"The bitmap has {found.counted} pages, and the file states {found.stated}: memory may be "
            "missing or misplaced"
        )
    if found.left_out or found.cut:
        faults.append(
            f"The list of pages is larger than those of Windows: {found.left_out} pages of the file and "
            f"{found.cut} bytes of the list are left out"
        )
    return found, faults


def _pages(
    layer: interfaces.layers.DataLayerInterface, dump_type: int, header: int, wide: bool
) -> Tuple[Bitmap, List[str]]:
    read, size = bulk.file_reader(layer), int(layer.maximum_address) + 1
    if dump_type in bitmap.TYPES:
        return read_bitmap(read, size, header), []
    if dump_type in pageranges.LIVE:
        return read_live(read, size, header), []
    listed = read_block(read, wide)
    found = believed_pages(listed, header, size)
    fault = (
        f"NumberOfRuns of the header is {listed.NumberOfRuns}, it has room for {listed.room}, and "
        f"NumberOfPages is {listed.NumberOfPages}: {len(found.runs)} runs are read, memory may be missing or "
        "misplaced"
    )
    return found, [fault]
