# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kinds of places in an address space, and the name of an address in each kind of place."""

from __future__ import annotations

import functools
from typing import Callable, Optional, Union

from ..columns import words
from ..columns.words import FAR, IMAGE, MODULE, NEAREST, NONE
from ..memory.decode import text
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.statuscodes import StatusCode
from ..process.regions import Region
from .imagereader import ImageReader
from .kernelmodules import Module
from .moduleindex import ModuleIndex
from .unloaded import Unloaded


class Name(NamedTuple):
    """The name of an address.

    Attributes:
        source: value of the column `Source`, a word of `words.SOURCES`
        backing: value of the column `Backing`, a word of `words.BACKINGS`: the content of the address
            according to the VADs and headers, not to the loader lists. Empty for a value that is not an
            address
    """

    symbol: str
    source: str
    status: Status
    backing: str


ZERO = Name("<zero>", NONE, NOTHING, "")
FUZZY = Name("<fuzzy>", NONE, NOTHING, "")
FUZZY_FRAME = 0xFFFFFFFF
"""The value that 32-bit Windows puts before raw words of a stack in a back trace."""
PRIVATE = Name("<private>", NONE, NOTHING, words.PRIVATE)
UNTOLD = Name("<private>", NONE, status(StatusCode.PROTECTION_UNKNOWN), words.PRIVATE)
"""Memory of a dump that lists no region for it."""
UNTOLD_AND_UNLISTED = UNTOLD._replace(status=status(StatusCode.MODULE_LIST_INCOMPLETE, UNTOLD.status))
"""The same in a dump whose list of modules has lost entries: a module may be there."""
UNMAPPED = Name("<unmapped>", NONE, NOTHING, words.UNMAPPED)
ROM = Name("<rom>", NONE, NOTHING, NONE)
"""A kernel address that is mapped to the real-mode ROM area: option ROMs lie there, and have no module."""
NO_MODULE = Name("<no-module>", NONE, NOTHING, NONE)
USER = Name("<user>", NONE, NOTHING, words.USER)
LIST_INCOMPLETE = Name("<no-module>", NONE, status(StatusCode.MODULE_LIST_INCOMPLETE), NONE)
NO_LIST = Name("<unknown>", NONE, status(StatusCode.MODULE_LIST_NOT_IN_THE_FILE), words.UNKNOWN)
"""An address in a dump that has no list of modules."""
UNSIZED = NO_LIST._replace(status=status(StatusCode.MODULE_LIST_INCOMPLETE))
"""An address behind the base of a module whose size is not in a dump: it may be in that module."""
NOT_CANONICAL = Name("<unmapped>", NONE, status(StatusCode.NOT_CANONICAL), words.UNMAPPED)
VADS_INCOMPLETE = Name("<unmapped>", NONE, status(StatusCode.VADS_INCOMPLETE), words.UNMAPPED)
NO_REGION = NO_MODULE._replace(status=VADS_INCOMPLETE.status)
"""An address in no module of a process without page tables, whose regions are not all listed."""
NO_REGION_UNLISTED = NO_REGION._replace(status=status(StatusCode.MODULE_LIST_INCOMPLETE, NO_REGION.status))
"""The same where the list of modules has lost entries, too."""

_BACKINGS = {
    StatusCode.NO_VAD: words.UNMAPPED,
    StatusCode.VAD_WITHOUT_FILE: words.PRIVATE,
    StatusCode.HEADERS_CONTRADICT_THE_LIST: NONE,
    StatusCode.IN_NO_MODULE_LIST: NONE,
}
"""Backing of a module by words in its status: its VADs or headers contradict the lists, which may be
forged."""

CodeCheck = Callable[[int], Status]
"""Takes an RVA; returns the status that the module's file gives to the code there."""

Witness = Callable[[Module, ModuleIndex], Optional[CodeCheck]]
"""Takes a module and its index; returns the check of RVAs by the module's file, None without a file."""

_UNNAMED = status(StatusCode.FILE_NAME_UNREADABLE)

# The constructor of a NamedTuple would take a third of the time of naming an address.
_name = tuple.__new__


class Place:
    """A range of addresses that all have the same name."""

    __slots__ = ("_name",)

    def __init__(self, name: Name) -> None:
        self._name = name

    def name(self, address: int, lookup: int) -> Name:
        """Returns the name of an address. `lookup` is the address to look up: the same, or one byte lower for
        a return address."""
        return self._name


class UncertainPlace(Place):
    """Addresses about which the image says too little: a module may be or have been there."""

    __slots__ = ()


class UserGap(Place):
    """User addresses in no VAD. `is_resident` returns whether the page of an address is in memory; then a VAD
    is missing."""

    __slots__ = ("_is_resident",)

    def __init__(self, is_resident: Callable[[int], bool]) -> None:
        super().__init__(UNMAPPED)
        self._is_resident = is_resident

    def name(self, address: int, lookup: int) -> Name:
        return VADS_INCOMPLETE if self._is_resident(lookup) else self._name


class KernelGap(Place):
    """Kernel addresses in no module.

    Args:
        name: name of all addresses that are neither in a ROM nor in an unlisted driver
        unlisted: returns the unlisted driver whose headers cover an address, None if there is none
    """

    __slots__ = ("_is_rom", "_unlisted")

    def __init__(
        self,
        name: Name,
        is_rom: Callable[[int], bool],
        unlisted: Callable[[int], Optional[ModulePlace]],
    ) -> None:
        super().__init__(name)
        self._is_rom = is_rom
        self._unlisted = unlisted

    def name(self, address: int, lookup: int) -> Name:
        if self._is_rom(lookup):
            return ROM
        place = self._unlisted(lookup)
        if place is None:
            return self._name
        name = place.name(address, lookup)
        return name._replace(status=status(self._name.status, name.status))


class UnsureGap(KernelGap, UncertainPlace):
    """Kernel addresses in no known module, where an unknown module may be or have been."""

    __slots__ = ()


class UnloadedPlace:
    """A range that held a module before it was unloaded."""

    __slots__ = ("unloaded",)

    def __init__(self, unloaded: Unloaded) -> None:
        self.unloaded = unloaded

    def name(self, address: int, lookup: int) -> Name:
        label = text.module_name(self.unloaded.name)
        offset = address - self.unloaded.start
        return Name(f"<unloaded:{label}>+{offset:#x}", words.UNLOADED, NOTHING, words.UNLOADED)


class MappedPlace:
    """A mapping that is in no loader list. Its file is looked up when one of its addresses is first named.
    `read` returns the name of the mapped file; "" if there is none, None if unreadable."""

    __slots__ = ("_file", "_read", "_vad")

    def __init__(self, vad: Region, read: Callable[[Region], Optional[str]]) -> None:
        self._vad = vad
        self._read: Optional[Callable[[Region], Optional[str]]] = read
        self._file: Optional[str] = None

    def name(self, address: int, lookup: int) -> Name:
        if self._read is not None:
            self._file, self._read = self._read(self._vad), None
        if self._file == "":
            return PRIVATE
        fault = _UNNAMED if self._file is None else NOTHING
        file = self._file or "unknown"
        return Name(f"<mapped:{file}>+{address - self._vad.start:#x}", NONE, fault, words.MAPPED)


class ModulePlace:
    """A module; its index is made when one of its addresses is first named.

    All places of a process share the functions: most places are never asked. `index` is the index; None until
    `prepare` or `name` makes it.

    Args:
        check: returns the status word for a contradiction between module and VAD, None if there is none
        reader: opens the image as the process has it; None for a module of the kernel, which is the same
            everywhere
        witness: makes the check of RVAs by the module's file; None without --binaries
    """

    __slots__ = (
        "_backing",
        "_base",
        "_check",
        "_check_code",
        "_find_label",
        "_load",
        "_open",
        "_plain",
        "_reader",
        "_status",
        "_witness",
        "index",
        "module",
    )

    def __init__(
        self,
        module: Module,
        load: Callable[[Module], ModuleIndex],
        check: Optional[Callable[[Module], Optional[StatusCode]]] = None,
        reader: Optional[Callable[[Module], ImageReader]] = None,
        witness: Optional[Witness] = None,
    ) -> None:
        self.module = module
        self._open = reader
        self._reader: Optional[Callable[[], ImageReader]] = None
        self._load = load
        self._check = check
        self._witness = witness
        self._check_code: Optional[CodeCheck] = None
        self._base = module.base
        self._plain = module.name
        self._status = NOTHING
        self._backing = IMAGE
        self.index: Optional[ModuleIndex] = None

    @property
    def reader(self) -> Optional[Callable[[], ImageReader]]:
        """Opens the image as the process has it; None for a module of the kernel."""
        if self._reader is None and self._open is not None:
            self._reader = functools.partial(self._open, self.module)
        return self._reader

    def prepare(self) -> ModuleIndex:
        """Returns the module's index, made at the first call."""
        if self.index is None:
            self.index = self._load(self.module)
            checked = self._check(self.module) if self._check else None
            self._status = status(self.module.status, checked, self.index.status)
            backings = (_BACKINGS[fault.code] for fault in self._status if fault.code in _BACKINGS)
            self._backing = next(backings, IMAGE)
            self._find_label = self.index.names.find_label
            self._check_code = None if self._witness is None else self._witness(self.module, self.index)
        return self.index

    def name(self, address: int, lookup: int) -> Name:
        if self.index is None:
            self.prepare()
        base, faults = self._base, self._status
        if self._check_code is not None:
            faults = status(faults, self._check_code(lookup - base))
        label = self._find_label(lookup - base)
        if label is None:
            return _name(Name, (f"{self._plain}+{address - base:#x}", MODULE, faults, self._backing))
        rva, name, source = label
        offset = address - base - rva
        if source is NEAREST and offset > PAGE_SIZE:
            name = f"{FAR}{name}"
        if offset > 0:
            return _name(Name, (f"{self._plain}!{name}+{offset:#x}", source, faults, self._backing))
        symbol = f"{self._plain}!{name}{offset:#x}" if offset else f"{self._plain}!{name}"
        return Name(symbol, source, faults, self._backing)


class OverlapPlace:
    """A place at which another module was before it was unloaded."""

    __slots__ = ("place",)

    def __init__(self, place: AnyPlace) -> None:
        self.place = place

    def name(self, address: int, lookup: int) -> Name:
        name = self.place.name(address, lookup)
        return name._replace(status=status(name.status, StatusCode.OVERLAPS_AN_UNLOADED_MODULE))


AnyPlace = Union[Place, UnloadedPlace, MappedPlace, ModulePlace, OverlapPlace]
