# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What grew between two UMDH logs, trace by trace, as `umdh -d` tells it."""

from __future__ import annotations

import bisect
import ntpath
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from .groups import Group
from .umdh import Log, Module

Frame = Union[int, Tuple[str, int]]
Stack = Tuple[Frame, ...]


class Total(NamedTuple):
    """How many blocks a trace allocated and how many bytes were asked for."""

    allocations: int
    size: int


NOTHING = Total(0, 0)


class Change(NamedTuple):
    """By how many blocks and bytes a stack grew; both None when it has blocks of unknown size."""

    allocations: Optional[int]
    size: Optional[int]


UNKNOWN = Change(None, None)


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
    """What the blocks of a process are compared with: stack by stack, whatever the blocks' status and heap.

    Args:
        baseline: the earlier log
        modules: the modules that are loaded now
        groups: the blocks of now
    """

    def __init__(self, baseline: Log, modules: Iterable[Module], groups: Iterable[Group]) -> None:
        self._places = Places(modules)
        self._before = totals(baseline)
        self._now: Dict[Stack, List[Group]] = {}
        self._others: List[Group] = []
        for group in groups:
            if group.comparable:
                self._now.setdefault(self._places.stack(group.stack), []).append(group)
            else:
                self._others.append(group)

    def compared(self) -> List[Tuple[Group, Optional[Change]]]:
        """Returns the groups, those of a stack together, the stack that grew most first.

        Of each stack the first group has the growth of them all; the others have None, as have groups that no
        log knows of (freed blocks, and those of unknown stack).
        """
        stacks = [(self._change(stack), groups) for stack, groups in self._now.items()]
        stacks.sort(key=_growth)
        found: List[Tuple[Group, Optional[Change]]] = []
        for change, groups in stacks:
            found.append((groups[0], change))
            found += ((group, None) for group in groups[1:])
        return found + [(group, None) for group in self._others]

    def left(self) -> List[Tuple[Tuple[int, ...], Total]]:
        """Returns the stacks that no block in use has now, as addresses of now; that of most bytes last."""
        rest = sorted((item for item in self._before.items() if item[0] not in self._now), key=_size)
        return [(tuple(map(self._places.address, stack)), total) for stack, total in rest]

    def _change(self, stack: Stack) -> Change:
        groups = self._now[stack]
        if any(group.unsized for group in groups):
            return UNKNOWN
        before = self._before.get(stack, NOTHING)
        return Change(
            sum(group.allocations for group in groups) - before.allocations,
            sum(group.size for group in groups) - before.size,
        )


def _growth(item: Tuple[Change, List[Group]]) -> Tuple[bool, int]:
    size = item[0].size
    return size is None, -(size or 0)


def _size(item: Tuple[Stack, Total]) -> Tuple[int, int]:
    return item[1].size, item[1].allocations


def _name(module: Module) -> str:
    return ntpath.basename(module.written).lower()
