# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The critical sections of a process, from the lists that `sectionlists` finds."""

from __future__ import annotations

from typing import Iterator, Optional

from ..columns import words
from ..memory.decode import links
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.ntdll import Ntdll, Ntdlls
from ..process import threadids as ids
from ..process.threadids import ThreadOwner
from ..tracedb.gap import gap
from . import lock
from .decode import criticalsection
from .decode.criticalsection import RESOURCE_TYPE, may_own
from .lock import Listed, Lock
from .sectionlists import SectionList, SectionLists, SectionMemory, SectionPair, WideIndices


class CriticalSections:
    """Lists the critical sections of processes. `wide_indices` is as in `SectionMemory`."""

    def __init__(self, image: Image, ntdlls: Ntdlls, wide_indices: WideIndices) -> None:
        self._image = image
        self._ntdlls = ntdlls
        self._lists = SectionLists(image, ntdlls, wide_indices)

    def list_sections(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the critical sections in the list's order, and a Gap for sections that cannot be read."""
        if not space.layer_name:
            return
        memory, ntdll = self._lists.memory(space), self._ntdlls.find_ntdll(space)
        lists = self._lists.find_heads(space, ntdll, memory)
        if not lists and (
            self._lists.expected(space, memory) or self._lists.may_be_absent(space, ntdll, memory)
        ):
            yield gap(space, StatusCode.LIST_NOT_FOUND)
        real_known = any(section_list.is_real for section_list in lists)
        for section_list in lists:
            list_status = NOTHING
            if len(lists) > 1 and not section_list.is_real:
                list_status = status(
                    StatusCode.ON_ANOTHER_LIST
                    if real_known
                    else StatusItem(StatusCode.ON_ONE_OF_LISTS, len(lists))
                )
            for lock_or_gap in self._walk(space, section_list, ntdll, memory):
                yield (
                    lock_or_gap._replace(status=status(lock_or_gap.status, list_status))
                    if list_status
                    else lock_or_gap
                )

    def _walk(
        self, space: AddressSpace, section_list: SectionList, ntdll: Optional[Ntdll], memory: SectionMemory
    ) -> Iterator[Listed]:
        walk = links.walk(section_list.link, memory.links)
        altered = walk.altered.link if walk.altered else None
        if not section_list.is_head:
            yield gap(space, StatusCode.LIST_HEAD_UNREADABLE)
        elif altered == section_list.link:
            yield gap(space, StatusCode.LIST_DAMAGED)
        for link in walk.before if section_list.is_head else (section_list.link, *walk.before):
            yield from self._node(space, link, section_list, ntdll, memory, altered)
        if walk.gap is not None:
            sound = [link for link in walk.gap.lost if space.machine.is_canonical(link)]
            for link in sound:
                yield _unreadable_section(space, link, memory)
            if not (walk.gap.exact and sound):
                yield gap(space, StatusCode.LIST_BROKEN)
        for link in walk.after:
            yield from self._node(space, link, section_list, ntdll, memory, altered)

    def _node(
        self,
        space: AddressSpace,
        link: int,
        section_list: SectionList,
        ntdll: Optional[Ntdll],
        memory: SectionMemory,
        altered: Optional[int],
    ) -> Iterator[Listed]:
        """Yields the section of a node. The list's head has none: it gets a row only if its link is wrong."""
        pair = memory.pair(link)
        in_ntdll = ntdll is not None and ntdll.base <= link < ntdll.base + ntdll.size
        if pair is None:
            lock_row = _unreadable_section(space, link, memory)
        elif pair.proven or section_list.is_head or not in_ntdll:
            lock_row = _section(space, pair, memory)
        elif link == altered:
            yield gap(space, StatusCode.LIST_DAMAGED)
            return
        else:
            return
        yield lock.damaged(lock_row) if link == altered else lock_row


def _unreadable_section(space: AddressSpace, link: int, memory: SectionMemory) -> Lock:
    """Returns a lock for a section whose debug information cannot be read."""
    lock_status = status(StatusCode.DEBUG_INFORMATION_UNREADABLE)
    return Lock(
        space, None, words.CRITICAL_SECTION, status=lock_status, debug_info=link - memory.layout.links
    )


def _section(space: AddressSpace, pair: SectionPair, memory: SectionMemory) -> Lock:
    debug, section = pair.debug, pair.section
    lock_row = Lock(
        space,
        debug.critical_section,
        words.RESOURCE if debug.type == RESOURCE_TYPE else words.CRITICAL_SECTION,
        back_trace_index=debug.creator_back_trace_index,
        contention_count=debug.contention_count,
        entry_count=debug.entry_count,
    )
    if section is None:
        return lock_row._replace(status=status(StatusCode.UNREADABLE))
    if not pair.proven:
        return lock_row._replace(status=status(StatusCode.SECTION_DOES_NOT_POINT_BACK))
    state = criticalsection.lock_state(section.lock_count, section.recursion_count)
    lock_row = lock_row._replace(
        owning_thread=section.owning_thread,
        owner=_owner(space, section.owning_thread),
        lock_count=section.lock_count,
        recursion_count=section.recursion_count,
        waiting_exclusive=state.waiters,
        held=state.held,
        contended=bool(state.waiters or debug.contention_count),
        status=_owner_doubt(section.owning_thread, section.recursion_count),
    )
    return _with_resource(lock_row, memory) if debug.type == RESOURCE_TYPE else lock_row


def _with_resource(lock_row: Lock, memory: SectionMemory) -> Lock:
    """Adds the state of an RTL_RESOURCE. Its first member, a critical section, guards only the counters."""
    data = memory.read(lock_row.address or 0, memory.layout.resource_size)
    if data is None:
        return lock_row._replace(status=status(StatusCode.UNREADABLE))
    resource = memory.layout.resource(data)
    waiting = resource.number_of_waiting_shared or resource.number_of_waiting_exclusive
    return lock_row._replace(
        owning_thread=resource.exclusive_owner_thread,
        owner=_owner(lock_row.space, resource.exclusive_owner_thread),
        lock_count=resource.number_of_active,
        waiting_shared=resource.number_of_waiting_shared,
        waiting_exclusive=resource.number_of_waiting_exclusive,
        held=resource.number_of_active != 0,
        contended=bool(waiting or lock_row.contention_count),
    )


def _owner_doubt(stored: int, recursion_count: int) -> Status:
    """Returns the contradiction of an OwningThread that is no ID of a thread, or 0 in an entered section.

    ntdll sets RecursionCount after OwningThread, and clears it before (described: ReactOS).
    """
    wrong = not may_own(stored) or (not stored and recursion_count > 0)
    return contradicted("OwningThread") if wrong else NOTHING


def _owner(space: AddressSpace, stored: int) -> Optional[ThreadOwner]:
    """Returns the thread with an ID that a process stored: the thread belongs to that process."""
    tid = ids.identifier(stored or None)
    return None if tid is None else ThreadOwner(tid, space.pid, space.process)
