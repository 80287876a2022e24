# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the trace of a heap block: by record, by index, by database entry, or in the block itself.

Source: records of the heap's log as ntdll of 7601.24384 and 19044.1766 wrote them, and the traces that a
block of 7 to 8.1 may hold itself as 7601.17514 wrote them (x64; the x86 form is inferred). That page heap
names entries of a stack trace database: from public write-ups.
"""

from __future__ import annotations

import functools
import struct
from typing import Callable, Dict, Iterable, NamedTuple, Optional, Tuple

from ...memory.decode.machine import POINTER_CODES
from ...memory.decode.memory import Memory
from ...memory.decode.status import NOTHING, Status, Word, status
from ...memory.decode.structure import Structure, Structures

LOG = "log"
DATABASE = "std"
INLINE = "inline"

UNREADABLE = status(Word.UNREADABLE)
HASH = status(Word.HASH)
UNSURE = status(Word.UNSURE)
NO_DATABASE = status(Word.NO_DATABASE)
NO_SUCH_INDEX = status(Word.NO_SUCH_INDEX)


class BlockTrace(NamedTuple):
    """A trace that a block names.

    Attributes:
        kind: where it is: `log` (the heap's), `std` (a stack trace database), `inline` (the block itself)
        address: of its record or entry, 0 when that is not known
        std_index: its index in the stack trace database, 0 when it has none
        frames: return addresses, innermost first; one that is overwritten or not present is None
        status: empty, what the database says of the trace, `unreadable` (not in the image), `hash` (what the
            block names is no record), `no such index`, `no database` (none is known that the trace is in),
            `unsure` (nothing confirms the frames)
        full: there are as many frames as Windows keeps: outer ones may be missing
    """

    kind: str
    address: int
    std_index: int
    frames: Tuple[Optional[int], ...]
    status: Status = NOTHING
    full: bool = False


class Traces:
    """Reads traces, those of the log once each.

    Args:
        memory: the process's
        log: the structures of the heap's log and of a trace within a block, of its bitness
        entry: `_RTL_STACK_TRACE_ENTRY`, of a database that page heap names
        database: returns the traces of the process's stack trace database; called at the first
            index or entry that is looked up
    """

    def __init__(
        self,
        memory: Memory,
        log: Structures,
        entry: Structure,
        database: Callable[[], Iterable[BlockTrace]] = tuple,
    ) -> None:
        self._memory = memory
        self._database = database
        self._records: Dict[int, BlockTrace] = {}
        self._pointer_size = memory.pointer_size
        self._frame = POINTER_CODES[self._pointer_size]
        record, prefix = log["_RTLP_HEAP_STACK_TRACE_RECORD"], log["_RTLP_STACK_TRACE_PREFIX"]
        frames, back_trace = record.field("Frames"), entry.field("BackTrace")
        self._head, self._max_depth = frames.offset, frames.size // self._pointer_size
        self._record = record.reader("Hash", "Depth")
        self._prefix = prefix.reader("Depth", "Sum")
        self._prefix_head = prefix.offset("Frames")
        self._entry_head, self._entry_max = back_trace.offset, back_trace.size // self._pointer_size
        self._entry = entry.reader("Index", "Depth")
        self._index_high = entry.find("IndexHigh")

    def record(self, address: int) -> BlockTrace:
        """Returns the record of the heap's log at an address; its hash must confirm it."""
        found = self._records.get(address)
        if found is None:
            found = self._records[address] = self._read(address)
        return found

    def inline(self, address: int, end: int, depth: int) -> BlockTrace:
        """Returns the trace that a block holds.

        Args:
            address: where it begins
            end: where it must end
            depth: what the block says of its depth: how many frames there is room for
        """
        room = (end - address - self._prefix_head) // self._pointer_size
        if not 0 < depth <= min(room, self._max_depth):
            return BlockTrace(INLINE, address, 0, (), HASH)
        header = self._memory.read(address, self._prefix_head)
        slots = self._frames(address + self._prefix_head, depth)
        if header is None or not slots:
            return BlockTrace(INLINE, address, 0, (), UNREADABLE)
        stored, total = self._prefix(header, 0)
        if stored != depth:
            return BlockTrace(INLINE, address, 0, (), HASH)
        # A stack that is less deep leaves its last slots empty.
        frames = slots[: next((at for at in range(depth, 0, -1) if slots[at - 1]), 0)]
        proven = sum(slots) % (1 << 8 * self._pointer_size) == total
        said = NOTHING if proven else UNSURE
        return BlockTrace(INLINE, address, 0, frames, said, len(frames) == depth)

    def index(self, index: int) -> BlockTrace:
        """Returns the trace of an index; when it is none of the database's, one without frames."""
        if not self._by_address:
            return BlockTrace(DATABASE, 0, index, (), NO_DATABASE)
        return self._by_index.get(index) or BlockTrace(DATABASE, 0, index, (), NO_SUCH_INDEX)

    def entry(self, address: int) -> BlockTrace:
        """Returns the trace whose database entry is at an address, also when no known database has it."""
        return self._by_address.get(address) or self._read_entry(address)

    @functools.cached_property
    def _by_address(self) -> Dict[int, BlockTrace]:
        return {trace.address: trace for trace in self._database()}

    @functools.cached_property
    def _by_index(self) -> Dict[int, BlockTrace]:
        return {trace.std_index: trace for trace in self._by_address.values() if trace.std_index}

    def _read(self, address: int) -> BlockTrace:
        header = self._memory.read(address, self._head)
        if header is None:
            return BlockTrace(LOG, address, 0, (), UNREADABLE)
        stored, depth = self._record(header, 0)
        if address % self._pointer_size or not 0 < depth <= self._max_depth:
            return BlockTrace(LOG, address, 0, (), HASH)
        frames = self._frames(address + self._head, depth)
        if not frames:
            return BlockTrace(LOG, address, 0, (), UNREADABLE)
        if sum(frames) & 0xFFFFFFFF != stored:
            return BlockTrace(LOG, address, 0, (), HASH)
        return BlockTrace(LOG, address, 0, frames, full=depth == self._max_depth)

    def _read_entry(self, address: int) -> BlockTrace:
        header = self._memory.read(address, self._entry_head)
        if header is None:
            return BlockTrace(DATABASE, address, 0, (), UNREADABLE)
        index, depth = self._entry(header, 0)
        if address % self._pointer_size or not 0 < depth <= self._entry_max:
            return BlockTrace(DATABASE, address, 0, (), HASH)
        if self._index_high is not None:
            index |= self._index_high.of(header) << 16
        frames = self._frames(address + self._entry_head, depth)
        said = NO_DATABASE if frames else UNREADABLE
        return BlockTrace(DATABASE, address, index, frames, said, len(frames) == self._entry_max)

    def _frames(self, address: int, depth: int) -> Tuple[int, ...]:
        data = self._memory.read(address, depth * self._pointer_size)
        return () if data is None else struct.unpack(f"<{depth}{self._frame}", data)
