# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where a process keeps its list of critical sections, ntdll!RtlCriticalSectionList.

By symbol if Volatility has ntdll's PDB; else by search of ntdll's writable data for a LIST_ENTRY whose
neighbour is debug information that proves itself; else through the sections that the PEB points to.
"""

from __future__ import annotations

import logging
import struct
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from ..base.image import Image
from ..base.space import AddressSpace
from ..names.moduleindex import ModuleIndex
from ..names.ntdll import Ntdll, Ntdlls
from .decode.criticalsection import CriticalSection, DebugInfo, SectionLayout, is_pair

vollog = logging.getLogger(__name__)

SYMBOL = "RtlCriticalSectionList"

PEB_LOCKS = ("FastPebLock", "LoaderLock")
"""Members of the PEB that point to a critical section."""

MAX_TRIES = 0x4000
"""Places in ntdll's data that are looked at; a real ntdll has some hundred that look like a list."""

_NO_POINTER = 0xFFFF
"""The first 64 KB of a process are never mapped."""


class SectionPair(NamedTuple):
    """Debug information and its critical section, None where that cannot be read.

    `proven`: the two point to each other.
    """

    debug: DebugInfo
    section: Optional[CriticalSection]
    proven: bool


class SectionList(NamedTuple):
    """A node of the list from which it can be walked.

    `is_head`: the node is the list's head and no lock's; otherwise it is a lock's, and the head is one of the
    nodes in ntdll that no lock proves.
    """

    link: int
    is_head: bool


class SectionMemory:
    """Reads critical sections of an address space.

    Args:
        image: the image
        space: a half of a process

    Attributes:
        layout: of the structures
        read, links, pointer: those of the space's memory
        peb_locks: addresses of the PEB's pointers to critical sections
    """

    def __init__(self, image: Image, space: AddressSpace) -> None:
        memory, types = image.memory(space), image.process_types(space.pointer_size)
        # The kernel's symbols describe the native form; the 32-bit one changed in the same version, Vista.
        debug = image.types.find("_RTL_CRITICAL_SECTION_DEBUG")
        has_high = debug is not None and debug.has("CreatorBackTraceIndexHigh")
        self.layout = SectionLayout(types, has_high)
        self.read, self.links, self.pointer = memory.read, memory.links, memory.pointer
        places = map(types["_PEB"].find, PEB_LOCKS) if space.peb else ()
        self.peb_locks = [space.peb + place.offset for place in places if place is not None]

    def pair(self, link: int) -> Optional[SectionPair]:
        """Returns what the ProcessLocksList at an address belongs to, None if it cannot be read."""
        layout, address = self.layout, link - self.layout.links
        data = self.read(address, layout.debug_size) if address > 0 else None
        if data is None:
            return None
        debug = layout.debug(data)
        raw = self.read(debug.critical_section, layout.section_size)
        section = None if raw is None else layout.section(raw)
        return SectionPair(debug, section, is_pair(address, debug, section))

    def proven(self, link: int) -> bool:
        """Tells whether a LIST_ENTRY is that of debug information which proves itself."""
        pair = self.pair(link)
        return pair is not None and pair.proven


class SectionLists:
    """Finds the list in address spaces.

    Args:
        ntdlls: finds the ntdll of a space
    """

    def __init__(self, ntdlls: Ntdlls) -> None:
        self._ntdlls = ntdlls
        self._usual: Dict[int, Tuple[ModuleIndex, int]] = {}

    def find(
        self, space: AddressSpace, ntdll: Optional[Ntdll], memory: SectionMemory
    ) -> Optional[SectionList]:
        """Returns where the list of a process' half starts, None if it cannot be found.

        Args:
            space: the half
            ntdll: its ntdll, None if that is not known
            memory: reads its critical sections
        """
        member: Optional[int] = None
        if ntdll is not None:
            head = ntdll.address_of(SYMBOL)
            if head is not None and memory.links(head) not in (None, (0, 0)):
                return SectionList(head, True)
            for link in self._candidates(ntdll, memory):
                if not memory.proven(link):
                    self._usual[space.pointer_size] = (ntdll.image, link - ntdll.base)
                    return SectionList(link, True)
                member = link
        if member is None:
            member = next(self._of_peb(memory), None)
        return None if member is None else SectionList(member, False)

    def expected(self, space: AddressSpace, memory: SectionMemory) -> bool:
        """Tells whether a list that was not found must be there: a lock of the PEB has debug information.

        Since 8.1 a process keeps no debug information unless it is asked to, and its list is empty: without
        symbols an empty list looks like any other.
        """
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else section
            if debug is None or 0 < debug < (1 << 8 * space.pointer_size) - 1:
                return True
        return False

    def _candidates(self, ntdll: Ntdll, memory: SectionMemory) -> Iterator[int]:
        """Yields the LIST_ENTRYs in ntdll's writable data that are linked with a lock's.

        The place that was found in another process with the same ntdll comes first.
        """
        index, rva = self._usual.get(ntdll.space.pointer_size, (None, 0))
        if index is ntdll.image and _linked(ntdll.base + rva, memory):
            yield ntdll.base + rva
        for tries, link in enumerate(self._pairs(ntdll)):
            if tries >= MAX_TRIES:
                vollog.warning(f"Process {ntdll.space.pid}: ntdll's data is no data; the search was given up")
                return
            if _linked(link, memory):
                yield link

    def _pairs(self, ntdll: Ntdll) -> Iterator[int]:
        """Yields where two words of ntdll's writable data may be the links of a list."""
        width = ntdll.space.pointer_size
        code = "Q" if width == 8 else "I"
        for extents in self._ntdlls.data(ntdll)[0]:
            for start, data in extents.runs:
                skip = -start % width
                words = struct.unpack_from(f"<{max(len(data) - skip, 0) // width}{code}", data, skip)
                for number, (flink, blink) in enumerate(zip(words, words[1:])):
                    link = start + skip + number * width
                    if _plausible(flink, link, width) and _plausible(blink, link, width):
                        yield link

    @staticmethod
    def _of_peb(memory: SectionMemory) -> Iterator[int]:
        """Yields the LIST_ENTRYs of the sections that the PEB names and that have debug information."""
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else None
            if debug and memory.proven(debug + memory.layout.links):
                yield debug + memory.layout.links


def _plausible(pointer: int, link: int, width: int) -> bool:
    """Tells whether a word may be the link to another node: cheap, since it is asked of every word."""
    return pointer > _NO_POINTER and not pointer % width and pointer != link


def _linked(link: int, memory: SectionMemory) -> bool:
    """Tells whether one of a LIST_ENTRY's neighbours leads back to it and is that of a lock."""
    for direction, other in enumerate(memory.links(link) or ()):
        back = memory.links(other)
        if back is not None and back[1 - direction] == link and memory.proven(other):
            return True
    return False
