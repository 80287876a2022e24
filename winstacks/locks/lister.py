# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The locks of an image, and the buffer in which Windows would report them."""

from __future__ import annotations

import logging
from typing import Iterable, Iterator, List, Optional

from ..columns import words
from ..memory.decode.status import Word, status
from ..memory.decode.structure import MissingMemberError
from ..memory.image import AddressSpace, Image
from ..tracedb.creators import Creators
from ..tracedb.decode.recorded import NO_STACK, RecordedStack
from ..tracedb.finder import Databases
from .criticalsections import CriticalSections
from .decode import criticalsection
from .decode.criticalsection import LockRecord
from .lock import Listed, Lock, LockGap
from .resources import Resources

vollog = logging.getLogger(__name__)


class LockLister:
    """Lists ERESOURCEs and critical sections.

    Args:
        image: the image
        databases: finds ntdll and the databases of the image
    """

    def __init__(self, image: Image, databases: Databases) -> None:
        super().__init__()
        self._resources: Optional[Resources] = None
        try:
            self._resources = Resources(image)
        except MissingMemberError as error:
            if image.table_name:
                vollog.warning(f"The kernel's resources cannot be read: {error}")
        self._sections = CriticalSections(image, databases.ntdlls, databases.wide_indices)
        self._creators = Creators(databases)
        # The kernels of 3.50 to 5.2 before SP1 report no index (Geoff Chappell). No symbol tells these apart
        # exactly; the nearest sign is that the ring of handle traces has TableSize since 2003.
        ring = image.types.find("_HANDLE_TRACE_DEBUG_INFO")
        self._kernel_reports_index = ring is not None and ring.has("TableSize")

    def list_locks(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the locks of the kernel or of one half of a process, and a LockGap for unreadable ones."""
        if space.remark:
            yield LockGap(space, space.remark)
        if space.status:
            yield LockGap(space, space.status)
        elif not space.kernel:
            yield from self._sections.list_sections(space)
        elif self._resources is not None:
            yield from self._resources.list_resources(space)
        else:
            yield LockGap(space, status(Word.LIST_NOT_FOUND))

    def list_created(self, space: AddressSpace) -> List[Listed]:
        """Returns what `list_locks` yields, each lock with the stack of its creator."""
        listed = list(self.list_locks(space))
        indices = {each.back_trace_index or 0 for each in listed if isinstance(each, Lock)}
        stacks = self._creators.resolve(space, indices)
        return [
            each._replace(stack=stacks.get(each.back_trace_index or 0, _caller(each)))
            if isinstance(each, Lock)
            else each
            for each in listed
        ]

    def buffer(self, space: AddressSpace, listed: Iterable[Listed]) -> bytes:
        """Returns RTL_PROCESS_LOCKS as SystemLocksInformation or the query of a process fills it.

        A lock that cannot be read has only its address, and zeros. Gaps have no record.
        """
        records: List[LockRecord] = []
        for each in listed:
            if isinstance(each, Lock) and each.address is not None:
                records.append(self._record(each, each.address))
        return criticalsection.encode(records, space.pointer_size)

    def _record(self, each: Lock, address: int) -> LockRecord:
        index = each.back_trace_index or each.creator_address or 0
        if each.space.kernel and not self._kernel_reports_index:
            index = 0
        section = each.type == words.CRITICAL_SECTION
        return LockRecord(
            address=address,
            type=criticalsection.CRITSECT_TYPE if section else criticalsection.RESOURCE_TYPE,
            creator_back_trace_index=index,
            owning_thread=each.owner.tid if each.owner else 0,
            lock_count=each.lock_count or 0,
            contention_count=each.contention_count or 0,
            entry_count=each.entry_count or 0,
            recursion_count=each.recursion_count or 0,
            number_of_waiting_shared=each.waiting_shared or 0,
            # Windows reports the waiters of a critical section only in its LockCount.
            number_of_waiting_exclusive=0 if section else each.waiting_exclusive or 0,
        )


def _caller(each: Lock) -> RecordedStack:
    """Returns what is known of who made a lock that has no index: the address of the caller, or nothing."""
    return NO_STACK._replace(frames=(each.creator_address,)) if each.creator_address else NO_STACK
