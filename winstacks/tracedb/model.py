# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A trace database of an address space, the way it was found, and its possible layouts."""

from __future__ import annotations

from typing import List, Optional

from ..memory import tables
from ..memory.decode.machine import Machine
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status
from ..memory.image import AddressSpace, Image
from .decode.header import Header
from .decode.layout import BacktracesLayout, HeapLogLayout, StdLayout


class Database(NamedTuple):
    """A database, and the way it was found.

    Attributes:
        kind: `std`, or `heaplog` for the heap's trace log
        located_by: a word of `words.LOCATIONS`
        layout: name of the layout; empty if the header fits no layout
        header: header of an `std`; None if it is too damaged, and for a `heaplog`
        status: faults of the header; empty for none
        log: the layout of a `heaplog`, None for an `std`
    """

    space: AddressSpace
    kind: str
    address: int
    located_by: str
    layout: str
    header: Optional[Header]
    status: Status
    log: Optional[HeapLogLayout] = None


class SearchResult(NamedTuple):
    """The databases of an address space.

    Attributes:
        status: reasons why others may have been missed; empty for none
        log_status: reasons why the heap's trace log may have been missed; empty for none
    """

    databases: List[Database]
    status: Status
    log_status: Status = NOTHING


class Layouts:
    """The layouts for the databases of one bitness.

    They come from our symbol tables only. The kernel's symbols have the kernel's bitness, and a database of a
    WoW64 process may have the other one. `image` is the image; our tables are loaded into its context.

    Attributes:
        std: one layout of a Stack Trace Database for each table `std-<version>-<arch>`
        heaplogs: the layouts of the heap's trace log, the newest first
    """

    def __init__(self, image: Image, machine: Machine) -> None:
        arch, pointer_size = machine.arch, machine.pointer_size
        self.std = tuple(
            StdLayout(name, image.our_types(f"std-{name}-{arch}"), pointer_size)
            for name in tables.generations("std", arch)
        )
        self.heaplogs = tuple(
            HeapLogLayout(types, pointer_size) for types in image.our_generations("heaplog", machine)
        )
        self._backtraces = [
            (tables.version(name), BacktracesLayout(types, pointer_size))
            for name, types in zip(
                tables.generations("backtraces", arch), image.our_generations("backtraces", machine)
            )
        ]

    def backtraces(self, build: Optional[int] = None) -> BacktracesLayout:
        """Returns the layout in which Windows returns a database (RTL_PROCESS_BACKTRACES).

        An image holds no such buffer whose content could show the layout, so the build number decides: the
        last part of a version such as 10.0.26100. `build` is the build number of the image's Windows. If it
        is None (unknown), the result is a layout without the members that a later build added.
        """
        for version, layout in self._backtraces:
            since = version[2] if len(version) > 2 else None
            if since is None or (build is not None and build >= since):
                return layout
        return self._backtraces[-1][1]
