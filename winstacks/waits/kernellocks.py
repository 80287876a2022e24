# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Locks of the kernel for which threads wait, and messages to which threads wait for the answer.

The reason of a wait says which kind of lock it is. A fast or guarded mutex holds the object for which the
kernel waits, so its address follows from the object's. An ERESOURCE is found in the list of resources: the
object is its semaphore or event (public symbols of XP to 7), or its address stands on the waiting thread's
kernel stack; that is an inference. A push lock keeps no owner. ALPC: ETHREAD.AlpcMessage is the message whose
answer a thread waits for. Members: public symbols of XP to 11; forged only: whether they lead there.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, Iterable, Optional, Set, Tuple

from ..columns import words
from ..locks.lock import Listed, Lock
from ..locks.resources import WAIT_REASON, words_on_stack
from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import Field
from ..memory.image import Image
from ..process.kernelobjects import thread_at
from ..process.thread import Thread
from .decode.waitblocks import WaitBlocks
from .objects import KernelObjects, known_by
from .records import Awaited, WaitOwner, owner_of

PUSH_LOCK, FAST_MUTEX, GUARDED_MUTEX = 28, 34, 35
LPC_RECEIVE, LPC_REPLY = 16, 17
"""Numbers of KWAIT_REASON (public enumeration)."""

_MUTEXES = {
    FAST_MUTEX: (words.FAST_MUTEX, "_FAST_MUTEX", ("Event.Header.Type", "Event")),
    GUARDED_MUTEX: (words.GUARDED_MUTEX, "_KGUARDED_MUTEX", ("Gate.Header.Type", "Gate")),
}

Place = Tuple[int, Optional[Field]]
"""Offset of the object within a mutex, and the member with its owner."""


class _Resources(NamedTuple):
    """The resources for which threads wait.

    Attributes:
        at: by address
        waiting: the first resource that lists a thread as waiting, by its ETHREAD
        owned: addresses of the resources that a thread owns, by its ETHREAD
        objects: a rank and the resource, by the address of a semaphore or event for which threads wait
    """

    at: Dict[int, Lock]
    waiting: Dict[int, Lock]
    owned: Dict[int, Set[int]]
    objects: Dict[int, Tuple[int, Lock]]


class KernelLocks:
    """Finds the locks of the kernel for which threads wait."""

    def __init__(
        self, image: Image, objects: KernelObjects, resources: Callable[[], Iterable[Listed]]
    ) -> None:
        self._image = image
        self._memory = image.memory(image.kernel)
        self._objects = objects
        self._list = resources
        self._owners: Memo[int, Tuple[WaitOwner, ...]] = Memo(self._owners_at)
        self._mutexes = {reason: place for reason in _MUTEXES for place in [self._mutex(reason)] if place}
        resource = image.types.find("_ERESOURCE")
        self._waiters = [resource.first_member(name) for name in ("SharedWaiters", "ExclusiveWaiters")]

    def _mutex(self, reason: int) -> Optional[Place]:
        """Returns where a mutex has its object and its owner; None if the symbols do not describe it."""
        _, name, members = _MUTEXES[reason]
        structure = self._image.types.find(name)
        place = structure.first_member(*members)
        return None if place is None else (place.offset, structure.first_member("Owner"))

    def awaited(self, thread: Thread, blocks: WaitBlocks) -> Optional[Awaited]:
        """Returns the lock or message for which a thread waits; None if its reason names none."""
        reason = thread.wait_reason
        if reason in _MUTEXES:
            return self._of_mutex(thread, reason or 0, blocks)
        if reason == PUSH_LOCK:
            return Awaited(words.PUSH_LOCK, self._image.kernel)
        if reason == WAIT_REASON:
            return self._of_resource(thread, blocks)
        if reason == LPC_REPLY:
            return self._of_message(thread)
        return Awaited(words.PORT, self._image.kernel) if reason == LPC_RECEIVE else None

    def _of_mutex(self, thread: Thread, reason: int, blocks: WaitBlocks) -> Awaited:
        kind = _MUTEXES[reason][0]
        place = self._mutexes.get(reason)
        if place is None or len(blocks.blocks) != 1:
            return Awaited(kind, self._image.kernel)
        block, (offset, owner) = blocks.blocks[0], place
        address = block.object - offset
        found = Awaited(
            kind,
            self._image.kernel,
            address,
            known=known_by(block),
            evidence=f"wait block {block.address:#x}",
            status=self._objects.block_doubt(thread, block),
        )
        if owner is None:
            return found
        ownership, owners = self._objects.owner_at(address, owner)
        return found._replace(ownership=ownership, owners=owners)

    # Resources.

    @functools.cached_property
    def _resources(self) -> _Resources:
        found = self._image.possible(self._list())
        locks = [item for item in found if isinstance(item, Lock) and item.address and item.waiters]
        resources = _Resources({lock.address or 0: lock for lock in locks}, {}, {}, {})
        for lock in locks:
            for owner in lock.owners:
                if owner.kind == words.WAITING:
                    resources.waiting.setdefault(owner.thread, lock)
                else:
                    resources.owned.setdefault(owner.thread, set()).add(lock.address or 0)
            for field in self._waiters:
                value = self._memory.member(lock.address, field)
                if value is not None:
                    resources.objects.setdefault(value, (len(resources.objects), lock))
        return resources

    def _of_resource(self, thread: Thread, blocks: WaitBlocks) -> Awaited:
        known = self._resources
        listed = known.waiting.get(thread.ethread)
        if listed is not None:
            return self._resource(listed, words.BY_LIST, "the resource lists the thread")
        waited = [block for block in blocks.blocks if block.object in known.objects]
        if waited:
            block = min(waited, key=lambda block: known.objects[block.object][0])
            evidence = f"wait block {block.address:#x} of its object {block.object:#x}"
            found = self._resource(known.objects[block.object][1], known_by(block), evidence)
            return found._replace(status=self._objects.block_doubt(thread, block))
        # A thread can take a resource that it owns again without a wait.
        own = known.owned.get(thread.ethread, set())
        words_there = set(words_on_stack(self._memory, thread.kernel_stack or 0))
        named = [known.at[value] for value in words_there if value in known.at and value not in own]
        if len(named) == 1:
            return self._resource(named[0], words.ON_STACK, "its address is on the kernel stack")
        if len(known.at) - len(own) == 1 and not named:
            (foreign,) = known.at.keys() - own
            return self._resource(known.at[foreign], words.BY_EXCLUSION, "no other resource has a waiter")
        return Awaited(words.KERNEL_RESOURCE, self._image.kernel, ownership=words.OWNER_UNKNOWN)

    def _owners_at(self, address: int) -> Tuple[WaitOwner, ...]:
        """Returns the owners of the resource at an address: all threads that wait for it share them."""
        owners = self._resources.at[address].owners
        return tuple(
            found for owner in owners if owner.kind != words.WAITING for found in owner_of(owner.owner)
        )

    def _resource(self, lock: Lock, known: str, evidence: str) -> Awaited:
        owners = self._owners[lock.address or 0]
        free = lock.held is False
        ownership = words.BY_THREAD if owners else words.NOBODY if free else words.OWNER_UNKNOWN
        kernel = self._image.kernel
        guessed = known in (words.ON_STACK, words.BY_EXCLUSION)
        return Awaited(
            words.KERNEL_RESOURCE,
            kernel,
            lock.address,
            "",
            "",
            known,
            evidence,
            ownership,
            owners,
            status(StatusCode.UNSURE if guessed else None),
        )

    # Messages.

    def _of_message(self, thread: Thread) -> Awaited:
        kernel = self._image.kernel
        message = self._image.at("_KALPC_MESSAGE", thread_at(self._image, thread.ethread)["AlpcMessage"])
        if not message.address or not message.structure.known:
            return Awaited(words.ALPC_REPLY, kernel, message.address or None, ownership=words.OWNER_UNKNOWN)
        agrees = message["WaitingThread"] == thread.ethread
        faults = NOTHING if agrees else contradicted("KALPC_MESSAGE.WaitingThread")
        queued = "in the queue of a port" if message["PortQueue"] else "taken from its queue"
        evidence = f"ETHREAD.AlpcMessage {message.address:#x}, {queued}"
        server = message["ServerThread"]
        ownership, owners = self._objects.thread_owner(server) if server else (words.OWNER_UNKNOWN, ())
        if not owners:
            ownership, owners = self._port_owner(message["ConnectionPort"], message["OwnerPort"])
        return Awaited(
            words.ALPC_REPLY,
            kernel,
            message.address,
            "",
            "",
            words.BY_MESSAGE,
            evidence,
            ownership,
            owners,
            faults,
        )

    def _port_owner(
        self, connection: Optional[int], owner_port: Optional[int]
    ) -> Tuple[str, Tuple[WaitOwner, ...]]:
        """Returns the process of the server's port: the connection port that the client's port leads to."""
        info = self._image.at("_ALPC_PORT", owner_port)["CommunicationInfo"]
        for port in (connection, self._image.at("_ALPC_COMMUNICATION_INFO", info)["ConnectionPort"]):
            eprocess = self._image.at("_ALPC_PORT", port)["OwnerProcess"]
            if eprocess:
                return self._objects.process_at(eprocess)
        return words.OWNER_UNKNOWN, ()
