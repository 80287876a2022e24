# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a check is, and what it finds.

A check is a pure function: it takes a stack (or nothing) and the facts of the image, and yields what it
finds. Severities are words of fixed meaning and no scores.
"""

from __future__ import annotations

from typing import Callable, Hashable, Iterator, NamedTuple, Optional, Tuple

from ..columns.words import LOW, POSSIBLE, RECORDED, SCAN
from ..flat.frames import NamedFrame
from ..flat.stack import FlatStack
from ..memory.decode.status import NOTHING, Status, text
from ..memory.image import AddressSpace
from ..names.places import Name
from ..process.thread import Thread
from .facts import CheckFacts

NONE_KNOWN = "nothing known in this process"
"""What Innocent says where nothing else in the process explains a finding."""


class Finding(NamedTuple):
    """What a check has found. Addresses are canonical.

    Attributes:
        severity: of `words.SEVERITIES`
        confidence: of `words.CONFIDENCES`
        space: to which process it belongs
        evidence: what a second examiner can check
        innocent: what else explains it
        group: findings of one check with equal groups are one row, that of the worst
        kind: who remembered the stack; None where no stack is meant
        tid: the thread, None where none is meant
        frame: number of the frame in its stack
        address: of the frame, or what else was found
        symbol: the address in words
        how: how the address was found
        trace_id: of the stack
        stack: the stack, from which its key is made where the finding is shown
        technique: an ID of ATT&CK where it is not the check's own
        status: what is wrong with what was found
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
    stack: Optional[FlatStack] = None
    technique: str = ""
    status: Status = NOTHING


OfStack = Callable[[FlatStack, "CheckFacts"], Iterator[Finding]]
OfImage = Callable[["CheckFacts"], Iterator[Finding]]
Unchecked = Callable[["CheckFacts"], Iterator[str]]


class Check(NamedTuple):
    """A check: what it is called, what it means, and what it does.

    Attributes:
        name: the column Finding
        technique: IDs of ATT&CK
        kinds: of which stacks it needs; empty where it needs none
        meaning: what a finding says
        severities: when a finding is how severe
        innocent: what else gives such findings
        next_steps: what to do with one
        needs: why it could not run where no such stack was found
        of_stack: finds in a stack
        of_image: finds in the image
        unchecked: yields why parts of it could not run; by itself `CheckFacts.left_out` of its name
        kernel: whether it needs structures of a kernel, which a dump of one process has not
        small_dump: whether a small kernel dump has all that it needs
    """

    name: str
    technique: str
    kinds: Tuple[str, ...]
    meaning: str
    severities: str
    innocent: str
    next_steps: str
    needs: str = ""
    of_stack: Optional[OfStack] = None
    of_image: Optional[OfImage] = None
    unchecked: Optional[Unchecked] = None
    kernel: bool = False
    small_dump: bool = False


class FramePlace(NamedTuple):
    """A frame of a stack with what checks ask of it.

    Attributes:
        number: of the frame in its stack, 0 for the innermost
        frame: what is known of its address
        name: of the address
        address: of the frame, canonical
        at: where the code is: one byte before a return address
        how: how the address was found
        guessed: it is a guess, or was found by way of one: no check makes more than `low` of it
    """

    number: int
    frame: NamedFrame
    name: Name
    address: int
    at: int
    how: str
    guessed: bool


def places(stack: FlatStack, *backings: str) -> Iterator[FramePlace]:
    """Yields the frames of a stack behind which one of several backings is (all frames without any)."""
    for number in range(len(stack.frames)):
        place = place_of(stack, number)
        if place is not None and (not backings or place.name.backing in backings):
            yield place


def place_of(stack: FlatStack, number: int) -> Optional[FramePlace]:
    """Returns a frame of a stack by its number; None if there is none, or one without address."""
    frame = stack.frames[number] if number < len(stack.frames) else None
    name, address = (None, None) if frame is None else (frame.name, frame.address)
    if frame is None or name is None or address is None:
        return None
    walked = stack.walked[number] if stack.walked else None
    if walked is None:
        return FramePlace(number, frame, name, address, address - 1, RECORDED, False)
    guessed = walked.how == SCAN or not walked.sure
    return FramePlace(number, frame, name, address, address - walked.returns, walked.how, guessed)


def of_place(
    stack: FlatStack,
    place: FramePlace,
    severity: str,
    confidence: str,
    evidence: str,
    innocent: str,
    group: Hashable,
) -> Finding:
    """Returns what was found at a frame of a stack; the arguments are those of `Finding`."""
    return Finding(
        LOW if place.guessed else severity,
        POSSIBLE if place.guessed else confidence,
        stack.space,
        evidence,
        f"{innocent}; low because {_guess(stack, place)}" if place.guessed else innocent,
        group,
        stack.kind,
        stack.tid,
        place.number,
        place.address,
        place.name.symbol,
        place.how,
        stack.trace_id,
        stack,
        "",
        place.frame.details.status,
    )


def _guess(stack: FlatStack, place: FramePlace) -> str:
    """Returns why a frame is a guess, in words: how it was found, and what the stack says."""
    said = "a scan of the stack found the frame" if place.how == SCAN else "the way to the frame is a guess"
    return f"{said} ({text(stack.status)})" if stack.status else said


def of_thread(
    stack: FlatStack,
    thread: Thread,
    severity: str,
    confidence: str,
    evidence: str,
    innocent: str,
    address: int,
    symbol: str,
) -> Finding:
    """Returns what was found of the thread of a stack; the arguments are those of `Finding`."""
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
    )
