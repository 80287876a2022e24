# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists unloaded modules: drivers (MmUnloadedDrivers) and the DLLs of a process (ntdll's unload events)."""

from __future__ import annotations

import functools
import logging
from typing import Callable, Iterator, List, Optional, Protocol, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import counted
from ..memory.image import Image
from .decode import pe, unloadevents
from .decode.unloadevents import EventLayout, UnloadEvent
from .decode.unwindinfo import Bytes
from .imagereader import ImageReader
from .moduleindex import ModuleIndex

vollog = logging.getLogger(__name__)

MAX_NAME = 0x208
"""Maximum bytes of a driver's name."""
MAX_DRIVER = 1 << 28
"""Maximum bytes of a driver."""
DRIVERS = 50
"""MI_UNLOADED_DRIVERS: the number of elements of the ring of _UNLOADED_DRIVERS, the same in every version."""

DRIVERS_CONTRADICTED = contradicted("MmUnloadedDrivers")
"""The status of a list with values that no unloaded driver can have."""

_RING = "RtlpUnloadEventTrace"
_RING_EX = "RtlpUnloadEventTraceEx"


class Unloaded(NamedTuple):
    """A module that was unloaded."""

    start: int
    end: int
    name: str


_UnloadedAt = Tuple[int, Unloaded]
"""The time at which a driver was unloaded, and the driver."""
_IMPOSSIBLE: _UnloadedAt = (-1, Unloaded(0, 0, ""))
"""An element of the ring that is unused, or has values that no driver can have."""
_Element = Optional[_UnloadedAt]
"""An element of the ring, None if it is not in the image."""


class UnloadedModules(Protocol):
    """Lists the modules that were unloaded, the latest first."""

    def drivers(self, kernel_start: int) -> Tuple[List[Unloaded], Status]:
        """Returns the unloaded drivers, and why some may be missing; the status is empty if none is."""

    def dlls(
        self, reader: ImageReader, machine: Machine, index: ModuleIndex, user_end: int
    ) -> List[Unloaded]:
        """Returns the DLLs that a process unloaded."""


def unloaded_modules(image: Image) -> UnloadedModules:
    """Makes the service `image.service(unloaded_modules)` of an image with a kernel: it reads memory."""
    return RememberedModules(image)


class RememberedModules:
    """Reads the records of the kernel and of a process's ntdll about unloaded modules.

    The kernel has MmUnloadedDrivers; ntdll has a ring of unload events, which is found by its symbol or,
    without symbols, by its content.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._layouts: Memo[Machine, List[EventLayout]] = Memo(self._read_layouts)

    def drivers(self, kernel_start: int) -> Tuple[List[Unloaded], Status]:
        """Returns the drivers that the kernel recorded as unloaded, the latest first, and why some of them
        are missing.

        MmLastUnloadedDriver is the number of the next element of the ring: all elements before it are used.
        A used element with a value that no driver can have contradicts it; a page that is not in the image
        does not.
        """
        image = self._image
        symbol = image.require_symbol("MmUnloadedDrivers")
        memory = image.memory(image.kernel)
        array = memory.pointer(symbol)
        impossible = array is not None and not (array >= kernel_start and image.machine.is_canonical(array))
        ring: List[_Element] = DRIVERS * [_IMPOSSIBLE if impossible else None]
        if array and not impossible:
            ring = self._elements(array, kernel_start)
        used = min(memory.number(image.symbol("MmLastUnloadedDriver"), 4) or 0, DRIVERS)
        wrong, absent = (ring[:used].count(item) for item in (_IMPOSSIBLE, None))
        if wrong:
            vollog.warning(
                f"contradicted: MmUnloadedDrivers: by MmLastUnloadedDriver it has at least "
                f"{counted(used, 'driver')}; drivers with impossible values: {wrong}"
            )
            return _latest_first(ring), DRIVERS_CONTRADICTED
        if absent:
            vollog.warning(f"elements of MmUnloadedDrivers are not in the image: {absent} of at least {used}")
        return _latest_first(ring), status(StatusCode.MODULE_LIST_INCOMPLETE if absent else None)

    def ring_of_drivers(self, array: int, kernel_start: int) -> List[Unloaded]:
        """Returns the drivers in the ring of _UNLOADED_DRIVERS at an address, the latest first."""
        return _latest_first(self._elements(array, kernel_start))

    def _elements(self, array: int, kernel_start: int) -> List[_Element]:
        """Returns the elements of the ring at an address."""
        image = self._image
        memory = image.memory(image.kernel)
        driver = image.process_types(image.machine)["_UNLOADED_DRIVERS"]
        name = driver.offset("Name")
        values = driver.reader("StartAddress", "EndAddress", "CurrentTime")
        drivers: List[_Element] = []
        extents = memory.load(array, DRIVERS * driver.size)
        for index in range(DRIVERS):
            data = extents.read(array + index * driver.size, driver.size)
            if data is None:
                drivers.append(None)
                continue
            start, end, time = values(data, 0)
            if start % PAGE_SIZE or not kernel_start <= start < end <= start + MAX_DRIVER:
                drivers.append(_IMPOSSIBLE)
                continue
            label = memory.unicode_string(bytes(data[name:]), MAX_NAME)
            drivers.append((time, Unloaded(start, end, label or "")))
        return drivers

    def dlls(
        self, reader: ImageReader, machine: Machine, index: ModuleIndex, user_end: int
    ) -> List[Unloaded]:
        """Returns the DLLs that a process recorded as unloaded, the latest first."""
        events = self.events(reader, machine, index, user_end)
        unique = dict.fromkeys(Unloaded(event.base, event.base + event.size, event.name) for event in events)
        return list(unique)

    def events(
        self, reader: ImageReader, machine: Machine, index: ModuleIndex, user_end: int
    ) -> List[UnloadEvent]:
        """Returns the unload events of both rings, the latest first. The same event may be in both."""
        layouts = self._layouts[machine]
        memory = self._image.memory_of(reader.layer_name, machine.pointer_size)
        events = self._read_ring(reader, layouts, index, user_end)
        events += _read_ring_ex(memory, reader.base, layouts, index, user_end)
        return sorted(events, key=lambda event: event.sequence, reverse=True)

    def _read_layouts(self, machine: Machine) -> List[EventLayout]:
        """Returns the layouts of the events, the newest first."""
        ours = self._image.our_generations("unload", machine)
        return [EventLayout(types["_RTL_UNLOAD_EVENT_TRACE"]) for types in ours]

    def _read_ring(
        self, reader: ImageReader, layouts: List[EventLayout], index: ModuleIndex, user_end: int
    ) -> List[UnloadEvent]:
        """Returns the events of the ring in ntdll's data, found by its symbol or by its content."""
        rva = index.symbols.rva_of(_RING) if index.symbols is not None else None
        if rva is not None:
            # Vista added the second ring and the larger element together.
            has_second_ring = index.symbols is not None and index.symbols.rva_of(_RING_EX) is not None
            possible_layouts = _vista_layouts(layouts) if has_second_ring else layouts[-1:]
            read = functools.partial(reader.read, rva)
            return _salvage_ring(read, possible_layouts, unloadevents.EVENTS, user_end)
        for candidate in _candidates(reader, layouts, index, user_end):
            for layout in layouts:
                ring = candidate[: unloadevents.EVENTS * layout.size]
                events = unloadevents.read_events(ring, layout, user_end)
                if events:
                    return events
        return []


def _latest_first(ring: List[_Element]) -> List[Unloaded]:
    known = [item for item in ring if item not in (None, _IMPOSSIBLE)]
    return [unloaded for _, unloaded in sorted(known, key=lambda item: item[0], reverse=True)]


def _candidates(
    reader: ImageReader, layouts: List[EventLayout], index: ModuleIndex, user_end: int
) -> Iterator[Bytes]:
    """Yields the parts of ntdll's writable sections that may be the ring."""
    largest = unloadevents.EVENTS * max(layout.size for layout in layouts)
    for section in index.sections:
        if not section.characteristics & pe.MEM_WRITE:
            continue
        for _, run in reader.load(section.start, section.end - section.start).runs:
            view = memoryview(run)
            for offset in unloadevents.find_ring(view, layouts, user_end):
                yield view[offset : offset + largest]


def _read_ring_ex(
    memory: Memory, base: int, layouts: List[EventLayout], index: ModuleIndex, user_end: int
) -> List[UnloadEvent]:
    """Returns the events of the larger ring, which can be found by its symbol only."""
    rva = index.symbols.rva_of(_RING_EX) if index.symbols is not None else None
    ring = memory.pointer(base + rva) if rva is not None else None
    if not ring or ring >= user_end:
        return []
    read = functools.partial(memory.read, ring)
    return _salvage_ring(read, _vista_layouts(layouts), unloadevents.EVENTS_EX, user_end)


def _vista_layouts(layouts: List[EventLayout]) -> List[EventLayout]:
    """Returns the layouts of Vista and later: all but the last, oldest one."""
    return layouts[:-1] or layouts


def _salvage_ring(
    read: Callable[[int], Optional[Bytes]], layouts: List[EventLayout], count: int, user_end: int
) -> List[UnloadEvent]:
    """Returns the credible events of a ring whose address a symbol gave, in the layout in which most are
    credible.

    Args:
        read: takes a number of bytes; returns these bytes of the ring, None if they are not in the image
        layouts: at least one layout; of equally good ones the first counts
    """
    rings = []
    for layout in layouts:
        data = read(count * layout.size)
        rings.append([] if data is None else unloadevents.salvage_events(data, layout, user_end))
    return max(rings, key=len)
