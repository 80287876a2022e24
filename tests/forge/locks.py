# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Locks: ERESOURCEs of a kernel, critical sections of a process or of its 32-bit half.

resources = Resources(kernel)
lock = resources.add(index=7, active=1, exclusive=thread)
resources.link()

sections = Sections(ntdll, head=ntdll.base + 0x7100)
sections.add(index=0x10007, lock_count=-2, recursion_count=1, owning_thread=1004)
sections.link()
"""

from __future__ import annotations

import struct
from typing import List, NamedTuple, Optional, Sequence, Tuple

from .kernel import Kernel
from .module import Module
from .obj import Obj, ring
from .thread import Thread

EXCLUSIVE = 0x80
"""ResourceOwnedExclusive in `_ERESOURCE.Flag`."""

Owners = Sequence[Tuple[int, int]]
"""(value of OwnerThread, OwnerCount)."""


class Resources:
    """The kernel's list of resources."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.entries: List[Obj] = []

    def add(
        self,
        *,
        index: int = 0,
        active: int = 0,
        exclusive: Optional[Thread] = None,
        embedded: Owners = (),
        table: Owners = (),
        contention: int = 0,
        waiting_shared: int = 0,
        waiting_exclusive: int = 0,
    ) -> Obj:
        """A resource at the list's end.

        Args:
            index: CreatorBackTraceIndex, or the address that stands in its place
            active: ActiveEntries, or ActiveCount before Vista
            exclusive: the thread that owns it exclusively, once
            embedded: owners in the resource itself: one, or two before Vista
            table: owners in its OwnerTable
            contention, waiting_shared, waiting_exclusive: the counters of those names
        """
        row = self._kernel.obj("_ERESOURCE", tag=b"Reso")
        row["CreatorBackTraceIndex"] = index
        row.first(("ActiveEntries", "ActiveCount"), active)
        row["ContentionCount"] = contention
        row["NumberOfSharedWaiters"] = waiting_shared
        row["NumberOfExclusiveWaiters"] = waiting_exclusive
        if exclusive is not None:
            row["Flag"] = EXCLUSIVE
            embedded = [(exclusive.ethread.address, 1), *embedded]
        first = row.isf.first("_ERESOURCE", "OwnerEntry", "OwnerThreads[0]")
        assert first is not None
        for number, owner in enumerate(embedded):
            self._owner(row.at(first) + number * row.isf.size("_OWNER_ENTRY"), owner)
        if table:
            row["OwnerTable"] = self._table(table)
        self.entries.append(row)
        return row

    def link(self) -> None:
        """Joins the list."""
        head = self._kernel.symbol("ExpSystemResourcesList")
        ring(self._kernel.space, [head, *(resource.at("SystemResourcesList") for resource in self.entries)])

    def _table(self, owners: Owners) -> int:
        size = self._kernel.isf.size("_OWNER_ENTRY")
        address = self._kernel.pool.allocate(size * (len(owners) + 1), b"ReTa")
        Obj(self._kernel.space, self._kernel.isf, "_OWNER_ENTRY", address)["TableSize"] = len(owners) + 1
        for number, owner in enumerate(owners, 1):
            self._owner(address + number * size, owner)
        return address

    def _owner(self, address: int, owner: Tuple[int, int]) -> None:
        entry = Obj(self._kernel.space, self._kernel.isf, "_OWNER_ENTRY", address)
        entry["OwnerThread"], entry["OwnerCount"] = owner


class Section(NamedTuple):
    """A critical section, its debug information and the LIST_ENTRY in that."""

    address: int
    debug: int
    link: int


class Sections:
    """The list of critical sections of the process, or the half, that a ntdll belongs to.

    Args:
        ntdll: the module; its space is where everything goes
        head: address of RtlCriticalSectionList in it
        wide: 64-bit structures
    """

    def __init__(self, ntdll: Module, head: int, wide: bool = True) -> None:
        self._space = ntdll.space
        self._wide = wide
        self.head = head
        self.entries: List[Section] = []

    def add(
        self,
        *,
        index: int = 0,
        kind: int = 0,
        lock_count: int = -1,
        recursion_count: int = 0,
        owning_thread: int = 0,
        entries: int = 0,
        contention: int = 0,
        resource: bytes = b"",
        apart: bool = False,
    ) -> Section:
        """A critical section at the list's end.

        Args:
            index: of its creator's trace; the part above 16 bits goes where Vista and later keep it
            kind: Type of the debug information
            lock_count, recursion_count, owning_thread: of the section
            entries, contention: of the debug information
            resource: what follows the section in an RTL_RESOURCE
            apart: section and debug information each in pages of their own
        """
        alignment = 0x1000 if apart else 0x10
        section = self._space.allocate(0x80, alignment)
        debug = self._space.allocate(0x1000 if apart else 0x40, alignment)
        pointer, links = ("Q", 16) if self._wide else ("I", 8)
        low, high = index & 0xFFFF, index >> 16
        pad = "4x" if self._wide else ""
        self._space.write(
            debug,
            struct.pack(
                f"<HH{pad}{pointer}{links}xIIIHH", kind, low, section, entries, contention, 0, high, 0
            ),
        )
        body = struct.pack(
            f"<{pointer}ii{pointer}{pointer}{pointer}",
            debug,
            lock_count,
            recursion_count,
            owning_thread,
            0,
            0,
        )
        self._space.write(section, body + resource)
        new_section = Section(section, debug, debug + (16 if self._wide else 8))
        self.entries.append(new_section)
        return new_section

    def link(self) -> None:
        """Joins the list."""
        ring(self._space, [self.head, *(section.link for section in self.entries)])
