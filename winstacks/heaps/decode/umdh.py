# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""UMDH's raw log: the blocks of each heap with their traces, as text; and the growth between two logs.

Source: Microsoft's "Using UMDH to Find a User-Mode Memory Leak", and logs that other tools write for UMDH.
Numbers are upper-case hexadecimal without prefix, lines end in CR LF. Growth is counted trace by trace, as by
`umdh -d`.
"""

from __future__ import annotations

import bisect
import ntpath
import re
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from ...memory.decode import text
from ...memory.decode.records import NamedTuple
from .block import TraceGroup

Frame = Union[int, Tuple[str, int]]
Stack = Tuple[Frame, ...]

NO_PATH = "?"
_SPACE = "\\x20"
_MAX_FRAMES = 0x400
"""The longest stack that is accepted, in frames; traces of heaps are far shorter."""
_MAX_PATH = 0x7FFF  # characters of a UNICODE_STRING

_HEADER = "// Loaded modules:\r\n//     Base Size Module\r\n"
_FRAME = "*- - - - - - - - - - {} - - - - - - - - - -\r\n"
_EXPLANATION = "REQUESTED bytes + OVERHEAD at ADDRESS by BackTraceID\r\n     STACK if not already dumped.\r\n"

_MODULE = re.compile(r"//\s+([0-9A-F]{4,16}) ([0-9A-F]+) (\S.*)", re.IGNORECASE)
_START = re.compile(r"\*[- ]+Start of data for heap @ ([0-9A-F]{1,16})\b", re.IGNORECASE)
_HOGS = re.compile(r"\*[- ]+Heap [0-9A-F]{1,16} Hogs\b", re.IGNORECASE)
_END = re.compile(r"\*[- ]+End of data for heap @ ", re.IGNORECASE)
_BLOCK = re.compile(
    r"([0-9A-F]{1,16}) bytes \+ ([0-9A-F]{1,16}) at ([0-9A-F]{1,16}) by BackTrace([0-9A-F]{1,16})",
    re.IGNORECASE,
)
_STACK_FRAME = re.compile(r"\s+([0-9A-F]{1,16})", re.IGNORECASE)


class UmdhError(ValueError):
    """The text is not a raw UMDH log."""


class UmdhModule(NamedTuple):
    """A loaded module: base address, size in bytes, and path; an image may hold any text as a path."""

    base: int
    size: int
    path: str

    @property
    def written(self) -> str:
        """The path in the form of a log; a path that was read from a log stays as it is.

        Characters that would end the line are escaped, and so are blanks at both ends, which readers strip.
        """
        shown = text.printable(self.path, _MAX_PATH) or NO_PATH
        first, last = len(shown) - len(shown.lstrip()), len(shown.rstrip())
        return _SPACE * first + shown[first:last] + _SPACE * (len(shown) - max(first, last))


class Allocation(NamedTuple):
    """A block: bytes asked for, bytes of overhead, address, and ID of its trace."""

    size: int
    overhead: int
    address: int
    trace: int


class UmdhHeap(NamedTuple):
    """The part of a log that describes one heap."""

    heap: int
    allocations: Tuple[Allocation, ...]


class UmdhLog(NamedTuple):
    """A raw log. `traces` maps the ID of a trace to its frames, innermost first."""

    modules: Tuple[UmdhModule, ...]
    heaps: Tuple[UmdhHeap, ...]
    traces: Dict[int, Tuple[int, ...]]


def write(log: UmdhLog) -> Iterator[str]:
    """Yields the text of a raw log piece by piece, line ends included."""
    yield _HEADER
    for module in log.modules:
        yield f"//    {module.base:016X} {module.size:08X} {module.written}\r\n"
    yield "//\r\n\r\n"
    dumped = set()
    for heap in log.heaps:
        yield _FRAME.format(f"Start of data for heap @ {heap.heap:X}") + "\r\n"
        yield _EXPLANATION + "\r\n"
        yield _FRAME.format(f"Heap {heap.heap:X} Hogs") + "\r\n"
        for size, overhead, address, trace in heap.allocations:
            yield f"{size:X} bytes + {overhead:X} at {address:X} by BackTrace{trace:X}\r\n"
            if trace not in dumped:
                dumped.add(trace)
                frames = log.traces.get(trace, ())
                yield "\r\n" + "".join(f"\t{frame:X}\r\n" for frame in frames) + "\r\n"
        yield _FRAME.format(f"End of data for heap @ {heap.heap:X}") + "\r\n"


def parse(lines: Iterable[str]) -> UmdhLog:
    """Reads a raw log. Raises UmdhError if the text has no data of a heap, or a line among a heap's blocks is
    not a block."""
    parser = _Parser()
    for number, line in enumerate(lines, 1):
        try:
            parser.line(line.rstrip())
        except UmdhError as error:
            raise UmdhError(f"line {number}: {error}") from None
    return parser.log()


class _Parser:
    """Parses a log's lines in order; between heaps, and before a heap's blocks, any text may stand."""

    def __init__(self) -> None:
        self._modules: List[UmdhModule] = []
        self._heaps: List[UmdhHeap] = []
        self._traces: Dict[int, Tuple[int, ...]] = {}
        self._heap: Optional[int] = None
        self._blocks: Optional[List[Allocation]] = None
        self._stack: List[int] = []

    def line(self, line: str) -> None:
        """Parses the next line, without its line end."""
        if self._blocks is not None and self._heap is not None:
            self._data(self._heap, self._blocks, line)
        elif self._heap is not None:
            if _HOGS.match(line):
                self._blocks = []
        else:
            self._outside(line)

    def log(self) -> UmdhLog:
        if self._heap is not None:
            raise UmdhError(f"the data of heap {self._heap:X} has no end")
        if not self._heaps:
            raise UmdhError("it has no data of a heap")
        return UmdhLog(tuple(self._modules), tuple(self._heaps), self._traces)

    def _outside(self, line: str) -> None:
        start, module = _START.match(line), _MODULE.fullmatch(line)
        if start:
            self._heap = int(start.group(1), 16)
        elif module:
            base, size, path = module.groups()
            self._modules.append(UmdhModule(int(base, 16), int(size, 16), path))

    def _data(self, heap: int, blocks: List[Allocation], line: str) -> None:
        block, frame = _BLOCK.fullmatch(line), _STACK_FRAME.fullmatch(line)
        if frame and blocks:
            self._stack.append(int(frame.group(1), 16))
            if len(self._stack) > _MAX_FRAMES:
                raise UmdhError(f"a stack has more than {_MAX_FRAMES} frames")
            return
        if self._stack:
            self._traces.setdefault(blocks[-1].trace, tuple(self._stack))
            self._stack = []
        if block:
            size, overhead, address, trace = (int(group, 16) for group in block.groups())
            blocks.append(Allocation(size, overhead, address, trace))
        elif _END.match(line):
            self._heaps.append(UmdhHeap(heap, tuple(blocks)))
            self._heap = self._blocks = None
        elif line:
            raise UmdhError("the line is neither a block nor a frame")


class Total(NamedTuple):
    """The number of blocks that a trace allocated, and of bytes asked for."""

    allocations: int
    size: int


NOTHING = Total(0, 0)


class Change(NamedTuple):
    """The growth of a stack in blocks and bytes; both None if it has blocks of unknown size."""

    allocations: Optional[int]
    size: Optional[int]


UNKNOWN = Change(None, None)


class Places:
    """Maps addresses to modules and offsets, so that a stack is equal to itself after a restart."""

    def __init__(self, modules: Iterable[UmdhModule]) -> None:
        self._modules = sorted(modules)
        self._bases = [module.base for module in self._modules]
        self._named = {_name(module): module.base for module in self._modules}

    def stack(self, frames: Sequence[int]) -> Stack:
        """Returns frames as (module's name, offset), or as addresses outside all modules."""
        return tuple(self._frame(address) for address in frames)

    def address(self, frame: Frame) -> int:
        """Returns the address of a frame in this process; the offset if its module is not loaded."""
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


def totals(log: UmdhLog) -> Dict[Stack, Total]:
    """Returns the total of each stack of a log over all heaps; traces without frames are left out."""
    places = Places(log.modules)
    stacks = {trace: places.stack(frames) for trace, frames in log.traces.items() if frames}
    sums: Dict[Stack, List[int]] = {}
    for heap in log.heaps:
        for allocation in heap.allocations:
            stack = stacks.get(allocation.trace)
            if stack is not None:
                total = sums.setdefault(stack, [0, 0])
                total[0] += 1
                total[1] += allocation.size
    return {stack: Total(*total) for stack, total in sums.items()}


class Growth:
    """Compares the blocks of a process with an earlier log, stack by stack, over all heaps and statuses."""

    def __init__(
        self, baseline: UmdhLog, modules: Iterable[UmdhModule], groups: Iterable[TraceGroup]
    ) -> None:
        self._places = Places(modules)
        self._before = totals(baseline)
        self._now: Dict[Stack, List[TraceGroup]] = {}
        self._others: List[TraceGroup] = []
        for group in groups:
            if group.comparable:
                self._now.setdefault(self._places.stack(group.stack), []).append(group)
            else:
                self._others.append(group)

    def compared(self) -> List[Tuple[TraceGroup, Optional[Change]]]:
        """Returns the groups, sorted by stack; the stack with the largest growth comes first.

        The first group of a stack has the growth of the whole stack, the others None. Groups that no log
        contains (freed blocks, unknown stacks) have None, too.
        """
        stacks = [(self._change(stack), groups) for stack, groups in self._now.items()]
        stacks.sort(key=_growth)
        rows: List[Tuple[TraceGroup, Optional[Change]]] = []
        for change, groups in stacks:
            rows.append((groups[0], change))
            rows += ((group, None) for group in groups[1:])
        return rows + [(group, None) for group in self._others]

    def left(self) -> List[Tuple[Tuple[int, ...], Total]]:
        """Returns the stacks of the log without a busy block now, as present addresses; most bytes last."""
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


def _growth(item: Tuple[Change, List[TraceGroup]]) -> Tuple[bool, int]:
    size = item[0].size
    return size is None, -(size or 0)


def _size(item: Tuple[Stack, Total]) -> Tuple[int, int]:
    return item[1].size, item[1].allocations


def _name(module: UmdhModule) -> str:
    return ntpath.basename(module.written).lower()
