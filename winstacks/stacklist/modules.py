# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Identifies the build of a module by name, TimeDateStamp and SizeOfImage, which are equal on every machine.

    modules = ModuleIdentities(image).for_space(symbolizer.for_space(space))
    modules.module(known)

Stamp and size come from the first of these sources that has them: the loader's entry of the module, whose
page is rarely paged out; the module's headers, whose page often is; the entries of other processes that map
the same file, if all of them agree (the status is then `known from another process`). A process can write any
value into its own entries. So if headers contradict an entry, the headers are believed: the headers in the
image section if they can be read, else the copy in the process.
"""

from __future__ import annotations

import functools
from typing import Dict, Optional, Set, Tuple

from ..memory.decode import text
from ..memory.decode.memo import Kept
from ..memory.decode.pagetable import round_to_pages
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.decode import pe
from ..names.decode.pe import HeaderError
from ..names.imagereader import ImageReader
from ..names.loaderlists import LoaderEntry, module_lists
from ..names.symbolizer import AddressNamer, KnownModule
from ..names.usermodules import fits_mapping, image_at
from ..process.regions import Region
from ..process.sections import ImageSections
from ..process.spaces import AddressSpaces
from ..process.vads import regions
from .imagefiles import MAX_PATH

MAX_SECTIONS = 1 << 14
"""The most image sections whose header values are stored."""


class ModuleIdentity(NamedTuple):
    """The identity of a module's build.

    Attributes:
        path: FullDllName of the loader's entry; None if there is no entry, or the name is not in the image
        stamp: TimeDateStamp; None if unknown
        size: SizeOfImage in whole pages; None if unknown
        status: notes about the source of stamp and size
        doubted: whether the loader's entry states other values
    """

    path: Optional[str]
    stamp: Optional[int]
    size: Optional[int]
    status: Status = NOTHING
    doubted: bool = False


_Build = Tuple[int, int]
"""Stamp, and size in whole pages."""


class ModuleIdentities:
    """Identifies the modules of an image."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._vads = image.service(regions)
        self._sections = image.service(ImageSections)
        self._of_sections: Kept[Tuple[int, int], Optional[_Build]] = Kept(MAX_SECTIONS)
        self.lists = image.service(module_lists)

    def for_space(self, names: AddressNamer) -> SpaceModules:
        return SpaceModules(self, names)

    @functools.cached_property
    def drivers(self) -> Dict[int, Tuple[AddressSpace, LoaderEntry]]:
        """The entries of the kernel's list by base; the list is the same in every address space."""
        kernel = self._image.kernel
        listed, _ = self.lists.kernel_modules() if self._image.base else ([], True)
        return {entry.base: (kernel, entry) for entry in listed}

    def of_section(self, vad: Region) -> Optional[_Build]:
        """Returns stamp and size from an image section's headers, which no process can write, or None. `vad`
        is the mapping of the section's beginning."""
        view = self._sections.section_of(vad)
        if view is None:
            return None
        key = view.prototypes, view.count
        if key in self._of_sections:
            return self._of_sections[key]
        reader = ImageReader(self._image, "", vad.start, vad.end - vad.start, view, pristine=True)
        try:
            headers = pe.read_headers(reader.read)
        except HeaderError:
            return self._of_sections.keep(key, None)
        return self._of_sections.keep(key, (headers.timestamp, round_to_pages(headers.size)))

    def elsewhere(self, vad: Region) -> Optional[_Build]:
        """Returns stamp and size of a mapped image, from the loader entries of all processes that map it.

        None if no process has an entry, or two entries contradict each other.
        """
        builds = self._entries.get(vad.control_area, ())
        return next(iter(builds)) if len(builds) == 1 else None

    @functools.cached_property
    def _entries(self) -> Dict[int, Set[_Build]]:
        """Stamps and sizes of mapped images by control area, from the loader entries of all processes.

        Processes outside the process list are left out: options decide whether these are found.
        """
        builds: Dict[int, Set[_Build]] = {}
        for space in AddressSpaces.list_spaces(self._image):
            if space.kernel or space.status or has_status(space.remark, StatusCode.NOT_IN_THE_PROCESS_LIST):
                continue
            entries, _ = self.lists.process_modules(space)
            vads, _ = self._vads.list_regions(space)
            for entry in entries:
                vad = image_at(vads, entry.base)
                stamp = self.lists.details(space, entry).stamp if vad else None
                if vad and stamp:
                    builds.setdefault(vad.control_area, set()).add((stamp, round_to_pages(entry.size)))
        return builds


class SpaceModules:
    """The modules of one address space."""

    def __init__(self, identities: ModuleIdentities, names: AddressNamer) -> None:
        self._identities = identities
        self._names = names
        self._known: Dict[int, ModuleIdentity] = {}

    def module(self, known: KnownModule) -> ModuleIdentity:
        base = known.module.base
        if base not in self._known:
            self._known[base] = self._identify(known)
        return self._known[base]

    def _identify(self, known: KnownModule) -> ModuleIdentity:
        base = known.module.base
        # Modules of the kernel have no reader.
        process = None if known.open_reader is None else self._names.process
        loader_entry = (self._identities.drivers if process is None else process.entries).get(base)
        vad = None if process is None else image_at(process.vads, base)
        stamp, size, path = None, None, None
        if loader_entry is not None:
            space, entry = loader_entry
            stamp, raw, _ = self._identities.lists.details(space, entry)
            path = None if raw is None else text.cell(raw, MAX_PATH)
            size = round_to_pages(entry.size)
        true_stamp, true_size, module_status = self._true(known, vad, bool(stamp), size)
        room = round_to_pages(known.module.size)
        if process is not None and vad is None and size is not None and size > room:
            # The VAD there maps no image, or not its beginning. No module is larger than its mapping.
            true_size = room
        wrong = [
            name
            for name, claimed, true in (
                ("TimeDateStamp", stamp, true_stamp),
                ("SizeOfImage", size, true_size),
            )
            if claimed and true is not None and claimed != true
        ]
        module_status = status(module_status, *(contradicted(name) for name in wrong))
        # An entry without a stamp is unknown, while a header may hold a stamp of 0.
        known_stamp = stamp or None if true_stamp is None else true_stamp
        return ModuleIdentity(
            path, known_stamp, size if true_size is None else true_size, module_status, bool(wrong)
        )

    def _true(
        self, known: KnownModule, vad: Optional[Region], stamped: bool, claimed: Optional[int]
    ) -> Tuple[Optional[int], Optional[int], Status]:
        """Returns stamp and size from sources other than the module's entry (None if unknown), and a status.

        Args:
            stamped: whether the entry has a stamp: the entries of other processes are then not read
            claimed: the entry's size, None without one
        """
        build = None if vad is None else self._identities.of_section(vad)
        if build is not None:
            return (*build, NOTHING)
        headers = known.image.headers
        room = None if vad is None else vad.end - vad.start
        if headers is not None:
            return headers.timestamp, _mapped_size(headers.size, room), NOTHING
        build = None if vad is None or stamped else self._identities.elsewhere(vad)
        if build is not None:
            return (*build, status(StatusCode.KNOWN_FROM_ANOTHER_PROCESS))
        size = room if room is None or claimed is None else _mapped_size(claimed, room)
        return None, size, NOTHING


def _mapped_size(size: int, room: Optional[int]) -> int:
    """Returns the size of an image in whole pages: the size stated for it, or else the size of its mapping.

    Args:
        size: SizeOfImage in bytes
        room: size of the mapping in bytes, None if it is unknown
    """
    return round_to_pages(size) if room is None or fits_mapping(size, room) else room
