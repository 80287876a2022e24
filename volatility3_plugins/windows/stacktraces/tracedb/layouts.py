# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The layouts of the decoders, from our symbol tables."""

from __future__ import annotations

from ..base import tables
from ..base.image import Image
from ..base.space import ARCHES
from .decode.layout import BacktracesLayout, HeapLogLayout, StdLayout


class Layouts:
    """The layouts for the databases of one bitness.

    They come from our tables only, never from the kernel's symbols: these have the kernel's bitness, and the
    databases of a WoW64 process are of the other one.

    Args:
        image: the image; its context takes the tables
        pointer_size: of the databases: 4 or 8

    Attributes:
        std: one layout of a Stack Trace Database for each table `std-<version>-<arch>`
        heaplog: the layout of the heap's trace log
        backtraces: the layout of RTL_PROCESS_BACKTRACES

    Raises:
        tables.MissingTableError: when one of our symbol tables is missing
    """

    def __init__(self, image: Image, pointer_size: int) -> None:
        arch = ARCHES[pointer_size]
        self.std = tuple(
            StdLayout(name, image.our_types(f"std-{name}-{arch}"), pointer_size)
            for name in tables.generations("std", arch)
        )
        self.heaplog = HeapLogLayout(image.our_types(f"heaplog-{arch}"), pointer_size)
        self.backtraces = BacktracesLayout(image.our_types(f"backtraces-{arch}"), pointer_size)
