# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A trace database of an address space, how it was found, and the layouts that it may have."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from ..memory import tables
from ..memory.decode.machine import Machine
from ..memory.decode.status import Status
from ..memory.image import AddressSpace, Image
from .decode.header import Header
from .decode.layout import BacktracesLayout, HeapLogLayout, StdLayout

STD = "std"
HEAPLOG = "heaplog"
BY_SYMBOL = "symbol"
BY_SEARCH = "search"


class Database(NamedTuple):
    """A database and how it was found.

    Attributes:
        space: the address space in which it is
        kind: `std`, or `heaplog` for the heap's trace log
        address: canonical
        located_by: `symbol` or `search`
        layout: the name of its layout; empty if the header fits no layout
        header: the header of an `std`; None if it is too damaged, and for a `heaplog`
        status: what is wrong with the header; empty if nothing is
    """

    space: AddressSpace
    kind: str
    address: int
    located_by: str
    layout: str
    header: Optional[Header]
    status: Status


class Found(NamedTuple):
    """The databases of an address space; `status` says why others may not have been found."""

    databases: List[Database]
    status: Status


class Layouts:
    """The layouts for the databases of one bitness.

    They come from our tables only, never from the kernel's symbols: these have the kernel's bitness, and the
    databases of a WoW64 process are of the other one.

    Args:
        image: the image; its context takes the tables
        machine: that of the half of a process

    Attributes:
        std: one layout of a Stack Trace Database for each table `std-<version>-<arch>`
        heaplog: the layout of the heap's trace log
        backtraces: the layout of RTL_PROCESS_BACKTRACES

    Raises:
        tables.MissingTableError: when one of our symbol tables is missing
    """

    def __init__(self, image: Image, machine: Machine) -> None:
        arch, pointer_size = machine.arch, machine.pointer_size
        self.std = tuple(
            StdLayout(name, image.our_types(f"std-{name}-{arch}"), pointer_size)
            for name in tables.generations("std", arch)
        )
        self.heaplog = HeapLogLayout(image.our_types(f"heaplog-{arch}"), pointer_size)
        self.backtraces = BacktracesLayout(image.our_types(f"backtraces-{arch}"), pointer_size)
