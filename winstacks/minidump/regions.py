# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory regions of a dump: MemoryInfoListStream, or without it its modules and the memory that it has.

VirtualQuery returns ranges of pages with equal protection; a VAD is a whole allocation with its first
protection. So adjacent ranges of one AllocationBase become one region, which keeps the present protection of
its pages. Memory that no stream describes is a region of its own: private as far as is known, its protection
unknown.

Source of the constants: winnt.h (PAGE_*, MEM_*).
"""

from __future__ import annotations

from functools import cached_property
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from ..memory.decode.pagetable import round_to_pages
from ..memory.decode.ranges import flatten
from ..memory.image import AddressSpace, Image
from ..process.regions import PageRange, Region
from .decode.dumpfile import Minidump
from .decode.memory import MemoryInfo, MemoryRange, memory_info_list
from .decode.modules import module_list
from .decode.threadstates import INCOMPLETE_REGIONS, mapped_files, thread_states
from .modules import sized_modules

FREE = 0x10000
_COMMIT = 0x1000
_STATES = {_COMMIT: "MEM_COMMIT", 0x2000: "MEM_RESERVE"}
TYPE_MAPPED, TYPE_IMAGE = 0x40000, 0x1000000
PAGES = (1, 2, 0x10, 0x20, 4, 8, 0x40, 0x80)
"""PAGE_* in the order of PROTECTIONS."""
_GUARD, _NOCACHE, _WRITECOMBINE = 0x100, 0x200, 0x400


class DumpRegions:
    """Lists the memory regions of a dump: the provider of `regions`."""

    def __init__(self, image: Image, dump: Minidump, memory: Callable[[], Sequence[MemoryRange]]) -> None:
        self._image = image
        self._dump = dump
        self._memory = memory

    @cached_property
    def _paths(self) -> Dict[int, Optional[str]]:
        names: Dict[int, Set[Optional[str]]] = {}
        for module in module_list(self._dump)[0]:
            names.setdefault(module.BaseOfImage, set()).add(module.ModuleName)
        # Two modules at one base: the list contradicts itself, and names neither file.
        modules = {base: next(iter(found)) if len(found) == 1 else None for base, found in names.items()}
        return {**modules, **mapped_files(self._dump)[0]}

    @cached_property
    def _regions(self) -> Tuple[List[Region], bool]:
        infos, faults = memory_info_list(self._dump)
        cut = thread_states(self._dump).flags & INCOMPLETE_REGIONS
        if infos and not faults and not cut:
            return _joined(infos), True
        return self._with_memory(infos), False

    def _with_memory(self, infos: List[MemoryInfo]) -> List[Region]:
        """Returns the listed regions, and between them the regions of modules and of other memory."""
        canonical = self._image.machine.canonical
        known: List[Tuple[int, int, Optional[Region]]] = [
            (region.start, region.end, region) for region in _joined(infos)
        ]
        known += [(info.BaseAddress, info.BaseAddress + info.RegionSize, None) for info in infos]
        for module in sized_modules(self._image, self._dump)[0]:
            base = canonical(module.BaseOfImage)
            end = base + round_to_pages(module.SizeOfImage)
            known.append((base, end, Region(base, end, base, True, protection=None)))
        for start, _, length in self._memory():
            low = canonical(start)
            known.append((low, low + length, Region(low, low + length, 0, False, protection=None)))
        return [
            region if (low, high) == (region.start, region.end) else region._replace(start=low, end=high)
            for low, high, region in flatten([span for span in known if span[0] < span[1]])
            if region is not None
        ]

    def list_regions(self, space: AddressSpace) -> Tuple[List[Region], bool]:
        """Returns the regions of the process, ascending, and whether the list is complete."""
        regions, whole = self._regions
        return list(regions), whole

    def file_name(self, control_area: int) -> Optional[str]:
        """Returns the path of the file that is mapped at a base; None if the dump does not name it."""
        return self._paths.get(control_area)


def _joined(infos: List[MemoryInfo]) -> List[Region]:
    """Returns a region for each run of adjacent ranges of one allocation."""
    found: List[Tuple[Region, List[PageRange]]] = []
    base: Optional[int] = None
    for info in sorted(infos, key=lambda info: info.BaseAddress):
        if info.State == FREE or not info.RegionSize:
            base = None
            continue
        start, end = info.BaseAddress, info.BaseAddress + info.RegionSize
        state = _STATES.get(info.State, "")
        if found and base == info.AllocationBase and found[-1][0].end == start:
            region, pages = found[-1]
            found[-1] = region._replace(end=end, state=state if state == region.state else ""), pages
        else:
            base = info.AllocationBase
            shared = info.Type in (TYPE_MAPPED, TYPE_IMAGE)
            area, first = info.AllocationBase if shared else 0, _protection(info.AllocationProtect)
            found.append((Region(start, end, area, info.Type == TYPE_IMAGE, 0, first, state), []))
        if info.State == _COMMIT:
            found[-1][1].append(PageRange(start, end, _protection(info.Protect)))
    return [region._replace(pages=tuple(pages)) for region, pages in found]


def _protection(pages: int) -> int:
    """Returns VadFlags.Protection for a PAGE_* value: an index into PROTECTIONS, with the modifiers above."""
    low = PAGES.index(pages & 0xFF) if pages & 0xFF in PAGES else 0
    modifier = 2 if pages & _GUARD else 1 if pages & _NOCACHE else 3 if pages & _WRITECOMBINE else 0
    return low | modifier << 3
