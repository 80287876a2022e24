# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the nodes of a kernel list whose head no longer leads to them: those that still point to the head.

All of physical memory is searched for the head's address. So this is only for lists that are empty and that
Windows fills while it starts.
"""

from __future__ import annotations

from typing import Iterator, List, Set, Tuple

from volatility3.framework import exceptions

from . import bulk
from .decode import links
from .image import Image

_CHUNK = 1 << 22
MAX_HITS = 1 << 12
"""The most places that hold the head's address and are looked at."""


def orphans(image: Image, head: int, limit: int) -> List[int]:
    """Returns the nodes of a list, in its order, found without its head.

    Args:
        image: the image
        head: canonical address of the head
        limit: the most nodes

    Returns:
        The addresses of their links; empty if no two nodes in the image lead to the head and to each other.
    """
    memory = image.memory(image.kernel)
    for node, forward in _ends(image, head):
        nodes = _follow(memory.links, node, head, forward, limit)
        if len(nodes) > 1:
            return nodes if not forward else nodes[::-1]
    return []


def _follow(read: links.ReadLinks, node: int, head: int, direction: int, limit: int) -> List[int]:
    """Returns the nodes from an end of the list on, as long as each points back to the one before."""
    found: List[int] = []
    seen: Set[int] = {head}
    before = head
    while node not in seen and len(found) < limit:
        ends = read(node)
        if ends is None or ends[1 - direction] != before:
            break
        seen.add(node)
        found.append(node)
        before, node = node, ends[direction]
    return found


def _ends(image: Image, head: int) -> Iterator[Tuple[int, int]]:
    """Yields (address, direction away from the head) of nodes of which one link is the head's address."""
    size, own = image.pointer_size, _place(image, head)
    below = image.layer.config["memory_layer"]
    pattern = head.to_bytes(size, "little")
    hits = 0
    for start in range(0, image.context.layers[below].maximum_address + 1, _CHUNK):
        for low, data in bulk.read_extents(image.context, below, start, _CHUNK).runs:
            at = data.find(pattern)
            while at >= 0 and hits < MAX_HITS:
                if not (low + at) % size and low + at - own not in (0, size):
                    hits += 1
                    yield from _nodes(image, data, at, low)
                at = data.find(pattern, at + 1)


def _nodes(image: Image, data: bytes, at: int, low: int) -> Iterator[Tuple[int, int]]:
    """Yields the node in whose links the head's address was found: as Blink of the first, Flink of the last.

    Its own virtual address is in its neighbour.
    """
    memory, size = image.memory(image.kernel), image.pointer_size
    for direction, start, other in ((0, at - size, at - size), (1, at, at + size)):
        neighbour = int.from_bytes(data[other : other + size], "little") if other >= 0 else 0
        ends = memory.links(neighbour) if bulk.is_canonical(image.layer, neighbour) else None
        node = ends[1 - direction] if ends is not None else None
        if node is not None and _place(image, node) == low + start:
            yield node, direction


def _place(image: Image, address: int) -> int:
    """Returns where an address lies in physical memory; -1 if nowhere."""
    try:
        return int(image.layer.translate(bulk.masked(image.layer, address))[0])
    except exceptions.InvalidAddressException:
        return -1
