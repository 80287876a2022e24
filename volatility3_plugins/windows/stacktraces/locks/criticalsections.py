# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The critical sections of a process. Each half of a WoW64 process has a list of its own."""

from __future__ import annotations

from typing import Iterator, Optional

from ..base.bulk import is_canonical
from ..base.decode import links
from ..base.decode.status import NOTHING, Said, Word, status
from ..base.image import Image
from ..base.space import AddressSpace
from ..names.ntdll import Ntdll, Ntdlls
from ..threads import ids
from ..threads.ids import ThreadOwner
from . import lock
from .decode import criticalsection
from .decode.criticalsection import RESOURCE_TYPE
from .lock import Listed, Lock, LockGap
from .sectionlists import SectionList, SectionLists, SectionMemory, SectionPair


class CriticalSections:
    """Lists the critical sections of processes.

    Args:
        image: the image
        ntdlls: finds the ntdll of a space
    """

    def __init__(self, image: Image, ntdlls: Ntdlls) -> None:
        self._image = image
        self._ntdlls = ntdlls
        self._lists = SectionLists(image, ntdlls)

    def list_sections(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the critical sections in the list's order, and a LockGap for sections that cannot be read.

        Args:
            space: one half of a process
        """
        if not space.layer_name:
            return
        memory = SectionMemory(self._image, space)
        ntdll = self._ntdlls.find(space)
        found = self._lists.find(space, ntdll, memory)
        if not found and self._lists.expected(space, memory):
            yield LockGap(space, status(Word.LIST_NOT_FOUND))
        known = any(each.is_real for each in found)
        for each in found:
            said = NOTHING
            if len(found) > 1 and not each.is_real:
                said = status(Word.ON_ANOTHER_LIST if known else Said(Word.ON_ONE_OF_LISTS, len(found)))
            for lock_or_gap in self._walk(space, each, ntdll, memory):
                yield lock_or_gap._replace(status=status(lock_or_gap.status, said)) if said else lock_or_gap

    def _walk(
        self, space: AddressSpace, found: SectionList, ntdll: Optional[Ntdll], memory: SectionMemory
    ) -> Iterator[Listed]:
        walk = links.walk(found.link, memory.links)
        altered = walk.altered.link if walk.altered else None
        if not found.is_head:
            yield LockGap(space, status(Word.LIST_HEAD_UNREADABLE))
        elif altered == found.link:
            yield LockGap(space, status(Word.LIST_DAMAGED))
        for link in walk.before if found.is_head else (found.link, *walk.before):
            yield from self._node(space, link, found, ntdll, memory, altered)
        if walk.gap is not None:
            layer = self._image.layer_of(space)
            sound = [link for link in walk.gap.lost if is_canonical(layer, link)]
            for link in sound:
                yield _lost(space, link, memory)
            if not (walk.gap.exact and sound):
                yield LockGap(space, status(Word.LIST_BROKEN))
        for link in walk.after:
            yield from self._node(space, link, found, ntdll, memory, altered)

    def _node(
        self,
        space: AddressSpace,
        link: int,
        found: SectionList,
        ntdll: Optional[Ntdll],
        memory: SectionMemory,
        altered: Optional[int],
    ) -> Iterator[Listed]:
        """Yields the section of a node. The list's head has none: it has a row only if its link is wrong."""
        pair = memory.pair(link)
        in_ntdll = ntdll is not None and ntdll.base <= link < ntdll.base + ntdll.size
        if pair is None:
            made = _lost(space, link, memory)
        elif pair.proven or found.is_head or not in_ntdll:
            made = _section(space, pair, memory)
        elif link == altered:
            yield LockGap(space, status(Word.LIST_DAMAGED))
            return
        else:
            return
        yield lock.damaged(made) if link == altered else made


def _lost(space: AddressSpace, link: int, memory: SectionMemory) -> Lock:
    """Returns the lock that stands for a section whose debug information cannot be read."""
    said = status(Word.DEBUG_INFORMATION_UNREADABLE)
    return Lock(space, None, lock.CRITICAL_SECTION, status=said, debug_info=link - memory.layout.links)


def _section(space: AddressSpace, pair: SectionPair, memory: SectionMemory) -> Lock:
    debug, section = pair.debug, pair.section
    made = Lock(
        space,
        debug.critical_section,
        lock.RESOURCE if debug.type == RESOURCE_TYPE else lock.CRITICAL_SECTION,
        back_trace_index=debug.creator_back_trace_index,
        contention_count=debug.contention_count,
        entry_count=debug.entry_count,
    )
    if section is None:
        return made._replace(status=status(Word.UNREADABLE))
    if not pair.proven:
        return made._replace(status=status(Word.SECTION_DOES_NOT_POINT_BACK))
    state = criticalsection.lock_state(section.lock_count, section.recursion_count)
    made = made._replace(
        owning_thread=section.owning_thread,
        owner=_owner(space, section.owning_thread),
        lock_count=section.lock_count,
        recursion_count=section.recursion_count,
        waiting_exclusive=state.waiters,
        held=state.held,
        contended=bool(state.waiters or debug.contention_count),
    )
    return _with_resource(made, memory) if debug.type == RESOURCE_TYPE else made


def _with_resource(made: Lock, memory: SectionMemory) -> Lock:
    """Adds the state of an RTL_RESOURCE. Its critical section, the first member, guards only the counters."""
    data = memory.read(made.address or 0, memory.layout.resource_size)
    if data is None:
        return made._replace(status=status(Word.UNREADABLE))
    resource = memory.layout.resource(data)
    waiting = resource.number_of_waiting_shared or resource.number_of_waiting_exclusive
    return made._replace(
        owning_thread=resource.exclusive_owner_thread,
        owner=_owner(made.space, resource.exclusive_owner_thread),
        lock_count=resource.number_of_active,
        waiting_shared=resource.number_of_waiting_shared,
        waiting_exclusive=resource.number_of_waiting_exclusive,
        held=resource.number_of_active != 0,
        contended=bool(waiting or made.contention_count),
    )


def _owner(space: AddressSpace, stored: int) -> Optional[ThreadOwner]:
    """Returns the thread whose ID a process stored: it is one of its own."""
    tid = ids.identifier(stored or None)
    return None if tid is None else ThreadOwner(tid, space.pid, space.process)
