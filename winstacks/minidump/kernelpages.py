# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pages of a crash dump of a kernel that Volatility does not read, and warnings about them."""

from __future__ import annotations

import logging

from volatility3.framework import interfaces

from ..columns.words import COMPLETENESSES, PARTIAL_DUMPS
from ..memory import bulk
from ..memory.decode.pagetable import PAGE_SIZE
from .decode import bitmap, pageranges
from .decode.bitmap import Bitmap, BitmapError, read_bitmap
from .decode.pageranges import PageBlock, believed_pages, read_block, read_live

vollog = logging.getLogger(__name__)


def block(layer: interfaces.layers.DataLayerInterface, wide: bool) -> PageBlock:
    """Returns the list of pages of a complete dump in the layer of a file; `wide` as in `read_block`."""
    return read_block(bulk.file_reader(layer), wide)


def pages(
    layer: interfaces.layers.DataLayerInterface, dump_type: int, header_pages: int, wide: bool
) -> Bitmap:
    """Returns the pages in the layer of a file, none if it has no readable list of them. Warns of what is
    wrong.

    Args:
        header_pages: size of the header in pages
        wide: whether the header is DUMP_HEADER64
    """
    try:
        found = _pages(layer, dump_type, header_pages * PAGE_SIZE, wide)
    except BitmapError as error:
        vollog.warning(f"Crash dump of type {dump_type}: {error}")
        return Bitmap([], 0)
    if dump_type in PARTIAL_DUMPS:
        vollog.warning(f"The crash dump is {COMPLETENESSES[PARTIAL_DUMPS[dump_type]]}")
    if not found.runs:
        vollog.warning("The list of pages of the dump names no page of the file")
    if found.lost:
        vollog.warning(f"The file ends before {found.lost} pages that its header names: they are absent")
    if found.stated not in (None, found.counted) and not found.cut:
        vollog.warning(
            f"The bitmap has {found.counted} pages, and the file states {found.stated}: memory may be "
            "missing or misplaced"
        )
    if found.left_out or found.cut:
        vollog.warning(
            f"The list of pages is larger than those of Windows: {found.left_out} pages of the file and "
            f"{found.cut} bytes of the list are left out"
        )
    return found


def _pages(layer: interfaces.layers.DataLayerInterface, dump_type: int, header: int, wide: bool) -> Bitmap:
    read, size = bulk.file_reader(layer), int(layer.maximum_address) + 1
    if dump_type in bitmap.TYPES:
        return read_bitmap(read, size, header)
    if dump_type in pageranges.LIVE:
        return read_live(read, size, header)
    listed = read_block(read, wide)
    found = believed_pages(listed, header, size)
    vollog.warning(
        f"NumberOfRuns of the header is {listed.NumberOfRuns}, it has room for {listed.room}, and "
        f"NumberOfPages is {listed.NumberOfPages}: {len(found.runs)} runs are read, memory may be missing or "
        "misplaced"
    )
    return found
