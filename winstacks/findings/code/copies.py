# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Compares the pages of mapped images with other processes' pages of the same file.

    found = facts.copies.compare(space, start, end)
    found.equal                  # most other processes have the same bytes
        found.ranges                 # the addresses at which most other processes differ
        found.reason                 # why part of the range could not be compared

A page without a private copy is the page of the image section, which all processes share. A private page is
compared byte by byte with the pages of a few processes of different programs. Processes may map the file at
different addresses: relocations are then undone before the comparison. A page of a file is read once from
each of these processes.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ...memory.decode.machine import Machine
from ...memory.decode.memo import Memo
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.image import AddressSpace, Image
from ...names.decode import relocations
from ...names.decode.unwindinfo import Bytes
from ...names.imagereader import ImageReader
from ...process.regions import Region
from ...process.sections import ImageSections
from ...process.spaces import AddressSpaces
from ...process.vads import regions
from .differing import LONGEST_OPERAND, Ranges, differing, within, without

MAX_OTHERS = 8
"""The most other processes with which a page is compared."""

MAX_MAPPINGS = 1 << 18
"""The most mapped images of all processes together that are listed."""

MAX_PAGES = 1 << 14
"""The most private pages that are compared; later ones are not."""

NO_IMAGE = "no image is mapped there"
NO_PAGE_TABLES = "the page tables of the process cannot be read"
OF_KERNEL = "the kernel's code has no second copy"
NOT_IN_MEMORY = "the page is not in memory"
NO_FILE = "the VAD leads to no file that can be named"
NO_SECOND = "no second process maps the file"
NO_COPY = "no other process has the page in memory"
TOO_MANY = f"more than {MAX_PAGES} pages of images were changed"

_ENOUGH = 3
"""If at least this many programs map a file, one process of each is compared: some programs change the code
of all their children."""

_FILES_KEPT = 64
_PAGES_KEPT = 128


class Mapping(NamedTuple):
    """An image mapped by a process."""

    space: AddressSpace
    vad: Region


class Comparison(NamedTuple):
    """The result of comparing a mapped image with other processes.

    Attributes:
        ranges: addresses of the bytes for which most others agree on another value
        file: path of the module's file, if the page was compared with the file because no other process has
            the page
        others: largest number of processes with which a page was compared; 0 if the process shares the
            section's pages, and if the page was compared with the section or file because no other process
            has the page
        reason: why a part of it could not be compared; empty if everything was compared
        split: addresses of the bytes for which most others have another value, but not the same one
        alike: number of other processes whose page equals this process's own copy, if that copy differs from
            the section's page, or if the section's page is not in the image; `private` says which
        private: whether the page is a copy of the process's own whose section page is not in the image
        original: addresses of the bytes for which most others have another value, and this process has the
            file's: the given file and the section outvote any number of processes
    """

    ranges: Ranges = ()
    others: int = 0
    reason: str = ""
    split: Ranges = ()
    file: str = ""
    alike: int = 0
    private: bool = False
    original: Ranges = ()

    @property
    def equal(self) -> bool:
        """Whether the file, or else most other processes, have the same bytes in the whole range."""
        return not self.ranges and not self.reason

    def within(self, start: int, end: int) -> Comparison:
        """Returns the result for a part of what was compared."""
        if self is SHARED:
            return self
        ranges = tuple(within(self.ranges, start, end))
        alike = self.alike if ranges or self.private else 0
        split, original = (tuple(within(each, start, end)) for each in (self.split, self.original))
        return self._replace(ranges=ranges, split=split, alike=alike, original=original)

    @classmethod
    def joined(cls, parts: Iterable[Comparison]) -> Comparison:
        """Returns the result for several pages or ranges: their addresses, the first reason and file."""
        known = list(parts)
        # Nearly all pages are shared, and a function lies on one page.
        if known and all(part is SHARED for part in known):
            return SHARED
        return cls(
            tuple(sorted({place for part in known for place in part.ranges})),
            max((part.others for part in known), default=0),
            next((part.reason for part in known if part.reason), ""),
            tuple(sorted({place for part in known for place in part.split})),
            next((part.file for part in known if part.file), ""),
            max((part.alike for part in known), default=0),
            any(part.private for part in known),
            tuple(sorted({place for part in known for place in part.original})),
        )


SHARED = Comparison()


class SectionCopies:
    """Finds the processes that map a file as an image, and compares their pages.

    The mappings of other processes are listed when the first private page is met. `module` is the function
    that returns the module at an address of a process if the examiner provided its file, else None.
    """

    def __init__(
        self,
        image: Image,
        vad: Callable[[AddressSpace, int], Optional[Region]],
        module: Callable[[AddressSpace, int], Optional[ImageReader]],
    ) -> None:
        self._image = image
        self._vad = vad
        self._module = module
        self._vads = image.service(regions)
        self._sections = image.service(ImageSections)
        self._pages: Dict[Tuple[str, int], Comparison] = {}
        self._others: Memo[Tuple[int, int], List[_Copy]] = Memo(self._read_others, _PAGES_KEPT)
        self._of_sections: Dict[Tuple[int, int], Optional[Bytes]] = {}
        self._own_relocations: Dict[int, _Relocations] = {}
        self._relocated: Memo[int, _Relocations] = Memo(self._relocations, _FILES_KEPT)

    def mapping(self, space: AddressSpace, address: int) -> Optional[Mapping]:
        """Returns the image mapped at an address of a process, None if there is none."""
        vad = self._vad(space, address)
        return None if vad is None or not vad.image else Mapping(space, vad)

    def others(self, mapping: Mapping) -> List[Mapping]:
        """Returns the mappings of the file in other processes: one of each program, then the next."""
        return [
            other
            for other in self._files.get(mapping.vad.control_area, ())
            if other.space.layer_name != mapping.space.layer_name
        ]

    def read(self, space: AddressSpace, address: int, length: int) -> Optional[bytes]:
        """Returns memory of a process; in a mapped image this includes pages that only the section has."""
        data = self._image.memory(space).read(address, length)
        mapping = self.mapping(space, address) if data is None else None
        return data if mapping is None else self._reader(mapping).read(address - mapping.vad.start, length)

    def original(self, space: AddressSpace, address: int) -> Optional[ImageReader]:
        """Returns a reader, by RVA, of the section of the image mapped at an address of a process."""
        mapping = self.mapping(space, address)
        if mapping is None or self._sections.section_of(mapping.vad) is None:
            return None
        return self._reader(mapping, pristine=True)

    def is_private(self, space: AddressSpace, address: int) -> bool:
        """Returns whether a process has a copy of its own of a page of a mapped image; False if the section,
        which shows that, is lost."""
        mapping = self.mapping(space, address)
        if mapping is None or self._sections.lacks_pages(mapping.vad):
            return False
        if self._pages.get((space.layer_name, address // PAGE_SIZE * PAGE_SIZE)) is SHARED:
            return False
        rva = (address - mapping.vad.start) // PAGE_SIZE * PAGE_SIZE
        return not self._reader(mapping).same_pages(rva, PAGE_SIZE)

    def example(self, space: AddressSpace, start: int, end: int) -> Optional[Tuple[AddressSpace, bytes]]:
        """Returns a process with other bytes in a range, and these bytes; None if there is none."""
        mapping = self.mapping(space, start)
        if mapping is None:
            return None
        rva, length = start - mapping.vad.start, end - start
        mine = self._reader(mapping).read(rva, length)
        for other in self._compared_mappings(mapping.vad.control_area):
            data = self._reader(other).read(rva, length)
            if data is not None and data != mine:
                return other.space, data
        return None

    def file_bytes(self, space: AddressSpace, start: int, end: int) -> Optional[bytes]:
        """Returns the bytes of a module's file for a range on one page; None without a file."""
        module = self._module(space, start)
        if module is None or module.file is None:
            return None
        rva = start - module.base
        page = module.file.page(rva - rva % PAGE_SIZE, module.base)
        return None if page is None else page.data[rva % PAGE_SIZE : rva % PAGE_SIZE + end - start]

    def compare(self, space: AddressSpace, start: int, end: int) -> Comparison:
        """Compares a range of addresses of a process."""
        if space.kernel:
            return Comparison(reason=OF_KERNEL)
        if not space.layer_name:
            return Comparison(reason=NO_PAGE_TABLES)
        mapping = self.mapping(space, start)
        if mapping is None:
            return Comparison(reason=NO_IMAGE)
        return self.compare_mapping(mapping, start, end)

    def compare_mapping(self, mapping: Mapping, start: int, end: int) -> Comparison:
        """Compares a range of addresses of a mapped image; see `compare`."""
        pages = range(start - start % PAGE_SIZE, min(end, mapping.vad.end), PAGE_SIZE)
        comparisons = (self._page(mapping, page) for page in pages)
        return Comparison.joined(comparison.within(start, end) for comparison in comparisons)

    def compare_ranges(self, space: AddressSpace, ranges: Iterable[Tuple[int, int]]) -> Comparison:
        """Compares several ranges (start, end) of addresses of a process; see `compare`."""
        return Comparison.joined(self.compare(space, start, end) for start, end in ranges)

    @functools.cached_property
    def _files(self) -> Dict[int, List[Mapping]]:
        """The mappings of each image by its control area, in the order of comparison.

        Processes outside the process list are left out: options decide whether these are found.
        """
        by_area: Dict[int, List[Mapping]] = {}
        count = 0
        for space in AddressSpaces.list_spaces(self._image):
            if space.kernel or space.wow64 or not space.layer_name:
                continue
            if has_status(space.remark, StatusCode.NOT_IN_THE_PROCESS_LIST):
                continue
            images = [vad for vad in self._vads.list_regions(space)[0] if vad.image]
            count += len(images)
            if count > MAX_MAPPINGS:
                break
            for vad in images:
                by_area.setdefault(vad.control_area, []).append(Mapping(space, vad))
        return {area: _mixed(mappings) for area, mappings in by_area.items()}

    def _compared_mappings(self, area: int) -> List[Mapping]:
        """Returns the mappings of a file whose pages are used for comparisons."""
        mappings = self._files.get(area, [])
        programs = len({mapping.space.process for mapping in mappings})
        return mappings[: min(programs, MAX_OTHERS + 1) if programs >= _ENOUGH else MAX_OTHERS + 1]

    def _page(self, mapping: Mapping, page: int) -> Comparison:
        key = mapping.space.layer_name, page
        comparison = self._pages.get(key)
        if comparison is None:
            if len(self._pages) >= MAX_PAGES:
                return Comparison(reason=TOO_MANY)
            comparison = self._pages[key] = self._compared(mapping, page)
        return comparison

    def _compared(self, mapping: Mapping, page: int) -> Comparison:
        reader = self._reader(mapping)
        rva = page - mapping.vad.start
        data = reader.load(rva, PAGE_SIZE).read(rva, PAGE_SIZE)
        if data is None:
            # The entry of a page that was changed leads to the page file.
            is_shared = reader.maps_section(rva, PAGE_SIZE)
            return SHARED if is_shared else Comparison(reason=NOT_IN_MEMORY)
        if reader.same_pages(rva, PAGE_SIZE):
            return self._with_file(mapping, page) or SHARED
        if not self.others(mapping):
            named = self._vads.file_name(mapping.vad.control_area)
            return self._alone(mapping, page, data) or Comparison(reason=NO_SECOND if named else NO_FILE)
        mine = self._copy(mapping, rva, data)
        relocations_known = self._relocated[mapping.vad.control_area].knows_page(rva)
        others = [
            copy.data
            for copy in self._others[mapping.vad.control_area, rva]
            if copy.layer_name != mine.layer_name and (relocations_known or copy.base == mine.base)
        ][:MAX_OTHERS]
        if not others:
            return self._alone(mapping, page, data) or Comparison(reason=NO_COPY)
        changed, split = differing(page, mine.data, others)
        witness = self._alone(mapping, page, data)
        if not (changed or split):
            # No process can write the section's page; several may be overwritten alike.
            if witness is None:
                return Comparison((), len(others), alike=len(others), private=True)
            return Comparison(witness.ranges, len(others), alike=len(others) if witness.ranges else 0)
        if witness is None:
            return Comparison(changed, len(others), split=split)
        # A byte of a hook's operand may by chance have the value that the file has there.
        unlike = tuple((low - LONGEST_OPERAND, high + LONGEST_OPERAND) for low, high in witness.ranges)
        unlike = unlike if witness.file else (*unlike, *self._unknown(mapping, page))
        original = without((*changed, *split), unlike)
        return Comparison(
            without(changed, original), len(others), split=without(split, original), original=original
        )

    def _unknown(self, mapping: Mapping, page: int) -> Ranges:
        """Returns the addresses of a page's relocated numbers: the section says nothing about them."""
        base = mapping.vad.start
        relocated = self._own_relocations[mapping.vad.control_area]
        return tuple((base + low, base + high) for low, high in relocated.numbers(page - base))

    def _alone(self, mapping: Mapping, page: int, data: Bytes) -> Optional[Comparison]:
        """Compares a page that no other process has: with the file, else with the section, or None."""
        return self._with_file(mapping, page) or self._with_section(mapping, page, data)

    def _with_file(self, mapping: Mapping, page: int) -> Optional[Comparison]:
        """Compares a page with the module's file; None if there is no file, or it does not cover the page."""
        module = self._module(mapping.space, page)
        if module is None or module.file is None or not module.compares(page - module.base):
            return None
        changed = module.differences(page - module.base, PAGE_SIZE)
        ranges = tuple((module.base + low, module.base + high) for low, high in changed)
        return Comparison(ranges, file=module.file.path)

    def _with_section(self, mapping: Mapping, page: int, data: Bytes) -> Optional[Comparison]:
        """Compares a page with the section's, leaving out relocated numbers; None if that is impossible.

        The address to which the section's page was relocated is unknown.
        """
        if self._sections.section_of(mapping.vad) is None:
            return None
        rva, area = page - mapping.vad.start, mapping.vad.control_area
        section = self._reader(mapping, pristine=True)
        if (area, rva) not in self._of_sections:
            self._of_sections[area, rva] = section.load(rva, PAGE_SIZE).read(rva, PAGE_SIZE)
        theirs = self._of_sections[area, rva]
        if area not in self._own_relocations:
            self._own_relocations[area] = _Relocations([section.read, self._reader(mapping).read])
        relocated = self._own_relocations[area]
        if theirs is None or not (relocated.knows_page(rva) or mapping.space.machine is Machine.AMD64):
            return None
        changed, _ = differing(page, relocated.masked(rva, data), [relocated.masked(rva, theirs)])
        return Comparison(changed)

    def _read_others(self, key: Tuple[int, int]) -> List[_Copy]:
        """Returns a page of a file from each process compared that has the page in memory."""
        area, rva = key
        copies = []
        for mapping in self._compared_mappings(area):
            data = self._reader(mapping).load(rva, PAGE_SIZE).read(rva, PAGE_SIZE)
            if data is not None:
                copies.append(self._copy(mapping, rva, data))
        return copies

    def _reader(self, mapping: Mapping, pristine: bool = False) -> ImageReader:
        vad, layer_name = mapping.vad, mapping.space.layer_name
        view = self._sections.section_of(vad)
        return ImageReader(self._image, layer_name, vad.start, vad.end - vad.start, view, pristine)

    def _copy(self, mapping: Mapping, rva: int, data: Bytes) -> _Copy:
        """Returns a page of a process with its relocations undone."""
        base = mapping.vad.start
        undone = self._relocated[mapping.vad.control_area].undone(base, rva, bytes(data))
        return _Copy(mapping.space.layer_name, base, undone)

    def _relocations(self, area: int) -> _Relocations:
        mappings = self._compared_mappings(area)
        if len({item.vad.start for item in mappings}) == 1:
            return _Relocations(())
        # The section comes first: no process can write it.
        readers = [self._reader(mappings[0], pristine=True), *map(self._reader, mappings)]
        return _Relocations([item.read for item in readers])


class _Copy(NamedTuple):
    """A page of a file as a process has it, with its relocations undone."""

    layer_name: str
    base: int
    data: bytes


class _Relocations:
    """The relocations of a file, from the first reader that yields some. `readers` are functions that read
    the file by RVA; none if all processes compared map it at the same address."""

    def __init__(self, readers: Sequence[Callable[[int, int], Optional[bytes]]]) -> None:
        self._blocks: Dict[int, List[Tuple[int, int]]] = {}
        self._whole = not readers
        for read in readers:
            for page, slots in relocations.of_image(read):
                self._blocks[page] = slots
            self._whole = self._blocks.pop(relocations.END, None) is not None
            if self._blocks or self._whole:
                break

    def knows_page(self, rva: int) -> bool:
        """Returns whether the relocations of a page are known."""
        return self._whole or rva in self._blocks

    def numbers(self, rva: int) -> Iterator[Tuple[int, int]]:
        """Yields start and end, as RVAs, of each relocated number of a page, or of its part on the page."""
        for page in (rva - PAGE_SIZE, rva):
            for offset, size in self._blocks.get(page, ()):
                low, high = max(page + offset, rva), min(page + offset + size, rva + PAGE_SIZE)
                if low < high:
                    yield low, high

    def masked(self, rva: int, data: Bytes) -> bytes:
        """Returns a page with zeros in place of each relocated number; see `undone`."""
        page_bytes = bytearray(data)
        for low, high in self.numbers(rva):
            page_bytes[low - rva : high - rva] = bytes(high - low)
        return bytes(page_bytes)

    def undone(self, base: int, rva: int, data: bytes) -> bytes:
        """Returns a page with the base subtracted from each relocated number."""
        page_bytes = bytearray(data)
        # A number may begin on the previous page.
        for page in (rva - PAGE_SIZE, rva):
            for offset, size in self._blocks.get(page, ()):
                place = page + offset - rva
                if 0 <= place <= PAGE_SIZE - size:
                    number = int.from_bytes(page_bytes[place : place + size], "little") - base
                    page_bytes[place : place + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
                elif -size < place < PAGE_SIZE:
                    # Part of the number is on another page: the part on this page is left out as zeros.
                    low, high = max(place, 0), min(place + size, PAGE_SIZE)
                    page_bytes[low:high] = bytes(high - low)
        return bytes(page_bytes)


def _mixed(mappings: Sequence[Mapping]) -> List[Mapping]:
    """Returns mappings in turn, one of each program, then the next, so that no program dominates."""
    turns: Dict[str, int] = {}
    ranked = []
    for mapping in mappings:
        turn = turns[mapping.space.process] = turns.get(mapping.space.process, -1) + 1
        ranked.append((turn, mapping))
    ranked.sort(key=lambda pair: pair[0])
    return [mapping for _, mapping in ranked]
