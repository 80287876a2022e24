# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory regions of a dump: MemoryInfoListStream, or without it the ranges of modules and stacks.

VirtualQuery returns ranges of pages with equal protection; a VAD is a whole allocation with its first
protection. So adjacent ranges of one AllocationBase become one region.

Source of the constants: winnt.h (PAGE_*, MEM_*).
"""

from __future__ import annotations

from functools import cached_property
from typing import Dict, List, Optional, Tuple

from ..memory.decode.pagetable import round_to_pages
from ..memory.image import AddressSpace, Image
from ..process.regions import Region
from .decode.dumpfile import Minidump
from .decode.memory import MemoryInfo, has_memory_info, memory_info_list
from .decode.modules import module_list
from .decode.threadstates import INCOMPLETE_REGIONS, mapped_files, thread_states

FREE = 0x10000
_STATES = {0x1000: "MEM_COMMIT", 0x2000: "MEM_RESERVE"}
TYPE_MAPPED, TYPE_IMAGE = 0x40000, 0x1000000
PAGES = (1, 2, 0x10, 0x20, 4, 8, 0x40, 0x80)
"""PAGE_* in the order of PROTECTIONS."""
_GUARD, _NOCACHE, _WRITECOMBINE = 0x100, 0x200, 0x400


class DumpRegions:
    """Lists the memory regions of a dump: the provider of `regions`.

    Args:
        image: the image of the dump
        dump: its file
    """

    def __init__(self, image: Image, dump: Minidump) -> None:
        self._image = image
        self._dump = dump

    @cached_property
    def _paths(self) -> Dict[int, Optional[str]]:
        modules = {module.BaseOfImage: module.ModuleName for module in module_list(self._dump)[0]}
        return {**modules, **mapped_files(self._dump)[0]}

    @cached_property
    def _regions(self) -> Tuple[List[Region], bool]:
        infos, faults = memory_info_list(self._dump)
        if has_memory_info(self._dump) and infos:
            states = thread_states(self._dump)
            cut = states is not None and states.flags & INCOMPLETE_REGIONS
            return _joined(infos), not faults and not cut
        modules, _ = module_list(self._dump)
        return [
            Region(
                module.BaseOfImage,
                module.BaseOfImage + round_to_pages(module.SizeOfImage),
                module.BaseOfImage,
                True,
            )
            for module in modules
            if module.SizeOfImage
        ], False

    def list_regions(self, space: AddressSpace) -> Tuple[List[Region], bool]:
        """Returns the regions of the process, and whether the list is complete."""
        regions, whole = self._regions
        return list(regions), whole

    def file_name(self, control_area: int) -> Optional[str]:
        """Returns the path of the file that is mapped at a base; None if the dump does not name it."""
        return self._paths.get(control_area)


def _joined(infos: List[MemoryInfo]) -> List[Region]:
    """Returns a region for each run of adjacent ranges of one allocation."""
    found: List[Region] = []
    base: Optional[int] = None
    for info in sorted(infos, key=lambda info: info.BaseAddress):
        if info.State == FREE or not info.RegionSize:
            base = None
            continue
        start, end = info.BaseAddress, info.BaseAddress + info.RegionSize
        state = _STATES.get(info.State, "")
        if found and base == info.AllocationBase and found[-1].end == start:
            last = found[-1]
            found[-1] = last._replace(end=end, state=state if state == last.state else "")
            continue
        base = info.AllocationBase
        shared = info.Type in (TYPE_MAPPED, TYPE_IMAGE)
        found.append(
            Region(
                start,
                end,
                info.AllocationBase if shared else 0,
                info.Type == TYPE_IMAGE,
                protection=_protection(info.AllocationProtect),
                state=state,
            )
        )
    return found


def _protection(pages: int) -> int:
    """Returns VadFlags.Protection for a PAGE_* value: an index into PROTECTIONS, with the modifiers above."""
    low = PAGES.index(pages & 0xFF) if pages & 0xFF in PAGES else 0
    modifier = 2 if pages & _GUARD else 1 if pages & _NOCACHE else 3 if pages & _WRITECOMBINE else 0
    return low | modifier << 3
