# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which build of which file a module is: name, TimeDateStamp and SizeOfImage, equal on every machine.

    identities = ModuleIdentities(image)
    identities.of(space).module(known)

Stamp and size come from the loader's entry of the module, which lies in memory that stays; else from the
module's headers, whose page goes first; else from the entries of other processes that map the same file, if
all of them agree, which the status says.
"""

from __future__ import annotations

import functools
from typing import Dict, Iterator, List, Optional, Tuple

from ..base.decode import text
from ..base.decode.record import Record
from ..base.decode.status import NOTHING, Status, Word, says, status
from ..base.image import Image
from ..base.space import AddressSpace
from ..base.spaces import AddressSpaces
from ..base.vads import Vad, Vads
from ..names.kernelmodules import Module
from ..names.loaderlists import LoaderDetails, LoaderEntry, LoaderLists
from ..names.symbolizer import KnownModule
from ..names.usermodules import vad_at
from .decode import keys

MAX_PATH = 32767
"""The most characters of a path on Windows."""

MAX_SPACES = 16
"""Address spaces whose modules are kept: neighbouring stacks come from few processes."""

_NOT_THERE = (Word.NO_VAD, Word.VAD_WITHOUT_FILE)
"""An entry with one of these words is of no file: what it says is nothing that a file has."""


class ModuleIdentity(Record):
    """A module.

    Attributes:
        path: FullDllName of the loader's entry; None if there is none, or it is not in the image
        stamp: TimeDateStamp, None if it is not known
        size: SizeOfImage in whole pages, None if it is not known
        status: what is to be said of where these come from
    """

    path: Optional[str]
    stamp: Optional[int]
    size: Optional[int]
    status: Status = NOTHING


_Build = Tuple[Optional[int], Optional[int]]
"""Stamp and size."""


class ModuleIdentities:
    """Identifies the modules of an image.

    Args:
        image: the image
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._lists = image.part(LoaderLists)
        self._vads = image.part(Vads)
        self.of = functools.lru_cache(maxsize=MAX_SPACES)(self._made)
        """Returns the modules of an address space; both halves of a WoW64 process have the same."""

    def _made(self, space: AddressSpace) -> SpaceModules:
        return SpaceModules(self, self._entries(space), space)

    def _entries(self, space: AddressSpace) -> Dict[int, Tuple[AddressSpace, LoaderEntry]]:
        """Returns the entries of the loader's lists by the base that they name, the kernel's among them."""
        found = dict(self._drivers)
        for half in () if space.kernel else self.halves(space):
            entries, _ = self._lists.of_process(half)
            for entry in entries:
                found.setdefault(entry.base, (half, entry))
        return found

    @functools.cached_property
    def _drivers(self) -> Dict[int, Tuple[AddressSpace, LoaderEntry]]:
        """The entries of the kernel's list, which is the same in every address space."""
        kernel = self._image.kernel
        listed, _ = self._lists.of_kernel() if self._image.base else ([], True)
        return {entry.base: (kernel, entry) for entry in listed}

    def halves(self, space: AddressSpace) -> List[AddressSpace]:
        """Returns both halves of a WoW64 process, or the only address space of another process."""
        if not space.eprocess:
            return [space]
        return list(AddressSpaces.list_spaces(self._image, offset=space.eprocess)) or [space]

    def details(self, space: AddressSpace, entry: LoaderEntry) -> LoaderDetails:
        """Returns stamp and path of an entry of a loader's list."""
        return self._lists.details(space, entry)

    def elsewhere(self, space: AddressSpace, base: int) -> Optional[_Build]:
        """Returns stamp and size of the file mapped at an address, as another process knows them."""
        if space.kernel or not space.eprocess:
            return None
        vads, _ = self._vads.list_vads(space)
        vad = vad_at(sorted(vads), base)
        if vad is None or not vad.control_area or vad.start != base:
            return None
        return self._files.get(vad.control_area)

    @functools.cached_property
    def _files(self) -> Dict[int, Optional[_Build]]:
        """Stamp and size of mapped images by control area, where all processes that know them agree."""
        found: Dict[int, Optional[_Build]] = {}
        for space in AddressSpaces.list_spaces(self._image):
            if space.kernel or space.status:
                continue
            entries, _ = self._lists.of_process(space)
            vads = sorted(self._vads.list_vads(space)[0])
            for area, entry in self._images(entries, vads):
                stamp = self._lists.details(space, entry).stamp
                if stamp:
                    build = stamp, keys.rounded(entry.size)
                    found[area] = build if found.get(area, build) == build else None
        return found

    def _images(self, entries: List[LoaderEntry], vads: List[Vad]) -> Iterator[Tuple[int, LoaderEntry]]:
        for entry in entries:
            vad = vad_at(vads, entry.base)
            if vad is not None and vad.image and vad.start == entry.base:
                yield vad.control_area, entry


class SpaceModules:
    """The modules of one address space.

    Args:
        identities: those of the image
        entries: the entries of the loader's lists by base, each with the half whose list it is in
        space: the address space
    """

    def __init__(
        self,
        identities: ModuleIdentities,
        entries: Dict[int, Tuple[AddressSpace, LoaderEntry]],
        space: AddressSpace,
    ) -> None:
        self._identities = identities
        self._entries = entries
        self._space = space
        self._known: Dict[int, ModuleIdentity] = {}

    def module(self, known: KnownModule) -> ModuleIdentity:
        """Returns which build of which file a module is."""
        base = known.module.base
        if base not in self._known:
            self._known[base] = self._identify(known)
        return self._known[base]

    def _identify(self, known: KnownModule) -> ModuleIdentity:
        stamp, size, path = None, None, None
        if known.module.base in self._entries and not says(known.module.status, *_NOT_THERE):
            space, entry = self._entries[known.module.base]
            stamp, raw = self._identities.details(space, entry)
            path = None if raw is None else text.cell(raw, MAX_PATH)
            size = keys.rounded(_size(entry, known.module))
        headers = known.image.headers
        if headers is not None and not stamp:
            return ModuleIdentity(path, headers.timestamp, size or keys.rounded(headers.size))
        if stamp and size:
            return ModuleIdentity(path, stamp, size)
        build = self._identities.elsewhere(self._space, known.module.base)
        if build is None:
            return ModuleIdentity(path, None, size)
        return ModuleIdentity(path, *build, status(Word.KNOWN_FROM_ANOTHER_PROCESS))


def _size(entry: LoaderEntry, module: Module) -> int:
    """Returns SizeOfImage of a module whose entry may contradict its headers."""
    return module.size if says(module.status, Word.CONTRADICTED) else entry.size
