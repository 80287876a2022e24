# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a dump: ModuleListStream, with the loader's lists in the process's memory as second witness.

A dump of a 64-bit debugger lists the modules of both halves of a WoW64 process together. The headers of a
module show its half; if the dump has no memory of the headers, address and path of the module decide.
"""

from __future__ import annotations

from functools import cached_property
from typing import Dict, List, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.status import NOTHING, Status
from ..memory.decode.text import last_part
from ..memory.image import AddressSpace, Image
from ..names.decode.pe import HeaderError, Headers, read_headers
from ..names.imagereader import ImageReader
from ..names.loaderlists import LoaderDetails, LoaderEntry, LoaderList, LoaderLists
from ..names.moduleindex import ModuleIndex
from ..names.unloaded import RememberedModules, Unloaded
from .decode.dumpfile import Minidump
from .decode.modules import MODULE_LIST, MinidumpModule, distinct, module_list, unloaded_module_list
from .decode.threadstates import INCOMPLETE_MODULES, thread_states

_BOTH_ORDERS, _ONE_ORDER = 3, 1
_NATIVE = ("ntdll.dll", "wow64.dll", "wow64base.dll", "wow64con.dll", "wow64cpu.dll", "wow64win.dll")
"""64-bit modules of a WoW64 process; older versions load them below 4 GB."""


class DumpModules:
    """Lists the modules of a dump: the provider of `module_lists` and `unloaded_modules`."""

    def __init__(self, image: Image, dump: Minidump) -> None:
        self._image = image
        self._dump = dump
        self._memory_lists = LoaderLists(image)
        self._remembered = RememberedModules(image)

    @cached_property
    def _listed(self) -> Tuple[List[MinidumpModule], bool]:
        found, faults = sized_modules(self._image, self._dump)
        return distinct(found), not (faults or thread_states(self._dump).flags & INCOMPLETE_MODULES)

    @cached_property
    def _by_base(self) -> Dict[int, MinidumpModule]:
        return {module.BaseOfImage: module for module in reversed(self._listed[0])}

    def kernel_modules(self) -> LoaderList:
        """Returns an empty list: a dump of a process has no modules of the kernel."""
        return [], True

    def process_modules(self, space: AddressSpace) -> LoaderList:
        """Returns the modules of one half of the process.

        A module that the dump lists and the loader's lists in memory lack is partly unlinked; a module only
        in the loader's lists comes last.
        """
        modules, whole = self._listed
        listed, complete = self._memory_lists.process_modules(space)
        known = {entry.base: entry for entry in listed}
        found: List[LoaderEntry] = []
        # Thousands of modules may share one path of 64 KB.
        names: Memo[str, str] = Memo(last_part)
        for module in modules:
            if self._machine(space, module) is not space.machine:
                continue
            entry = known.pop(module.BaseOfImage, None)
            name = names[module.ModuleName or ""]
            if entry is not None:
                found.append(entry._replace(size=module.SizeOfImage, name=name or entry.name))
            else:
                orders = _ONE_ORDER if complete else _BOTH_ORDERS
                found.append(LoaderEntry(module.BaseOfImage, module.SizeOfImage, name, orders))
        return [*found, *known.values()], whole and self.has_list(space)

    def has_list(self, space: AddressSpace) -> bool:
        """Returns whether the dump has ModuleListStream, or the loader's lists in the process's memory.

        A stream counts only if a module can be read, or if it is whole.
        """
        found, whole = self._listed
        listed = space.kernel or bool(found) or (whole and self._dump.stream(MODULE_LIST) is not None)
        return listed or bool(self._memory_lists.process_modules(space)[0])

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        """Returns timestamp, path and RSDS record of an entry."""
        module = self._by_base.get(entry.base)
        if module is None:
            return self._memory_lists.details(space, entry)
        return LoaderDetails(module.TimeDateStamp, module.ModuleName, module.code_view)

    def drivers(self, kernel_start: int) -> Tuple[List[Unloaded], Status]:
        """Returns an empty list: a dump of a process has no drivers."""
        return [], NOTHING

    def dlls(
        self, reader: ImageReader, machine: Machine, index: ModuleIndex, user_end: int
    ) -> List[Unloaded]:
        """Returns the unloaded DLLs: first from the process's memory, then from the dump."""
        remembered = self._remembered.dlls(reader, machine, index, user_end)
        narrow = machine is not self._image.machine
        listed = [
            Unloaded(
                unloaded.BaseOfImage, unloaded.BaseOfImage + unloaded.SizeOfImage, unloaded.ModuleName or ""
            )
            for unloaded in unloaded_module_list(self._dump)[0]
            if unloaded.SizeOfImage and unloaded.BaseOfImage + unloaded.SizeOfImage <= user_end and not narrow
        ]
        known = {(unloaded.start, unloaded.end) for unloaded in remembered}
        return [
            *remembered,
            *(unloaded for unloaded in listed if (unloaded.start, unloaded.end) not in known),
        ]

    def _machine(self, space: AddressSpace, module: MinidumpModule) -> Machine:
        native = self._image.machine
        end = module.BaseOfImage + module.SizeOfImage
        if native is not Machine.AMD64 or end > Machine.I386.address_mask + 1:
            return native
        try:
            number = _headers(self._image, module).machine
            return Machine.I386 if number == Machine.I386.number else native
        except HeaderError:
            path = (module.ModuleName or "").lower().replace("/", "\\")
            if "\\system32\\" in path and last_part(path) in _NATIVE:
                return native
            return Machine.I386 if self._narrow_process else native

    @cached_property
    def _narrow_process(self) -> bool:
        """Whether the dump lists the modules that run 32-bit programs."""
        return any(last_part(module.ModuleName or "").lower() == "wow64.dll" for module in self._listed[0])


def sized_modules(image: Image, dump: Minidump) -> Tuple[List[MinidumpModule], Status]:
    """Returns `module_list`. A module without a size gets SizeOfImage of its headers, if memory has them."""
    found, faults = module_list(dump)
    return [module if module.SizeOfImage else _sized(image, module) for module in found], faults


def _sized(image: Image, module: MinidumpModule) -> MinidumpModule:
    try:
        return module._replace(SizeOfImage=_headers(image, module).size)
    except HeaderError:
        return module


def _headers(image: Image, module: MinidumpModule) -> Headers:
    """Returns the headers of a module in the process's memory. Raises HeaderError if the dump lacks them, or
    they contradict themselves."""
    memory = image.memory_of(str(image.layer.name), image.machine.pointer_size)
    base = image.machine.canonical(module.BaseOfImage)
    return read_headers(lambda rva, length: memory.read(base + rva, length))
