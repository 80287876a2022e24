# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Maps each address of an address space to one place: a module, a mapping, private memory, or a gap."""

from __future__ import annotations

import functools
import logging
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type

from volatility3.framework import interfaces

from ..memory.decode import ranges
from ..memory.decode.machine import Machine
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.image import AddressSpace, Image
from . import moduleindex
from .decode.pe import MAX_IMAGE, CodeView
from .imagereader import ImageReader
from .kernelmodules import KernelModules, Module
from .loaderlists import module_lists
from .moduleindex import ModuleIndex, ModuleIndexes
from .places import (
    LIST_INCOMPLETE,
    NO_LIST,
    NO_MODULE,
    NO_REGION,
    NO_REGION_UNLISTED,
    NOT_CANONICAL,
    PRIVATE,
    UNMAPPED,
    UNSIZED,
    UNTOLD,
    UNTOLD_AND_UNLISTED,
    USER,
    VADS_INCOMPLETE,
    AnyPlace,
    CodeCheck,
    KernelGap,
    MappedPlace,
    ModulePlace,
    Name,
    OverlapPlace,
    Place,
    UncertainPlace,
    UnloadedPlace,
    UnsureGap,
    UserGap,
    Witness,
)
from .rom import RomArea
from .unlisted import Residents, UnlistedDrivers
from .unloaded import Unloaded, unloaded_modules
from .usermodules import ProcessModules, UserModules
from .witness import Entry, FileWitnesses, PageWitness

vollog = logging.getLogger(__name__)

END = 1 << 64
"""End of a 64-bit address space."""

Span = Tuple[int, int, AnyPlace]
"""Start and end of a range of canonical addresses, and its place."""

_LACKING = words_that(Means.FILE_WOULD_HELP)
"""Status words of a module index that would be better with the module's file."""


class Halves(NamedTuple):
    """The two halves of an address space, by canonical address."""

    user_end: int
    kernel_start: int
    top: int


WIDE_HALVES = Halves(END - Machine.AMD64.kernel_start, Machine.AMD64.kernel_start, END)
NARROW_END = 1 << Machine.I386.address_bits

_BEYOND_USER = (1 << 16) + 1
"""How far the kernel's half begins behind the highest address of a process: 64 KB between have no memory."""


class PlaceMap:
    """Finds the places of address spaces."""

    def __init__(self, image: Image, indexes: ModuleIndexes) -> None:
        self._image = image
        self._indexes = indexes
        self._drivers = image.service(KernelModules)
        self._modules = image.service(UserModules)
        self._unloaded = image.service(unloaded_modules)
        self._witnesses = image.service(FileWitnesses)
        self._roms = RomArea(image)
        self._unlisted = UnlistedDrivers(image, self._kernel_index)
        self.halves = _find_halves(image)
        self._unlisted_logged = False

    @functools.cached_property
    def kernel(self) -> List[Span]:
        """The places of the kernel's half by address; they are the same in every address space."""
        start = self.halves.kernel_start
        modules, whole = self._drivers.list_modules(start)
        listed = self._has_list(self._image.kernel)
        if listed and not whole:
            vollog.warning("The kernel's list of modules is broken: a module may be missing from the names")
        spans: List[Span] = [(module.base, module.end, self._kernel_place(module)) for module in modules]
        unloaded, unloaded_missing = self._unloaded.drivers(start)
        if not listed:
            spans.append((start, self.halves.top, UncertainPlace(NO_LIST)))
        elif not whole or unloaded_missing:
            gap_name = NO_MODULE._replace(status=unloaded_missing) if whole else LIST_INCOMPLETE
            spans.append((start, self.halves.top, self._gap(UnsureGap, gap_name)))
        return _with_unloaded(ranges.flatten(spans), unloaded)

    def process(self, halves: Sequence[AddressSpace]) -> Tuple[List[Span], ProcessModules]:
        """Returns the places of a process's user half by address, and the modules and VADs behind them.
        `halves` are the native space of the process and, for a WoW64 process, its 32-bit half."""
        process = self._modules.list_modules(halves, self.halves.user_end)
        listed = self._has_list(halves[0])
        layer_name = halves[0].layer_name
        spans: List[Span] = []
        places: Dict[int, ModulePlace] = {}
        load = functools.partial(self._user_index, layer_name, process)
        check = functools.partial(self._modules.file_status, process.vads)
        read = functools.partial(self._reader, layer_name, process)
        witness = self._witness_maker(read)
        for module in process.modules:
            places[module.base] = ModulePlace(module, load, check, read, witness)
            spans.append((module.base, module.end, places[module.base]))
        read_name, private = self._modules.file_name, Place(PRIVATE)
        untold = Place(UNTOLD if process.lists_whole else UNTOLD_AND_UNLISTED)
        untold_spans = [] if self._image.table_name else list(_unsized(process.modules))
        for vad in process.vads:
            place: AnyPlace = untold if vad.protection is None else private
            if vad.control_area:
                place = MappedPlace(vad, read_name)
            if not listed and (vad.image or vad.protection is None):
                place = UncertainPlace(NO_LIST)
            known = spans if vad.protection is not None else untold_spans
            known.append((vad.start, vad.end, place))
        spans += untold_spans
        if not process.vads_whole:
            gap_name = self._untold_gap(process) if listed else NO_LIST
            spans.append((0, self.halves.user_end, UncertainPlace(gap_name)))
        unloaded: List[Unloaded] = []
        for machine, ntdll in process.ntdlls.items():
            reader = self._reader(layer_name, process, ntdll)
            index = places[ntdll.base].prepare()
            unloaded += self._unloaded.dlls(reader, machine, index, self.halves.user_end)
        return _with_unloaded(ranges.flatten(spans), unloaded), process

    def fill(self, spans: Sequence[Span], space: AddressSpace) -> Tuple[List[int], List[AnyPlace]]:
        """Returns (start addresses, places) for the whole address space: gaps between the spans become
        places. User addresses in the kernel's own `space` have the place USER, as their process is
        unknown."""
        limits = self.halves
        user = Place(USER) if space.kernel else self._user_gap(space)
        background: List[Span] = [
            (0, limits.user_end, user),
            (limits.kernel_start, limits.top, self._gap(KernelGap, NO_MODULE)),
            (0, END, Place(NOT_CANONICAL)),
        ]
        all_spans = ranges.flatten([*spans, *background])
        return [start for start, _, _ in all_spans], [place for _, _, place in all_spans]

    def _has_list(self, space: AddressSpace) -> bool:
        """Returns whether the image has a list of modules. The lack of one is logged once, but not
        that a small kernel dump has no list of a process: it never has one."""
        listed = self._image.service(module_lists).has_list(space)
        if not listed and not self._unlisted_logged and (space.kernel or not self._image.threads_only):
            self._unlisted_logged = True
            vollog.warning("The file has no list of modules: which module has an address is unknown")
        return listed

    def _gap(self, kind: Type[KernelGap], name: Name) -> KernelGap:
        """Returns the place of kernel addresses in no module."""
        return kind(name, self._roms.holds, self._unlisted.place)

    def _untold_gap(self, process: ProcessModules) -> Name:
        """Returns the name of user addresses in no known VAD, while others may be missing."""
        if self._image.table_name:
            return VADS_INCOMPLETE
        return NO_REGION if process.lists_whole else NO_REGION_UNLISTED

    def _user_gap(self, space: AddressSpace) -> Place:
        """Returns the place of user addresses in no VAD. In an image with a kernel, page tables show whether
        such an address is in memory."""
        if not self._image.table_name or not space.layer_name:
            return Place(UNMAPPED)
        return UserGap(Residents(self._image.layer_of(space)).holds)

    def _kernel_place(self, module: Module) -> ModulePlace:
        return ModulePlace(module, self._kernel_index, witness=self._witness_maker(self._kernel_reader))

    def _witness_maker(self, read: Callable[[Module], ImageReader]) -> Optional[Witness]:
        """Returns a function that makes the check of a module's addresses by its file, None without
        --binaries."""
        if not self._witnesses.files.given:
            return None

        def witness(module: Module, index: ModuleIndex) -> Optional[CodeCheck]:
            return None if index.file is None else PageWitness(read(module), index.functions).status

        return witness

    def _kernel_index(self, module: Module) -> ModuleIndex:
        """Returns the index of a module of the kernel; a missing file is logged if it would help."""
        table = self._image.symbol_table() if module.base == self._image.base else None
        return self._index(self._kernel_reader(module), module, self._entries.get(module.base), table)

    def _index(
        self,
        reader: ImageReader,
        module: Module,
        entry: Optional[Entry],
        table: Optional[interfaces.symbols.SymbolTableInterface] = None,
    ) -> ModuleIndex:
        listed = functools.partial(self._listed, entry)
        index = self._indexes.get(reader, table, listed)
        if reader.file is None and has_status(index.status, *_LACKING):
            self._witnesses.lacks(reader, module.file, entry)
        return index

    def _listed(self, entry: Optional[Entry]) -> Optional[CodeView]:
        """Returns the RSDS record that the list of modules has of a module: the lists of dumps have them."""
        return None if entry is None else self._image.service(module_lists).details(*entry).code_view

    def _kernel_reader(self, module: Module) -> ImageReader:
        """Returns a reader of a module of the kernel, with its file if the examiner gave it."""
        layer_name = self._drivers.layer_of(module)
        reader = ImageReader(self._image, layer_name, module.base, module.size)
        if not self._witnesses.files.given:
            return reader
        return self._witnesses.with_file(reader, module.file, self._entries.get(module.base))

    @functools.cached_property
    def _entries(self) -> Dict[int, Entry]:
        """The entries of the kernel's module list, by base address."""
        listed, _ = self._image.service(module_lists).kernel_modules() if self._image.base else ([], True)
        return {entry.base: (self._image.kernel, entry) for entry in listed}

    def _user_index(self, layer_name: str, process: ProcessModules, module: Module) -> ModuleIndex:
        """Returns the index of a module of a process; a missing file is logged if it would help."""
        if not layer_name:
            return moduleindex.without_anything(status(StatusCode.PAGE_TABLES_UNREADABLE))
        reader = self._reader(layer_name, process, module)
        return self._index(reader, module, process.entries.get(module.base))

    def _reader(self, layer_name: str, process: ProcessModules, module: Module) -> ImageReader:
        """Returns a reader of a module of a process, with its file if the examiner gave it."""
        view = self._modules.section_view(module, process.vads)
        reader = ImageReader(self._image, layer_name, module.base, module.size, view)
        if not layer_name:
            return reader
        return self._witnesses.with_file(reader, module.file, process.entries.get(module.base))


def _find_halves(image: Image) -> Halves:
    """Returns the halves of an image's address spaces."""
    if image.machine is not Machine.I386:
        return WIDE_HALVES
    if not image.base:
        # The size of the kernel's part of the 4 GB is unknown, so all of it counts as the process's half.
        return Halves(NARROW_END, NARROW_END, NARROW_END)
    start = _kernel_start(image)
    return Halves(start, start, NARROW_END)


def _kernel_start(image: Image) -> int:
    """Returns where the kernel's half of an x86 image begins: started with /3GB it has the last quarter only.

    MmHighestUserAddress says the same, less 64 KB. If they disagree, the one that is possible counts: the
    kernel's own module lies in its half.
    """
    memory, lowest = image.memory(image.kernel), Machine.I386.kernel_start
    start = memory.pointer(image.require_symbol("MmSystemRangeStart"))
    highest = memory.pointer(image.require_symbol("MmHighestUserAddress"))
    second = None if highest is None else highest + _BEYOND_USER
    possible = [
        value
        for value in (start, second)
        if value is not None and lowest <= value < NARROW_END and value % PAGE_SIZE == 0
    ]
    # Both are 0 before the kernel has set them.
    disagree = None not in (start, second) and start != second and bool(start or highest)
    if disagree:
        possible = [value for value in possible if value <= image.base]
    chosen = possible[0] if possible else lowest
    if disagree:
        vollog.warning(
            f"contradicted: MmSystemRangeStart {start:#x} and MmHighestUserAddress {highest:#x}: "
            f"addresses from {chosen:#x} on count as the kernel's"
        )
    return chosen


def _unsized(modules: Sequence[Module]) -> Iterator[Span]:
    """Yields where a module without a size may be: from its base to the next module's base."""
    place = UncertainPlace(UNSIZED)
    bases = sorted({module.base for module in modules})
    ends = dict(zip(bases, bases[1:]))
    for module in modules:
        if not module.size:
            furthest = module.base + MAX_IMAGE
            yield module.base, min(furthest, ends.get(module.base, furthest)), place


def _with_unloaded(current: List[Span], unloaded: Sequence[Unloaded]) -> List[Span]:
    """Adds the ranges of unloaded modules to the places of an address space.

    Where both have a range, the present place counts, and its names get a status. `unloaded` are unloaded
    modules, the latest first.
    """
    unloaded_spans = ranges.flatten([(module.start, module.end, module) for module in unloaded])
    spans: List[Span] = []
    for start, end, place, unloaded_module in ranges.combine(current, unloaded_spans):
        if unloaded_module is None and place is not None:
            spans.append((start, end, place))
        elif unloaded_module is not None and (place is None or isinstance(place, UncertainPlace)):
            spans.append((start, end, UnloadedPlace(unloaded_module)))
        elif unloaded_module is not None and place is not None:
            spans.append((start, end, place if _is_reloaded(place, unloaded_module) else OverlapPlace(place)))
    return spans


def _is_reloaded(place: AnyPlace, unloaded: Unloaded) -> bool:
    """Returns whether a place is the unloaded module, loaded again at the same addresses."""
    if not isinstance(place, ModulePlace):
        return False
    module = place.module
    return (
        module.base == unloaded.start
        and module.end == unloaded.end
        and module.file.lower() == unloaded.name.lower()
    )
