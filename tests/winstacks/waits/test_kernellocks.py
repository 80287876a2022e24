# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Many threads that wait for many resources: each is looked at once, and its owners are kept once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.support.plainstructures import structures
from winstacks.columns import words
from winstacks.locks.lock import Lock, LockOwner
from winstacks.locks.resources import WAIT_REASON
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING
from winstacks.memory.decode.structure import Field
from winstacks.process.threadids import ThreadOwner
from winstacks.waits.decode.waitblocks import WaitBlock, WaitBlocks
from winstacks.waits.kernellocks import KernelLocks
from winstacks.waits.records import Awaited

COUNT, OWNERS = 60, 50
THREADS, LOCKS, OBJECTS, STACKS = 0x1000, 0x100000, 0x200000, 0x300000


class Counted(Tuple[LockOwner, ...]):
    """The owners of a resource; counts how often they are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[LockOwner]:
        Counted.passes += 1
        return super().__iter__()


class Memory:
    """Resources whose semaphores lie at OBJECTS, and kernel stacks with the address of a resource."""

    pointer_size = 8

    def __init__(self) -> None:
        self.reads = 0

    def member(self, address: Optional[int], field: Optional[Field]) -> Optional[int]:
        self.reads += 1
        return None if address is None or field is None else OBJECTS + (address - LOCKS) + field.offset

    def load(self, address: int, length: int) -> Extents:
        data = (LOCKS + 16 * (address - STACKS)).to_bytes(8, "little").ljust(length, b"\0")
        return Extents([(address, data)])


def locks_of(memory: Memory, listed: bool) -> KernelLocks:
    """Resources with OWNERS owners each; `listed`: and the waiting thread of the same number."""
    owners = [
        LockOwner(0x9000 + number, ThreadOwner(number, 4, "System"), words.SHARED, 1, NOTHING)
        for number in range(OWNERS)
    ]
    found: List[Lock] = []
    for number in range(COUNT):
        waiting = [LockOwner(THREADS + number, None, words.WAITING, None, NOTHING)] if listed else []
        lock: Any = Lock(SimpleNamespace(), LOCKS + 16 * number, words.RESOURCE)  # type: ignore[arg-type]
        found.append(
            lock._replace(waiting_shared=1, waiting_exclusive=0, owners=Counted((*owners, *waiting)))
        )
    fields: Dict[str, Field] = {"SharedWaiters": Field(0, 8), "ExclusiveWaiters": Field(8, 8)}
    image: Any = SimpleNamespace(
        memory=lambda space: memory,
        kernel=SimpleNamespace(),
        types=structures({"_ERESOURCE": (0x68, fields)}),
        pointer_size=8,
        possible=lambda items: items,
    )
    objects: Any = SimpleNamespace(block_doubt=lambda thread, block: NOTHING)
    return KernelLocks(image, objects, lambda: found)


def all_awaited(locks: KernelLocks, blocks: bool) -> List[Awaited]:
    answers = []
    for number in range(COUNT):
        thread: Any = SimpleNamespace(
            wait_reason=WAIT_REASON, ethread=THREADS + number, kernel_stack=STACKS + number
        )
        block = WaitBlock(0x40, OBJECTS + 16 * number + 8, thread.ethread, False, True)
        awaited = locks.awaited(thread, WaitBlocks((block,) if blocks else (), True))
        assert awaited is not None
        answers.append(awaited)
    return answers


@pytest.mark.parametrize(
    ("listed", "blocks", "known"),
    [(True, False, words.BY_LIST), (False, True, words.BY_LIST), (False, False, words.ON_STACK)],
)
def test_each_resource_is_looked_at_once(listed: bool, blocks: bool, known: str) -> None:
    memory = Memory()
    Counted.passes = 0
    found = all_awaited(locks_of(memory, listed), blocks)
    assert [(awaited.address, awaited.known) for awaited in found] == [
        (LOCKS + 16 * number, known) for number in range(COUNT)
    ]
    assert memory.reads <= 2 * COUNT
    assert Counted.passes <= 4 * COUNT


def test_threads_share_the_owners_of_their_resource() -> None:
    memory = Memory()
    locks = locks_of(memory, True)
    first, second = all_awaited(locks, False)[0], all_awaited(locks, False)[0]
    assert len(first.owners) == OWNERS and first.owners is second.owners
