# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The locks of an image, and the buffer in which Windows would report them."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List

from volatility3.framework import interfaces

from ..base import members
from ..base.spaces import AddressSpace
from ..tracedb.creators import Creator, Creators
from ..tracedb.finder import Databases
from . import lock
from .criticalsections import CriticalSections
from .decode import criticalsection, process_locks
from .decode.process_locks import LockRecord
from .lock import Lock
from .resources import Resources


class Locks(interfaces.configuration.VersionableInterface):
    """Lists ERESOURCEs and critical sections.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        databases: finds ntdll and the databases of the image
    """

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        databases: Databases,
    ) -> None:
        super().__init__()
        self._resources = Resources(context, kernel_module_name)
        self._sections = CriticalSections(context, kernel_module_name, databases.ntdlls)
        self._creators = Creators(databases)
        table = context.modules[kernel_module_name].symbol_table_name
        # From 3.50 to before 5.2 SP1 the kernel reports no index (Geoff Chappell). The ring of handle traces
        # has a size of its own since 2003, which is how near the symbols come to that.
        size = members.find(context, table, "_HANDLE_TRACE_DEBUG_INFO", "TableSize")
        self._kernel_reports_index = size is not None

    def list_locks(self, space: AddressSpace) -> Iterator[Lock]:
        """Yields the locks of the kernel or of a half of a process, and what stands for unreadable ones."""
        if space.status:
            yield Lock(space, None, "", status=space.status)
        elif space.kernel:
            yield from self._resources.list_resources(space)
        else:
            yield from self._sections.list_sections(space)

    def creators(self, space: AddressSpace, listed: Iterable[Lock]) -> Dict[int, Creator]:
        """Returns the stacks of the locks' indices, read from the database once."""
        return self._creators.resolve(space, {each.back_trace_index or 0 for each in listed})

    def buffer(self, space: AddressSpace, listed: Iterable[Lock]) -> bytes:
        """Returns RTL_PROCESS_LOCKS as SystemLocksInformation or the query of a process fills it.

        A lock that cannot be read is zero but for its address; what stands for a gap is left out.
        """
        records: List[LockRecord] = []
        for each in listed:
            if each.address is not None:
                records.append(self._record(each, each.address))
        return process_locks.encode(records, space.pointer_size)

    def _record(self, each: Lock, address: int) -> LockRecord:
        index = each.back_trace_index or each.creator_address or 0
        if each.space.kernel and not self._kernel_reports_index:
            index = 0
        section = each.type == lock.CRITICAL_SECTION
        return LockRecord(
            address=address,
            type=criticalsection.CRITSECT_TYPE if section else criticalsection.RESOURCE_TYPE,
            creator_back_trace_index=index,
            owning_thread=each.owner_tid or 0,
            lock_count=each.lock_count or 0,
            contention_count=each.contention_count or 0,
            entry_count=each.entry_count or 0,
            recursion_count=each.recursion_count or 0,
            number_of_waiting_shared=each.waiting_shared or 0,
            # A critical section's waiters are in its LockCount only.
            number_of_waiting_exclusive=0 if section else each.waiting_exclusive or 0,
        )
