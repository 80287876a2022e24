# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handles: tables, the rings of their traces, and objects with what stands before their headers.

table = HandleTable(app, level=1)
table.add(0x84, named(kernel, "_KEVENT", "Event", "\\\\Ready", creator=(1000, 7)), creator=3)
table.finish()
ring = Ring(table, size=8)
ring.event(OPEN, 0x84, pid=1000, tid=1004, frames=[...])
"""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Sequence, Tuple

from .kernel import Kernel
from .obj import Obj
from .phys import PAGE
from .pool import tag_of
from .process import Process

OPEN, CLOSE, BADREF = 1, 2, 3
STEP = 4

_CREATOR_FLAG = 0x04  # OB_FLAG_CREATOR_INFO, up to Vista
_CREATOR_MASK, _NAME_MASK = 1, 2  # InfoMask, since 7


def named(
    kernel: Kernel,
    type_name: str,
    object_type: str,
    name: Optional[str] = None,
    creator: Optional[Tuple[int, int]] = None,
) -> Obj:
    """An object with a name, and with what remembers its creator (process ID, trace index)."""
    isf = kernel.isf
    extra = (isf.size("_OBJECT_HEADER_NAME_INFO") if name else 0) + (
        isf.size("_OBJECT_HEADER_CREATOR_INFO") if creator else 0
    )
    head = isf.offset("_OBJECT_HEADER", "Body")
    block = kernel.pool.allocate(extra + head + isf.size(type_name), tag_of(object_type))
    header = Obj(kernel.space, isf, "_OBJECT_HEADER", block + extra)
    header.put(PointerCount=1, HandleCount=1)
    kernel.pool.set_type(header, object_type)
    mask = (_NAME_MASK if name else 0) | (_CREATOR_MASK if creator else 0)
    if not header.maybe("InfoMask", mask):
        header["Flags"] = _CREATOR_FLAG if creator else 0
        header["NameInfoOffset"] = extra if name else 0
    if name:
        Obj(kernel.space, isf, "_OBJECT_HEADER_NAME_INFO", block).text("Name", name)
    if creator:
        at = header.address - isf.size("_OBJECT_HEADER_CREATOR_INFO")
        info = Obj(kernel.space, isf, "_OBJECT_HEADER_CREATOR_INFO", at)
        info["CreatorUniqueProcess"], info["CreatorBackTraceIndex"] = creator
        info["TypeList.Flink"] = info["TypeList.Blink"] = info.at("TypeList")
    return Obj(kernel.space, isf, type_name, header.address + head)


def header_of(body: Obj) -> int:
    """Address of an object's header."""
    return body.address - body.isf.offset("_OBJECT_HEADER", "Body")


class HandleTable:
    """The handle table of a process, of 0, 1 or 2 levels of pointers above its entries."""

    def __init__(self, process: Process, level: int = 0) -> None:
        self.kernel = process.kernel
        self.process = process
        self.level = level
        self.obj = self.kernel.obj("_HANDLE_TABLE", tag=b"Obtb")
        process.eprocess["ObjectTable"] = self.obj
        self.obj.maybe("UniqueProcessId", process.pid)
        self.obj["QuotaProcess"] = process.eprocess
        if "HandleTableListHead" in self.kernel.isf.symbols:
            self.kernel.handle_tables.append(self.obj)
        self.entries: Dict[int, Tuple[int, Optional[int], int]] = {}
        self.pages: Dict[int, int] = {}

    def add(self, handle: int, body: Obj, creator: Optional[int] = None, access: int = 0x1F0003) -> None:
        """A handle to an object with granted access.

        `creator` is the trace index that XP and 2003 keep, with +kst only: then with an index of the access.
        """
        self.entries[handle] = (header_of(body), creator, access)

    def finish(self) -> None:
        """Writes the table's pages; `html` then has the page of entries by number."""
        kernel = self.kernel
        size = kernel.isf.size("_HANDLE_TABLE_ENTRY")
        per_page = PAGE // size
        numbers = {handle // STEP // per_page for handle in self.entries} | {0}
        self.pages = {number: kernel.space.allocate(PAGE, PAGE) for number in sorted(numbers)}
        for handle, (header, creator, access) in self.entries.items():
            page, slot = divmod(handle // STEP, per_page)
            self._entry(self.pages[page] + slot * size, header, creator, access)
        self.obj["TableCode"] = self._directory(self.level, 0) | self.level

    def fill(self, headers: Sequence[int], access: int) -> None:
        """Writes a table (8 and later) of handles to objects, given by their headers, and no `finish`."""
        kernel, isf = self.kernel, self.kernel.isf
        offsets = [
            isf.place("_HANDLE_TABLE_ENTRY", name) for name in ("ObjectPointerBits", "GrantedAccessBits")
        ]
        (pointer, _), (granted, _) = [offset.bits or (0, 0) for offset in offsets]
        size = isf.size("_HANDLE_TABLE_ENTRY")
        # The first entry of each page is of no handle.
        per_page = PAGE // size - 1
        for number in range(-(-len(headers) // per_page) or 1):
            page = self.pages[number] = kernel.space.allocate(PAGE, PAGE)
            part = headers[number * per_page : (number + 1) * per_page]
            words = [
                word
                for header in part
                for word in ((header >> 4 & (1 << 44) - 1) << pointer | 1, access << granted)
            ]
            kernel.space.write(page + size, struct.pack(f"<{len(words)}Q", *words))
        self.obj["TableCode"] = self._directory(self.level, 0) | self.level

    def _directory(self, level: int, first: int) -> int:
        if level == 0:
            return self.pages.get(first, 0)
        pointer = self.kernel.space.pointer_size
        span = (PAGE // pointer) ** (level - 1)
        page = self.kernel.space.allocate(PAGE, PAGE)
        for number in range(max(self.pages) // span + 1):
            below = self._directory(level - 1, first + number * span)
            self.kernel.space.write_int(page + number * pointer, below)
        return page

    def _entry(self, address: int, header: int, creator: Optional[int], access: int) -> None:
        entry = Obj(self.kernel.space, self.kernel.isf, "_HANDLE_TABLE_ENTRY", address)
        if entry.has("ObjectPointerBits"):
            wide = self.kernel.bits == 64
            entry["ObjectPointerBits"] = header >> 4 & (1 << 44) - 1 if wide else header >> 3
            entry["Unlocked"] = 1
            entry["GrantedAccessBits"] = access
            return
        entry["Object"] = header | 1
        if creator is None:
            entry["GrantedAccess"] = access
        else:
            entry["GrantedAccessIndex"], entry["CreatorBackTraceIndex"] = 1, creator


class Ring:
    """The trace ring of a handle table.

    Args:
        table: whose DebugInfo leads to the ring
        size: events that it holds; XP has no other size than 4096
    """

    def __init__(self, table: HandleTable, size: int = 4096) -> None:
        self._table = table
        self.kernel = kernel = table.kernel
        self.size = size
        isf = kernel.isf
        self.entry_size = isf.size("_HANDLE_TRACE_DB_ENTRY")
        start = isf.offset("_HANDLE_TRACE_DEBUG_INFO", "TraceDb")
        # Every ring in pages of its own, the events not aligned to them.
        self.address = kernel.pool.big(start + size * self.entry_size, b"Htrc")
        self.trace_db = self.address + start
        self.info = Obj(kernel.space, isf, "_HANDLE_TRACE_DEBUG_INFO", self.address)
        self.info.maybe("TableSize", size)
        self.info.maybe("RefCount", 1)
        table.obj["DebugInfo"] = self.address
        self.events: List[Tuple[int, int, int, int, Sequence[int]]] = []

    def event(self, kind: int, handle: int, pid: int, tid: int, frames: Sequence[int] = ()) -> int:
        """Takes the next slot; returns the event's number, the first 1."""
        self.events.append((kind, handle, pid, tid, tuple(frames)))
        number = len(self.events)
        entry = Obj(self.kernel.space, self.kernel.isf, "_HANDLE_TRACE_DB_ENTRY", self.slot(number))
        entry["ClientId.UniqueProcess"], entry["ClientId.UniqueThread"] = pid, tid
        entry["Handle"], entry["Type"] = handle, kind
        entry["StackTrace"] = [*frames, *(0,) * (16 - len(frames))]
        self.info["CurrentStackIndex"] = number
        return number

    def slot(self, number: int) -> int:
        """Address of the slot of an event."""
        return self.trace_db + number % self.size * self.entry_size
