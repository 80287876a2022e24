# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The critical sections of a process. Each half of a WoW64 process has a list of its own.

Its head is ntdll!RtlCriticalSectionList. If Volatility has ntdll's PDB, the symbol gives its address.
Otherwise ntdll's writable data is searched for a LIST_ENTRY next to debug information that proves itself. If
that fails, the sections to which the PEB points lead to the list.
"""

from __future__ import annotations

import logging
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..columns import words
from ..memory.decode import links
from ..memory.decode.machine import Machine
from ..memory.decode.status import NOTHING, Said, Word, status
from ..memory.decode.structure import integers
from ..memory.image import AddressSpace, Image
from ..names.loaderlists import module_lists
from ..names.ntdll import Ntdll, Ntdlls
from ..process import globalflag
from ..process import threadids as ids
from ..process.decode.globalflags import FLG_USER_STACK_TRACE_DB
from ..process.processlist import WOW64_PROCESS, process_member
from ..process.threadids import ThreadOwner
from ..process.usertypes import user_types
from . import lock
from .decode import criticalsection
from .decode.criticalsection import RESOURCE_TYPE, CriticalSection, DebugInfo, SectionLayout, is_pair
from .lock import Listed, Lock, LockGap

vollog = logging.getLogger(__name__)

SYMBOL = "RtlCriticalSectionList"

PEB_LOCKS = ("FastPebLock", "LoaderLock")
"""Members of the PEB that point to a critical section."""

MAX_STEPS = 0x1000
"""How far the links of a list with a damaged head are followed to see whether they come back."""

MAX_TRIES = 0x4000
"""The most places in ntdll's data that are tried. A real ntdll has a few hundred that look like a list."""

MAX_LISTS = 16
"""The most lists of a process that are shown; it has one, unless it forged others."""

_NO_POINTER = 0xFFFF
"""The first 64 KB of a process are never mapped."""


class SectionPair(NamedTuple):
    """Debug information and its critical section (None if it cannot be read).

    `proven` tells whether the two point to each other.
    """

    debug: DebugInfo
    section: Optional[CriticalSection]
    proven: bool


class SectionList(NamedTuple):
    """A node of the list from which it can be walked.

    If `is_head`, the node is the head of the list. Otherwise it belongs to a lock, and the head is one of the
    nodes in ntdll that do not prove to belong to a lock. If `is_real`, a lock of the PEB is on the list, or
    nothing speaks against it.
    """

    link: int
    is_head: bool
    is_real: bool


WideIndices = Callable[[AddressSpace], Optional[bool]]


def _unknown(_: AddressSpace) -> Optional[bool]:
    return None


class SectionMemory:
    """Reads critical sections of an address space.

    Args:
        image: the image
        space: one half of a process
        wide_indices: tells of a space whether its traces have indices of more than 16 bits, None if nothing
            tells: then the high part is not read

    Attributes:
        layout: the layout of the structures
        read, links, pointer: methods of the space's memory
        peb_locks: addresses of the PEB's pointers to critical sections
    """

    def __init__(self, image: Image, space: AddressSpace, wide_indices: WideIndices = _unknown) -> None:
        memory, types = image.memory(space), user_types(image, space)
        # The kernel's symbols describe the native form; the 32-bit one changed in the same version, Vista. So
        # did the database of the process, which tells where no kernel is.
        debug = image.types.find("_RTL_CRITICAL_SECTION_DEBUG")
        has_high = wide_indices(space) if debug is None else debug.has("CreatorBackTraceIndexHigh")
        self.layout = SectionLayout(types, bool(has_high))
        self.read, self.links, self.pointer = memory.read, memory.links, memory.pointer
        places = map(types["_PEB"].find, PEB_LOCKS) if space.peb else ()
        self.peb_locks = [space.peb + place.offset for place in places if place is not None]

    def pair(self, link: int) -> Optional[SectionPair]:
        """Returns the debug information whose ProcessLocksList is at an address, and its section, or None."""
        layout, address = self.layout, link - self.layout.links
        data = self.read(address, layout.debug_size) if address > 0 else None
        if data is None:
            return None
        debug = layout.debug(data)
        raw = self.read(debug.critical_section, layout.section_size)
        section = None if raw is None else layout.section(raw)
        return SectionPair(debug, section, is_pair(address, debug, section))

    def lead_out(self, link: int) -> bool:
        """Returns whether a LIST_ENTRY is not in the image, nor what both of its links lead to; 0 is none."""
        return bool(link) and all(self.links(each) is None for each in self.links(link) or (link,))

    def proven(self, link: int) -> bool:
        """Returns whether a LIST_ENTRY belongs to debug information that proves itself."""
        pair = self.pair(link)
        return pair is not None and pair.proven


class SectionLists:
    """Finds the lists of address spaces.

    Args:
        image: the image
        ntdlls: finds the ntdll of a space
    """

    def __init__(self, image: Image, ntdlls: Ntdlls) -> None:
        self._image = image
        self._ntdlls = ntdlls
        self._heads: Dict[Tuple[Machine, int], int] = {}

    def find(self, space: AddressSpace, ntdll: Optional[Ntdll], memory: SectionMemory) -> List[SectionList]:
        """Returns a node of each list of one half of a process: more than one if the process forged some.

        The list to which the locks of the PEB belong comes first, and is the real one.

        Args:
            space: the half
            ntdll: its ntdll, None if it is not known
            memory: reads its critical sections
        """
        member: Optional[int] = None
        rings: Dict[int, Set[int]] = {}
        of_peb = list(self._of_peb(memory))
        if ntdll is not None:
            head = ntdll.address_of(SYMBOL)
            if head is not None and memory.links(head) not in (None, (0, 0)):
                return [SectionList(head, True, True)]
            for both in (True, False):
                if both or (not (rings or member) and self._wanted(space, memory)):
                    for link in self._candidates(ntdll, memory, both):
                        if memory.proven(link):
                            member = link
                        elif len(rings) < MAX_LISTS and not any(link in ring for ring in rings.values()):
                            rings[link] = {link, *links.walk(link, memory.links).nodes}
        real = {link for link, ring in rings.items() if not ring.isdisjoint(of_peb)}
        found = [
            SectionList(link, True, link in real) for link in sorted(rings, key=lambda each: each not in real)
        ]
        if of_peb and not real and (found or member is None):
            found.insert(0, SectionList(of_peb[0], False, True))
        elif found and ntdll is not None:
            self._heads.setdefault((space.machine, ntdll.size), found[0].link - ntdll.base)
        elif not found and member is not None:
            found.append(SectionList(member, False, True))
        return found

    def expected(self, space: AddressSpace, memory: SectionMemory) -> bool:
        """Returns whether a list that was not found must exist: a lock of the PEB has debug information.

        Since 8.1 a process keeps no debug information unless it is told to, and then its list is empty.
        Without symbols an empty list cannot be told from other data.
        """
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else section
            if debug is None or 0 < debug < (1 << 8 * space.pointer_size) - 1:
                return True
        return False

    def may_be_absent(self, space: AddressSpace, ntdll: Optional[Ntdll], memory: SectionMemory) -> bool:
        """Returns whether the image may lack the list of a process whose flags ask for traces.

        Its head may be in data of ntdll that is not in the image, or lead to locks that are not.
        """
        flags = globalflag.read(self._image, space)
        if flags is None:
            return globalflag.is_lost(self._image, space)
        if not flags & FLG_USER_STACK_TRACE_DB:
            return False
        if ntdll is None:
            ldr = user_types(self._image, space)["_PEB"].field("Ldr")
            listed = self._image.memory(space).member(space.peb, ldr) != 0
            return listed and not self._image.service(module_lists).of_process(space)[1]
        head = ntdll.address_of(SYMBOL)
        if head is None and self._ntdlls.data(ntdll)[1] > 0:
            # The code of a WoW64 process is that of its 32-bit half: of the other one nothing is expected.
            native = space.machine is self._image.machine
            return not (native and process_member(self._image, space.eprocess, *WOW64_PROCESS))
        # Where it is in the ntdll of another process, it is in this one's.
        rva = self._heads.get((space.machine, ntdll.size))
        return memory.lead_out(head or (ntdll.base + rva if rva else 0))

    def _wanted(self, space: AddressSpace, memory: SectionMemory) -> bool:
        """Returns whether a list that was not found is worth another search: traces of locks are kept."""
        flags = globalflag.read(self._image, space) or 0
        return bool(flags & FLG_USER_STACK_TRACE_DB) or self.expected(space, memory)

    def _candidates(self, ntdll: Ntdll, memory: SectionMemory, both: bool) -> Iterator[int]:
        """Yields the LIST_ENTRYs in ntdll's writable data that are linked with the LIST_ENTRY of a lock.

        Args:
            ntdll: the module
            memory: reads critical sections
            both: take only those of which both links may lead to a node: one that is damaged may not
        """
        for tries, link in enumerate(self._pairs(ntdll, both)):
            if tries >= MAX_TRIES:
                vollog.warning(
                    f"Process {ntdll.space.pid_text}: ntdll's data is no data; the search was given up"
                )
                return
            if _linked(link, memory) and (both or _closes(link, memory)):
                yield link

    def _pairs(self, ntdll: Ntdll, both: bool) -> Iterator[int]:
        """Yields the addresses in ntdll's writable data at which two words (or one) may be links."""
        needed = all if both else any
        width = ntdll.space.pointer_size
        for extents in self._ntdlls.data(ntdll)[0]:
            for start, data in extents.runs:
                skip = -start % width
                words = integers(data, width, skip)
                for number, (flink, blink) in enumerate(zip(words, words[1:])):
                    link = start + skip + number * width
                    # A head of which one link was written to lead to itself is still a head by the other one.
                    leads = flink != link or blink != link
                    if leads and needed((_plausible(flink, width), _plausible(blink, width))):
                        yield link

    @staticmethod
    def _of_peb(memory: SectionMemory) -> Iterator[int]:
        """Yields the LIST_ENTRYs of the sections of the PEB that have debug information."""
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else None
            if debug and memory.proven(debug + memory.layout.links):
                yield debug + memory.layout.links


def _plausible(pointer: int, width: int) -> bool:
    """Returns whether a word may be the link to another node. It is cheap, as all words are tested."""
    return pointer > _NO_POINTER and not pointer % width


def _closes(head: int, memory: SectionMemory) -> bool:
    """Returns whether the links of one direction lead from a head back to it."""
    ends = (links.taken(links.steps(head, memory.links, side, MAX_STEPS, known=set())) for side in (0, 1))
    return any(end.reason == links.CLOSED for _, end in ends)


def _linked(link: int, memory: SectionMemory) -> bool:
    """Returns whether one of a LIST_ENTRY's neighbours points back to it and belongs to a lock."""
    others = (links.neighbour(link, memory.links, direction) for direction in (0, 1))
    return any(other is not None and memory.proven(other) for other in others)


class CriticalSections:
    """Lists the critical sections of processes.

    Args:
        image: the image
        ntdlls: finds the ntdll of a space
        wide_indices: as `SectionMemory` takes it
    """

    def __init__(self, image: Image, ntdlls: Ntdlls, wide_indices: WideIndices = _unknown) -> None:
        self._image = image
        self._ntdlls = ntdlls
        self._wide_indices = wide_indices
        self._lists = SectionLists(image, ntdlls)

    def list_sections(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the critical sections in the list's order, and a LockGap for sections that cannot be read.

        Args:
            space: one half of a process
        """
        if not space.layer_name:
            return
        memory = SectionMemory(self._image, space, self._wide_indices)
        ntdll = self._ntdlls.find(space)
        found = self._lists.find(space, ntdll, memory)
        if not found and (
            self._lists.expected(space, memory) or self._lists.may_be_absent(space, ntdll, memory)
        ):
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
            sound = [link for link in walk.gap.lost if space.machine.is_canonical(link)]
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
    return Lock(space, None, words.CRITICAL_SECTION, status=said, debug_info=link - memory.layout.links)


def _section(space: AddressSpace, pair: SectionPair, memory: SectionMemory) -> Lock:
    debug, section = pair.debug, pair.section
    made = Lock(
        space,
        debug.critical_section,
        words.RESOURCE if debug.type == RESOURCE_TYPE else words.CRITICAL_SECTION,
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
