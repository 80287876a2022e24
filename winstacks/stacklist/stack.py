# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One stack as a record of the flat tables."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Collection, Dict, Iterator, Optional, Sequence, Tuple

from ..columns.words import RECORDED, SCAN, TRAP
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, has_status, numbers_of, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.image import AddressSpace
from ..process.thread import Thread
from ..stacks.decode.frames import Frame
from ..traps.state import TrapState
from .decode import keys
from .decode.keys import StackKeys
from .frames import UNCERTAIN, NamedFrame, count_unbacked, key_parts
from .shown import shown_numbers

_NOTHING_THERE = words_that(Means.NO_STACK_HERE)
"""Status words of a thread or half of a process that has no stack of this kind."""

_FRAMES_MISSING = words_that(Means.FRAMES_MISSING)
"""Status words for frames that are missing, or may be."""

_LOST = words_that(Means.FRAMES_LOST)
"""Status words for frames that existed, and are not in the image or cannot be decoded."""

_NUMBERS = words_that(Means.COUNTS_STACKS)
"""Status words whose number counts stacks."""

_AS_EXPECTED = words_that(Means.NONE_LOST)
"""Status words of a row without a stack for which no stack was lost."""

_LETTERS = re.compile(r"\w+")

_address = attrgetter("address")


class StackFrame(NamedTuple):
    """A frame of a stack with its name, and how it was found.

    Attributes:
        number: number of the frame, 0 for the innermost one
        walked: the frame as the walk found it; None in a stack that Windows recorded
    """

    number: int
    named: NamedFrame
    walked: Optional[Frame] = None

    @property
    def address(self) -> Optional[int]:
        """The canonical address, None if it is not in the image."""
        return self.named.address

    @property
    def symbol(self) -> str:
        """The name of the address; in angle brackets what is there instead, or why it is unknown."""
        return self.named.shown

    @property
    def how(self) -> str:
        """How the address was found, a word of `words.HOWS`."""
        return RECORDED if self.walked is None else self.walked.how

    @property
    def status(self) -> Status:
        """Faults of the address and its module; `unsure` if the frame is a guess or was found through one."""
        return frame_status(self.named, self.walked)


def frame_status(named: NamedFrame, walked: Optional[Frame]) -> Status:
    """Returns the status of a frame; `walked` is None in a stack that Windows recorded."""
    return status(named.details.status, None if walked is None or walked.sure else StatusCode.UNSURE)


class StackRecord(NamedTuple):
    """A stack, or a row for stacks that cannot be read. Addresses are canonical.

    Attributes:
        kind: source of the stack, a word of `words.KINDS`
        space: address space to which the stack belongs; the addresses may be of another one (see `acting`)
        owner: address of the thread, database, heap, lock or object, or the handle; None if there is no
            owner, or several
        owner_name: name or kind of the owner, for `OwnerName`
        frames: named addresses, innermost first
        walked: frames as the walk found them, in the same order; empty for recorded addresses
        tid: TID of the thread, of the lock's owner, or of the thread that caused the event
        counted: number of occurrences; None for a row without a stack
        size: bytes of the heap blocks that are counted
        depth: number of return addresses as stored; None if unknown
        hash: BackTraceHash; None if unknown
        nothing: whether there is no stack and none was to be expected
        more_tids: the other owners of a lock
        full: whether there are as many frames as Windows records: outer ones may be missing
        acting: address space that names the frames, if it may differ from `space`
        holder: process with the handle, if another process acted and is `space`: see `by_actor`
        entry: user-mode registers with which a thread's stack begins
    """

    kind: str
    trace_id: str
    space: AddressSpace
    owner: Optional[int]
    owner_name: Optional[str]
    frames: Sequence[NamedFrame]
    status: Status
    walked: Sequence[Frame] = ()
    thread: Optional[Thread] = None
    tid: Optional[int] = None
    event: Optional[str] = None
    counted: Optional[int] = None
    size: Optional[int] = None
    depth: Optional[int] = None
    hash: Optional[int] = None
    nothing: bool = False
    more_tids: Tuple[int, ...] = ()
    full: bool = False
    acting: Optional[AddressSpace] = None
    entry: Optional[TrapState] = None
    holder: Optional[AddressSpace] = None

    def settled(self) -> StackRecord:
        """Returns the stack for keeping: see `NamedFrame.settled`."""
        return self._replace(frames=[frame.settled() for frame in self.frames])

    def by_actor(self) -> StackRecord:
        """Returns the stack as one of the process whose code it shows.

        Another process than the one with the handle acted if it duplicated the handle into that one.
        """
        acting = self.acting
        if acting is None or not acting.eprocess or acting.eprocess == self.space.eprocess:
            return self
        return self._replace(space=acting, holder=self.space)

    def listed(self) -> Iterator[StackFrame]:
        """Yields the frames, innermost first, each with its name and how it was found."""
        for number, named in enumerate(self.frames):
            yield StackFrame(number, named, self.walked[number] if self.walked else None)

    @property
    def tids(self) -> Tuple[int, ...]:
        """All thread IDs, beginning with `tid`."""
        return () if self.tid is None else (self.tid, *self.more_tids)

    @property
    def guessed(self) -> int:
        """The number of frames that are a guess, or were found through a guess."""
        return sum(not frame.sure for frame in self.walked)

    @property
    def unbacked(self) -> Optional[int]:
        """The number of frames that `--unbacked` looks for; None without frames, or if it is unknown."""
        return count_unbacked(self.frames) if self.frames else None

    @property
    def shown(self) -> Sequence[int]:
        """The numbers of the frames that rows and pictures show."""
        return shown_numbers(len(self.frames))

    def modules(self, stack_keys: StackKeys) -> Optional[str]:
        """Returns the column Modules.

        All frames of a recorded stack are part of its keys (`stack_keys`), which then hold the text.
        """
        if not self.walked:
            return stack_keys.text
        return keys.merged(key_parts(self.frames)) if self.frames else None

    @property
    def incomplete(self) -> bool:
        """Whether frames are missing, or may be."""
        if self.full or has_status(self.status, *_FRAMES_MISSING) or None in map(_address, self.frames):
            return True
        return not (self.frames or self.nothing or has_status(self.status, *_NOTHING_THERE))

    @property
    def is_lost(self) -> bool:
        """Whether stacks are known to have existed and cannot be shown, or not completely."""
        if not self.status:
            # Most stacks: nothing is asked of each word.
            return self.counted is None and not self.nothing
        if self.nothing or has_status(self.status, *_AS_EXPECTED):
            return False
        if self.counted is None or (has_status(self.status, *_LOST) and self.incomplete):
            return True
        # The owner names a record, but the record's hash does not confirm its frames.
        return not self.frames and has_status(self.status, StatusCode.HASH)

    @property
    def hides_others(self) -> bool:
        """Whether the row may hide stacks of heap blocks that it does not count, because their headers are
        missing or damaged."""
        damaged = not self.frames and has_status(self.status, StatusCode.DAMAGED)
        return damaged or has_status(self.status, StatusCode.BYTES_UNREAD)

    @property
    def missing(self) -> int:
        """The number of missing stacks for which the row stands, by their counts: at least one."""
        return max(0 if self.counted is not None else numbers_of(self.status, *_NUMBERS), 1)

    @property
    def doubts(self) -> Status:
        """Status words that make the name of a frame uncertain: lists of modules or VADs are incomplete."""
        named = (frame.name.status for frame in self.frames if frame.name is not None)
        return status(*(item for statuses in named for item in statuses if item in UNCERTAIN))

    @property
    def crashed(self) -> bool:
        """Whether the stack begins where the thread crashed."""
        if self.thread is None or has_status(self.status, StatusCode.AFTER_THE_EXCEPTION):
            return False
        if any(context.kernel for context in self.thread.contexts):
            return True
        lost = has_status(self.status, StatusCode.NOT_IN_THE_DUMP)
        return has_status(self.status, StatusCode.EXCEPTION) and not lost

    def keys(self) -> StackKeys:
        """Returns the keys.

        The keys leave out frame 0 of an interrupted thread, because it is arbitrary; they keep it where the
        thread crashed, because a dump of a crash is about that frame.
        """
        if not self.walked:
            return keys.stack_keys(key_parts(self.frames), incomplete=self.incomplete)
        crashed = self.crashed
        pairs = zip(self.frames, self.walked)
        parts = [
            frame.part
            for number, (frame, walked) in enumerate(pairs)
            if walked.how != SCAN and (number or crashed or walked.how != TRAP)
        ]
        return keys.stack_keys(parts, bool(self.guessed), self.incomplete)


class StackFilter(NamedTuple):
    """The filter of stacks; None selects all, and an empty collection none.

    Attributes:
        kinds: words of `words.KINDS`
        pids: PIDs; 0 is the kernel
        tids: TIDs: selects the threads' own stacks, and recorded stacks with one of the TIDs
        carve: whether to add freed and orphan entries, and databases to which no pointer leads
        scan_stacks: whether to add stacks from trap frames that only a scan of the kernel stacks finds
        scan_threads: whether to add threads that only a pool scan finds
        processors: whether to add stacks of idle processors
    """

    kinds: Optional[Collection[str]] = None
    pids: Optional[Collection[int]] = None
    tids: Optional[Collection[int]] = None
    carve: bool = False
    scan_stacks: bool = False
    scan_threads: bool = False
    processors: bool = False

    def has(self, *kinds: str) -> bool:
        """Returns whether any of several kinds is selected."""
        return self.kinds is None or any(kind in self.kinds for kind in kinds)

    def takes(self, stack: StackRecord) -> bool:
        """Returns whether the kind and thread of a stack are selected."""
        return self.has(stack.kind) and (self.tids is None or any(tid in self.tids for tid in stack.tids))


class Distinct:
    """Makes TraceIds, and numbers the few stacks with equal ones, so that no two keys are equal. `time` is
    the number of times that the owner of the stacks has been met, including this one."""

    def __init__(self, time: int = 1) -> None:
        self._seen: Dict[str, int] = {}
        self._again = "" if time == 1 else f"~~{time}"

    def key(self, kind: str, space: AddressSpace, owner: int, piece: str, *numbers: int) -> str:
        """Returns a TraceId that was not returned before."""
        trace_id = keys.trace_id(kind, space.eprocess, owner, space.arch, piece, *numbers) + self._again
        count = self._seen[trace_id] = self._seen.get(trace_id, 0) + 1
        return trace_id if count == 1 else f"{trace_id}~{count}"

    def gap(self, kind: str, space: AddressSpace, gap_status: Status, owner: int = 0, *numbers: int) -> str:
        """Returns a TraceId for a row without a stack; `key` has the other arguments. `gap_status` is the
        status of the row: its words become the piece, its numbers come last."""
        row_status = status(*(item for item in gap_status if item not in space.remark)) or gap_status
        said_numbers = (item.number for item in row_status if item.number is not None)
        return self.key(kind, space, owner, _piece(row_status), *numbers, *said_numbers)

    def lost(
        self, kind: str, space: AddressSpace, gap_status: Status, owner: int = 0, *numbers: int
    ) -> StackRecord:
        """Returns a row for stacks that cannot be listed; `gap` has the same arguments."""
        key = self.gap(kind, space, gap_status, owner, *numbers)
        return gap(kind, key, space, gap_status, owner or None)


def _piece(gap_status: Status) -> str:
    """Returns the words of a status in the form of a TraceId."""
    words = (item.code.value.format("", members="") for item in gap_status)
    return ".".join("-".join(_LETTERS.findall(code)) for code in words)


def gap(
    kind: str, key: str, space: AddressSpace, gap_status: Status, owner: Optional[int] = None
) -> StackRecord:
    """Returns a row for stacks that cannot be listed: it has no Count. `owner` is the address of their owner,
    None if unknown."""
    return StackRecord(kind, key, space, owner, None, (), gap_status)
