# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Walks a doubly linked list (LIST_ENTRY) from both ends.

Windows keeps threads, modules and locks in such lists.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Tuple

MAX_NODES = 1 << 20

CLOSED = ""
UNREADABLE = "unreadable"
HEAD = "head"
MISMATCH = "link"
LIMIT = "limit"

Links = Tuple[int, int]
"""Flink and Blink."""

ReadLinks = Callable[[int], Optional[Links]]
"""Takes the address of a LIST_ENTRY; returns its links, or None if it cannot be read."""


class Break(NamedTuple):
    """Where a walk ended before it came back to the head.

    Attributes:
        link: the address to which the last good node points
        reason: why the walk did not go there: the node there is `unreadable`, its opposite link does not
            point back (`link`), or the walk became too long (`limit`). `head`: the head itself cannot be read
    """

    link: int
    reason: str


class Gap(NamedTuple):
    """The break that the walk forward met and the one that the walk backward met."""

    forward: Break
    backward: Break

    @property
    def lost(self) -> Tuple[int, ...]:
        """The nodes that cannot be read, but whose addresses are known, in list order."""
        return tuple(dict.fromkeys(end.link for end in self if end.reason == UNREADABLE))

    @property
    def exact(self) -> bool:
        """Whether both breaks are at the same unreadable node: then only this node is missing."""
        return self.forward == self.backward and self.forward.reason == UNREADABLE


class Walk(NamedTuple):
    """The nodes of a list in its order, the head excluded.

    Attributes:
        before: the nodes that the walk forward reached from the head
        after: those that the walk backward reached; empty when the walk forward came back to the head
        gap: None when no node is missing between the two
        altered: if no node is missing and yet one link is wrong, the node (or the head) that has the wrong
            link. Windows never leaves a list so: it sets the links on both sides
    """

    before: Tuple[int, ...]
    after: Tuple[int, ...]
    gap: Optional[Gap]
    altered: Optional[Break] = None

    @property
    def nodes(self) -> Tuple[int, ...]:
        return self.before + self.after


def walk(head: int, read_links: ReadLinks, limit: int = MAX_NODES) -> Walk:
    """Walks a list forward, and backward too if it is damaged.

    A node counts when it can be read and its opposite link points back to the node before it. So each node
    has one predecessor: the walk reaches no node twice, and can end in a cycle only at the head.

    Args:
        head: address of the LIST_ENTRY to start from; it is not in the result
        read_links: how to read a LIST_ENTRY; its addresses are of the same form as `head`
        limit: the most nodes that both walks together visit
    """
    before, forward = _follow(head, read_links, 0, limit)
    last = before[-1] if before else head
    ends = read_links(head)
    if forward.reason == CLOSED and ends is not None and ends[1] == last:
        return Walk(tuple(before), (), None)
    after, backward = _follow(head, read_links, 1, limit - len(before))
    after.reverse()
    altered = _altered(head, before, after, forward, backward)
    return Walk(tuple(before), tuple(after), None if altered else Gap(forward, backward), altered)


def _altered(
    head: int, before: List[int], after: List[int], forward: Break, backward: Break
) -> Optional[Break]:
    """Returns where a list's only wrong link is, if the two walks together found all nodes, else None."""
    if after and forward == Break(after[0], MISMATCH):
        return forward
    if before and backward == Break(before[-1], MISMATCH):
        return backward
    one_way = (forward.reason == CLOSED and not after) or (backward.reason == CLOSED and not before)
    return Break(head, MISMATCH) if one_way else None


def _follow(head: int, read_links: ReadLinks, direction: int, limit: int) -> Tuple[List[int], Break]:
    """Returns the nodes in one direction (0 forward, 1 backward) and where that ended."""
    nodes: List[int] = []
    links = read_links(head)
    if links is None:
        return nodes, Break(head, HEAD)
    previous, link = head, links[direction]
    while link != head:
        if len(nodes) >= limit:
            return nodes, Break(link, LIMIT)
        links = read_links(link)
        if links is None:
            return nodes, Break(link, UNREADABLE)
        if links[1 - direction] != previous:
            return nodes, Break(link, MISMATCH)
        nodes.append(link)
        previous, link = link, links[direction]
    return nodes, Break(head, CLOSED)
