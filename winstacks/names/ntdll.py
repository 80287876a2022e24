# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the ntdll of an address space: its address, its global variables by symbol, its writable data."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ..memory.decode import text
from ..memory.decode.pagetable import round_to_pages
from ..memory.decode.ranges import Extents, span_at
from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace, Image
from ..process.regions import Region
from ..process.sections import ImageSections, SectionView
from ..process.vads import regions
from .decode import pe
from .decode.peimage import PeImage
from .imagereader import ImageReader
from .loaderlists import module_lists
from .moduleindex import ModuleIndex, ModuleIndexes
from .witness import FileWitnesses

NAME = "ntdll.dll"
"""Name of the file, in lower case."""

MAX_IMAGE = 0x1000000
"""16 MB, several times the size of any ntdll: the limit for a size that may be forged."""


class Ntdll(NamedTuple):
    """An ntdll in an address space."""

    space: AddressSpace
    base: int
    size: int
    image: ModuleIndex
    view: Optional[SectionView] = None

    def address_of(self, *names: str) -> Optional[int]:
        """Returns the canonical address of the first of several symbols that the PDB has. None without a PDB,
        or if it has none of them."""
        symbols = self.image.symbols
        rvas = (symbols.rva_of(name) for name in names) if symbols is not None else ()
        return next((self.base + rva for rva in rvas if rva is not None), None)


class Ntdlls:
    """Finds the ntdll of address spaces: in the loader's lists of the process, or else in its VADs."""

    def __init__(self, image: Image, indexes: ModuleIndexes) -> None:
        self._image = image
        self._indexes = indexes
        self._lists = image.service(module_lists)
        self._vads = image.service(regions)
        self._sections = image.service(ImageSections)

    def find_ntdll(self, space: AddressSpace) -> Optional[Ntdll]:
        """Returns the ntdll of one half of a process, None if its loader lists and its VADs have none."""
        for base, size in self._candidates(space):
            if 0 < size <= MAX_IMAGE:
                view = self._section_at(space, base)
                reader = ImageReader(self._image, space.layer_name, base, size, view)
                file = self._file(space, reader)
                index = self._indexes.get(reader if file is None else reader.with_file(file))
                return Ntdll(space, base, size, index, view)
        return None

    def _file(self, space: AddressSpace, reader: ImageReader) -> Optional[PeImage]:
        """Returns the file of --binaries that belongs to an ntdll, None if there is none."""
        witnesses = self._image.service(FileWitnesses)
        if not witnesses.files.given:
            return None
        entries, _ = self._lists.process_modules(space)
        entry = next((entry for entry in entries if entry.base == reader.base), None)
        return witnesses.find_file(reader, NAME, None if entry is None else (space, entry))

    def data(self, ntdll: Ntdll) -> Tuple[List[Extents], int]:
        """Returns the present parts of the writable data by canonical address, and the number of missing
        bytes.

        Pages between the sections count as writable, too: linkers leave no such pages (PE Format), so they
        show that a process changed the headers. Without headers, the whole image counts as writable.
        """
        reader = ImageReader(self._image, ntdll.space.layer_name, ntdll.base, ntdll.size, ntdll.view)
        ranges = _writable(ntdll.image.headers, ntdll.size)
        loaded = [reader.load(rva, length) for rva, length in ranges]
        missing = sum(part.missing(rva, rva + length) for part, (rva, length) in zip(loaded, ranges))
        by_address = [Extents((ntdll.base + start, data) for start, data in part.runs) for part in loaded]
        return by_address, missing

    def _section_at(self, space: AddressSpace, base: int) -> Optional[SectionView]:
        """Returns the section that is mapped at an address, None if there is none."""
        vads, _ = self._vads.list_regions(space)
        return self._sections.section_of(span_at(vads, base))

    def _candidates(self, space: AddressSpace) -> Iterator[Tuple[int, int]]:
        """Yields (base, size) of the modules with the name of ntdll: first loader entries with a VAD of an
        image at their base, then such VADs without an entry, then all loader entries."""
        entries, _ = self._lists.process_modules(space)
        named = [(entry.base, entry.size) for entry in entries if entry.name.lower() == NAME]
        vads, _ = self._vads.list_regions(space)
        mapped = {vad.start: vad.end - vad.start for vad in vads if vad.image}
        yield from ((base, mapped[base]) for base, _ in named if base in mapped)
        yield from self._mapped_ntdlls(space, vads)
        yield from named

    def _mapped_ntdlls(self, space: AddressSpace, vads: List[Region]) -> Iterator[Tuple[int, int]]:
        """Yields (base, size) of each mapped image whose file is ntdll and whose machine is the half's."""
        for vad in vads:
            if not vad.image:
                continue
            path = self._vads.file_name(vad.control_area)
            if path and text.file_name(path).lower() == NAME and self._machine_fits(space, vad.start):
                yield vad.start, vad.end - vad.start

    def _machine_fits(self, space: AddressSpace, base: int) -> bool:
        """Returns whether the headers of an ntdll fit the machine of a half; True if they are unreadable."""
        reader = ImageReader(self._image, space.layer_name, base, MAX_IMAGE, self._section_at(space, base))
        try:
            machine = pe.read_headers(reader.read).machine
        except pe.HeaderError:
            return True
        return machine == space.machine.number


def _writable(headers: Optional[pe.Headers], size: int) -> List[Tuple[int, int]]:
    """Returns (RVA, length) of the writable sections of an image, and of pages in no section."""
    if headers is None or not headers.sections:
        return [(0, size)]
    ranges = [(part.start, part.end) for part in headers.sections if part.characteristics & pe.MEM_WRITE]
    ends = [round_to_pages(part.end) for part in headers.sections]
    starts = [*(part.start for part in headers.sections[1:]), size]
    ranges += [(end, start) for end, start in zip(ends, starts) if end < start]
    return [(start, end - start) for start, end in sorted(ranges)]
