# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Image sections: the pages of a file that all processes that map it share, and what leads there.

A section has one page for each page of the image, whose contents are those of the file. A process maps these
pages until it writes to one: then it gets a copy of its own (`Space.share`). The array of prototype PTEs says
where each page of the section is. _MMVAD.FirstPrototypePte points into it, and so does each _SUBSECTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Sequence

from .obj import Obj
from .paging import State, prototype_entry
from .phys import PAGE

if TYPE_CHECKING:
    from .kernel import Kernel

_ENTRY = 8
_SECTOR = 0x200


class ImageSection:
    """The section of one file; made by `Sections.section`.

    Args:
        kernel: the kernel
        path: of the file, as its _FILE_OBJECT has it
        size: bytes of the image
        starts: RVAs at which its subsections start, the headers' 0 among them
    """

    def __init__(self, kernel: Kernel, path: str, size: int, starts: Sequence[int]) -> None:
        self.kernel = kernel
        self.path = path
        self.count = -(-size // PAGE)
        self.frames: Dict[int, int] = {}
        """RVA of a page -> its frame."""
        self._given: Dict[int, bytes] = {}
        self._starts = sorted(starts)
        self._states: Dict[int, State] = {}
        self._entries: Optional[int] = None
        self._area: Optional[Obj] = None
        self._subsections: List[Obj] = []

    def put(self, rva: int, data: bytes) -> None:
        """Gives the page at an RVA its contents, those of the file; only the first time."""
        if rva not in self.frames:
            frame = self.frames[rva] = self.kernel.phys.allocate()
            self._given[rva] = data
            if any(data):
                self.kernel.phys.frame(frame)[:] = data

    def holds(self, rva: int, data: bytes) -> bool:
        """Whether a page of the section was given these contents, whatever was put there since."""
        return rva in self.frames and self._given[rva] == data

    def set_state(self, rva: int, size: int, state: State) -> None:
        """Changes pages of the section; unreadable states lose the bytes.

        No process may have such a page mapped (`Space.set_state` with PROTOTYPE takes it from one).
        """
        for page in range(rva & ~(PAGE - 1), rva + size, PAGE):
            self._states[page] = state
            if not state.readable and page in self.frames:
                self.kernel.phys.free(self.frames.pop(page))

    @property
    def control_area(self) -> Obj:
        """The _CONTROL_AREA, with the subsections behind it."""
        self._make()
        assert self._area is not None
        return self._area

    @property
    def subsection(self) -> Obj:
        """The first _SUBSECTION."""
        self._make()
        return self._subsections[0]

    @property
    def entries(self) -> int:
        """Address of the prototype PTEs."""
        self._make()
        assert self._entries is not None
        return self._entries

    @property
    def last_entry(self) -> int:
        return self.entries + (self.count - 1) * _ENTRY

    def finish(self) -> None:
        """Writes the prototype PTEs as the pages are now."""
        self._make()
        for number in range(self.count):
            rva = number * PAGE
            state = self._states.get(rva, State.VALID if rva in self.frames else State.PROTOTYPE)
            frame = self.frames.get(rva)
            if state is State.MISSING:
                frame = self.kernel.phys.missing()
            subsection = self._subsections[sum(start <= rva for start in self._starts) - 1]
            entry = prototype_entry(self.kernel.bits, state, frame, subsection.address)
            self.kernel.paged.write_int(self.entries + number * _ENTRY, entry, _ENTRY)

    def _make(self) -> None:
        """Makes the control area with its subsections, the segment and room for the prototype PTEs."""
        if self._area is not None:
            return
        kernel = self.kernel
        size = kernel.isf.size("_SUBSECTION")
        place = kernel.pool.allocate(kernel.isf.size("_CONTROL_AREA") + len(self._starts) * size, b"MmCi")
        area = self._area = Obj(kernel.space, kernel.isf, "_CONTROL_AREA", place)
        self._entries = kernel.paged.allocate(self.count * _ENTRY)
        segment = Obj(
            kernel.paged, kernel.isf, "_SEGMENT", kernel.paged.allocate(kernel.isf.size("_SEGMENT"))
        )
        segment["ControlArea"] = area
        segment["TotalNumberOfPtes"] = self.count
        segment["SizeOfSegment"] = self.count * PAGE
        segment["PrototypePte"] = self._entries
        area["Segment"] = segment
        for flag in ("Image", "File"):
            area[f"u.Flags.{flag}"] = 1
        # The low bits of a fast reference count references; readers must mask them.
        busy = 1 if area.has("FilePointer.Object") else 0
        area["FilePointer"] = kernel.file(self.path).address | busy
        first = place + area.size
        ends = [*self._starts[1:], self.count * PAGE]
        for number, (start, end) in enumerate(zip(self._starts, ends)):
            row = Obj(kernel.space, kernel.isf, "_SUBSECTION", first + number * size)
            row["ControlArea"] = area
            row["SubsectionBase"] = self._entries + start // PAGE * _ENTRY
            row["PtesInSubsection"] = (end - start) // PAGE
            row["StartingSector"] = start // _SECTOR
            row["NumberOfFullSectors"] = (end - start) // _SECTOR
            row["NextSubsection"] = 0 if end == self.count * PAGE else row.address + size
            self._subsections.append(row)


class Sections:
    """The image sections of a kernel, one for each file."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._sections: Dict[str, ImageSection] = {}

    def section(self, path: str, size: int, starts: Sequence[int]) -> Optional[ImageSection]:
        """The section of a file; None if the file has one of another size, as no file can."""
        file = path[2:] if path[1:2] == ":" else path
        key = file.lower()
        if key not in self._sections:
            self._sections[key] = ImageSection(self._kernel, file, size, starts)
        found = self._sections[key]
        return found if found.count == -(-size // PAGE) else None

    def __iter__(self) -> Iterator[ImageSection]:
        return iter(self._sections.values())
