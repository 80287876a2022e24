# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the modules of a process from its loader lists and its VADs, with the contradictions between the
two."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set, Tuple

from ..memory.decode import text
from ..memory.decode.machine import Machine
from ..memory.decode.pagetable import round_to_pages
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..process.regions import Region, image_path, mapped_path
from ..process.sections import ImageSections, SectionView
from ..process.vads import regions
from .decode.pe import MAX_IMAGE
from .decode.shortnames import is_short_name_of
from .kernelmodules import Module, mark_overlaps
from .loaderlists import LoaderEntry, module_lists

_BOTH_ORDERS = 3
"""`LoaderEntry.orders` of an entry that is in both lists."""


GRANULARITY = 0x10000
"""Alignment of the addresses at which Windows maps images."""


class ProcessModules(NamedTuple):
    """The modules of a process and its VADs, by address.

    Attributes:
        lists_whole: whether no list of modules has lost entries, as far as is known
        entries: the half whose lists hold a module's entry, and the entry, by base address of the module
    """

    modules: List[Module]
    vads: List[Region]
    vads_whole: bool
    lists_whole: bool
    ntdlls: Dict[Machine, Module]
    entries: Dict[int, Tuple[AddressSpace, LoaderEntry]]


NO_PROCESS = ProcessModules([], [], False, False, {}, {})
"""Of the kernel's address space, which has no modules and no memory of user mode."""


class UserModules:
    """Lists the modules of processes. Obtained by `image.service(UserModules)`."""

    def __init__(self, image: Image) -> None:
        self._lists = image.service(module_lists)
        self._vads = image.service(regions)
        self._sections = image.service(ImageSections)

    def list_modules(self, halves: Sequence[AddressSpace], user_end: int) -> ProcessModules:
        """Returns the modules of a process.

        Each entry of a loader list is a module. The module ends where the VAD at its base ends, because a
        process may write any size into its lists. If a list could not be read to its end, or has an
        impossible entry, it may have lost entries: images that only the VADs show count as modules then, with
        a word in their status.
        """
        listed, vads_whole = self._vads.list_regions(halves[0])
        vads = [vad for vad in listed if vad.start < vad.end <= user_end]
        modules: Dict[int, Module] = {}
        ntdlls: Dict[Machine, Module] = {}
        loader_entries: Dict[int, Tuple[AddressSpace, LoaderEntry]] = {}
        lists_whole = True
        shared: Set[int] = set()
        for half in halves:
            entries, complete = self._lists.process_modules(half)
            lists_whole = lists_whole and complete
            bases: Set[int] = set()
            for entry in entries:
                if entry.base + entry.size > user_end or entry.size > MAX_IMAGE:
                    lists_whole = False
                    continue
                faults = _entry_status(entry, complete, vads if vads_whole else None)
                # If no image can begin at this base, or two modules have it, the entry may have been altered:
                # its module may be one that only the VADs show.
                lists_whole = lists_whole and not entry.base % GRANULARITY and entry.base not in bases
                if entry.base in bases:
                    shared.add(entry.base)
                bases.add(entry.base)
                size, size_fault = _module_size(entry, vads)
                faults = status(faults, size_fault, entry.name_status)
                # A name for a module whose loader entry has no readable one.
                name = entry.path_name or entry.name or image_path(self._vads, image_at(vads, entry.base))
                module = modules.setdefault(entry.base, _module(entry.base, size, name, faults))
                loader_entries.setdefault(entry.base, (half, entry))
                if module.name.lower() == "ntdll":
                    ntdlls.setdefault(half.machine, module)
        if not lists_whole:
            for module in self._unlisted_images(vads):
                modules.setdefault(module.base, module)
        return ProcessModules(
            mark_overlaps(modules.values(), shared), vads, vads_whole, lists_whole, ntdlls, loader_entries
        )

    def section_view(self, module: Module, vads: Sequence[Region]) -> Optional[SectionView]:
        """Returns the section that the VAD at a module's base maps, None if there is none."""
        return self._sections.section_of(span_at(vads, module.base))

    def file_status(self, vads: Sequence[Region], module: Module) -> Optional[StatusCode]:
        """Returns the status word for a module whose VAD maps no file or another file; None if the file is
        the module's, or is unknown. A loader entry may have the short name of its file."""
        vad = span_at(vads, module.base)
        path = mapped_path(self._vads, vad)
        if vad is None or path is None:
            return None
        if not path:
            return StatusCode.IMAGE_WITHOUT_NAME if vad.image else StatusCode.VAD_WITHOUT_FILE
        mapped = text.file_name(path)
        same = mapped.lower() == module.file.lower() or is_short_name_of(module.file, mapped)
        return None if same else StatusCode.VAD_OF_ANOTHER_FILE

    def file_name(self, vad: Region) -> Optional[str]:
        """Returns the name of the file that backs a mapping; "" if there is none, None if unreadable."""
        path = self._vads.file_name(vad.control_area)
        return text.file_name(path) if path else path

    def _unlisted_images(self, vads: Sequence[Region]) -> List[Module]:
        """Returns the images that the VADs show, as modules that are in no loader list."""
        images = [vad for vad in vads if vad.image]
        named = ((vad, self._vads.file_name(vad.control_area)) for vad in images)
        fault = status(StatusCode.NO_LOADER_LIST)
        return [_module(vad.start, vad.end - vad.start, path, fault) for vad, path in named if path]


def image_at(vads: Sequence[Region], base: int) -> Optional[Region]:
    """Returns the VAD of the image mapped at an address, None if there is none; `vads` ascend."""
    vad = span_at(vads, base)
    return vad if vad and vad.image and vad.start == base else None


def _module(base: int, size: int, path: str, faults: Status) -> Module:
    return Module(base, size, text.module_name(path), text.file_name(path), faults)


def fits_mapping(size: int, room: int) -> bool:
    """Returns whether an image of a size can have a mapping of `room` bytes.

    Since Windows 11 24H2 pages of Windows follow an image in its own mapping (measured: 3000h bytes behind 72
    of 78 images of 26200). They are fewer than the bytes between two addresses at which images can begin.
    """
    return 0 <= room - round_to_pages(size) < GRANULARITY


def _module_size(entry: LoaderEntry, vads: Sequence[Region]) -> Tuple[int, Status]:
    """Returns the size of a module, limited by its VAD, and the fault of the size in its entry.

    Pages behind an image in its mapping are named as the module's.
    """
    vad = span_at(vads, entry.base)
    if vad is None:
        return entry.size, NOTHING
    room = vad.end - entry.base
    of_image = vad.image and vad.start == entry.base
    if fits_mapping(entry.size, room) if of_image else round_to_pages(entry.size) <= room:
        return room if of_image else min(entry.size, room), NOTHING
    return room, contradicted("SizeOfImage")


def _entry_status(entry: LoaderEntry, lists_whole: bool, vads: Optional[Sequence[Region]]) -> Status:
    """Returns the faults of a loader's entry.

    Args:
        lists_whole: whether the lists are complete; otherwise an entry may be in one list only without fault
        vads: the VADs of the process, None if some are missing
    """
    faults = status(StatusCode.PARTLY_UNLINKED) if lists_whole and entry.orders != _BOTH_ORDERS else NOTHING
    if vads is not None:
        vad = span_at(vads, entry.base)
        if vad is None:
            faults = status(faults, StatusCode.NO_VAD)
        elif not vad.control_area:
            faults = status(faults, StatusCode.VAD_WITHOUT_FILE)
    return faults
