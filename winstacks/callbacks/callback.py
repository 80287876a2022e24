# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One function that Windows will call, or the place of such functions that cannot be read."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Optional, Tuple

from ..memory.decode import links
from ..memory.decode.memory import Memory
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode

DPC, WORK_ITEM, APC, INSTRUMENTATION = "DPC", "work item", "APC", "InstrumentationCallback"
KERNEL_CALLBACK = "KernelCallbackTable"
"""The sorts of callbacks, besides timers: the words of OwnerName."""

MAX_CALLBACKS = 1 << 16
"""The most nodes of lists of callbacks that are read of an image: a busy server has some thousand."""


class Callback(NamedTuple):
    """A function that Windows will call. Addresses are canonical.

    Attributes:
        sort: the structure that leads to it, one of the words above, or `words.TIMER`
        address: address of this structure; where nothing could be read, of the list or table
        routines: the function; before it the function that it calls at once. Empty where nothing could be
            read: the row stands for what is missing
    """

    sort: str
    address: int
    routines: Tuple[int, ...] = ()
    status: Status = NOTHING


def missing(sort: str, place: int, faults: Status, unread: int) -> Iterator[Callback]:
    """Yields the row for what of a list or table cannot be read, if anything."""
    count = StatusItem(StatusCode.CALLBACKS_UNREADABLE, unread) if unread else None
    if faults or count:
        yield Callback(sort, place, (), status(faults, count))


def is_unused(heads: Iterable[Optional[links.Links]]) -> bool:
    """Returns whether all links of heads that can be read are 0: Windows never set up their lists.

    Windows sets up all heads of a table or a thread at once. So a single head that is 0 was overwritten.
    """
    return not any(link for pair in heads for link in pair or ())


class ListFollower:
    """Follows lists of callbacks; all of them together have at most MAX_CALLBACKS nodes."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._left = MAX_CALLBACKS

    def follow(self, head: int) -> Tuple[Tuple[int, ...], Status]:
        """Returns the nodes of a list, and what is wrong with the list."""
        walk = links.walk(head, self._memory.links, self._left)
        self._left -= len(walk.nodes)
        if walk.gap is None:
            return walk.nodes, status(StatusCode.LIST_DAMAGED if walk.altered else None)
        reasons = {end.reason for end in walk.gap}
        if links.HEAD in reasons:
            return walk.nodes, status(StatusCode.LIST_HEAD_UNREADABLE)
        return walk.nodes, status(StatusCode.LIMIT if links.LIMIT in reasons else StatusCode.LIST_BROKEN)

    def follow_single(self, first: int) -> Tuple[Tuple[int, ...], Status]:
        """Returns the nodes of a list whose last node points to 0, and what is wrong with the list. `first`
        is the address of the first node, 0 if there is none."""
        nodes: List[int] = []
        seen = set()
        link = first
        while link:
            if not self._left:
                return tuple(nodes), status(StatusCode.LIMIT)
            following = self._memory.pointer(link)
            if following is None or link in seen:
                return tuple(nodes), status(StatusCode.LIST_BROKEN)
            self._left -= 1
            seen.add(link)
            nodes.append(link)
            link = following
        return tuple(nodes), NOTHING
