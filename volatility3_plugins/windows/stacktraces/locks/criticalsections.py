# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The critical sections of a process, each half of a WoW64 process for itself."""

from __future__ import annotations

from typing import Iterator, Optional

from volatility3.framework import interfaces

from ..base import members
from ..base.bulk import is_canonical
from ..base.decode import links
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from ..names.ntdll import Ntdll, Ntdlls
from ..threads import ids
from . import lock
from .decode import criticalsection
from .decode.criticalsection import RESOURCE_TYPE
from .lock import Lock
from .sectionlists import SectionList, SectionLists, SectionMemory, SectionPair

_DEBUG = "_RTL_CRITICAL_SECTION_DEBUG"


class CriticalSections:
    """Lists the critical sections of processes.

    Args:
        context: the context that holds the image
        kernel_module_name: the kernel's module
        ntdlls: finds the ntdll of a space
    """

    def __init__(
        self, context: interfaces.context.ContextInterface, kernel_module_name: str, ntdlls: Ntdlls
    ) -> None:
        self._context = context
        self._ntdlls = ntdlls
        self._lists = SectionLists(ntdlls)
        table = context.modules[kernel_module_name].symbol_table_name
        # The kernel's symbols describe the native form; the 32-bit one changed in the same version, Vista.
        self._has_high = members.find(context, table, _DEBUG, "CreatorBackTraceIndexHigh") is not None

    def list_sections(self, space: AddressSpace) -> Iterator[Lock]:
        """Yields the critical sections in the list's order, and what stands for those that cannot be read.

        Args:
            space: a half of a process
        """
        if not space.layer_name:
            return
        peek = Peek(self._context, space.layer_name, space.pointer_size)
        memory = SectionMemory(peek, self._has_high)
        ntdll = self._ntdlls.find(space)
        found = self._lists.find(space, ntdll, memory)
        if found is None:
            if self._lists.expected(space, memory):
                yield Lock(space, None, "", status=lock.NO_LIST)
            return
        yield from self._walk(space, found, ntdll, memory)

    def _walk(
        self, space: AddressSpace, found: SectionList, ntdll: Optional[Ntdll], memory: SectionMemory
    ) -> Iterator[Lock]:
        walk = links.walk(found.link, memory.peek.links)
        altered = walk.altered.link if walk.altered else None
        if not found.is_head:
            yield Lock(space, None, "", status=lock.NO_HEAD)
        elif altered == found.link:
            yield Lock(space, None, "", status=lock.LIST_DAMAGED)
        for link in walk.before if found.is_head else (found.link, *walk.before):
            yield from self._node(space, link, found, ntdll, memory, altered)
        if walk.gap is not None:
            layer = self._context.layers[space.layer_name]
            sound = [link for link in walk.gap.lost if is_canonical(layer, link)]
            for link in sound:
                yield _lost(space, link, memory)
            if not (walk.gap.exact and sound):
                yield Lock(space, None, "", status=lock.GAP)
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
    ) -> Iterator[Lock]:
        """Yields the section of a node; the list's head has none, and a row only if its link is wrong."""
        pair = memory.pair(link)
        in_ntdll = ntdll is not None and ntdll.base <= link < ntdll.base + ntdll.size
        if pair is None:
            made = _lost(space, link, memory)
        elif pair.proven or found.is_head or not in_ntdll:
            made = _section(space, pair, memory)
        elif link == altered:
            made = Lock(space, None, "")
        else:
            return
        yield lock.damaged(made) if link == altered else made


def _lost(space: AddressSpace, link: int, memory: SectionMemory) -> Lock:
    """Returns what stands for a section whose debug information cannot be read."""
    made = Lock(space, None, lock.CRITICAL_SECTION, status=lock.DEBUG_UNREADABLE)
    return made._replace(debug_info=link - memory.links_offset)


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
        return made._replace(status=lock.UNREADABLE)
    if not pair.proven:
        return made._replace(status=lock.NOT_PROVEN)
    state = criticalsection.lock_state(section.lock_count, section.recursion_count)
    made = made._replace(
        owning_thread=section.owning_thread,
        owner_tid=ids.identifier(section.owning_thread or None),
        lock_count=section.lock_count,
        recursion_count=section.recursion_count,
        waiting_exclusive=state.waiters,
        held=state.held,
        contended=bool(state.waiters or debug.contention_count),
    )
    return _with_resource(made, memory) if debug.type == RESOURCE_TYPE else made


def _with_resource(made: Lock, memory: SectionMemory) -> Lock:
    """Returns an RTL_RESOURCE's state: the critical section, its first member, only guards the counters."""
    size = memory.peek.pointer_size
    data = memory.peek.read(made.address or 0, criticalsection.resource_size(size))
    if data is None:
        return made._replace(status=lock.UNREADABLE)
    resource = criticalsection.decode_resource(data, size)
    waiting = resource.number_of_waiting_shared or resource.number_of_waiting_exclusive
    return made._replace(
        owning_thread=resource.exclusive_owner_thread,
        owner_tid=ids.identifier(resource.exclusive_owner_thread or None),
        lock_count=resource.number_of_active,
        waiting_shared=resource.number_of_waiting_shared,
        waiting_exclusive=resource.number_of_waiting_exclusive,
        held=resource.number_of_active != 0,
        contended=bool(waiting or made.contention_count),
    )
