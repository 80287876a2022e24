# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""KWAIT_BLOCKs: the objects for which the kernel makes a thread wait.

Since Windows 8 the blocks of a wait are an array with a count; before, each leads to the next, in a ring that
may hold the block of the thread's own timer. Source: public symbols of XP to 11 (KTHREAD.WaitBlockList,
WaitBlockCount, KWAIT_BLOCK.NextWaitBlock). Numbers of object types: the public enumeration KOBJECTS.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Set, Tuple

from ...columns import words
from ...memory.decode.memory import ReadMemory
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, Field, Structure, unsigned

MAX_OBJECTS = 64
"""MAXIMUM_WAIT_OBJECTS."""

MAX_LISTED = 256
"""The most blocks of an object's list that are followed for one thread."""

_TYPE_MASK = 0x7F
"""The bit above is a lock."""

_ALL_OF_XP = 0
"""WaitAll of KWAIT_BLOCK.WaitType; 1 is WaitAny."""

KINDS = {
    0: words.EVENT,
    1: words.EVENT,
    2: words.MUTANT,
    3: words.JOINED_PROCESS,
    4: words.QUEUE,
    5: words.SEMAPHORE,
    6: words.JOINED_THREAD,
    7: words.GATE,
    8: words.TIMER,
    9: words.TIMER,
}
"""Kinds by DISPATCHER_HEADER.Type."""


class WaitBlock(NamedTuple):
    """A wait block: its address, the object, and whether the wait is for all objects.

    `listed` is whether the object's list of waiting threads has the block, None if a part of that list is not
    in the image; `thread` is its KTHREAD.
    """

    address: int
    object: int
    thread: int
    all: bool
    listed: Optional[bool]


class WaitBlocks(NamedTuple):
    """The blocks of a wait, whether all could be read, and the members that lists of objects contradict."""

    blocks: Tuple[WaitBlock, ...]
    whole: bool
    wrong: Tuple[str, ...] = ()


class WaitBlockReader:
    """Reads the wait blocks of threads.

    Args:
        thread, block, header: `_KTHREAD`, `_KWAIT_BLOCK` and `_DISPATCHER_HEADER`
        is_possible: whether a link may lead to an address: elsewhere nothing is missing in the image

    Raises:
        MissingMemberError: the symbols do not describe wait blocks
    """

    def __init__(
        self,
        read: ReadMemory,
        thread: Structure,
        block: Structure,
        header: Structure,
        pointer_size: int,
        is_possible: Callable[[int], bool],
    ) -> None:
        self._read = read
        self._is_possible = is_possible
        self._size = block.size
        self._pointer = pointer_size
        self._list, self._embedded = thread.field("WaitBlockList"), thread.first_member("WaitBlock")
        self._count = thread.first_member("WaitBlockCount")
        self._timer = thread.first_member("Timer.Header.Type", "Timer")
        self._next = None if self._count is not None else block.field("NextWaitBlock")
        self._object, self._thread = block.field("Object"), block.field("Thread")
        self._type = block.field("WaitType")
        self._links = block.first_member("WaitListEntry.Flink", "WaitListEntry")
        self._head = header.first_member("WaitListHead.Flink", "WaitListHead")

    @property
    def leave_at_once(self) -> bool:
        """Whether the blocks of a wait leave all lists when the thread is woken: until Windows 7 one lock is
        over all lists. Later the thread itself may remove the others (inferred)."""
        return self._next is not None

    def blocks(self, kthread: int) -> WaitBlocks:
        """Returns the wait blocks of a thread, without the one of its own timer.

        Blocks behind these that are in lists of objects, and name the thread, belong to the wait, too: the
        blocks of a wait are an array, and lists of objects have none that does not wait.
        """
        first = self._member(kthread, self._list)
        count = None if self._count is None else self._member(kthread, self._count)
        if first is None or (first and self._count is not None and (count is None or count > MAX_OBJECTS)):
            return WaitBlocks((), False)
        found: List[WaitBlock] = []
        wrong: List[str] = []
        seen: Set[int] = set()
        at, whole = first, True
        timer = kthread + self._timer.offset if self._timer is not None else 0
        while at and at not in seen and len(seen) < (MAX_OBJECTS + 1 if count is None else count):
            seen.add(at)
            data = self._read(at, self._size)
            if data is None:
                whole = False
                break
            block = self._block(at, data)
            if block.object and block.object != timer:
                found.append(block)
            elif not block.object and self._is_linked(at):
                wrong.append("KWAIT_BLOCK.Object")
            at = at + self._size if self._next is None else self._next.value_in(data)
        embedded = 0 if self._embedded is None else kthread + self._embedded.offset
        at = max(block.address for block in found) + self._size if found else first or embedded
        more = self._behind(at, kthread, timer, MAX_OBJECTS - len(found)) if whole and at else []
        if more and self._next is not None:
            wrong.append("KWAIT_BLOCK.NextWaitBlock" if first else "KTHREAD.WaitBlockList")
        elif more:
            wrong.append("KTHREAD.WaitBlockCount" if first else "KTHREAD.WaitBlockList")
        return WaitBlocks((*found, *more), whole, tuple(wrong))

    def _behind(self, at: int, kthread: int, timer: int, most: int) -> List[WaitBlock]:
        """Returns the blocks from an address on that lists of objects have as the thread's."""
        found: List[WaitBlock] = []
        while len(found) < most:
            data = self._read(at, self._size)
            block = None if data is None else self._block(at, data)
            if block is None or block.thread != kthread or block.object in (0, timer) or not block.listed:
                break
            found.append(block)
            at += self._size
        return found

    def _block(self, at: int, data: Buffer) -> WaitBlock:
        target, kind = self._object.value_in(data), self._type.value_in(data)
        owner = self._thread.value_in(data)
        return WaitBlock(at, target, owner, kind == _ALL_OF_XP, self._is_listed(at, target))

    def _is_listed(self, at: int, target: int) -> Optional[bool]:
        """Returns whether the links of a block lead to the list head of its object; None if a link on the way
        is not in the image.

        Only MAX_LISTED blocks are followed: behind these, a list whose links agree is believed.
        """
        if self._links is None or self._head is None:
            return False
        size, head = self._pointer, target + self._head.offset
        link = at + self._links.offset
        for _ in range(MAX_LISTED):
            forward = self._word(link)
            if forward is None:
                return None
            back = self._word(forward + size)
            if back is None and self._is_possible(forward):
                return None
            if back != link:
                return False
            if forward == head:
                return True
            link = forward
            if link == at + self._links.offset:
                return False
        return True

    def _is_linked(self, at: int) -> bool:
        """Returns whether another node of a list has a block as its neighbour."""
        if self._links is None:
            return False
        link = at + self._links.offset
        forward = self._word(link)
        return forward is not None and forward != link and self._word(forward + self._pointer) == link

    def _word(self, address: int) -> Optional[int]:
        return unsigned(self._read(address, self._pointer))

    def _member(self, base: int, field: Field) -> Optional[int]:
        data = self._read(base + field.offset, field.size)
        return None if data is None else field.value_in(data, -field.offset)


def kind_of(header_type: Optional[int]) -> str:
    """Returns the kind of a dispatcher object, a word of `words.WAIT_KINDS`."""
    return words.OTHER_WAIT if header_type is None else KINDS.get(header_type & _TYPE_MASK, words.OTHER_WAIT)
