# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What grew between two UMDH logs, trace by trace, as `umdh -d` tells it."""

from __future__ import annotations

import bisect
import ntpath
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple, Union

from .umdh import Log, Module

Frame = Union[int, Tuple[str, int]]
Stack = Tuple[Frame, ...]


class Total(NamedTuple):
    """How many blocks a trace allocated and how many bytes were asked for."""

    allocations: int
    size: int


NOTHING = Total(0, 0)


class Places:
    """Says of an address which module it is in, so that a stack is the same one after a restart.

    Args:
        modules: the loaded modules
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        self._modules = sorted(modules)
        self._bases = [module.base for module in self._modules]
        self._named = {_name(module): module.base for module in self._modules}

    def stack(self, frames: Sequence[int]) -> Stack:
        """Returns frames as (module's name, offset), or as addresses where no module is."""
        return tuple(self._frame(address) for address in frames)

    def address(self, frame: Frame) -> int:
        """Returns where a frame lies here; where its module is not loaded, its offset."""
        if isinstance(frame, int):
            return frame
        name, offset = frame
        return self._named.get(name, 0) + offset

    def _frame(self, address: int) -> Frame:
        position = bisect.bisect_right(self._bases, address) - 1
        if position >= 0:
            module = self._modules[position]
            if address < module.base + module.size:
                return _name(module), address - module.base
        return address


def totals(log: Log) -> Dict[Stack, Total]:
    """Returns what each stack of a log allocated, over all heaps; traces without frames are left out."""
    places = Places(log.modules)
    stacks = {trace: places.stack(frames) for trace, frames in log.traces.items() if frames}
    found: Dict[Stack, List[int]] = {}
    for heap in log.heaps:
        for each in heap.allocations:
            stack = stacks.get(each.trace)
            if stack is not None:
                total = found.setdefault(stack, [0, 0])
                total[0] += 1
                total[1] += each.size
    return {stack: Total(*total) for stack, total in found.items()}


class Growth:
    """What a process's blocks are compared with.

    Args:
        baseline: the earlier log
        modules: the modules that are loaded now
    """

    def __init__(self, baseline: Log, modules: Iterable[Module]) -> None:
        self._places = Places(modules)
        self._before = totals(baseline)

    def take(self, frames: Sequence[int]) -> Total:
        """Returns what the baseline has of a stack; asked a second time, nothing."""
        return self._before.pop(self._places.stack(frames), NOTHING)

    def left(self) -> List[Tuple[Tuple[int, ...], Total]]:
        """Returns the stacks that were not asked for, as addresses of now; that of most bytes last."""
        rest = sorted(self._before.items(), key=_size)
        return [(tuple(map(self._places.address, stack)), total) for stack, total in rest]


def _size(item: Tuple[Stack, Total]) -> Tuple[int, int]:
    return item[1].size, item[1].allocations


def _name(module: Module) -> str:
    return ntpath.basename(module.path).lower()
