# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Return addresses that follow no call, or that point to a jump: the basis of `no_call` and `gadget`."""

from __future__ import annotations

import functools
from typing import Iterator, Optional, Tuple

from ...columns.words import IMAGE, LEAF, UNWIND
from ...memory.decode.machine import Machine
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import words_that
from ...memory.decode.statusmeanings import Means
from ...memory.image import AddressSpace
from ...names.decode.pclntab import GOEXITS
from ...names.decode.rules import undecorated
from ...process.thread import Thread
from ...stacklist.stack import StackRecord
from ...stacks.decode.frames import LONGEST_CALL, is_call
from ..facts import CheckFacts
from ..finding import FramePlace, find_place, frame_places
from .copies import NOT_IN_MEMORY
from .functions import function_at
from .leftovers import cut_thread, stack_values
from .lostsections import leave_out_sections

NOT_BY_A_CALL = ("goexit", *GOEXITS, "KiServiceLinkage")
"""Functions to which only a fabricated stack returns: the base of Go's routines, and of Zw calls."""

_DISPATCHERS = "KiUser"
_DOUBTS = words_that(Means.CODE_UNSURE)
_JUMP_LENGTH = 7
_SHORTEST_JUMP = 3
"""Bytes needed to recognise a jump: REX, FF, and the first byte of the operand."""
_GROUP, _JUMP = 0xFF, 4
_REX = range(0x40, 0x50)
_REX_B = 1
_KEPT = (3, 5, 6, 7)
"""Numbers of RBX, RBP, RSI and RDI. Functions keep these registers, and R12 to R15: what is in them when a
function returns was put there by who called it."""
_SIB, _RIP = 4, 5
"""Numbers in ModRM that name no register, if the operand is in memory."""
_LEADS = f"{__name__}: leads"


class CallSite(NamedTuple):
    """A user-mode frame in an image whose code equals the code in most processes.

    Attributes:
        place: the frame; `guessed` is cleared if only the missing call made it a guess
        called: whether a call precedes the address; None if that code is not in memory
        jumps: whether the code at the address is a jump through a register or memory
    """

    place: FramePlace
    called: Optional[bool]
    jumps: bool


def call_site(stack: StackRecord, check: str, facts: CheckFacts) -> Iterator[CallSite]:
    """Yields the frames found by unwind data whose address follows no call or points to a jump.

    Args:
        stack: stack of 64-bit code
        check: name of the check for which `facts.left_out` reports code that could not be compared
    """
    if stack.space.machine is not Machine.AMD64 or not stack.walked:
        return
    leave_out_sections(check, stack, facts)
    # These doubts do not name the frame at which they begin.
    doubted = has_status(stack.status, *_DOUBTS)
    sure = True
    for place in frame_places(stack):
        if not sure:
            return
        frame, address = stack.walked[place.number], place.address
        sure = frame.sure
        if frame.how not in (UNWIND, LEAF) or not facts.is_user(address) or place.name.backing != IMAGE:
            continue
        site = functools.partial(_site, stack.space, address, facts)
        # Stacks share most of their return addresses.
        called, jumps = facts.find_once(__name__, stack.space, address, site)
        if (called and not jumps) or _by_name(place):
            continue
        if called is None:
            facts.leave_out(check, NOT_IN_MEMORY, place.frame.details.module or place.name.symbol)
            if not jumps:
                continue
        # Absent code cannot be compared, and a jump is a jump whatever precedes it.
        start = address if called is None else address - LONGEST_CALL
        comparison = facts.copies.compare(stack.space, start, address + _JUMP_LENGTH)
        module = place.frame.details.module or place.name.symbol
        facts.leave_out_code(check, comparison.reason, stack.space, place.at, module)
        if comparison.equal:
            yield CallSite(place._replace(guessed=doubted and not sure), called, jumps)


class LeftJump(NamedTuple):
    """A value on a stack that leads to a jump through a register which functions keep.

    Attributes:
        slot: where on the stack it lies
        called: whether a call precedes the jump; None if that code is not in memory
    """

    thread: Thread
    address: int
    slot: int
    called: Optional[bool]


def left_jumps(stack: StackRecord, facts: CheckFacts) -> Iterator[LeftJump]:
    """Yields values on a stack that lost pages cut, which lead to such jumps in images.

    A scan takes only values behind a call: it passes by gadgets. Other values lead to no such jump: functions
    do not begin with one, and thunks jump through memory or RAX.
    """
    thread, space = cut_thread(stack), stack.space
    if thread is None:
        return
    for slot, address in stack_values(stack, thread, facts):
        called, jumps = facts.find_once(
            _LEADS, space, address, functools.partial(_lead, space, address, facts)
        )
        if jumps:
            yield LeftJump(thread, address, slot, called)


def _lead(space: AddressSpace, address: int, facts: CheckFacts) -> Tuple[Optional[bool], bool]:
    """Returns `called` of a value, see `LeftJump`, and whether it leads to such a jump in an image."""
    vad = facts.vad(space, address)
    code = None if vad is None or not vad.image else facts.copies.read(space, address, _SHORTEST_JUMP)
    if code is None or not jumps_on_kept(code) or not facts.executable(space, address):
        return None, False
    called, jumps = _site(space, address, facts)
    start = address if called is None else address - LONGEST_CALL
    return called, jumps and facts.copies.compare(space, start, address + _JUMP_LENGTH).equal


def settled(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> FramePlace:
    """Returns a frame in no module, no guess if Windows code that is equal everywhere returns to it.

    The walk doubts such a frame if the page of that code is a private copy, and the image section has lost
    the page. Other processes may still have it.
    """
    if not place.guessed or place.how not in (UNWIND, LEAF) or stack.space.machine is not Machine.AMD64:
        return place
    inner = find_place(stack, place.number - 1) if place.number else None
    if inner is None or inner.guessed or has_status(stack.status, *_DOUBTS):
        return place
    if not facts.is_user(inner.at) or not facts.of_windows(stack.space, inner.at):
        return place
    _, ranges = function_at(stack.space, inner, facts)
    comparison = facts.copies.compare_ranges(stack.space, ranges)
    alike = comparison.equal and not comparison.split and comparison.others != 1
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


def jumps_on_kept(code: bytes) -> bool:
    """Returns whether code is a jump through a register which functions keep, or through memory at one."""
    if not jumps_on(code):
        return False
    prefix, operand = (code[0], code[2]) if code[0] in _REX else (0, code[1])
    mode, register = operand >> 6, operand & 7
    if mode != 3 and (register == _SIB or (not mode and register == _RIP)):
        return False
    return register >= _SIB if prefix & _REX_B else register in _KEPT


def _by_name(place: FramePlace) -> bool:
    """Returns whether the frame's function is one to which only a fabricated stack returns."""
    plain = undecorated(place.frame.details.function)
    return plain in NOT_BY_A_CALL or plain.startswith(_DISPATCHERS)
