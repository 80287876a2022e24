# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The inputs for reading a process's heaps: their structures, its private memory, and what its PEB lists."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from ..base import pages, tables
from ..base.decode.memory import Range, join
from ..base.decode.status import NOTHING, Said, Status, Word, status
from ..base.decode.structure import MissingMemberError, Structures
from ..base.image import Image
from ..base.space import ARCHES, AddressSpace
from ..base.vads import Vads
from .decode.find import HeapTypes
from .decode.page import PageHeapTypes
from .decode.segmentheap import SegmentHeapTypes
from .decode.types import nt_types

MAX_HEAPS = 0x10000

# What is longer is taken page by page as the page tables have it: ranges of terabytes are reserved.
_LONG = 0x4000000


class HeapSpace:
    """The memory of a process in which heaps are looked for.

    Attributes:
        ranges: (start, end) of all of its memory
        private: (start, end) of what no file backs, as it was reserved
        whole: whether the VADs say so; else the page tables do, and `private` is all that they map
        repeated: how often page tables lead to a table or a large page of theirs once more: what that would
            map is in no range
    """

    def __init__(
        self, ranges: Sequence[Range], private: Sequence[Range], whole: bool, repeated: int = 0
    ) -> None:
        self.ranges, self.private, self.whole = tuple(ranges), tuple(private), whole
        self.repeated = repeated


def load_types(image: Image, pointer_size: int) -> HeapTypes:
    """Returns the structures of the heaps of a bitness: the kernel's where it has that bitness, then ours.

    Args:
        image: the image
        pointer_size: of the half of a process: 4 or 8

    Raises:
        tables.MissingTableError: when one of our symbol tables is missing
    """
    arch = ARCHES[pointer_size]
    kernel = image.types if pointer_size == image.pointer_size else None
    ours = [image.our_types(f"heap-{name}-{arch}") for name in tables.generations("heap", arch)]
    segment = image.our_types(f"heap-segment-{arch}")
    return HeapTypes(
        nt_types(kernel, ours, pointer_size),
        PageHeapTypes(image.our_types(f"heap-page-{arch}")),
        _segment_types(Structures.chain([kernel, segment]) if kernel else segment, pointer_size),
    )


def find_space(image: Image, space: AddressSpace) -> HeapSpace:
    """Returns the memory of one half of a process."""
    top = 1 << 8 * space.pointer_size
    listed, whole = image.part(Vads).list_vads(space)
    if not whole:
        mapped, repeated = _mapped(
            image, space, [(0, min(top, (image.layer_of(space).maximum_address + 1) // 2))]
        )
        return HeapSpace(mapped, mapped, False, repeated)
    vads = sorted(vad for vad in listed if vad.start < vad.end <= top)
    whole_vads = [(vad.start, vad.end) for vad in vads]
    long = join(each for each in whole_vads if each[1] - each[0] > _LONG)
    ranges, repeated = _mapped(image, space, long)
    ranges += [each for each in whole_vads if each[1] - each[0] <= _LONG]
    private = [(vad.start, vad.end) for vad in vads if not vad.control_area]
    return HeapSpace(ranges, private, True, repeated)


def listed_heaps(image: Image, space: AddressSpace) -> Optional[List[int]]:
    """Returns the heaps that a PEB lists, None when it or its list is not present or contradicts itself.

    Raises:
        tables.MissingTableError: when one of our symbol tables is missing
    """
    number, array, default = _read_list(image, space)
    if not array or number is None or not 0 < number <= MAX_HEAPS:
        return None
    size = space.pointer_size
    data = image.memory(space).read(array, number * size)
    if data is None:
        return None
    heaps = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    return list(dict.fromkeys(heap for heap in [*heaps, default] if heap))


def list_contradicted(image: Image, space: AddressSpace, where: HeapSpace) -> Status:
    """Returns what is wrong with a PEB's list of heaps; nothing of one that is paged out or not yet made."""
    number, array, _ = _read_list(image, space)
    if not number and not array:
        return NOTHING
    wrong = []
    if number is not None and not 0 < number <= MAX_HEAPS:
        wrong.append("NumberOfHeaps")
    if array is not None and where.whole and not any(start <= array < end for start, end in where.ranges):
        wrong.append("ProcessHeaps")
    return status(Said(Word.CONTRADICTED, members=tuple(wrong)) if wrong else None)


def _read_list(image: Image, space: AddressSpace) -> Tuple[Optional[int], Optional[int], Optional[int]]:
    """Returns NumberOfHeaps, ProcessHeaps and ProcessHeap of a PEB; None for what is not present."""
    if not space.peb:
        return None, None, None
    memory, peb = image.memory(space), image.process_types(space.pointer_size)["_PEB"]
    fields = [peb.field(name) for name in ("NumberOfHeaps", "ProcessHeaps", "ProcessHeap")]
    number, array, default = (memory.member(space.peb, each) for each in fields)
    return number, array, default


def _segment_types(types: Structures, pointer_size: int) -> Optional[SegmentHeapTypes]:
    """Returns the structures of segment heaps, None if the kernel's symbols lack a member that is read."""
    try:
        return SegmentHeapTypes(types, pointer_size)
    except MissingMemberError:
        return None


def _mapped(image: Image, space: AddressSpace, ranges: Sequence[Range]) -> Tuple[List[Range], int]:
    """Returns what the page tables map of ranges of the user's half, and how often they repeat themselves."""
    return pages.mapped(image.context, image.layer_of(space), ranges)
