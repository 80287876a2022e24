# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the list of critical sections of a process, ntdll!RtlCriticalSectionList.

If Volatility has ntdll's PDB, the symbol gives its address. Otherwise ntdll's writable data is searched for a
LIST_ENTRY next to debug information that proves itself. If that fails, the sections to which the PEB points
lead to the list.
"""

from __future__ import annotations

import logging
import struct
from typing import Iterator, Optional

from ..base.decode.record import Record
from ..base.image import Image
from ..base.space import AddressSpace
from ..names.ntdll import Ntdll, Ntdlls
from .decode.criticalsection import CriticalSection, DebugInfo, SectionLayout, is_pair

vollog = logging.getLogger(__name__)

SYMBOL = "RtlCriticalSectionList"

PEB_LOCKS = ("FastPebLock", "LoaderLock")
"""Members of the PEB that point to a critical section."""

MAX_TRIES = 0x4000
"""The most places in ntdll's data that are tried. A real ntdll has a few hundred that look like a list."""

_NO_POINTER = 0xFFFF
"""The first 64 KB of a process are never mapped."""


class SectionPair(Record):
    """Debug information and its critical section (None if it cannot be read).

    `proven` tells whether the two point to each other.
    """

    debug: DebugInfo
    section: Optional[CriticalSection]
    proven: bool


class SectionList(Record):
    """A node of the list from which it can be walked.

    If `is_head`, the node is the head of the list. Otherwise it belongs to a lock, and the head is one of the
    nodes in ntdll that do not prove to belong to a lock.
    """

    link: int
    is_head: bool


class SectionMemory:
    """Reads critical sections of an address space.

    Args:
        image: the image
        space: one half of a process

    Attributes:
        layout: the layout of the structures
        read, links, pointer: methods of the space's memory
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
        """Returns the debug information whose ProcessLocksList is at an address, and its section, or None."""
        layout, address = self.layout, link - self.layout.links
        data = self.read(address, layout.debug_size) if address > 0 else None
        if data is None:
            return None
        debug = layout.debug(data)
        raw = self.read(debug.critical_section, layout.section_size)
        section = None if raw is None else layout.section(raw)
        return SectionPair(debug, section, is_pair(address, debug, section))

    def proven(self, link: int) -> bool:
        """Tells whether a LIST_ENTRY belongs to debug information that proves itself."""
        pair = self.pair(link)
        return pair is not None and pair.proven


class SectionLists:
    """Finds the lists of address spaces.

    Args:
        ntdlls: finds the ntdll of a space
    """

    def __init__(self, ntdlls: Ntdlls) -> None:
        self._ntdlls = ntdlls

    def find(
        self, space: AddressSpace, ntdll: Optional[Ntdll], memory: SectionMemory
    ) -> Optional[SectionList]:
        """Returns a node of the list of one half of a process, None if the list cannot be found.

        Args:
            space: the half
            ntdll: its ntdll, None if it is not known
            memory: reads its critical sections
        """
        member: Optional[int] = None
        if ntdll is not None:
            head = ntdll.address_of(SYMBOL)
            if head is not None and memory.links(head) not in (None, (0, 0)):
                return SectionList(head, True)
            for link in self._candidates(ntdll, memory):
                if not memory.proven(link):
                    return SectionList(link, True)
                member = link
        if member is None:
            member = next(self._of_peb(memory), None)
        return None if member is None else SectionList(member, False)

    def expected(self, space: AddressSpace, memory: SectionMemory) -> bool:
        """Tells whether a list that was not found must exist: a lock of the PEB has debug information.

        Since 8.1 a process keeps no debug information unless it is told to, and then its list is empty.
        Without symbols an empty list cannot be told from other data.
        """
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else section
            if debug is None or 0 < debug < (1 << 8 * space.pointer_size) - 1:
                return True
        return False

    def _candidates(self, ntdll: Ntdll, memory: SectionMemory) -> Iterator[int]:
        """Yields the LIST_ENTRYs in ntdll's writable data that are linked with the LIST_ENTRY of a lock."""
        for tries, link in enumerate(self._pairs(ntdll)):
            if tries >= MAX_TRIES:
                vollog.warning(f"Process {ntdll.space.pid}: ntdll's data is no data; the search was given up")
                return
            if _linked(link, memory):
                yield link

    def _pairs(self, ntdll: Ntdll) -> Iterator[int]:
        """Yields the addresses in ntdll's writable data at which two words may be the links of a list."""
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
        """Yields the LIST_ENTRYs of the sections of the PEB that have debug information."""
        for place in memory.peb_locks:
            section = memory.pointer(place)
            debug = memory.pointer(section) if section else None
            if debug and memory.proven(debug + memory.layout.links):
                yield debug + memory.layout.links


def _plausible(pointer: int, link: int, width: int) -> bool:
    """Tells whether a word may be the link to another node. It is cheap, as all words are tested."""
    return pointer > _NO_POINTER and not pointer % width and pointer != link


def _linked(link: int, memory: SectionMemory) -> bool:
    """Tells whether one of a LIST_ENTRY's neighbours points back to it and belongs to a lock."""
    for direction, other in enumerate(memory.links(link) or ()):
        back = memory.links(other)
        if back is not None and back[1 - direction] == link and memory.proven(other):
            return True
    return False
