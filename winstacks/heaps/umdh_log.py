# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Makes a UMDH log of the blocks of a process, and reads an earlier log for comparison."""

from __future__ import annotations

from operator import attrgetter
from typing import Dict, Iterable, List, Sequence, Tuple

from ..memory.decode.ranges import span_at
from ..memory.image import Image
from ..names.usermodules import UserModules
from ..process.regions import mapped_path
from ..process.spaces import AddressSpace
from ..process.vads import regions
from .decode.block import UNKNOWN_SIZE, TraceGroup
from .decode.umdh import Allocation, UmdhHeap, UmdhLog, UmdhModule


def loaded_modules(image: Image, space: AddressSpace) -> Tuple[UmdhModule, ...]:
    """Returns the modules of one half of a process, sorted by address, each with its path in the image."""
    vads = image.service(regions)
    listed = image.service(UserModules).list_modules([space], 1 << 8 * space.pointer_size)
    modules = []
    for module in listed.modules:
        path = mapped_path(vads, span_at(listed.vads, module.base))
        modules.append(UmdhModule(module.base, module.size, path or module.file))
    return tuple(modules)


def log_of(groups: Iterable[TraceGroup], modules: Sequence[UmdhModule]) -> Tuple[UmdhLog, int]:
    """Returns a log of the blocks that are in use, name a trace and have a known size, and the number of
    blocks in use that are not in it."""
    heaps: Dict[int, List[Allocation]] = {}
    traces: Dict[int, Tuple[int, ...]] = {}
    left_out = 0
    for group in groups:
        if group.freed:
            continue
        for block in group.blocks:
            if block.trace is None or block.size == UNKNOWN_SIZE:
                left_out += 1
                continue
            # The ID of the trace.
            number = block.trace.address or block.trace.trace_index or block.user
            traces.setdefault(number, group.stack)
            allocation = Allocation(block.size, block.overhead, block.user, number)
            heaps.setdefault(block.heap, []).append(allocation)
    logs = tuple(
        UmdhHeap(heap, tuple(sorted(heaps[heap], key=attrgetter("address")))) for heap in sorted(heaps)
    )
    return UmdhLog(tuple(modules), logs, traces), left_out
