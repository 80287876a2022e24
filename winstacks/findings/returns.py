# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Return addresses that no call left, or at which code only jumps on: what `no_call` and `gadget` look at."""

from __future__ import annotations

import functools
from typing import Iterator, NamedTuple, Optional, Tuple

from ..columns.words import IMAGE, LEAF, UNWIND
from ..flat.stack import FlatStack
from ..memory.decode.machine import Machine
from ..memory.decode.status import Word, says
from ..memory.image import AddressSpace
from ..names.decode.rules import undecorated
from ..stacks.decode.frames import LONGEST_CALL, is_call
from .copies import NO_IMAGE, NOT_IN_MEMORY
from .facts import CheckFacts
from .finding import FramePlace, place_of, places
from .modified_code import compared, function_at

NOT_BY_A_CALL = ("goexit", "runtime.goexit", "KiServiceLinkage")
"""Functions to which nothing but a built stack returns: the ground of Go's routines, and that of Zw calls."""

_DISPATCHERS = "KiUser"
_DOUBTS = (Word.CODE_UNREADABLE, Word.CODE_AND_UNWIND_DATA_DIFFER)
_JUMP_LENGTH = 7
_SHORTEST_JUMP = 3
"""Bytes that tell whether it is one: REX, FF, and the operand's first."""
_GROUP, _JUMP = 0xFF, 4
_REX = range(0x40, 0x50)


class Returned(NamedTuple):
    """A frame of user mode in an image as most processes have it.

    Attributes:
        place: the frame; not a guess if only the lack of a call makes it one
        called: whether a call lies before the address; None where that code is not in memory
        jumps: whether the code at the address is a jump through a register or memory
    """

    place: FramePlace
    called: Optional[bool]
    jumps: bool


def returned(stack: FlatStack, check: str, facts: CheckFacts) -> Iterator[Returned]:
    """Yields the frames of a stack, found by unwind data, that no call left or at which code jumps on.

    Args:
        stack: of 64-bit code
        check: for which: `facts.left_out` says what could not be compared
        facts: of the image
    """
    if stack.space.machine is not Machine.AMD64 or not stack.walked:
        return
    # Of these doubts nothing tells at which frame they begin.
    doubted = says(stack.status, *_DOUBTS)
    sure = True
    for place in places(stack):
        if not sure:
            return
        frame, address = stack.walked[place.number], place.address
        sure = frame.sure
        if frame.how not in (UNWIND, LEAF) or not facts.is_user(address) or place.name.backing != IMAGE:
            continue
        site = functools.partial(_site, stack.space, address, facts)
        # Stacks share most of their return addresses.
        called, jumps = facts.once(__name__, stack.space, address, site)
        if (called and not jumps) or _by_name(place):
            continue
        if called is None:
            facts.leave_out(check, NOT_IN_MEMORY, place.frame.details.module or place.name.symbol)
            if not jumps:
                continue
        # What is not in memory cannot be compared, and a jump is one whatever lies before it.
        start = address if called is None else address - LONGEST_CALL
        found = facts.copies.compare(stack.space, start, address + _JUMP_LENGTH)
        if found.reason and found.reason != NO_IMAGE:
            facts.leave_out(check, found.reason, place.frame.details.module or place.name.symbol)
        if found.equal:
            yield Returned(place._replace(guessed=doubted and not sure), called, jumps)


def settled(stack: FlatStack, place: FramePlace, facts: CheckFacts) -> FramePlace:
    """Returns a frame in no module; it is no guess where code of Windows that all have alike returns to it.

    The walk doubts such a frame if the page of that code is a copy of the process's own, and the image
    section has lost it. Other processes may have it still.
    """
    if not place.guessed or place.how not in (UNWIND, LEAF) or stack.space.machine is not Machine.AMD64:
        return place
    inner = place_of(stack, place.number - 1) if place.number else None
    if inner is None or inner.guessed or says(stack.status, *_DOUBTS):
        return place
    if not facts.is_user(inner.at) or not facts.of_windows(stack.space, inner.at):
        return place
    found = compared(facts.copies, stack.space, function_at(stack.space, inner, facts)[1])
    alike = found.equal and not found.split and found.others != 1
    return place._replace(guessed=False) if alike else place


def _site(space: AddressSpace, address: int, facts: CheckFacts) -> Tuple[Optional[bool], bool]:
    """Returns `called` and `jumps` of a return address."""
    before = facts.copies.read(space, address - LONGEST_CALL, LONGEST_CALL)
    behind = facts.copies.read(space, address, _SHORTEST_JUMP)
    return None if before is None else is_call(before), behind is not None and jumps_on(behind)


def jumps_on(code: bytes) -> bool:
    """Returns whether code is a jump through a register or memory: FF /4, with or without REX."""
    start = 1 if code[:1] and code[0] in _REX else 0
    return len(code) > start + 1 and code[start] == _GROUP and code[start + 1] >> 3 & 7 == _JUMP


def _by_name(place: FramePlace) -> bool:
    """Returns whether a function is known to which nothing but a built stack returns."""
    plain = undecorated(place.frame.details.function)
    return plain in NOT_BY_A_CALL or plain.startswith(_DISPATCHERS)
