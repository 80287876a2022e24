# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `gadget`: a return address that points to a jump through a register or memory."""

from __future__ import annotations

from typing import Iterator, Optional

from ...columns.words import LIKELY, LOW, MEDIUM, POSSIBLE, SCAN, USER
from ...stacklist.stack import StackRecord
from ..code.returns import call_site, left_jumps
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, FramePlace, place_finding, thread_finding

NAME = "gadget"

_THUNK = b"\xff\x25"
_CALLED = "a call precedes the jump, which belongs to a thunk"
_LEFT = f"{NONE_KNOWN}; no walk leads to the value, because pages are not in the image: it may be old"
_UNREAD = "the code before the jump is not in the image: it may be a call"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames of a stack whose return address points to a jump that leads elsewhere."""
    for place, called, jumps in call_site(stack, NAME, facts):
        if not jumps:
            continue
        evidence = f"{_jump(place.address, called)}{facts.memory(stack.space, place.address)}"
        severity, confidence, innocent = (
            (MEDIUM, LIKELY, NONE_KNOWN)
            if called is False or (called and not _is_thunk(stack, place, facts))
            else (LOW, POSSIBLE, _UNREAD if called is None else _CALLED)
        )
        group = (stack.space.layer_name, place.address)
        yield place_finding(stack, place, severity, confidence, evidence, innocent, group)
    for left in left_jumps(stack, facts):
        evidence = f"{_jump(left.address, left.called)}{facts.memory(stack.space, left.address)}"
        evidence += f"; the stack has the address at {left.slot:#x}"
        finding = thread_finding(
            *(stack, left.thread, LOW, POSSIBLE, evidence, _LEFT, left.address),
            facts.namer(stack.space).name(left.address).symbol,
        )
        yield finding._replace(group=(stack.space.layer_name, left.address), how=SCAN)


def _jump(address: int, called: Optional[bool]) -> str:
    origin = "a call" if called else "code that cannot be read" if called is None else "no call"
    return f"a jump at {address:#x}, {origin} before it; "


def _is_thunk(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a jump belongs to a thunk, which jumps through memory: FF 25, with or without REX."""
    code = facts.copies.read(stack.space, place.address, len(_THUNK) + 1) or b""
    return code.startswith(_THUNK) or code[1:] == _THUNK


CHECK = Check(
    NAME,
    "T1055",
    (USER,),
    "The code at a return address is a jump through a register or memory: the function that returns "
    "there continues elsewhere. Unwind data found the address, and other processes have the same code "
    "there. On a stack that lost pages cut, it is any value that leads to a jump through a register which "
    "functions keep.",
    "medium; low if the code before the jump is not in memory, if the jump is a thunk (FF 25) behind a "
    "call, if the walk is unsure, and if no walk leads to the value",
    "A call with a jump through a pointer behind it, as in thunks.",
    "Look at the frames around it with windows.callstacks --tid: the registers show the target of the jump.",
    "no thread has a stack in user mode",
    head="a return to a gadget",
    of_stack=check_stack,
    intel=True,
)
