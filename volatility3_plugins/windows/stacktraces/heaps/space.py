# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where a process's heaps may be: its private memory, and what its PEB lists."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces

from ..base import bulk
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from ..base.vads import Vads
from .layouts import HeapTypes

MAX_HEAPS = 0x10000

# What is longer is taken page by page as the page tables have it: ranges of terabytes are reserved.
_LONG = 0x4000000


class HeapSpace(NamedTuple):
    """The memory of a process in which heaps are looked for.

    Attributes:
        ranges: (start, end) of all of its memory
        private: (start, end) of what no file backs, as it was reserved
        whole: whether the VADs say so; else the page tables do, and `private` is all that they map
    """

    ranges: List[Tuple[int, int]]
    private: List[Tuple[int, int]]
    whole: bool


def find_space(context: interfaces.context.ContextInterface, vads: Vads, space: AddressSpace) -> HeapSpace:
    """Returns the memory of one half of a process.

    Args:
        context: the context that holds the process's layer
        vads: reads VAD trees
        space: the half of a process
    """
    top = 1 << 8 * space.pointer_size
    listed, whole = vads.list_vads(space.eprocess) if space.eprocess else ([], False)
    listed = sorted(vad for vad in listed if vad.start < vad.end <= top)
    if not whole:
        layer = context.layers[space.layer_name]
        mapped = _mapped(context, space, 0, min(top, (layer.maximum_address + 1) // 2))
        return HeapSpace(mapped, mapped, False)
    ranges: List[Tuple[int, int]] = []
    for vad in listed:
        if vad.end - vad.start > _LONG:
            ranges += _mapped(context, space, vad.start, vad.end)
        else:
            ranges.append((vad.start, vad.end))
    return HeapSpace(ranges, [(vad.start, vad.end) for vad in listed if not vad.control_area], True)


def listed_heaps(
    context: interfaces.context.ContextInterface, space: AddressSpace, types: HeapTypes
) -> Optional[List[int]]:
    """Returns the heaps that a PEB lists, None when it or its list is not present or contradicts itself."""
    peek = Peek(context, space.layer_name, space.pointer_size)
    count = peek.read(space.peb + types.heap_count, 4) if space.peb else None
    array = peek.pointer(space.peb + types.heaps) if space.peb else None
    default = peek.pointer(space.peb + types.process_heap) if space.peb else None
    if count is None or not array:
        return None
    number = int.from_bytes(count, "little")
    data = peek.read(array, number * space.pointer_size) if 0 < number <= MAX_HEAPS else None
    if data is None:
        return None
    size = space.pointer_size
    heaps = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    return list(dict.fromkeys(heap for heap in [*heaps, default] if heap))


def _mapped(
    context: interfaces.context.ContextInterface, space: AddressSpace, start: int, end: int
) -> List[Tuple[int, int]]:
    """Returns the ranges that the page tables map; they may be present or not."""
    layer = context.layers[space.layer_name]
    found: List[Tuple[int, int]] = []
    first = bulk.masked(layer, start)
    for offset, size, *_ in layer.mapping(first, end - start, ignore_errors=True):
        at = bulk.canonical(layer, offset)
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + size)
        else:
            found.append((at, at + size))
    return found
