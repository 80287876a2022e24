# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Modules that have gone: drivers (MmUnloadedDrivers) and a process' DLLs (ntdll's unload events)."""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, NamedTuple, Tuple

from volatility3.framework import interfaces

from ..base import bulk
from ..base.peek import Peek
from .decode import pe, unloadevents
from .decode.unloadevents import UnloadEvent
from .decode.unwindinfo import Bytes
from .imagereader import ImageReader
from .moduleindex import ModuleIndex

MAX_NAME = 0x208
MAX_DRIVER = 1 << 28
DRIVERS = 50
"""MI_UNLOADED_DRIVERS: the ring of _UNLOADED_DRIVERS has so many elements in every version."""

_DRIVER = {8: struct.Struct("<16sQQQ"), 4: struct.Struct("<8sIIQ")}
"""_UNLOADED_DRIVERS: Name, StartAddress, EndAddress, CurrentTime."""

_RING = "RtlpUnloadEventTrace"
_RING_EX = "RtlpUnloadEventTraceEx"


class Unloaded(NamedTuple):
    """A range, `end` exclusive, in which a module was."""

    start: int
    end: int
    name: str


def drivers(
    context: interfaces.context.ContextInterface, kernel_module_name: str, peek: Peek, kernel_start: int
) -> List[Unloaded]:
    """Returns the drivers that the kernel remembers having unloaded, the latest first.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
        peek: the kernel's memory
        kernel_start: the first kernel address; ranges below it are not believed
    """
    kernel = context.modules[kernel_module_name]
    if not kernel.has_symbol("MmUnloadedDrivers"):
        return []
    symbol = kernel.get_symbol("MmUnloadedDrivers").address
    array = peek.pointer(bulk.canonical(context.layers[kernel.layer_name], kernel.offset) + symbol)
    if not array:
        return []
    layout = _DRIVER[peek.pointer_size]
    found: List[Tuple[int, Unloaded]] = []
    extents = bulk.read_extents(context, kernel.layer_name, array, DRIVERS * layout.size)
    for index in range(DRIVERS):
        data = extents.read(array + index * layout.size, layout.size)
        if data is None:
            continue
        name, start, end, time = layout.unpack(data)
        if kernel_start <= start < end <= start + MAX_DRIVER:
            found.append((time, Unloaded(start, end, peek.unicode_string(name, MAX_NAME) or "")))
    return [unloaded for _, unloaded in sorted(found, key=lambda each: each[0], reverse=True)]


class UnloadedDlls:
    """Finds the unload events of processes.

    Where the ring lies in an ntdll is looked for once per image: by its symbol, else by its shape.

    Args:
        context: the context that holds the processes' layers
    """

    def __init__(self, context: interfaces.context.ContextInterface) -> None:
        self._context = context
        self._rings: Dict[int, Tuple[ModuleIndex, int]] = {}

    def find(self, peek: Peek, base: int, size: int, index: ModuleIndex, user_end: int) -> List[Unloaded]:
        """Returns the DLLs that a process remembers having unloaded, the latest first.

        Args:
            peek: the process' memory, with the pointer size of this ntdll
            base: where this ntdll lies
            size: how long it is
            index: its index
            user_end: the first address above the user's half
        """
        reader = ImageReader(self._context, peek.layer_name, base, size)
        events = self._ring(peek, reader, index, user_end) + self._ring_ex(peek, base, index, user_end)
        events.sort(key=lambda event: event.sequence, reverse=True)
        unique = dict.fromkeys(Unloaded(event.base, event.base + event.size, event.name) for event in events)
        return list(unique)

    def _ring(self, peek: Peek, reader: ImageReader, index: ModuleIndex, user_end: int) -> List[UnloadEvent]:
        rva = index.symbols.rva_of(_RING) if index.symbols is not None else None
        if rva is not None:
            # What Vista added to an element it added together with the second ring.
            later = index.symbols is not None and index.symbols.rva_of(_RING_EX) is not None
            layout = unloadevents.LAYOUTS[peek.pointer_size][0 if later else -1]
            data = reader.read(rva, unloadevents.EVENTS * layout.size)
            return [] if data is None else unloadevents.salvage_events(data, layout, user_end)
        for rva, data in self._candidates(reader, index, peek.pointer_size, user_end):
            for layout in unloadevents.LAYOUTS[peek.pointer_size]:
                events = unloadevents.read_events(data[: unloadevents.EVENTS * layout.size], layout, user_end)
                if events:
                    self._rings[id(index)] = (index, rva)
                    return events
        return []

    def _candidates(
        self, reader: ImageReader, index: ModuleIndex, pointer_size: int, user_end: int
    ) -> Iterator[Tuple[int, Bytes]]:
        """Yields places of ntdll's writable data that may be the ring: where it was before, then all."""
        known = self._rings.get(id(index))
        largest = unloadevents.EVENTS * unloadevents.LAYOUTS[pointer_size][0].size
        if known is not None:
            data = reader.read(known[1], largest)
            if data is not None:
                yield known[1], data
                return
        for section in index.headers.sections if index.headers is not None else ():
            if not section.characteristics & pe.MEM_WRITE:
                continue
            for start, run in reader.load(section.start, section.end - section.start).runs:
                view = memoryview(run)
                for offset in unloadevents.find_ring(view, pointer_size, user_end):
                    yield start + offset, view[offset : offset + largest]

    def _ring_ex(self, peek: Peek, base: int, index: ModuleIndex, user_end: int) -> List[UnloadEvent]:
        """Reads the larger ring, which only symbols lead to."""
        rva = index.symbols.rva_of(_RING_EX) if index.symbols is not None else None
        ring = peek.pointer(base + rva) if rva is not None else None
        if not ring or ring >= user_end:
            return []
        layout = unloadevents.LAYOUTS[peek.pointer_size][0]
        data = peek.read(ring, unloadevents.EVENTS_EX * layout.size)
        return [] if data is None else unloadevents.salvage_events(memoryview(data), layout, user_end)
