# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the locks of an image, and builds the buffer in which Windows would report them."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ..columns import words
from ..memory.decode.memo import Kept
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..tracedb.creators import MAX_DATABASES, CreatorTraces
from ..tracedb.decode.recorded import NO_STACK, RecordedStack
from ..tracedb.finder import Databases
from ..tracedb.gap import Gap, gap
from .criticalsections import CriticalSections
from .decode import criticalsection
from .decode.criticalsection import LockRecord
from .lock import Listed, Lock
from .resources import Resources

MAX_KEPT = 1 << 16
"""The most locks that are kept."""


class KnownLocks:
    """The locks of each address space, listed once; made as `image.service(KnownLocks)`."""

    def __init__(self, _: Image) -> None:
        self._lists: Kept[AddressSpace, List[Listed]] = Kept(MAX_KEPT)

    def of_space(self, space: AddressSpace, make: Callable[[AddressSpace], Iterable[Listed]]) -> List[Listed]:
        return self._lists.at_first_use(space, lambda: list(make(space)), lambda locks: len(locks) + 1)


class LockLister:
    """Lists ERESOURCEs and critical sections."""

    def __init__(self, image: Image, databases: Databases) -> None:
        self._known = image.service(KnownLocks)
        self.ntdlls = databases.ntdlls
        self._resources = image.attempt(lambda: Resources(image))
        self._sections = CriticalSections(image, databases.ntdlls, databases.wide_indices)
        self._creators = CreatorTraces(databases)
        # The kernels of 3.50 to 5.2 before SP1 report no index (Geoff Chappell). No symbol distinguishes
        # these kernels exactly; the nearest sign is TableSize in the ring of handle traces, since 2003.
        self._kernel_reports_index = image.types.find("_HANDLE_TRACE_DEBUG_INFO").has("TableSize")

    def list_locks(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the locks of the kernel or of one half of a process, and a Gap for unreadable ones.

        The locks of a space are listed once for all listers of an image.
        """
        yield from self._known.of_space(space, self._list)

    def _list(self, space: AddressSpace) -> Iterator[Listed]:
        if space.remark:
            yield Gap(space, space.remark)
        if space.status:
            yield Gap(space, space.status)
        elif not space.kernel:
            yield from self._sections.list_sections(space)
        elif self._resources is not None:
            yield from self._resources.list_resources(space)
        else:
            yield gap(space, StatusCode.LIST_NOT_FOUND)

    def list_created(self, space: AddressSpace) -> List[Listed]:
        """Returns the same locks as `list_locks`, each with the stack of its creator.

        If several databases may have that stack, a lock is returned once with each different one.
        """
        listed = list(self.list_locks(space))
        indices = {item.back_trace_index or 0 for item in listed if isinstance(item, Lock)}
        resolved = self._creators.resolve_by_database(space, indices)
        created: List[Listed] = []
        for item in listed:
            if isinstance(item, Lock):
                index = item.back_trace_index or 0
                found = [stacks[index] for stacks in resolved if index in stacks]
                created += (item._replace(stack=stack) for stack in _possible(found) or [_caller(item)])
            else:
                created.append(item)
        doubts = {doubt for stack in resolved[0].values() for doubt in stack.status}
        for doubt in doubts:
            if doubt.code is StatusCode.ONE_OF_DATABASES and (doubt.number or 0) > MAX_DATABASES:
                created.append(gap(space, doubt))
        return created

    def buffer(self, space: AddressSpace, listed: Iterable[Listed]) -> bytes:
        """Returns RTL_PROCESS_LOCKS as SystemLocksInformation or the query of a process fills it.

        A lock that cannot be read has a record with its address and zeros. Gaps have no record.
        """
        records: List[LockRecord] = []
        before: Optional[Listed] = None
        for item in listed:
            lock = item._replace(stack=NO_STACK) if isinstance(item, Lock) else item
            if isinstance(lock, Lock) and lock.address is not None and lock != before:
                records.append(self._record(lock, lock.address))
            before = lock
        return criticalsection.encode(records, space.pointer_size)

    def _record(self, lock: Lock, address: int) -> LockRecord:
        index = lock.back_trace_index or lock.creator_address or 0
        if lock.space.kernel and not self._kernel_reports_index:
            index = 0
        section = lock.type == words.CRITICAL_SECTION
        return LockRecord(
            address=address,
            type=criticalsection.CRITSECT_TYPE if section else criticalsection.RESOURCE_TYPE,
            creator_back_trace_index=index,
            owning_thread=lock.owner.tid if lock.owner else 0,
            lock_count=lock.lock_count or 0,
            contention_count=lock.contention_count or 0,
            entry_count=lock.entry_count or 0,
            recursion_count=lock.recursion_count or 0,
            number_of_waiting_shared=lock.waiting_shared or 0,
            # Windows reports the waiters of a critical section only in its LockCount.
            number_of_waiting_exclusive=0 if section else lock.waiting_exclusive or 0,
        )


def _possible(stacks: List[RecordedStack]) -> List[RecordedStack]:
    """Returns the different stacks that an index may stand for. Databases without it count if all lack it."""
    known = [stack for stack in stacks if not has_status(stack.status, StatusCode.NO_SUCH_INDEX)]
    different: Dict[Tuple[Optional[int], ...], RecordedStack] = {}
    for stack in known or stacks[:1]:
        different.setdefault(stack.frames, stack)
    return list(different.values())


def _caller(lock: Lock) -> RecordedStack:
    """Returns the creator of a lock that has no index: the address of its caller, or no stack."""
    return NO_STACK._replace(frames=(lock.creator_address,)) if lock.creator_address else NO_STACK
