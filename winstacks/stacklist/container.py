# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks the length of an image's file against its container or, without one, against the kernel.

A crash dump holds the runs or the bitmap of its pages, an ELF core its program headers, a VMware image its
tags: Volatility turns these into segments. A raw image has no container: its length is compared with the
kernel's count (MmNumberOfPhysicalPages), and with the physical addresses of page tables, processes, threads
and their stacks, which must lie in memory that the machine had.
"""

from __future__ import annotations

import itertools
import logging
from typing import Iterable, Iterator, Optional, Protocol, Tuple, runtime_checkable

from volatility3.framework import interfaces
from volatility3.framework.layers import intel, segmented

from ..memory import bulk
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.records import NamedTuple
from ..memory.image import Image
from ..process.cidtable import CID_TABLE, CidTable
from ..process.processlist import page_tables, process_list, process_member

vollog = logging.getLogger(__name__)

MAX_STRUCTURES = 1 << 14
"""The most structures whose physical address is compared with the length of the file."""

_PAGE = ~0xFFF
_ADDRESS = (1 << 52) - 1
"""The bits of DirectoryTableBase that hold a physical address."""


_HOLES = 16 << 30
"""The most bytes of a PC's physical addresses that are not memory: below 4 GB, and below 1 TB with AMD."""


@runtime_checkable
class CutLayer(Protocol):
    """A layer over a file that states which memory it holds. `bytes_behind_the_end` counts the bytes of this
    memory behind the end of the file, which no segment has."""

    bytes_behind_the_end: int


class FileLength(NamedTuple):
    """The length that a file should have.

    Attributes:
        expected: bytes of memory that the file should hold; None if nothing in the image states it
        missing: how many of these bytes lie behind the end of the file
    """

    expected: Optional[int]
    missing: int

    @property
    def truncated(self) -> Optional[bool]:
        """Whether the file ends too early; None if the expected length is unknown."""
        return None if self.expected is None else self.missing > 0

    @property
    def share(self) -> Optional[int]:
        """The missing share in percent, rounded up; None if the expected length is unknown."""
        return -(-100 * self.missing // self.expected) if self.expected else None


def file_length(image: Image) -> FileLength:
    """Returns the expected length of the image (`image.service(file_length)`); warns if the file is cut."""
    length = _measure(image)
    if length.missing:
        vollog.warning(
            f"The image is truncated: {length.missing} of the {length.expected} bytes that it should have "
            f"({length.share} %) are missing at its end, and the data there is missing from all rows"
        )
    return length


def _measure(image: Image) -> FileLength:
    if not image.table_name:
        return FileLength(None, 0)
    layer = image.context.layers[image.layer.config["memory_layer"]]
    if isinstance(layer, segmented.NonLinearlySegmentedLayer):
        expected = missing = layer.bytes_behind_the_end if isinstance(layer, CutLayer) else 0
        for end, length in _segments(image, layer):
            expected += length
            missing += min(max(end, 0), length)
        return FileLength(expected or None, missing)
    size = int(layer.maximum_address) + 1
    pages = image.memory(image.kernel).pointer(image.symbol("MmNumberOfPhysicalPages"))
    most = (pages * PAGE_SIZE if pages else _ADDRESS) + _HOLES
    known = max((place for place in _places(image) if place < most), default=0) + PAGE_SIZE
    # A count alone is no proof: memory without content may have been left out at the end.
    should = max((pages or 0) * PAGE_SIZE, known) if known > size else 0
    return FileLength(should or None, max(should - size, 0))


def _segments(image: Image, layer: segmented.NonLinearlySegmentedLayer) -> Iterator[Tuple[int, int]]:
    """Yields for each segment how many bytes it ends behind the end of the file, and its length."""
    base: interfaces.layers.DataLayerInterface = image.context.layers[layer.config["base_layer"]]
    size = int(base.maximum_address) + 1
    for _, start, _, length in layer._segments:
        yield int(start) + int(length) - size, int(length)


def _places(image: Image) -> Iterator[int]:
    """Yields physical addresses of page tables, processes, threads, kernel stacks and PspCidTable."""
    processes = [process.eprocess for process in image.service(process_list).processes()]
    members = (process_member(image, eprocess, "Pcb.DirectoryTableBase") for eprocess in processes)
    roots = {page_tables(image, member) & _PAGE & _ADDRESS for member in members if member is not None}
    # The highest root alone is not a proof: one altered member would make any image look cut.
    yield from sorted(roots)[:-1]
    if not isinstance(image.layer, intel.Intel):
        return
    tables = image.page_tables(image.layer)
    for address in itertools.islice(_structures(image, processes), MAX_STRUCTURES):
        place = tables.physical(bulk.masked(image.layer, address))
        if place is not None and image.machine.is_canonical(address):
            yield place & _PAGE


def _structures(image: Image, processes: Iterable[int]) -> Iterator[int]:
    """Yields canonical addresses of kernel structures, whether the image holds them or not."""
    memory, ids = image.memory(image.kernel), image.service(CidTable)
    thread, table = image.types.find("_ETHREAD"), memory.pointer(image.symbol(CID_TABLE))
    yield from (*filter(None, (table,)), *processes, *ids.unread, *ids.threads)
    stack, entry = thread.first_member("Tcb.KernelStack"), thread.first_member("ThreadListEntry")
    for eprocess in processes if entry is not None else ():
        for link in (process_member(image, eprocess, f"ThreadListHead.{end}") for end in ("Flink", "Blink")):
            if link and entry is not None:
                yield link - entry.offset
    for ethread in ids.threads if stack is not None else ():
        yield memory.member(ethread, stack) or ethread
