# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names addresses: all plugins get `Symbol`, `Source` and `Status` of a frame from here.

    symbolizer = Symbolizer(image)
    names = symbolizer.for_space(space)
    name = names.name(return_address)                   # looked up one byte back, written as itself
    name = names.name(rip, return_address=False)        # the address of an interrupted instruction

A return address is looked up one byte back, because a call may be the last instruction of a function: then
the return address itself belongs to the next function.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Callable, Dict, List, Optional, Tuple

from volatility3.framework import constants

from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace, Image
from ..process.regions import Region
from ..process.spaces import AddressSpaces
from .decode.rules import Label
from .imagereader import ImageReader
from .kernelmodules import Module
from .moduleindex import ModuleIndex, ModuleIndexes
from .pdbsymbols import PdbSymbols
from .placemap import PlaceMap
from .places import FUZZY, FUZZY_FRAME, NOT_CANONICAL, ZERO, AnyPlace, ModulePlace, Name, OverlapPlace
from .usermodules import NO_PROCESS, ProcessModules

__all__ = ["AddressNamer", "KnownModule", "Name", "Symbolizer"]


MAX_KEPT = 1 << 16
"""Maximum number of places that are kept for all processes together: some 160 processes have as many. The
places of the latest process are always kept. Threads, databases and heaps are listed process by process."""

_NO_ADDRESS: Dict[int, Name] = {0: ZERO, FUZZY_FRAME: FUZZY}
"""Names of values in back traces that are no addresses."""

MAX_UNSHARED_EXPORTS = 1 << 19
"""Maximum number of exports that are kept for modules whose index no other process shares; above it, the
names of the oldest processes are dropped."""


class KnownModule(NamedTuple):
    """A module of an address space. `open_reader` opens the image as the process has it; None for a module of
    the kernel."""

    module: Module
    image: ModuleIndex
    open_reader: Optional[Callable[[], ImageReader]] = None

    def label_at(self, address: int) -> Optional[Label]:
        """Returns the label that names an address of the module, None if there is none."""
        return self.image.names.find_label(address - self.module.base)

    def begins_at(self, address: int) -> Optional[Label]:
        """Returns the label that is exactly at an address of the module, None if there is none."""
        label = self.label_at(address)
        return label if label is not None and label[0] == address - self.module.base else None


class Symbolizer:
    """Names the addresses of an image. `fetch_symbols` says whether Volatility may download PDBs that it
    lacks; otherwise the log names them.

    Attributes:
        indexes: the module indexes, which also have the symbols and sections of modules
        halves: the end of the user's half and the start of the kernel's half
    """

    def __init__(
        self,
        image: Image,
        fetch_symbols: bool = False,
        progress_callback: constants.ProgressCallback = None,
    ) -> None:
        pdbs = PdbSymbols(image, fetch_symbols, progress_callback, advise=True)
        self.image = image
        self.indexes = ModuleIndexes(image, pdbs)
        self._map = PlaceMap(image, self.indexes)
        self._names: Dict[Tuple[str, int], AddressNamer] = {}
        self._kernel_names: Optional[AddressNamer] = None
        self.halves = self._map.halves

    def for_space(self, space: AddressSpace) -> AddressNamer:
        """Returns the namer of an address space; both halves of a WoW64 process have the same one.

        The namers of the kernel and of the latest processes are kept. If the _EPROCESS of a process is
        unknown, only the modules in the loader lists of its PEB are known.

        Raises (here, or when the first address is named):
        """
        if space.kernel:
            if self._kernel_names is None:
                self._kernel_names = AddressNamer(self, space)
            return self._kernel_names
        key = (space.layer_name, space.eprocess or space.peb)
        if key not in self._names:
            while self._names and (
                sum(len(names) for names in self._names.values()) > MAX_KEPT
                or self._count_unshared_exports() > MAX_UNSHARED_EXPORTS
            ):
                self._names.pop(next(iter(self._names))).forget()
            self._names[key] = AddressNamer(self, space)
        return self._names[key]

    def kept_namers(self) -> List[AddressNamer]:
        """Returns the namers that are kept: `for_space` returns these for their address spaces."""
        kernel = [] if self._kernel_names is None else [self._kernel_names]
        return [*kernel, *self._names.values()]

    def places_of(self, space: AddressSpace) -> Tuple[List[int], List[AnyPlace], ProcessModules]:
        """Returns the places of an address space: the canonical start addresses of the places; the places in
        the same order; the modules and VADs of the process from which the places are made."""
        spans, process = self._map.kernel, NO_PROCESS
        if not space.kernel:
            user_spans, process = self._map.process(self._native_and_narrow(space))
            spans = user_spans + spans
        return (*self._map.fill(spans, space), process)

    def _count_unshared_exports(self) -> int:
        """Returns the number of kept exports of modules whose index no other process shares."""
        return sum(self.indexes.exports_held(layer_name) for layer_name, _ in self._names)

    def _native_and_narrow(self, space: AddressSpace) -> List[AddressSpace]:
        """Returns both halves of a WoW64 process, or the only address space of another process."""
        if space.eprocess:
            return list(AddressSpaces.list_spaces(self.image, None, space.eprocess)) or [space]
        # Without an _EPROCESS, both halves of a process are recognised by their common layer.
        spaces = AddressSpaces.list_spaces(self.image, None if space.pid is None else [space.pid])
        halves = [half for half in spaces if half.layer_name == space.layer_name and not half.kernel]
        return halves if space in halves else [space]


class AddressNamer:
    """Names the addresses of one address space; made by `Symbolizer.for_space`. Every address gets a name."""

    __slots__ = ("_no_return", "_places", "_process", "_space", "_starts", "_symbolizer")

    def __init__(self, symbolizer: Symbolizer, space: AddressSpace) -> None:
        self._symbolizer = symbolizer
        self._space = space
        self._starts: List[int] = []
        self._places: List[AnyPlace] = []
        self._process = NO_PROCESS
        halves = symbolizer.halves
        # The first address behind the user's half is no valid return address, although the byte below it,
        # which is looked up, is valid.
        self._no_return = halves.user_end if halves.user_end < halves.kernel_start else None

    def __len__(self) -> int:
        """Returns the number of places that are kept."""
        return len(self._starts)

    def forget(self) -> None:
        """Drops the places: frames that are kept lead here, and would keep them. They are made again on
        demand."""
        self._starts, self._places, self._process = [], [], NO_PROCESS

    def name(self, address: int, return_address: bool = True) -> Name:
        """Returns the name of an address. Callers that name many addresses keep the results
        (`stacklist.frames`). `return_address` says whether it is a return address; False for the address of
        an interrupted instruction."""
        if address in _NO_ADDRESS:
            return _NO_ADDRESS[address]
        if return_address and address == self._no_return:
            return NOT_CANONICAL
        lookup = address - 1 if return_address else address
        return self._place(lookup).name(address, lookup)

    def module_at(self, address: int) -> Optional[KnownModule]:
        """Returns the module that holds an address, None if there is none. The address itself is looked up,
        not the byte below it."""
        place = self._place(address)
        place = place.place if isinstance(place, OverlapPlace) else place
        return _known_module(place) if isinstance(place, ModulePlace) else None

    def modules(self, name: str) -> List[KnownModule]:
        """Returns the modules with a name, in any case. A WoW64 process may have two, such as `ntdll`."""
        self._prepare()
        modules: Dict[int, KnownModule] = {}
        for place in self._places:
            place = place.place if isinstance(place, OverlapPlace) else place
            if isinstance(place, ModulePlace) and place.module.name.lower() == name.lower():
                modules[place.module.base] = _known_module(place)
        return list(modules.values())

    @property
    def process(self) -> ProcessModules:
        """The modules and VADs of the process; NO_PROCESS for the kernel."""
        self._prepare()
        return self._process

    def vad_at(self, address: int) -> Optional[Region]:
        """Returns the VAD that holds an address, None if there is none: the kernel has no VADs."""
        return span_at(self.process.vads, address)

    def _place(self, address: int) -> AnyPlace:
        """Returns the place of a canonical address."""
        if not self._starts:
            self._prepare()
        return self._places[bisect_right(self._starts, address) - 1]

    def _prepare(self) -> None:
        """Makes the places of the address space at the first call."""
        if not self._starts:
            self._starts, self._places, self._process = self._symbolizer.places_of(self._space)


def _known_module(place: ModulePlace) -> KnownModule:
    return KnownModule(place.module, place.prepare(), place.reader)
