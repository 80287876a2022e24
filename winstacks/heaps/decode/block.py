# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A block of any kind of heap, and the grouping of blocks by the trace that allocated them."""

from __future__ import annotations

from operator import attrgetter
from typing import Dict, List, Optional, Set, Tuple

from ...columns.words import INLINE
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, status, text
from ...memory.decode.statuscodes import StatusCode
from ...tracedb.decode.recorded import RecordedStack

UNKNOWN_SIZE = -1
DAMAGED = status(StatusCode.DAMAGED)
UNREADABLE = status(StatusCode.UNREADABLE)
OF_THE_FREE = status(StatusCode.STACK_OF_THE_FREE)
UNPROVEN = status(StatusCode.STACK_OF_ALLOCATION_OR_FREE)
_TOO_MUCH = 1 << 47  # bytes: more than a process has addresses


class Block(NamedTuple):
    """A block of a heap.

    Attributes:
        user: address of the caller's bytes
        size: bytes that the caller asked for, UNKNOWN_SIZE if neither header nor extension has them
        overhead: bytes of the heap that the block takes beyond these
        form: a word of `words.BLOCK_KINDS`; no caller allocated an `lfh container`
        freed: whether the caller has freed it
        trace: the trace that the block names, None if it names none; for a freed block see `status`
        std_index: index of a second trace, in the stack trace database; 0 for none
        status: empty; `damaged`: the header or the second header is broken; `unreadable`: the second header
            is not present; `not-read`: see `segmentheap`. For a freed block `stack of the free`: the trace
            shows who freed the block, and has replaced the trace of the allocation; `stack of allocation or
            free`: which of the two the trace shows is unknown
    """

    heap: int
    user: int
    size: int
    overhead: int
    form: str
    freed: bool
    trace: Optional[RecordedStack]
    std_index: int
    status: Status


def sized(whole: int, unused: Optional[int], block_status: Status) -> Tuple[int, int, Status]:
    """Returns the caller's bytes of a block, the overhead, and the status: an impossible size is damage."""
    if unused is None:
        return UNKNOWN_SIZE, 0, block_status
    if not 0 <= unused <= whole < _TOO_MUCH:
        return UNKNOWN_SIZE, 0, DAMAGED
    return whole - unused, unused, block_status


class TraceGroup(NamedTuple):
    """The blocks of one trace that are alike in `freed` and `status`.

    Attributes:
        trace: None for blocks that name none
        size: bytes that the callers asked for, in the blocks whose size is known
        unsized: number of blocks whose size is unknown
        blocks: the blocks, sorted by address; empty if `TraceGroups` does not keep blocks
    """

    trace: Optional[RecordedStack]
    freed: bool
    status: Status
    allocations: int
    size: int
    unsized: int
    heaps: Tuple[int, ...]
    blocks: Tuple[Block, ...]

    @property
    def stack(self) -> Tuple[int, ...]:
        """The frames, if all of them are known."""
        frames = self.trace.frames if self.trace is not None else ()
        readable = tuple(frame for frame in frames if frame is not None)
        return readable if len(readable) == len(frames) else ()

    @property
    def joined_status(self) -> Status:
        """Status of the blocks, joined with the status of their trace."""
        return status(
            StatusCode.FREED if self.freed else None,
            self.status if self.freed else None,
            StatusCode.UNTRACED if self.trace is None else None,
            StatusCode.UNSIZED if self.unsized else None,
            self.status,
            None if self.trace is None else self.trace.status,
        )

    @property
    def comparable(self) -> bool:
        """Whether these are blocks in use of a known stack, as a UMDH log has them."""
        return bool(self.stack) and not self.freed


class TraceGroups:
    """Collects blocks."""

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._groups: Dict[Tuple[object, ...], _Sum] = {}

    def add(self, block: Block) -> None:
        key = (_identity(block.trace), block.freed, block.status)
        total = self._groups.get(key)
        if total is None:
            total = self._groups[key] = _Sum(block)
        total.add(block, self._keep)

    def groups(self) -> List[TraceGroup]:
        """Returns the groups, the one with most bytes first."""
        return sorted((total.group() for total in self._groups.values()), key=_order)


class _Sum:
    def __init__(self, first: Block) -> None:
        self._first = first
        self._allocations = self._size = self._unsized = 0
        self._heaps: Set[int] = set()
        self._blocks: List[Block] = []

    def add(self, block: Block, keep: bool) -> None:
        self._allocations += 1
        if block.size == UNKNOWN_SIZE:
            self._unsized += 1
        else:
            self._size += block.size
        self._heaps.add(block.heap)
        if keep:
            self._blocks.append(block)

    def group(self) -> TraceGroup:
        first = self._first
        return TraceGroup(
            first.trace,
            first.freed,
            first.status,
            self._allocations,
            self._size,
            self._unsized,
            tuple(sorted(self._heaps)),
            tuple(sorted(self._blocks, key=attrgetter("user"))),
        )


def _identity(trace: Optional[RecordedStack]) -> Tuple[object, ...]:
    """Returns the identity of a trace: its address and index, or its frames if a block holds it inline."""
    if trace is None:
        return ()
    if trace.kind == INLINE and trace.frames:
        return trace.kind, trace.frames
    return trace.kind, trace.address, trace.trace_index


def _order(group: TraceGroup) -> Tuple[int, int, int, str]:
    place = group.trace.address if group.trace else 0
    return -group.size, -group.allocations, place, text(group.status)
