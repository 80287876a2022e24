# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a check is, and what it finds.

A check is a pure function: it takes a stack (or nothing) and the facts of the image, and yields what it
finds. Severities are words of fixed meaning and no scores.
"""

from __future__ import annotations

from typing import Callable, Hashable, Iterator, NamedTuple, Optional, Tuple

from ..flat.decode.schema import RECORDED, SCAN
from ..flat.frames import FlatFrame
from ..flat.stack import FlatStack
from ..memory.decode.status import NOTHING, Status
from ..memory.image import AddressSpace
from ..names.places import Name
from ..process.thread import Thread
from .facts import CheckFacts

HIGH, MEDIUM, LOW = "high", "medium", "low"

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
CONFIDENCES = (CERTAIN, LIKELY, POSSIBLE)
"""How sure it is that what Evidence says is so."""

NONE_KNOWN = "nothing known in this process"
"""What Innocent says where nothing else in the process explains a finding."""


class Finding(NamedTuple):
    """What a check has found. Addresses are canonical.

    Attributes:
        severity: of `options.SEVERITIES`
        confidence: of CONFIDENCES
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
    frame: FlatFrame
    name: Name
    address: int
    at: int
    how: str
    guessed: bool


def undecorated(function: Optional[str]) -> str:
    """Returns the plain name of a function; those of 32 bits may begin with `_` or `@` and end with `@8`."""
    return (function or "").lstrip("_@").partition("@")[0]


def places(stack: FlatStack, *backings: str) -> Iterator[FramePlace]:
    """Yields the frames of a stack behind which one of several backings is (all frames without any)."""
    for number, frame in enumerate(stack.frames):
        name, address = frame.name, frame.address
        if name is None or address is None or (backings and name.backing not in backings):
            continue
        walked = stack.walked[number] if stack.walked else None
        if walked is None:
            yield FramePlace(number, frame, name, address, address - 1, RECORDED, False)
        else:
            guessed = walked.how == SCAN or not walked.sure
            yield FramePlace(number, frame, name, address, address - walked.returns, walked.how, guessed)


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
        innocent,
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
        place.frame.status,
    )


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
