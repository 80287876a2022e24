# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a small kernel dump: its loaded and unloaded drivers."""

from __future__ import annotations

from functools import cached_property
from typing import Dict, List, Optional, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.status import NOTHING, Status
from ..memory.decode.text import last_part
from ..memory.image import AddressSpace, Image
from ..names.imagereader import ImageReader
from ..names.loaderlists import LoaderDetails, LoaderEntry, LoaderList
from ..names.moduleindex import ModuleIndex
from ..names.unloaded import DRIVERS_CONTRADICTED, RememberedModules, Unloaded
from .decode.drivers import Driver, list_drivers, list_unloaded
from .decode.triage import TriageDump

_LISTED = 1
"""Value of `orders` for an entry of the only list."""

_KERNELS = ("ntoskrnl", "ntkrnl")
"""Prefixes of the names of kernels."""


class DumpDrivers:
    """Lists drivers: the provider of `module_lists` and `unloaded_modules`."""

    def __init__(self, image: Image, dump: TriageDump) -> None:
        self._dump = dump
        self._remembered = RememberedModules(image)
        self._image = image

    @cached_property
    def _listed(self) -> Tuple[List[Driver], bool]:
        found, faults = list_drivers(self._dump)
        return found, bool(found) and not faults

    def kernel_base(self) -> int:
        """Returns the address of the kernel, 0 if the dump does not show it.

        It is KernBase; else the driver that contains the addresses in the header; else the driver with a
        kernel's name.
        """
        known, _ = self._listed
        kernel = self._dump.canonical(self._dump.debugger_data.KernBase or 0)
        header = self._dump.header
        for address in (
            kernel,
            header.PsLoadedModuleList,
            header.KdDebuggerDataBlock,
            header.PsActiveProcessHead,
        ):
            for driver in known:
                if address and driver.DllBase <= address < driver.DllBase + driver.SizeOfImage:
                    return driver.DllBase
        named = (
            driver.DllBase for driver in known if last_part(driver.name or "").lower().startswith(_KERNELS)
        )
        return kernel or next(named, 0)

    @cached_property
    def _by_base(self) -> Dict[int, Driver]:
        return {driver.DllBase: driver for driver in reversed(self._listed[0])}

    def kernel_modules(self) -> LoaderList:
        """Returns the drivers of the dump's list, and whether the list is complete."""
        found, whole = self._listed
        entries = [
            LoaderEntry(driver.DllBase, driver.SizeOfImage, driver.name or "", _LISTED, driver.EntryPoint)
            for driver in found
            if driver.DllBase and driver.SizeOfImage
        ]
        return entries, whole and len(entries) == len(found)

    def has_list(self, space: AddressSpace) -> bool:
        """Returns whether the file has a list of drivers: a header alone has none, and no process has one."""
        member = self._dump.member
        listed = not self._dump.header_only and bool(member("DriverCount") or member("DriverListOffset"))
        return space.kernel and listed

    def process_modules(self, space: AddressSpace) -> LoaderList:
        """Returns an empty, incomplete list: the dump has no modules of processes."""
        return [], False

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        """Returns timestamp and path of an entry."""
        driver = self._by_base.get(entry.base)
        return (
            LoaderDetails(None, None) if driver is None else LoaderDetails(driver.TimeDateStamp, driver.name)
        )

    def drivers(self, kernel_start: int) -> Tuple[List[Unloaded], Status]:
        """Returns the unloaded drivers: first from the dump's list, then from the kernel's memory in it."""
        listed, faults = list_unloaded(self._dump)
        found = [Unloaded(unloaded.start, unloaded.end, unloaded.name) for unloaded in listed]
        known = {(unloaded.start, unloaded.end) for unloaded in found}
        array = self._array()
        remembered = self._remembered.ring_of_drivers(array, kernel_start) if array else []
        found += (unloaded for unloaded in remembered if (unloaded.start, unloaded.end) not in known)
        return found, DRIVERS_CONTRADICTED if faults and not remembered else NOTHING

    def _array(self) -> Optional[int]:
        """Returns the address of the ring of unloaded drivers, None if the dump does not show it."""
        variable = self._dump.debugger_data.MmUnloadedDrivers
        memory = self._image.memory(self._image.kernel)
        return memory.pointer(self._dump.canonical(variable)) if variable else None

    def dlls(
        self, reader: ImageReader, machine: Machine, index: ModuleIndex, user_end: int
    ) -> List[Unloaded]:
        """Returns nothing: the dump has no ntdll."""
        return []
