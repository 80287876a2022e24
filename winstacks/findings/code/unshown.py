# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Executable memory of no file in a process that has lost a stack: whether a thread runs there is unknown.

A thread in private code is found by its stack. If the stack is not in the image, or not all of it, the
memory is there, all the same. That is less than a frame: programs have such memory for good reasons, too. So
anything that explains code of no file explains it, and what nothing explains is `low`: it says where to look.
"""

from __future__ import annotations

import functools
from typing import Collection, Iterator, Optional, Tuple

from ...columns.words import USER, WOW64
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.image import AddressSpace
from ...process.regions import Region
from ...process.thread import Thread
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from .leftovers import executable_regions, exports_lost, unexplained
from .relays import product_in

_MOST_PAGES = 16
"""Pages at the start of a region that are read: engines reserve more for their code."""
_WRITE = "WRITE"
"""In the names of protections: engines that no list names seldom ask for memory to write and execute at once,
so that such memory counts where a program's exports, which would show a runtime, are lost."""
_KEPT = f"{__name__}: unexplained"


class Unshown(NamedTuple):
    """A region with code of no file, to which no stack leads, because one is not in the image.

    Attributes:
        address: of the first bytes of the region that are in the image, and not zeros
        region: its start
    """

    thread: Thread
    address: int
    region: int
    innocent: str


def unshown(stack: StackRecord, shown: Collection[int], facts: CheckFacts) -> Iterator[Unshown]:
    """Yields the unexplained regions with code of no file of a process, if a stack of a thread is lost.
    `shown` are starts of regions to which values of the stack lead."""
    thread, space = stack.thread, stack.space
    if thread is None or stack.kind not in (USER, WOW64) or thread.unusable or not stack.is_lost:
        return
    if thread.ended or not space.layer_name:
        return
    known = {facts.vad(space, frame.address) for frame in stack.frames if frame.address is not None}
    for vad in executable_regions(space, facts):
        if vad not in known and vad.start not in shown and vad.end - 1 <= space.machine.address_mask:
            found = facts.find_once(
                _KEPT, space, vad.start, functools.partial(_unexplained, space, vad, facts)
            )
            if found is not None:
                lost = f"the stack of TID {thread.tid} is not all in the image"
                reason = f"{found[1]}; {lost}: whether it leads there is unknown"
                yield Unshown(thread, found[0], vad.start, reason)


def _unexplained(space: AddressSpace, vad: Region, facts: CheckFacts) -> Optional[Tuple[int, str]]:
    """Returns the first bytes in a region, and the text of Innocent; None if something explains them."""
    if _WRITE not in vad.protection_name and exports_lost(space, facts):
        return None
    read = facts.image.memory(space).read
    for page in range(vad.start, min(vad.end, vad.start + _MOST_PAGES * PAGE_SIZE), PAGE_SIZE):
        data = read(page, PAGE_SIZE)
        if data is None or not any(data):
            continue
        innocent = unexplained(space, page, facts)
        served = innocent is None or product_in(space, data, facts) is not None
        return None if innocent is None or served else (page, innocent)
    return None
