# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""UMDH's raw log: the blocks of each heap with the traces that allocated them, as text.

Source: Microsoft's "Using UMDH to Find a User-Mode Memory Leak", and logs that other tools write for UMDH.
Numbers are upper-case hexadecimal without prefix, lines end in CR LF.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ...base.decode import text

NO_PATH = "?"
_SPACE = "\\x20"
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
    """A text that is no raw UMDH log."""


class Module(NamedTuple):
    """A loaded module: where it is, its size in bytes and its path, which an image may have chosen freely."""

    base: int
    size: int
    path: str

    @property
    def written(self) -> str:
        """The path as a log has it: one that is read from a log stays as it is.

        It is escaped, so that it ends no line, and begins and ends with what the reader keeps.
        """
        shown = text.printable(self.path, _MAX_PATH) or NO_PATH
        first, last = len(shown) - len(shown.lstrip()), len(shown.rstrip())
        return _SPACE * first + shown[first:last] + _SPACE * (len(shown) - max(first, last))


class Allocation(NamedTuple):
    """A block: the bytes asked for, the bytes wasted on it, its address, the ID of its trace."""

    size: int
    overhead: int
    address: int
    trace: int


class HeapLog(NamedTuple):
    """A heap's part of a log."""

    heap: int
    allocations: Tuple[Allocation, ...]


class Log(NamedTuple):
    """A raw log. `traces` are the frames, innermost first, by the ID of the trace."""

    modules: Tuple[Module, ...]
    heaps: Tuple[HeapLog, ...]
    traces: Dict[int, Tuple[int, ...]]


def write(log: Log) -> Iterator[str]:
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


def parse(lines: Iterable[str]) -> Log:
    """Reads a raw log.

    Args:
        lines: of the text, with or without their ends

    Raises:
        UmdhError: when it holds no heap's data, or among a heap's blocks something that does not belong there
    """
    parser = _Parser()
    for number, line in enumerate(lines, 1):
        try:
            parser.line(line.rstrip())
        except UmdhError as error:
            raise UmdhError(f"line {number}: {error}") from None
    return parser.log()


class _Parser:
    """Takes a log's lines in order; between heaps, and before a heap's blocks, any text may stand."""

    def __init__(self) -> None:
        self._modules: List[Module] = []
        self._heaps: List[HeapLog] = []
        self._traces: Dict[int, Tuple[int, ...]] = {}
        self._heap: Optional[int] = None
        self._blocks: Optional[List[Allocation]] = None
        self._stack: List[int] = []

    def line(self, line: str) -> None:
        """Takes the next line, without its end."""
        if self._blocks is not None and self._heap is not None:
            self._data(self._heap, self._blocks, line)
        elif self._heap is not None:
            if _HOGS.match(line):
                self._blocks = []
        else:
            self._outside(line)

    def log(self) -> Log:
        """Returns what the lines were."""
        if self._heap is not None:
            raise UmdhError(f"the data of heap {self._heap:X} has no end")
        if not self._heaps:
            raise UmdhError("there is no heap's data in it")
        return Log(tuple(self._modules), tuple(self._heaps), self._traces)

    def _outside(self, line: str) -> None:
        start, module = _START.match(line), _MODULE.fullmatch(line)
        if start:
            self._heap = int(start.group(1), 16)
        elif module:
            base, size, path = module.groups()
            self._modules.append(Module(int(base, 16), int(size, 16), path))

    def _data(self, heap: int, blocks: List[Allocation], line: str) -> None:
        block, frame = _BLOCK.fullmatch(line), _STACK_FRAME.fullmatch(line)
        if frame and blocks:
            self._stack.append(int(frame.group(1), 16))
            return
        if self._stack:
            self._traces.setdefault(blocks[-1].trace, tuple(self._stack))
            self._stack = []
        if block:
            size, overhead, address, trace = (int(group, 16) for group in block.groups())
            blocks.append(Allocation(size, overhead, address, trace))
        elif _END.match(line):
            self._heaps.append(HeapLog(heap, tuple(blocks)))
            self._heap = self._blocks = None
        elif line:
            raise UmdhError("neither a block nor a frame")
