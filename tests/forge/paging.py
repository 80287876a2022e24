# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Page tables: x64 with four levels, x86 with PAE, and the states a Windows page may be in."""

from __future__ import annotations

import enum
import struct
from typing import Optional

from .phys import PhysicalMemory

_ENTRY = struct.Struct("<Q")
_ENTRIES = 512
_TABLE = 0x63  # present, writable, accessed, dirty
_USER = 0x04
_LARGE = 0x80
_NO_EXECUTE = 1 << 63
_READ_WRITE = 4 << 5  # MM_READWRITE, the Protection field of an invalid PTE
_WRITE_COPY = 7 << 5  # MM_EXECUTE_WRITECOPY
_SHARED = 0x21  # present, accessed: not writable, not dirty
_SHADOW_STACK = 0x61  # present, accessed, dirty: not writable
_TRANSITION = 1 << 11
_PROTOTYPE = 1 << 10
_LOOK_IN_THE_VAD = 0xFFFFFFFF << 32
_ADDRESS = 0x000F_FFFF_FFFF_F000


class State(enum.Enum):
    """How a page lies in the image (Windows Internals, "Page table entries")."""

    VALID = "valid"
    LARGE = "large"  # within a valid 2 MiB page
    TRANSITION = "transition"  # trimmed, its frame still holds it: Volatility reads it
    DEMAND_ZERO = "demand zero"
    PAGEFILE = "page file"
    PROTOTYPE = "prototype"
    MISSING = "missing frame"  # valid, but the frame is not in the image
    ABSENT = "absent"  # no page table entry at all

    @property
    def readable(self) -> bool:
        return self in (State.VALID, State.LARGE, State.TRANSITION)


def prototype_entry(bits: int, state: State, frame: Optional[int], subsection: int) -> int:
    """A prototype PTE of 8 bytes: what a section says of one of its pages (Windows' public symbols, _MMPTE).

    Args:
        bits: 64, or 32 with PAE.
        state: VALID, TRANSITION, MISSING with a frame; PAGEFILE; DEMAND_ZERO; PROTOTYPE: the page is in the
            file only, and the entry leads to the subsection; ABSENT: zero.
        frame: of the page, None where the image does not have it.
        subsection: address of the _SUBSECTION.
    """
    if state in (State.VALID, State.MISSING) and frame is not None:
        return frame << 12 | _SHARED | 1 << 9  # copy on write
    if state is State.TRANSITION and frame is not None:
        return frame << 12 | _TRANSITION | _WRITE_COPY
    entries = {
        State.ABSENT: 0,
        State.DEMAND_ZERO: _WRITE_COPY,
        State.PAGEFILE: 7 << 32 | _WRITE_COPY,
        State.PROTOTYPE: subsection << (16 if bits == 64 else 32) | _PROTOTYPE | _WRITE_COPY,
    }
    return entries[state] & (1 << 64) - 1


class PageTables:
    """One address space's translation; addresses are canonical.

    Args:
        phys: where the tables live.
        bits: 64 or 32.
        kernel: these are the kernel's own tables, which Volatility must find by scanning. They
            must be made before any other: the lowest candidate wins.
    """

    def __init__(self, phys: PhysicalMemory, bits: int, kernel: bool = False) -> None:
        self._phys = phys
        self._bits = bits
        # Levels as (shift of the index); PAE's first level has four entries.
        self._shifts = (39, 30, 21, 12) if bits == 64 else (30, 21, 12)
        self._self_index = 0x1ED
        if bits == 64:
            self._root = phys.allocate_run(1) if kernel else phys.allocate()
            self._directories: list[int] = []
            self._put(self._root, self._self_index, self._root << 12 | _TABLE)
        else:
            self._root = phys.allocate_run(5) if kernel else phys.allocate()
            directories = range(self._root + 1, self._root + 5)
            self._directories = list(directories) if kernel else [phys.allocate() for _ in "0123"]
            for index, directory in enumerate(self._directories):
                self._put(self._root, index, directory << 12 | 1)
                self._put(self._directories[3], index, directory << 12 | _TABLE)

    @property
    def root(self) -> int:
        """Physical address of the top table: DirectoryTableBase."""
        return self._root << 12

    def map(self, address: int, frame: int, state: State = State.VALID, shared: bool = False) -> None:
        """Points the page at `address` to `frame`, in a state that has a frame of its own.

        Args:
            shared: the frame is one of a section, which the process cannot write.
        """
        user = _USER if self._is_user(address) else 0
        if shared:
            self._set(address, frame << 12 | _SHARED | user)
            return
        if state is State.LARGE:
            self._set(address, frame << 12 | _TABLE | _LARGE | user, 21)
        elif state is State.TRANSITION:
            self._set(address, frame << 12 | _TRANSITION | _READ_WRITE)
        else:
            self._set(address, frame << 12 | _TABLE | user)

    def unmap(self, address: int, state: State) -> None:
        """Makes the page one whose contents are not in the image."""
        page = (address >> 12) & 0xFFFFF
        entries = {
            State.ABSENT: 0,
            State.DEMAND_ZERO: _READ_WRITE,
            State.PAGEFILE: (page + 1) << 32 | _READ_WRITE,
            State.PROTOTYPE: _LOOK_IN_THE_VAD | _PROTOTYPE | _WRITE_COPY,
        }
        self._set(address, entries[state])

    def forbid_execution(self, address: int) -> None:
        """Sets NX in the entry of a valid page."""
        entry = self.entry(address)
        assert entry is not None and not entry & _LARGE
        self._set(address, entry | _NO_EXECUTE)

    def make_shadow_stack(self, address: int) -> None:
        """Makes a valid page one of a shadow stack: it is not writable, and dirty."""
        entry = self.entry(address)
        assert entry is not None and not entry & _LARGE
        self._set(address, entry & ~_TABLE | _SHADOW_STACK)

    def share(self, other: PageTables) -> None:
        """Takes over the other's kernel half, where it has entries (but no self-reference)."""
        if self._bits == 64:
            self._copy(other._root, self._root, range(256, _ENTRIES), {self._self_index})
            return
        for number in (2, 3):
            skip = {0, 1, 2, 3} if number == 3 else set()
            mine, theirs = self._directories[number], other._directories[number]
            self._copy(theirs, mine, range(_ENTRIES), skip)

    def _copy(self, source: int, target: int, indices: range, skip: set[int]) -> None:
        for index in indices:
            entry = self._get(source, index)
            if entry and index not in skip:
                self._put(target, index, entry)

    def _set(self, address: int, entry: int, level: int = 12) -> None:
        table = self._root
        for shift in self._shifts:
            index = (address >> shift) & (_ENTRIES - 1)
            if shift == level:
                self._put(table, index, entry)
                return
            table = self._descend(table, index, address)

    def _descend(self, table: int, index: int, address: int) -> int:
        entry = self._get(table, index)
        if not entry:
            user = _USER if self._is_user(address) else 0
            entry = self._phys.allocate() << 12 | _TABLE | user
            self._put(table, index, entry)
        elif entry & _LARGE:
            raise ValueError(f"{address:#x} lies in a large page")
        return (entry & _ADDRESS) >> 12

    def entry(self, address: int) -> Optional[int]:
        """The page's (or large page's) entry as it stands; None where a table is missing."""
        table = self._root
        for shift in self._shifts:
            entry = self._get(table, (address >> shift) & (_ENTRIES - 1))
            if shift == 12 or (shift == 21 and entry & _LARGE):
                return entry
            if not entry:
                return None
            table = (entry & _ADDRESS) >> 12
        return None

    def _is_user(self, address: int) -> bool:
        return address < 1 << (self._bits - 1)

    def _get(self, table: int, index: int) -> int:
        return int(_ENTRY.unpack_from(self._phys.frame(table), index * 8)[0])

    def _put(self, table: int, index: int, entry: int) -> None:
        _ENTRY.pack_into(self._phys.frame(table), index * 8, entry & (1 << 64) - 1)
