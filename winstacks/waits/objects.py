# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The objects of the kernel for which threads wait, by their wait blocks; and kernel locks behind them.

A mutant names its owner's thread; fast and guarded mutexes do where public symbols have Owner. Threads and
processes that are waited for have to end. Other objects keep no owner. Source: public symbols of XP to 11.
"""

from __future__ import annotations

import functools
from functools import cached_property
from typing import Optional, Tuple

from ..columns import words
from ..memory.decode import text
from ..memory.decode.status import NOTHING, Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import Field
from ..memory.image import Image
from ..process.handletables import HandleTables, handle_tables
from ..process.kernelobjects import IMAGE_FILE_NAME, may_lie_at, process_at
from ..process.objectheaders import ObjectInfo, Objects
from ..process.processlist import process_list
from ..process.thread import Thread, has_ended
from ..process.threadids import ThreadIds, identifier
from .decode import waitblocks
from .decode.waitblocks import WaitBlock, WaitBlockReader, WaitBlocks
from .records import Awaited, WaitOwner, owner_of

_TYPES = {
    words.EVENT: "Event",
    words.MUTANT: "Mutant",
    words.SEMAPHORE: "Semaphore",
    words.TIMER: "Timer",
    words.JOINED_THREAD: "Thread",
    words.JOINED_PROCESS: "Process",
}
"""Types of the object manager by kinds."""

_LOW_BITS = 7
"""Bits of a pointer to a thread that locks use as flags."""

_WOKEN = {1, 3, 6, 7, 9}
"""KTHREAD.State of a thread that is to run: Ready, Standby, Transition, DeferredReady,
WaitingForProcessInSwap."""

_SMALL = (1 << 16) - 1


class KernelObjects:
    """Describes what the wait blocks of threads lead to. Raises MissingMemberError if the kernel's symbols do
    not describe wait blocks."""

    def __init__(self, image: Image) -> None:
        types = image.types
        self._image = image
        self._memory = image.memory(image.kernel)
        self._reader = WaitBlockReader(
            self._memory.read,
            types["_KTHREAD"],
            types["_KWAIT_BLOCK"],
            types["_DISPATCHER_HEADER"],
            image.pointer_size,
            functools.partial(may_lie_at, image),
        )
        header = types["_DISPATCHER_HEADER"]
        self._type = header.first_member("Type")
        self._signal = header.first_member("SignalState")
        self._owner = types.find("_KMUTANT").first_member("OwnerThread")
        self._due = types.find("_KTIMER").first_member("DueTime.QuadPart", "DueTime")
        self._file_event = types.find("_FILE_OBJECT").first_member("Event.Header.Type", "Event")
        self._state = types["_ETHREAD"].first_member("Tcb.State")
        self._threads = image.service(ThreadIds)

    @cached_property
    def _objects(self) -> Optional[Objects]:
        image = self._image
        return image.attempt(lambda: Objects(image)) if image.types.has("_OBJECT_HEADER") else None

    @cached_property
    def _handles(self) -> Optional[HandleTables]:
        return handle_tables(self._image)

    def blocks(self, thread: Thread) -> WaitBlocks:
        return self._reader.blocks(thread.ethread)

    def awaited(self, thread: Thread, blocks: WaitBlocks) -> Tuple[Awaited, ...]:
        return tuple(self._awaited(thread, block, len(blocks.blocks) > 1) for block in blocks.blocks)

    def still_awaited(self, thread: Thread) -> Tuple[Awaited, ...]:
        """Returns the objects whose lists have a thread as a waiter that does not wait by its State."""
        if thread.state in _WOKEN and not self._reader.leave_at_once:
            return ()
        found = self.blocks(thread).blocks
        listed = tuple(block for block in found if block.listed and block.thread == thread.ethread)
        return self.awaited(thread, WaitBlocks(listed, True))

    def _awaited(self, thread: Thread, block: WaitBlock, several: bool) -> Awaited:
        address = block.object
        kind = waitblocks.kind_of(self._memory.member(address, self._type))
        info, kind, address = self._described(thread, address, kind)
        ownership, owners = self._owners(kind, address, thread)
        handle = self._handle_of(thread, info)
        evidence = [f"wait block {block.address:#x}"]
        if handle is not None:
            evidence.append(f"handle {handle:#x}")
        if kind == words.TIMER and self._due is not None:
            due = self._memory.member(address, self._due)
            evidence.append("" if due is None else f"due at {due} of InterruptTime")
        mode = (words.FOR_ALL if block.all else words.FOR_ANY) if several else ""
        return Awaited(
            kind,
            self._image.kernel,
            address,
            (info.name or "") if info is not None else "",
            mode,
            known_by(block),
            ", ".join(filter(None, evidence)),
            ownership,
            owners,
            status(
                self.block_doubt(thread, block),
                self._doubt(kind, address),
                NOTHING if info is None else info.status,
            ),
        )

    def block_doubt(self, thread: Thread, block: WaitBlock) -> Status:
        """Returns what contradicts a wait block of a thread, or what of its object is not in the image."""
        lost = None
        if block.listed is None:
            header = self._memory.member(block.object, self._type)
            lost = StatusCode.OBJECT_UNREADABLE if header is None else StatusCode.PARTLY_UNREADABLE
        return status(
            contradicted("KWAIT_BLOCK.Thread") if block.thread != thread.ethread else None,
            contradicted("WaitListEntry") if block.listed is False else None,
            lost,
        )

    def _described(self, thread: Thread, address: int, kind: str) -> Tuple[Optional[ObjectInfo], str, int]:
        """Returns the object of the object manager for which a thread waits, its kind and its address.

        Kernel code also waits for objects within other structures; those have no header. An object has no
        type, and `status` has the reason, if its header or its type is not in the image.
        """
        if self._objects is None:
            return None, kind, address
        bodies, lost = [address], None
        on_stack = (thread.stack_limit or 0) <= address < (thread.stack_base or 0)
        if kind == words.EVENT and self._file_event is not None:
            bodies.append(address - self._file_event.offset)
        for body in bodies:
            header = self._objects.header_of(body)
            info = self._objects.describe(header)
            if body != address and info.type == "File":
                return info, words.FILE, body
            if body == address and info.type and (kind == words.QUEUE or info.type == _TYPES.get(kind)):
                return info, kind, address
            if not info.type and not on_stack and self._objects.is_lost(header):
                lost = lost or info
        return lost, kind, address

    def _owners(self, kind: str, address: int, thread: Thread) -> Tuple[str, Tuple[WaitOwner, ...]]:
        """Returns who owns an object or has to end, as a word of `words.OWNERSHIPS` and the owners."""
        if kind == words.MUTANT and self._owner is not None:
            return self.owner_at(address, self._owner)
        if kind == words.JOINED_THREAD:
            return self._thread_at(address)
        if kind == words.JOINED_PROCESS:
            return self.process_at(address)
        return words.OWNER_UNKNOWN if kind == words.OTHER_WAIT else words.NO_OWNER_KEPT, ()

    def owner_at(self, address: int, field: Field) -> Tuple[str, Tuple[WaitOwner, ...]]:
        """Returns the owner in a member that holds the KTHREAD of an owner."""
        value = self._memory.member(address, field)
        if value is None:
            return words.OWNER_UNKNOWN, ()
        return self._thread_at(value & ~_LOW_BITS) if value & ~_LOW_BITS else (words.NOBODY, ())

    def _thread_at(self, ethread: int) -> Tuple[str, Tuple[WaitOwner, ...]]:
        owners = owner_of(self._threads.owner(ethread))
        state, signalled = (self._memory.member(ethread, field) for field in (self._state, self._signal))
        ended = has_ended(state, signalled)
        owners = tuple(owner._replace(ended=ended) for owner in owners)
        return (words.BY_THREAD, owners) if owners else (words.OWNER_UNKNOWN, ())

    def thread_owner(self, ethread: int) -> Tuple[str, Tuple[WaitOwner, ...]]:
        return self._thread_at(ethread)

    def process_at(self, eprocess: int) -> Tuple[str, Tuple[WaitOwner, ...]]:
        """Returns a process that has to act as an owner; none if no process with an ID is at the address."""
        process = process_at(self._image, eprocess)
        pid = identifier(process["UniqueProcessId"])
        if pid is None:
            pid = self._image.service(process_list).id_of(eprocess)
        if pid is None:
            return words.OWNER_UNKNOWN, ()
        name = process.data(IMAGE_FILE_NAME)
        shown = None if name is None else text.cell(text.narrow(name))
        return words.BY_PROCESS, (WaitOwner(pid, shown, None, eprocess),)

    def _doubt(self, kind: str, address: int) -> Status:
        """Returns what contradicts that a thread waits for an object: a signalled one makes nobody wait."""
        if kind not in (words.EVENT, words.MUTANT, words.SEMAPHORE):
            return NOTHING
        signal = self._memory.member(address, self._signal)
        free = signal is not None and 0 < signal < 1 << 31
        return contradicted("SignalState") if free else NOTHING

    def _handle_of(self, thread: Thread, info: Optional[ObjectInfo]) -> Optional[int]:
        """Returns the handle for which a thread waits, if the process's table leads to the object."""
        handle = thread.first_argument
        if info is None or not handle or handle > _SMALL << 8 or self._handles is None:
            return None
        return handle if self.object_of(thread, handle) == info.body else None

    def object_of(self, thread: Thread, handle: int) -> Optional[int]:
        """Returns the object of a handle of a thread's process, None if it is unknown."""
        if self._handles is None or self._objects is None:
            return None
        table = self._handles.table_of(thread.space.eprocess)
        entry = None if table is None or not table.address else self._handles.lookup(table, handle)[0]
        return None if entry is None else self._objects.describe(entry.object_header).body


def known_by(block: WaitBlock) -> str:
    """Returns how a wait block shows what its thread waits for, a word of `words.KNOWN`."""
    return words.BY_LIST if block.listed else words.BY_CALL
