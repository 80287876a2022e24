# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the lists of critical sections of processes. Each half of a WoW64 process has a list of its own.

The head of the list is ntdll!RtlCriticalSectionList. If Volatility has ntdll's PDB, the symbol gives its
address. Otherwise ntdll's writable data is searched for a LIST_ENTRY linked with debug information that
proves itself. If that fails, the sections to which the PEB points lead to the list.
"""

from __future__ import annotations

import collections
import logging
from typing import Callable, Counter, Dict, Iterator, List, Optional, Set, Tuple

from ..memory.decode import links
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Kept, Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.structure import integers
from ..memory.image import AddressSpace, Image
from ..names.loaderlists import module_lists
from ..names.ntdll import Ntdll, Ntdlls
from ..process import globalflag
from ..process.decode.globalflags import FLG_USER_STACK_TRACE_DB
from ..process.kernelobjects import WOW64_PROCESS
from ..process.processlist import process_member
from ..process.spaces import AddressSpaces
from ..process.usertypes import PEB_LOCKS, peb_at, user_types
from .decode.criticalsection import CriticalSection, DebugInfo, SectionLayout, is_pair

vollog = logging.getLogger(__name__)

SYMBOL = "RtlCriticalSectionList"

MAX_STEPS = 0x1000
"""The most links of a list with a damaged head that are followed to see whether they return to it."""

MAX_TRIES = 0x4000
"""The most places in ntdll's data that are tried. A real ntdll has a few hundred that look like a list."""

MAX_PEERS = 16
"""The most processes that are asked where the head of their list is, for one that may have lost its own."""

MAX_LISTS = 16
"""The most lists of a process that are shown; a process has one, unless it forged others."""

MAX_FOUND = 1 << 10
"""The most spaces whose lists are kept."""

_NO_POINTER = 0xFFFF
"""The first 64 KB of a process are never mapped."""


class SectionPair(NamedTuple):
    """Debug information and its critical section (None if it cannot be read).

    `proven`: whether the two point to each other.
    """

    debug: DebugInfo
    section: Optional[CriticalSection]
    proven: bool


class SectionList(NamedTuple):
    """A node from which a list can be walked.

    If `is_head`, the node is the head. Otherwise it belongs to a lock, and the head is one of the nodes in
    ntdll that prove to belong to no lock. If `is_real`, a lock of the PEB is on the list, or nothing
    contradicts the list.
    """

    link: int
    is_head: bool
    is_real: bool


WideIndices = Callable[[AddressSpace], Optional[bool]]


class SectionMemory:
    """Reads critical sections of an address space. `wide_indices` returns whether the traces of a space have
    indices of more than 16 bits, None if unknown: then the high part is not read."""

    def __init__(self, image: Image, space: AddressSpace, wide_indices: WideIndices) -> None:
        memory, types = image.memory(space), user_types(image, space)
        # The kernel's symbols describe the native form; the 32-bit form changed in the same version, Vista.
        # The process's database changed then, too, and shows the version if there is no kernel.
        debug = image.types.first_structure("_RTL_CRITICAL_SECTION_DEBUG")
        has_high = wide_indices(space) if debug is None else debug.has("CreatorBackTraceIndexHigh")
        self.layout = SectionLayout(types, bool(has_high))
        self.read, self.links, self.pointer = memory.read, memory.links, memory.pointer
        places = map(peb_at(image, space).place, PEB_LOCKS)
        self.peb_locks = [place for place in places if place is not None]

    def pair(self, link: int) -> Optional[SectionPair]:
        """Returns the debug information with ProcessLocksList at an address, and its section, or None."""
        layout, address = self.layout, link - self.layout.links
        data = self.read(address, layout.debug_size) if address > 0 else None
        if data is None:
            return None
        debug = layout.debug(data)
        raw = self.read(debug.critical_section, layout.section_size)
        section = None if raw is None else layout.section(raw)
        return SectionPair(debug, section, is_pair(address, debug, section))

    def lead_out(self, link: int) -> bool:
        """Returns whether neither a LIST_ENTRY nor its links' targets are in the image; False for 0."""
        return bool(link) and all(self.links(item) is None for item in self.links(link) or (link,))

    def proves_itself(self, link: int) -> bool:
        """Returns whether a LIST_ENTRY belongs to debug information that proves itself."""
        pair = self.pair(link)
        return pair is not None and pair.proven


class SectionLists:
    """Finds the lists of critical sections in address spaces."""

    def __init__(self, image: Image, ntdlls: Ntdlls, wide_indices: WideIndices) -> None:
        self._image = image
        self._ntdlls = ntdlls
        self._wide_indices = wide_indices
        self._heads: Memo[Tuple[Machine, int], int] = Memo(self._usual_head)
        self._found: Kept[AddressSpace, List[SectionList]] = Kept(MAX_FOUND)

    def memory(self, space: AddressSpace) -> SectionMemory:
        """Returns the reader of the critical sections of one half of a process."""
        return SectionMemory(self._image, space, self._wide_indices)

    def find_heads(
        self, space: AddressSpace, ntdll: Optional[Ntdll], memory: SectionMemory
    ) -> List[SectionList]:
        """Returns a node of each list of one half of a process: more than one if the process forged some.

        The list with the PEB's locks comes first, and is the real one. The search is made once for a space:
        its lists are asked for, too, where other processes may have lost theirs. `ntdll` is its ntdll, None
        if unknown.
        """
        if space not in self._found:
            self._found.keep(space, self._search(space, ntdll, memory))
        return self._found[space]

    def _search(
        self, space: AddressSpace, ntdll: Optional[Ntdll], memory: SectionMemory
    ) -> List[SectionList]:
        member: Optional[int] = None
        rings: Dict[int, Set[int]] = {}
        of_peb = list(self._of_peb(memory))
        if ntdll is not None:
            head = ntdll.address_of(SYMBOL)
            if head is not None and memory.links(head) not in (None, (0, 0)):
                return [SectionList(head, True, True)]
            for both in (True, False):
                if both or (not (rings or member) and self._is_search_worthwhile(space, memory)):
                    for link in self._candidates(ntdll, memory, both):
                        if memory.proves_itself(link):
                            member = link
                        elif len(rings) < MAX_LISTS and not any(link in ring for ring in rings.values()):
                            rings[link] = {link, *links.walk(link, memory.links).nodes}
        real = {link for link, ring in rings.items() if not ring.isdisjoint(of_peb)}
        lists = [
            SectionList(link, True, link in real) for link in sorted(rings, key=lambda item: item not in real)
        ]
        if of_peb and not real and (lists or member is None):
            lists.insert(0, SectionList(of_peb[0], False, True))
        elif not lists and member is not None:
            lists.append(SectionList(member, False, True))
        return lists

    def expected(self, space: AddressSpace, memory: SectionMemory) -> bool:
        """Returns whether a list that was not found must exist: a lock of the PEB has debug information.

        Since 8.1 a process keeps no debug information unless its flags request it, and then its list is
        empty. Without symbols an empty list looks like other data.
        """
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else section
            if debug is None or 0 < debug < (1 << 8 * space.pointer_size) - 1:
                return True
        return False

    def may_be_absent(self, space: AddressSpace, ntdll: Optional[Ntdll], memory: SectionMemory) -> bool:
        """Returns whether the image may lack the list of a process whose flags request traces.

        The head, or the locks to which it leads, may not be in the image.
        """
        flags = globalflag.read(self._image, space)
        if flags is None:
            return globalflag.is_lost(self._image, space)
        if not flags & FLG_USER_STACK_TRACE_DB:
            return False
        if ntdll is None:
            listed = peb_at(self._image, space).required("Ldr") != 0
            return listed and not self._image.service(module_lists).process_modules(space)[1]
        head = ntdll.address_of(SYMBOL)
        if head is None and self._ntdlls.data(ntdll)[1] > 0:
            # The code of a WoW64 process runs in its 32-bit half: nothing is expected in the 64-bit half.
            native = space.machine is self._image.machine
            return not (native and process_member(self._image, space.eprocess, *WOW64_PROCESS))
        # The head has the same offset in every process's copy of ntdll.
        rva = self._heads[space.machine, ntdll.size]
        return memory.lead_out(head or (ntdll.base + rva if rva else 0))

    def _usual_head(self, half: Tuple[Machine, int]) -> int:
        """Returns the RVA of the head in most processes of a machine and a size of ntdll, 0 if unknown."""
        found: Counter[int] = collections.Counter()
        spaces = (space for space in AddressSpaces.list_spaces(self._image) if space.machine is half[0])
        peers = [(space, self.memory(space)) for space in spaces if space.peb and space.layer_name]
        peers = [(space, memory) for space, memory in peers if self._is_search_worthwhile(space, memory)]
        peers.sort(key=lambda peer: (peer[0].pid or 0, peer[0].eprocess))
        for space, memory in peers[:MAX_PEERS]:
            ntdll = self._ntdlls.find_ntdll(space)
            if ntdll is not None and ntdll.size == half[1]:
                lists = self.find_heads(space, ntdll, memory)[:1]
                found.update(head.link - ntdll.base for head in lists if head.is_head)
        return max(found, key=lambda rva: (found[rva], -rva), default=0)

    def _is_search_worthwhile(self, space: AddressSpace, memory: SectionMemory) -> bool:
        """Returns whether a missing list is worth another search: traces of locks are kept."""
        flags = globalflag.read(self._image, space) or 0
        return bool(flags & FLG_USER_STACK_TRACE_DB) or self.expected(space, memory)

    def _candidates(self, ntdll: Ntdll, memory: SectionMemory, both: bool) -> Iterator[int]:
        """Yields the LIST_ENTRYs in ntdll's writable data that are linked with the LIST_ENTRY of a lock.
        `both` says whether both links must look like links to a node; a damaged head may have only one."""
        for tries, link in enumerate(self._pairs(ntdll, both)):
            if tries >= MAX_TRIES:
                pid = ntdll.space.pid_text
                vollog.warning(f"Process {pid}: ntdll's data is not usable; the search was stopped")
                return
            if _linked(link, memory) and (both or _closes(link, memory)):
                yield link

    def _pairs(self, ntdll: Ntdll, both: bool) -> Iterator[int]:
        """Yields the addresses in ntdll's writable data at which two words (or one) look like links."""
        needed = all if both else any
        width = ntdll.space.pointer_size
        for extents in self._ntdlls.data(ntdll)[0]:
            for start, data in extents.runs:
                skip = -start % width
                words = integers(data, width, skip)
                for number, (flink, blink) in enumerate(zip(words, words[1:])):
                    link = start + skip + number * width
                    # A head with one link overwritten to point to itself is still found by the other link.
                    leads = flink != link or blink != link
                    if leads and needed((_plausible(flink, width), _plausible(blink, width))):
                        yield link

    @staticmethod
    def _of_peb(memory: SectionMemory) -> Iterator[int]:
        """Yields the LIST_ENTRYs of the sections of the PEB that have debug information."""
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else None
            if debug and memory.proves_itself(debug + memory.layout.links):
                yield debug + memory.layout.links


def _plausible(pointer: int, width: int) -> bool:
    """Returns whether a word may be the link to another node; cheap, because all words are tested."""
    return pointer > _NO_POINTER and not pointer % width


def _closes(head: int, memory: SectionMemory) -> bool:
    """Returns whether the links of one direction lead from a head back to it."""
    ends = (
        links.take_nodes(links.steps(head, memory.links, side, MAX_STEPS, known=set())) for side in (0, 1)
    )
    return any(end.reason == links.CLOSED for _, end in ends)


def _linked(link: int, memory: SectionMemory) -> bool:
    """Returns whether one of a LIST_ENTRY's neighbours points back to it and belongs to a lock."""
    others = (links.neighbour(link, memory.links, direction) for direction in (0, 1))
    return any(other is not None and memory.proves_itself(other) for other in others)
