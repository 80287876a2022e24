# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The types of this room: a check, and a finding.

A check is a pure function: it takes a stack (or nothing) and the facts of the image, and yields findings.
Severities are words with a fixed meaning, not scores.
"""

from __future__ import annotations

from typing import Callable, Hashable, Iterator, Optional, Tuple

from ..columns.words import CALLBACK, HEAP, HEAPLOG, LOCK, LOW, POSSIBLE, RECORDED, SCAN, STD, USER, WOW64
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status, text
from ..memory.decode.statuscodes import words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.text import ShortText, short_of
from ..memory.image import AddressSpace
from ..names.places import Name
from ..process.thread import Thread
from ..stacklist.frames import NamedFrame
from ..stacklist.stack import StackRecord
from .facts import CheckFacts

NONE_KNOWN = "nothing known in this process"
"""The text of Innocent if nothing else in the process explains a finding."""
_MAY_EXPLAIN = f"{NONE_KNOWN}, but "
"""Begin of that text where something that is not in the image may explain it."""

OF_MEMORY = "windows.vadinfo --pid {pid} --address {address} --dump"
OF_THREAD = "windows.callstacks --tid {tid}"
"""Commands that show what a finding is about: memory of a process, or a thread."""

_DOUBTS = words_that(Means.DISAGREES)
"""Words of a stack's Status that a finding has, too: two structures disagree."""


class Finding(NamedTuple):
    """One result of a check. Addresses are canonical.

    Attributes:
        severity: a word of `words.SEVERITIES`
        confidence: a word of `words.CONFIDENCES`
        evidence: facts that a second examiner can check, see `brief_evidence`
        group: key of the row: findings of one check with equal groups share a row, which shows the worst of
            them
        kind: kind of the stack; None if the finding is about no stack
        tid: TID; None if the finding is about no thread
        address: address of the frame, or of other data that the check found
        symbol: text for the address; it may have a short form
        technique: ID of ATT&CK if it differs from the check's own
        of_threads: whether the row counts threads with the same finding, and not stacks
        acted_on: name of another process that the finding's process opened; "" if it opened none
        lowered: whether the severity is `low` only because the frame is a guess
    """

    severity: str
    confidence: str
    space: AddressSpace
    evidence: str
    innocent: str
    group: Hashable
    kind: Optional[str] = None
    tid: Optional[int] = None
    frame: Optional[int] = None
    address: Optional[int] = None
    symbol: Optional[str] = None
    how: Optional[str] = None
    trace_id: Optional[str] = None
    stack: Optional[StackRecord] = None
    technique: str = ""
    status: Status = NOTHING
    of_threads: bool = False
    acted_on: str = ""
    lowered: bool = False

    def settled(self) -> Finding:
        """Returns the finding for keeping: its stack no longer keeps the modules of its process."""
        return self if self.stack is None else self._replace(stack=self.stack.settled())

    @property
    def explained(self) -> int:
        """How far the finding is explained: 0 by nothing, 1 by what may be lost, 2 by an innocent reason that
        leaves it above `low` where no frame is a guess, 3 by another innocent reason."""
        if not self.innocent.startswith(NONE_KNOWN):
            return 2 if self.lowered else 3
        return int(self.innocent.startswith(_MAY_EXPLAIN))


OfStack = Callable[[StackRecord, "CheckFacts"], Iterator[Finding]]
OfImage = Callable[["CheckFacts"], Iterator[Finding]]
Unchecked = Callable[["CheckFacts"], Iterator[str]]


class Check(NamedTuple):
    """A check: its name, its texts for the user, and its functions.

    Attributes:
        technique: IDs of ATT&CK
        kinds: kinds of the stacks that the check needs; empty if it needs none
        severities: text: which findings have which severity
        innocent: text: harmless causes of such findings
        needs: text: why the check could not run if there was no such stack
        head: text: what such a finding is, in the head line of a story
        command: plugin and options that show what a finding is about; a finding without the values that it
            names has another command, see `rows.nextcommand`
        unchecked: function that yields why parts of the check could not run; by default `CheckFacts.left_out`
            of its name
        backings: words of `Name.backing`: `of_stack` gets stacks with such a frame alone. Empty: all stacks
        kernel: whether the check needs structures of a kernel, which a dump of one process lacks
        small_dump: whether a small kernel dump has everything that the check needs
        intel: whether the check reads code, registers or stacks that only x86 and x64 have
    """

    name: str
    technique: str
    kinds: Tuple[str, ...]
    meaning: str
    severities: str
    innocent: str
    next_steps: str
    needs: str = ""
    head: str = ""
    command: str = OF_THREAD
    of_stack: Optional[OfStack] = None
    of_image: Optional[OfImage] = None
    unchecked: Optional[Unchecked] = None
    backings: Tuple[str, ...] = ()
    kernel: bool = False
    small_dump: bool = False
    intel: bool = False


def brief_evidence(evidence: str) -> str:
    """Returns an evidence in few words: its short form, else its first clause."""
    return evidence.short if isinstance(evidence, ShortText) else evidence.partition("; ")[0]


def shows_kernel_code(stack: StackRecord) -> bool:
    """Returns whether frames of a stack may be code that the kernel ran.

    A stack of user mode holds what its process wrote: a kernel address there is no call by the kernel.
    Handles and objects have stacks that begin in the kernel.
    """
    if stack.kind in (STD, LOCK, CALLBACK):
        return stack.space.kernel
    return stack.kind not in (USER, WOW64, HEAP, HEAPLOG)


class FramePlace(NamedTuple):
    """A frame of a stack, with the values that checks use.

    Attributes:
        at: address of the code: one byte before a return address
        guessed: whether the frame is a guess or was found through a guess: no check rates it above `low`
    """

    number: int
    frame: NamedFrame
    name: Name
    address: int
    at: int
    how: str
    guessed: bool


def frame_places(stack: StackRecord, *backings: str) -> Iterator[FramePlace]:
    """Yields the frames of a stack that have an address: of these backings only, of all if none is named."""
    for number, frame in enumerate(stack.frames):
        # Most frames have another backing: the others alone are worth a place.
        if frame.name is None or (backings and frame.name.backing not in backings):
            continue
        place = find_place(stack, number)
        if place is not None:
            yield place


def find_place(stack: StackRecord, number: int) -> Optional[FramePlace]:
    """Returns a frame of a stack by its number; None if there is none, or it has no address."""
    frame = stack.frames[number] if number < len(stack.frames) else None
    name, address = (None, None) if frame is None else (frame.name, frame.address)
    if frame is None or name is None or address is None:
        return None
    walked = stack.walked[number] if stack.walked else None
    if walked is None:
        return FramePlace(number, frame, name, address, address - 1, RECORDED, False)
    guessed = walked.how == SCAN or not walked.sure
    return FramePlace(number, frame, name, address, address - walked.returns, walked.how, guessed)


def place_finding(
    stack: StackRecord,
    place: FramePlace,
    severity: str,
    confidence: str,
    evidence: str,
    innocent: str,
    group: Hashable,
) -> Finding:
    """Returns a finding at a frame of a stack; the arguments are named as in `Finding`."""
    return Finding(
        LOW if place.guessed else severity,
        POSSIBLE if place.guessed else confidence,
        stack.space,
        _with_callback(stack, evidence),
        f"{innocent}; low because {_guess(stack, place)}" if place.guessed else innocent,
        group,
        stack.kind,
        stack.tid,
        place.number,
        place.address,
        place.frame.shown,
        place.how,
        stack.trace_id,
        stack,
        "",
        status(place.frame.details.status, doubts_of(stack.status)),
        lowered=place.guessed and severity != LOW,
    )


def _with_callback(stack: StackRecord, evidence: str) -> str:
    """Returns the evidence at a frame; where a callback leads there, it says that no thread does."""
    if stack.kind != CALLBACK:
        return evidence
    words = f"a callback, not a thread, leads there: {stack.owner_name}"
    if stack.owner is not None:
        words += f" {stack.owner & stack.space.machine.address_mask:#x}"
    return ShortText(f"{evidence}; {words}", short_of(evidence))


def doubts_of(statuses: Status) -> Status:
    """Returns what is contradicted in the Status of a stack: all that is made of it is in doubt."""
    return tuple(item for item in statuses if item.code in _DOUBTS)


def _guess(stack: StackRecord, place: FramePlace) -> str:
    """Returns why a frame is a guess, in words: how it was found, and the status of the stack."""
    reason = "a scan of the stack found the frame" if place.how == SCAN else "the way to the frame is a guess"
    return f"{reason} ({text(stack.status)})" if stack.status else reason


def thread_finding(
    stack: StackRecord,
    thread: Thread,
    severity: str,
    confidence: str,
    evidence: str,
    innocent: str,
    address: int,
    symbol: str,
) -> Finding:
    """Returns a finding about the thread of a stack; the arguments are named as in `Finding`."""
    return Finding(
        severity,
        confidence,
        stack.space,
        evidence,
        innocent,
        (thread.ethread, thread.tid),
        stack.kind,
        stack.tid,
        None,
        address,
        symbol,
        trace_id=stack.trace_id,
        stack=stack,
        status=doubts_of(stack.status),
    )
