# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Critical sections and RTL_RESOURCEs for which a thread waits, from the members of the sections.

XP to 8.1 wait for the event in LockSemaphore, which is made at the first contention; if no event could be
made, for a keyed event whose key is the section. The address of the section stays in a register that the
system call keeps: Rbx, in 32-bit code Esi. Since 10 threads wait on &LockCount (`addresswaits`). Waiting
threads in LockCount: until XP SP3 it counts entries and waits from -1 on; since Server 2003 SP1 bit 0 is
clear while the section is held, bit 1 is clear after a waiter was woken, and the bits above are the
complement of the number of waiting threads. Source: measured on ntdll's own code, XP to 22000.
"""

from __future__ import annotations

from typing import Iterable, List, Optional, Tuple

from ...columns import words
from ...locks.decode.criticalsection import CriticalSection, RtlResource, SectionLayout, may_own
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Structures
from .answer import Answer
from .processview import Call, ProcessView, ThreadView

MAX_COUNT = 1 << 16
"""The most threads that wait for one section, or that one thread holds it, and that are believed."""

KEPT_IN = "Rbx"
"""The register that keeps the address of the section or resource during the wait. 32-bit code uses others,
but there the handle stands on the stack."""

MORE_THREADS = 16
"""Threads that may be missing from a list, when the waiters of a section are compared with it."""

KEYED_HANDLE = 1
"""The low bits of the handle of the process's keyed event in LockSemaphore (XP, Server 2003)."""

WOKEN = 2
"""A bit of LockCount since 5.2: clear after a waiter was woken."""

_OWNER = "OwningThread"
_ANY_ID = 4
"""An ID that a thread may have."""


class WaitedSection(NamedTuple):
    """A critical section whose members agree.

    Attributes:
        waiters: number of threads that wait, woken ones apart
        woken: whether a waiter was woken and did not run yet; XP does not keep this
        wrong: the member that contradicts the section, empty if none does: CriticalSection of its debug
            information, DebugInfo, or OwningThread, which then names nobody
    """

    address: int
    members: CriticalSection
    waiters: int
    woken: bool
    wrong: str = ""

    @property
    def state(self) -> str:
        """The members that show who holds the section, in words."""
        return f"LockCount {self.members.lock_count}, OwningThread {self.members.owning_thread}"

    def answer(self, tid: int, known: str, evidence: str, block: int = 0) -> Answer:
        """Returns the answer that a thread waits for the section; see `Answer`."""
        kind, mode, owner = words.CRITICAL_SECTION, words.FOR_EXCLUSIVE, self.members.owning_thread
        known_owner = None if self.wrong == _OWNER else owner
        wrong = (self.wrong,) if self.wrong else ()
        return Answer(tid, kind, self.address, mode, known, evidence, block, known_owner, wrong=wrong)


class WaitedResource(NamedTuple):
    """An RTL_RESOURCE whose members agree, and the handles of its two semaphores."""

    address: int
    members: RtlResource
    shared_semaphore: int
    exclusive_semaphore: int


class SectionReader:
    """Reads critical sections and RTL_RESOURCEs of one half of a process, and judges their members."""

    def __init__(self, view: ProcessView, types: Structures) -> None:
        resource = types["_RTL_RESOURCE"]
        self.lock_count = types["_RTL_CRITICAL_SECTION"].offset("LockCount")
        self.none = (1 << 8 * view.pointer_size) - 1
        self._view = view
        self._layout = SectionLayout(types, False)
        self._semaphores = resource.reader("SharedSemaphore", "ExclusiveSemaphore")

    def section(self, address: int) -> Optional[WaitedSection]:
        """Returns the section at an address if its members agree and a thread waits for it."""
        found = self.named(address)
        return None if found is None or found.wrong else found

    def named(self, address: int) -> Optional[WaitedSection]:
        """Returns the section that other evidence names: its debug information may contradict it, or its
        OwningThread, if the other members agree that a thread holds it."""
        members = self._members(address)
        if members is None:
            return None
        if not self._agree(members):
            held = members._replace(owning_thread=_ANY_ID)
            sound = self._agree(held) and self._has_debug(held) and self._leads_back(address, held)
            found = self._waited(address, members) if sound else None
            return None if found is None else found._replace(wrong=_OWNER)
        wrong = "" if self._has_debug(members) else "DebugInfo"
        if wrong and members.owning_thread not in self._view.by_tid:
            return None
        found = self._waited(address, members)
        if not wrong and not self._leads_back(address, members):
            wrong = "CriticalSection"
        return None if found is None else found._replace(wrong=wrong)

    def held(self, address: int) -> Optional[WaitedSection]:
        """Returns the section at an address for which threads wait and that a thread of the process holds.

        Only the members that every implementation of ntdll has are asked: Wine keeps other values than
        Windows in DebugInfo and LockSemaphore.
        """
        members = self._members(address)
        if members is None or members.owning_thread not in self._view.by_tid:
            return None
        sound = 0 < members.recursion_count <= MAX_COUNT
        return self._waited(address, members) if sound else None

    def _members(self, address: int) -> Optional[CriticalSection]:
        view, layout = self._view, self._layout
        data = None if address % view.pointer_size else view.read(address, layout.section_size)
        return None if data is None else layout.section(data)

    def _waited(self, address: int, members: CriticalSection) -> Optional[WaitedSection]:
        """Returns a section if its LockCount says that threads wait for it."""
        count, recursion = members.lock_count, members.recursion_count
        old = count >= 0
        waiters = count + 1 - recursion if old else ~count >> 2
        woken = not old and not count & WOKEN
        most = len(self._view.threads) + MORE_THREADS
        return WaitedSection(address, members, waiters, woken) if 0 < waiters + woken <= most else None

    def _agree(self, members: CriticalSection) -> bool:
        """Returns whether the members of a section agree with each other, DebugInfo apart."""
        owner, recursion = members.owning_thread, members.recursion_count
        if not 0 <= recursion <= MAX_COUNT or not may_own(owner) or bool(owner) != bool(recursion):
            return False
        if members.lock_count < 0 and not members.lock_count & 1 and not owner:
            # Held by a thread that has not stored its ID yet: no wait lasts that long.
            return False
        if members.lock_count < 0 and members.lock_count & 1 and owner:
            return False
        event = members.lock_semaphore
        return event == self.none or (event % 4 in (0, KEYED_HANDLE) and event < 1 << 31)

    def _has_debug(self, members: CriticalSection) -> bool:
        """Returns whether DebugInfo may lead to debug information, or says that there is none."""
        debug = members.debug_info
        if debug == self.none:
            # XP and Server 2003 give every section debug information.
            return members.lock_count < 0
        return bool(debug) and not debug % self._view.pointer_size

    def _leads_back(self, address: int, members: CriticalSection) -> bool:
        """Returns whether the debug information of a section, if it is in memory, names the section."""
        debug = members.debug_info
        back = None if debug == self.none else self._view.read(debug, self._layout.debug_size)
        return back is None or self._layout.debug(back).critical_section in (0, address)

    def resource(self, address: int) -> Optional[WaitedResource]:
        """Returns the RTL_RESOURCE at an address if its members agree and a thread waits for it."""
        view, layout = self._view, self._layout
        data = None if address % view.pointer_size else view.read(address, layout.resource_size)
        if data is None:
            return None
        section = layout.section(data)
        sound = self._agree(section) and self._has_debug(section) and self._leads_back(address, section)
        if not sound:
            return None
        members, semaphores = layout.resource(data), self._semaphores(data, 0)
        waiting = members.number_of_waiting_shared + members.number_of_waiting_exclusive
        sound = (
            0 < waiting <= MAX_COUNT
            and abs(members.number_of_active) <= MAX_COUNT
            and may_own(members.exclusive_owner_thread)
            and all(handle and handle % 4 == 0 and handle < 1 << 31 for handle in semaphores)
        )
        return WaitedResource(address, members, *semaphores) if sound else None


class SectionWaits:
    """Finds the section or resource of a thread that waits for an event: XP to 8.1."""

    def __init__(self, view: ProcessView, reader: SectionReader, listed: Iterable[int] = ()) -> None:
        self._view = view
        self._reader = reader
        self._listed = tuple(listed)

    def find(self, thread: ThreadView, call: Call) -> List[Answer]:
        """Returns the section or resource for which a thread waits: none or one, or several equally good."""
        if not call.in_ntdll:
            return []
        found = self._with(thread, call.argument(0), call.argument(1))
        if call.argument(0) is None and call.hints and not _is_exact(found):
            hinted = self._with(thread, *call.hints[:2])
            found = hinted if _is_exact(hinted) else found
        return list({answer.address: answer for answer in reversed(found)}.values())[::-1]

    def held(self, thread: ThreadView) -> List[WaitedSection]:
        """Returns the sections on a thread's stack for which threads wait and that another thread holds."""
        found = (self._reader.held(address) for _, address in self._candidates(thread))
        return [each for each in found if each is not None and each.members.owning_thread != thread.tid]

    def _with(
        self, thread: ThreadView, handle: Optional[int] = None, key: Optional[int] = None
    ) -> List[Answer]:
        """Returns the sections and resources that fit the first arguments of the system call."""
        found: List[Answer] = []
        for kept, address in self._candidates(thread):
            section = self._reader.section(address)
            if section is not None and section.members.owning_thread != thread.tid:
                found += self._of_section(thread, section, kept, handle, key)
            if section is None or not section.waiters:
                resource = self._reader.resource(address)
                if resource is not None and resource.members.exclusive_owner_thread != thread.tid:
                    found += self._of_resource(thread, resource, kept, handle)
        exact = [answer for answer in found if answer.known != words.BY_REGISTER]
        return exact or found[:1]

    def _candidates(self, thread: ThreadView) -> List[Tuple[bool, int]]:
        """Returns addresses that may be sections, each once, and whether the register of waits has it."""
        kept = thread.registers.get(KEPT_IN)
        values = (*thread.registers.values(), *self._view.innermost(thread), *self._listed)
        return [
            (value == kept, value)
            for value in dict.fromkeys(values)
            if value > 0xFFFF and not self._view.in_teb(value)
        ]

    def _of_section(
        self,
        thread: ThreadView,
        section: WaitedSection,
        kept: bool,
        handle: Optional[int],
        key: Optional[int],
    ) -> List[Answer]:
        event = section.members.lock_semaphore
        if event in (0, self._reader.none) or event % 4 == KEYED_HANDLE:
            # No event could be made: the thread waits for a keyed event, and the section is the key.
            known = words.BY_KEY if key == section.address else ""
            unknown = key is None and handle in (None, 0, event)
        else:
            known = words.BY_HANDLE if handle == event else ""
            unknown = handle is None
        if not known and not (unknown and kept):
            return []
        known = known or words.BY_REGISTER
        evidence = section.state
        if known == words.BY_HANDLE:
            evidence += f", LockSemaphore {event:#x} is the handle"
        return [section.answer(thread.tid, known, evidence)]

    def _of_resource(
        self, thread: ThreadView, resource: WaitedResource, kept: bool, handle: Optional[int]
    ) -> List[Answer]:
        semaphores = {
            resource.shared_semaphore: (words.FOR_SHARED, resource.members.number_of_waiting_shared),
            resource.exclusive_semaphore: (words.FOR_EXCLUSIVE, resource.members.number_of_waiting_exclusive),
        }
        if handle not in semaphores and (handle is not None or not kept):
            return []
        known = words.BY_REGISTER if handle is None else words.BY_HANDLE
        possible = [mode for mode, count in semaphores.values() if count]
        mode = semaphores[handle][0] if handle is not None else possible[0] if len(possible) == 1 else ""
        members = resource.members
        evidence = f"NumberOfActive {members.number_of_active}, waiting {members.number_of_waiting_shared}"
        evidence += f" shared and {members.number_of_waiting_exclusive} exclusive"
        owner = members.exclusive_owner_thread if members.number_of_active < 0 else None
        return [Answer(thread.tid, words.USER_RESOURCE, resource.address, mode, known, evidence, owner=owner)]


def _is_exact(found: List[Answer]) -> bool:
    """Returns whether an argument of the system call proves what was found."""
    return any(answer.known != words.BY_REGISTER for answer in found)
