# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A stack as the flat tables have it, whoever remembered it."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Collection, Dict, NamedTuple, Optional, Sequence, Tuple

from ..columns.dictionary import STACK_SEPARATOR
from ..columns.words import SCAN, TRAP
from ..memory.decode.status import Status, Word, says, status
from ..memory.image import AddressSpace
from ..process.thread import Thread
from ..stacks.decode.frames import Frame
from ..traps.state import State
from .decode import keys
from .decode.keys import StackKeys
from .frames import UNCERTAIN, NamedFrame

_NOTHING_THERE = (Word.IN_USER_MODE, Word.IN_32_BIT_CODE, Word.UNTRACED)
"""A stack without frames that says this has none."""

_FRAMES_MISSING = (
    *(Word.UNREADABLE, Word.RUNNING, Word.NO_SWITCH_FRAME, Word.NO_SAVED_REGISTERS, Word.CODE_UNREADABLE),
    *(
        Word.CODE_IN_NO_MODULE,
        Word.CODE_AND_UNWIND_DATA_DIFFER,
        Word.NOT_BEHIND_A_CALL,
        Word.NO_FUNCTION_TABLE,
    ),
    *(Word.NO_UNWIND_DATA, Word.UNWIND_DATA_UNREADABLE, Word.UNWIND_DATA_INVALID, Word.STACK_UNREADABLE),
    *(Word.FRAME_REGISTER_UNKNOWN, Word.FRAME_POINTER_UNKNOWN, Word.FRAME_POINTER_IMPLAUSIBLE),
    *(Word.FRAME_POINTER_UNSURE, Word.DISPATCHER, Word.CYCLE, Word.TOO_MANY_FRAMES, Word.DEPTH, Word.ADDRESS),
)
"""What a stack says of which frames are missing, or may be."""

_LOST = (
    *(Word.UNREADABLE, Word.PARTLY_UNREADABLE, Word.STACK_UNREADABLE, Word.CODE_UNREADABLE),
    *(Word.UNWIND_DATA_UNREADABLE, Word.NO_SWITCH_FRAME, Word.NO_SAVED_REGISTERS, Word.OUTSIDE_THE_STACK),
    *(Word.NOT_A_THREAD, Word.NOT_A_TRAP_FRAME, Word.NOT_A_CONTEXT, Word.STACK_LIMITS_UNUSABLE),
    *(Word.PAGE_TABLES_UNREADABLE, Word.CYCLE, Word.DEPTH, Word.NO_DATABASE, Word.NO_SUCH_INDEX),
)
"""What says that frames were there, and are not in the image or cannot be told."""

_NUMBERS = (Word.EVENTS_UNREADABLE, Word.OBJECT_HEADERS_UNREADABLE, Word.TRACES_UNREADABLE)
"""Words whose number is that of stacks."""

_AS_EXPECTED = (Word.TERMINATED, Word.NOT_READ_YET, Word.NO_POINTER)
"""What a row says that stands for no stack, where nothing was lost."""

_LETTERS = re.compile(r"\w+")

_unbacked, _shown, _part, _address = map(attrgetter, ("unbacked", "shown", "details.part", "address"))


class FlatStack(NamedTuple):
    """A stack, or what stands for stacks that cannot be read. Addresses are canonical.

    Attributes:
        kind: who remembered it, of `words.KINDS`
        trace_id: its key in the image
        space: the address space to which it belongs; the addresses may be of another one (see `handles`)
        owner: the thread, database, heap, lock or object; the handle. None where there is none, or not one
        owner_name: what that is, as `OwnerName` has it
        frames: innermost first
        status: what is wrong with it
        walked: how each frame was found, in the same order; empty where the addresses were recorded
        thread: the thread whose stack it is
        tid: of that, of the owner of a lock, or of who did what an event says
        event: what was done with a handle or an object
        counted: how often it is there; None for a row that is no stack
        size: bytes of the heap blocks that are counted
        depth: number of return addresses as stored; None where it is not known
        hash: BackTraceHash; None where it is not known
        nothing: there is no stack, and none was to be expected
        more_tids: the other owners of a lock
        full: there are as many frames as Windows records: outer ones may be missing
        acting: the address space that names the frames, where that may be another one
        entry: the registers of user mode with which a thread's stack begins
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
    entry: Optional[State] = None

    @property
    def tids(self) -> Tuple[int, ...]:
        """All threads of which `tid` is the first."""
        return () if self.tid is None else (self.tid, *self.more_tids)

    @property
    def guessed(self) -> int:
        """How many frames are a guess, or were found by way of one."""
        return sum(not frame.sure for frame in self.walked)

    @property
    def unbacked(self) -> Optional[int]:
        """How many frames are what `--unbacked` looks for; None without frames."""
        return sum(map(_unbacked, self.frames)) if self.frames else None

    @property
    def text(self) -> Optional[str]:
        """The column Stack."""
        return STACK_SEPARATOR.join(map(_shown, self.frames)) if self.frames else None

    def modules(self, made: Optional[StackKeys]) -> Optional[str]:
        """Returns the column Modules. All frames of a recorded stack are in its keys, which `made` are."""
        if made is not None and not self.walked:
            return made.text
        return keys.merged(map(_part, self.frames)) if self.frames else None

    @property
    def incomplete(self) -> bool:
        """Whether frames are missing, or may be."""
        if self.full or says(self.status, *_FRAMES_MISSING) or None in map(_address, self.frames):
            return True
        return not (self.frames or self.nothing or says(self.status, *_NOTHING_THERE))

    @property
    def lost(self) -> bool:
        """Whether stacks are known to have been there and cannot be shown, or not to their ends."""
        if self.nothing or says(self.status, *_AS_EXPECTED):
            return False
        return self.counted is None or (self.incomplete and says(self.status, *_LOST))

    @property
    def missing(self) -> int:
        """For how many stacks a row stands that are not in the image, as far as counts tell: at least one."""
        counted = (each.number or 0 for each in self.status if each.word in _NUMBERS and self.counted is None)
        return max(sum(counted), 1)

    @property
    def doubts(self) -> Status:
        """What makes the name of a frame uncertain: lists of modules or VADs that are not whole."""
        named = (frame.name.status for frame in self.frames if frame.name is not None)
        return status(*(said for each in named for said in each if said in UNCERTAIN))

    def keys(self) -> Optional[StackKeys]:
        """Returns the keys; None if no frame is left for them.

        Where a thread was interrupted is chance, and no part of its keys; where it crashed is what a small
        kernel dump is about.
        """
        if not self.walked:
            return keys.of(list(map(_part, self.frames)), incomplete=self.incomplete)
        crashed = self.thread is not None and any(each.kernel for each in self.thread.contexts)
        pairs = zip(self.frames, self.walked)
        parts = [
            frame.details.part
            for number, (frame, walked) in enumerate(pairs)
            if walked.how != SCAN and (number or crashed or walked.how != TRAP)
        ]
        return keys.of(parts, bool(self.guessed), self.incomplete)


class FlatWanted(NamedTuple):
    """Which stacks are wanted; empty collections want all.

    Attributes:
        kinds: of `words.KINDS`
        pids: the processes; 0 is the kernel
        tids: the threads: of these are stacks, and what has one of them
        carve: freed and orphan entries, and databases to which no pointer leads, too
        scan_stacks: stacks from trap frames that only a scan of the kernel stacks finds, too
        scan_threads: threads that only a pool scan finds, too
        processors: stacks of processors that were idle, too
    """

    kinds: Collection[str] = ()
    pids: Collection[int] = ()
    tids: Collection[int] = ()
    carve: bool = False
    scan_stacks: bool = False
    scan_threads: bool = False
    processors: bool = False

    def has(self, *kinds: str) -> bool:
        """Returns whether one of several kinds is wanted."""
        return not self.kinds or any(kind in self.kinds for kind in kinds)

    def takes(self, stack: FlatStack) -> bool:
        """Returns whether a stack is of a wanted kind and thread."""
        return self.has(stack.kind) and (not self.tids or any(tid in self.tids for tid in stack.tids))


class Distinct:
    """Numbers the few stacks that nothing in the image tells apart, so that no two keys are equal.

    Args:
        time: how often the owner of the stacks has been met, this time included
    """

    def __init__(self, time: int = 1) -> None:
        self._seen: Dict[str, int] = {}
        self._again = "" if time == 1 else f"~~{time}"

    def key(self, kind: str, space: AddressSpace, owner: int, piece: str, *numbers: int) -> str:
        """Returns a TraceId that was not returned before."""
        made = keys.trace_id(kind, space.eprocess, owner, space.arch, piece, *numbers) + self._again
        count = self._seen[made] = self._seen.get(made, 0) + 1
        return made if count == 1 else f"{made}~{count}"

    def gap(self, kind: str, space: AddressSpace, said: Status, owner: int = 0, *numbers: int) -> str:
        """Returns a TraceId for a row that is no stack; the arguments are those of `key`.

        Args:
            said: what the row says: its words are the piece, its numbers come last
        """
        own = status(*(each for each in said if each not in space.remark)) or said
        said_numbers = (each.number for each in own if each.number is not None)
        return self.key(kind, space, owner, _piece(own), *numbers, *said_numbers)


def _piece(said: Status) -> str:
    """Returns the words of a status as they stand in a TraceId."""
    words = (each.word.value.format("", members="") for each in said)
    return ".".join("-".join(_LETTERS.findall(each)) for each in words)


def gap(kind: str, key: str, space: AddressSpace, said: Status, owner: Optional[int] = None) -> FlatStack:
    """Returns what stands for stacks that cannot be listed: it has no Count.

    Args:
        kind: theirs
        key: a TraceId
        space: where they are
        said: why they cannot be read
        owner: whose they are, None if that is not known
    """
    return FlatStack(kind, key, space, owner, None, (), said)
