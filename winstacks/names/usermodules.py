# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a process, from its loader lists and its VADs, and the contradictions between the two."""

from __future__ import annotations

import bisect
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..memory.decode import text
from ..memory.decode.machine import Machine
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import NOTHING, Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..process.regions import Region
from ..process.sections import ImageSections, SectionView
from ..process.vads import regions
from .decode.pe import MAX_IMAGE
from .kernelmodules import Module, mark_overlaps
from .loaderlists import LoaderEntry, module_lists

_BOTH_ORDERS = 3


GRANULARITY = 0x10000
"""Alignment of the addresses at which Windows maps images."""


class ProcessModules(NamedTuple):
    """The modules of a process and its VADs, by address.

    Attributes:
        modules: the modules
        vads: the VADs
        vads_whole: whether the whole VAD tree could be read
        ntdlls: the ntdll modules, by machine
        entries: by base: the loader's entry of each module that has one, and the half whose lists hold the
            entry
    """

    modules: List[Module]
    vads: List[Region]
    vads_whole: bool
    ntdlls: Dict[Machine, Module]
    entries: Dict[int, Tuple[AddressSpace, LoaderEntry]]


class UserModules:
    """Lists the modules of processes. Made as `image.service(UserModules)`."""

    def __init__(self, image: Image) -> None:
        self._lists = image.service(module_lists)
        self._vads = image.service(regions)
        self._sections = image.service(ImageSections)

    def list_modules(self, halves: Sequence[AddressSpace], user_end: int) -> ProcessModules:
        """Returns the modules of a process.

        Each entry of a loader list is a module. It ends where the VAD at its base ends, because a process may
        write any size into its lists. If a list could not be read to its end, or has an impossible entry,
        then images that only the VADs show may have been on it: they count as modules, with a word in their
        status.

        Args:
            halves: native space of the process and, for a WoW64 process, its 32-bit half
            user_end: the first address above the user's half

        Raises:
            tables.MissingTableError: our symbol table of user mode is missing
        """
        vads, vads_whole = self._vads.list_regions(halves[0])
        vads = sorted(vad for vad in vads if vad.start < vad.end <= user_end)
        modules: Dict[int, Module] = {}
        ntdlls: Dict[Machine, Module] = {}
        loader_entries: Dict[int, Tuple[AddressSpace, LoaderEntry]] = {}
        lists_whole = True
        for half in halves:
            entries, complete = self._lists.of_process(half)
            lists_whole = lists_whole and complete
            bases: Set[int] = set()
            for entry in entries:
                if entry.base + entry.size > user_end or entry.size > MAX_IMAGE:
                    lists_whole = False
                    continue
                faults = _status(entry, complete, vads if vads_whole else None)
                # No image begins there, or two would: the entry may be the altered one of a module that only
                # VADs show.
                lists_whole = lists_whole and not entry.base % GRANULARITY and entry.base not in bases
                bases.add(entry.base)
                size, differs = _size(entry, vads)
                faults = status(faults, differs)
                name = entry.name or self._file_at(entry.base, vads)
                module = modules.setdefault(entry.base, _module(entry.base, size, name, faults))
                loader_entries.setdefault(entry.base, (half, entry))
                if module.name.lower() == "ntdll":
                    ntdlls.setdefault(half.machine, module)
        if not lists_whole:
            for module in self._unlisted(vads):
                modules.setdefault(module.base, module)
        return ProcessModules(mark_overlaps(modules.values()), vads, vads_whole, ntdlls, loader_entries)

    def section_view(self, module: Module, vads: Sequence[Region]) -> Optional[SectionView]:
        """Returns the section of a module by the VAD at its base, None if it has none."""
        return self._sections.section_of(vad_at(vads, module.base))

    def file_status(self, module: Module, vads: Sequence[Region]) -> Optional[StatusCode]:
        """Returns the status of a module of the loader lists by the file that the VADs map there."""
        vad = vad_at(vads, module.base)
        path = self._vads.file_name(vad.control_area) if vad is not None and vad.control_area else None
        if path is None:
            return None
        if not path:
            return StatusCode.VAD_WITHOUT_FILE
        same = text.file_name(path).lower() == module.file.lower()
        return None if same else StatusCode.VAD_OF_ANOTHER_FILE

    def file_name(self, vad: Region) -> Optional[str]:
        """Returns the name of the file that backs a mapping; "" if none does, None if unreadable."""
        path = self._vads.file_name(vad.control_area)
        return text.file_name(path) if path else path

    def _file_at(self, base: int, vads: Sequence[Region]) -> str:
        """Returns the file whose image is mapped at an address, for a module without a readable loader's
        name."""
        vad = vad_at(vads, base)
        mapped = vad is not None and vad.image and vad.start == base
        return (self._vads.file_name(vad.control_area) or "") if vad is not None and mapped else ""

    def _unlisted(self, vads: Sequence[Region]) -> List[Module]:
        images = [vad for vad in vads if vad.image]
        named = ((vad, self._vads.file_name(vad.control_area)) for vad in images)
        fault = status(StatusCode.NO_LOADER_LIST)
        return [_module(vad.start, vad.end - vad.start, path, fault) for vad, path in named if path]


def vad_at(vads: Sequence[Region], address: int) -> Optional[Region]:
    """Returns the VAD that holds an address, from VADs sorted by address; None if there is none."""
    index = bisect.bisect_right(vads, (address, 1 << 64)) - 1
    return vads[index] if index >= 0 and address < vads[index].end else None


def _module(base: int, size: int, path: str, faults: Status) -> Module:
    return Module(base, size, text.module_name(path), text.file_name(path), faults)


def _size(entry: LoaderEntry, vads: Sequence[Region]) -> Tuple[int, Status]:
    """Returns the size of a module, limited by its VAD, and the fault of the size in its entry."""
    vad = vad_at(vads, entry.base)
    if vad is None:
        return entry.size, NOTHING
    room = vad.end - entry.base
    whole = -(-entry.size // PAGE_SIZE) * PAGE_SIZE
    if whole == room or (whole < room and not (vad.image and vad.start == entry.base)):
        return min(entry.size, room), NOTHING
    return room, status(StatusItem(StatusCode.CONTRADICTED, members=("SizeOfImage",)))


def _status(entry: LoaderEntry, lists_whole: bool, vads: Optional[Sequence[Region]]) -> Status:
    faults = status(StatusCode.PARTLY_UNLINKED) if lists_whole and entry.orders != _BOTH_ORDERS else NOTHING
    if vads is not None:
        vad = vad_at(vads, entry.base)
        if vad is None:
            faults = status(faults, StatusCode.NO_VAD)
        elif not vad.control_area:
            faults = status(faults, StatusCode.VAD_WITHOUT_FILE)
    return faults
