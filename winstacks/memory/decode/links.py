# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Walks a doubly linked list (LIST_ENTRY): from both ends, or in one direction.

Windows keeps processes, threads, modules, heaps and locks in such lists. No other module follows one.
"""

from __future__ import annotations

from typing import Callable, Collection, Generator, Iterator, List, Optional, Set, Tuple

from .records import NamedTuple

MAX_NODES = 1 << 20

CLOSED = ""
UNREADABLE = "unreadable"
HEAD = "head"
MISMATCH = "link"
LIMIT = "limit"

Steps = Generator[int, None, "ListBreak"]
"""Yields the addresses of nodes, and returns where the walk ended."""

Links = Tuple[int, int]
"""Flink and Blink."""

ReadLinks = Callable[[int], Optional[Links]]
"""Takes the address of a LIST_ENTRY; returns its links, or None if it cannot be read."""


class ListBreak(NamedTuple):
    """The end of a walk.

    Attributes:
        link: address to which the last good node points
        reason: why the walk did not go there: the node there is `unreadable`, its opposite link does not
            point back (`link`), or the walk became too long (`limit`). `head`: the head itself cannot be
            read. Empty: the walk came back to the head
    """

    link: int
    reason: str


class ListGap(NamedTuple):
    """The break of the forward walk and the break of the backward walk."""

    forward: ListBreak
    backward: ListBreak

    @property
    def lost(self) -> Tuple[int, ...]:
        """The addresses of nodes that cannot be read but are known from a link, in list order."""
        return tuple(dict.fromkeys(end.link for end in self if end.reason == UNREADABLE))

    @property
    def one(self) -> bool:
        """Whether both walks came to one address: then at most the node there is missing."""
        return self.forward.link == self.backward.link

    @property
    def exact(self) -> bool:
        """Whether both walks broke at the same unreadable node: then only this node is missing."""
        return self.forward == self.backward and self.forward.reason == UNREADABLE


class ListWalk(NamedTuple):
    """The nodes of a list in its order, the head excluded.

    Attributes:
        before: nodes that the forward walk reached from the head
        after: nodes that the backward walk reached; empty if the forward walk came back to the head
        gap: the two breaks; None if no node is missing between the two walks
        altered: if no node is missing and one link is still wrong, the node (or the head) that has the
            wrong link. Windows never leaves a list in this state: it sets the links on both sides
    """

    before: Tuple[int, ...]
    after: Tuple[int, ...]
    gap: Optional[ListGap]
    altered: Optional[ListBreak] = None

    @property
    def nodes(self) -> Tuple[int, ...]:
        return self.before + self.after


def steps(
    head: int,
    read_links: ReadLinks,
    direction: int,
    limit: int = MAX_NODES,
    first: Optional[int] = None,
    known: Optional[Set[int]] = None,
) -> Steps:
    """Yields the nodes of a list in one direction until it comes back to the head.

    A node counts if it can be read and its opposite link points back to the node before it. So each node has
    one predecessor: no node comes twice, and a cycle can end only at the head.

    Args:
        head: address of the LIST_ENTRY to start from; it is not in the result
        read_links: reads a LIST_ENTRY; its addresses have the same form as `head`
        direction: 0 forward, 1 backward
        first: the node to start with, if the head's own link does not lead to it
        known: a set of visited nodes, for a damaged list: opposite links are not checked, and the walk ends
            at a node in this set. The walk adds its nodes to the set
    """
    previous, link = head, first
    if link is None:
        links = read_links(head)
        if links is None:
            return ListBreak(head, HEAD)
        link = links[direction]
    count = 0
    while link != head:
        if count >= limit:
            return ListBreak(link, LIMIT)
        links = read_links(link)
        if links is None:
            return ListBreak(link, UNREADABLE)
        if (links[1 - direction] != previous) if known is None else (link in known):
            return ListBreak(link, MISMATCH)
        if known is not None:
            known.add(link)
        yield link
        count += 1
        previous, link = link, links[direction]
    return ListBreak(head, CLOSED)


def take_nodes(walked: Steps) -> Tuple[List[int], ListBreak]:
    """Returns all nodes of a walk in one direction, and where it ended."""
    ends: List[ListBreak] = []

    def noting() -> Iterator[int]:
        ends.append((yield from walked))

    return list(noting()), ends[0]


def nodes(head: int, read_links: ReadLinks, limit: int) -> Iterator[int]:
    """Yields the nodes of a list one by one, for callers that need few; if it is damaged, also from its end.

    Args:
        head, read_links: as in `steps`
        limit: maximum number of nodes from either end
    """
    end = yield from steps(head, read_links, 0, limit)
    if end.reason in (UNREADABLE, MISMATCH):
        yield from steps(head, read_links, 1, limit)


def neighbour(link: int, read_links: ReadLinks, direction: int) -> Optional[int]:
    """Returns the next LIST_ENTRY in a direction (0 forward, 1 backward), None unless it points back."""
    links = read_links(link)
    opposite = None if links is None else read_links(links[direction])
    return None if links is None or opposite is None or opposite[1 - direction] != link else links[direction]


def walk(head: int, read_links: ReadLinks, limit: int = MAX_NODES) -> ListWalk:
    """Walks a list forward, and if it is damaged backward too. A node counts as in `steps`. `limit` is the
    maximum number of nodes that both walks together visit."""
    before, forward = take_nodes(steps(head, read_links, 0, limit))
    last = before[-1] if before else head
    head_links = read_links(head)
    if forward.reason == CLOSED and head_links is not None and head_links[1] == last:
        return ListWalk(tuple(before), (), None)
    after, backward = take_nodes(steps(head, read_links, 1, limit - len(before)))
    after.reverse()
    altered = _altered(head, before, after, forward, backward)
    return ListWalk(tuple(before), tuple(after), None if altered else ListGap(forward, backward), altered)


def absent_nodes(
    head: int,
    gap: Optional[ListGap],
    is_absent: Callable[[int], bool],
    is_possible: Callable[[int], bool],
) -> Set[int]:
    """Returns the nodes at which walks broke off because they are not in the image; the head among them if it
    is not.

    Args:
        head: as in `steps`
        is_absent: whether a node is not in the image
        is_possible: whether a node may be at an address: elsewhere no page of the list is missing
    """
    if gap is None or is_absent(head):
        return set() if gap is None else {head}
    return {end.link for end in gap if is_absent(end.link) and is_possible(end.link)}


def may_hide(head: int, gap: Optional[ListGap], absent: Collection[int]) -> bool:
    """Returns whether absent nodes may lead to nodes that are in the image: not if both walks come to one of
    them, because then no other node is missing. Behind an absent head all may be missing. `absent` is what
    `absent_nodes` returned."""
    return head in absent or (bool(absent) and gap is not None and not gap.one)


def _altered(
    head: int, before: List[int], after: List[int], forward: ListBreak, backward: ListBreak
) -> Optional[ListBreak]:
    """Returns the only wrong link of a list if the two walks together found all nodes, else None."""
    if after and forward == ListBreak(after[0], MISMATCH):
        return forward
    if before and backward == ListBreak(before[-1], MISMATCH):
        return backward
    one_way = (forward.reason == CLOSED and not after) or (backward.reason == CLOSED and not before)
    return ListBreak(head, MISMATCH) if one_way else None
