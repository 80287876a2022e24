# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Doubly linked lists (LIST_ENTRY) of an image, walked from both ends.

Anybody who walks such a list may use this: threads, modules and locks are all kept in them.
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
"""address of a LIST_ENTRY -> its links, None where it cannot be read."""


class Break(NamedTuple):
    """Where a walk ended before it came back to the head.

    `link` is the address that the last good node names; `reason` says why it was not followed: it is
    `unreadable`, its opposite link does not lead back (`link`), or the walk became too long (`limit`).
    When the head itself cannot be read the reason is `head`.
    """

    link: int
    reason: str


class Gap(NamedTuple):
    """The break that the walk forward met and the one that the walk backward met."""

    forward: Break
    backward: Break

    @property
    def lost(self) -> Tuple[int, ...]:
        """The nodes whose addresses are known although they cannot be read, in list order."""
        return tuple(dict.fromkeys(end.link for end in self if end.reason == UNREADABLE))

    @property
    def exact(self) -> bool:
        """Whether both breaks are at one unreadable node: then nothing else is missing."""
        return self.forward == self.backward and self.forward.reason == UNREADABLE


class Walk(NamedTuple):
    """The nodes of a list in its order, the head excluded.

    `before` were reached forward from the head and `after` backward; `after` is empty when the walk forward
    came back to the head. `gap` is None when no node is missing between the two. `altered` then names the
    node, or the head, whose one wrong link breaks the list nevertheless: Windows unlinks both sides at once.
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

    A node counts when it can be read and its opposite link leads back to the node before it. So a chain
    cannot close on itself anywhere but at the head, and no node is reached twice: a node has one predecessor.

    Args:
        head: address of the LIST_ENTRY to start from, itself no part of the result
        read_links: how to read a LIST_ENTRY; its addresses are of the same form as `head`
        limit: nodes in all after which the walk gives up
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
    """Returns where the one wrong link of a list is that the two walks tell of completely, else None."""
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
