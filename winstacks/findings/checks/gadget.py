# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `gadget`: a return address that points to a jump through a register or memory."""

from __future__ import annotations

from typing import Iterator

from ...columns.words import LIKELY, LOW, MEDIUM, POSSIBLE, USER
from ...stacklist.stack import StackRecord
from ..code.returns import call_site
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, FramePlace, place_finding

NAME = "gadget"

_THUNK = b"\xff\x25"
_CALLED = "a call precedes the jump, which belongs to a thunk"
_UNREAD = "the code before the jump is not in the image: it may be a call"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames of a stack whose return address points to a jump that leads elsewhere."""
    for place, called, jumps in call_site(stack, NAME, facts):
        if not jumps:
            continue
        origin = "a call" if called else "code that cannot be read" if called is None else "no call"
        evidence = f"a jump at {place.address:#x}, {origin} before it; "
        evidence += facts.memory(stack.space, place.address)
        severity, confidence, innocent = (
            (MEDIUM, LIKELY, NONE_KNOWN)
            if called is False or (called and not _is_thunk(stack, place, facts))
            else (LOW, POSSIBLE, _UNREAD if called is None else _CALLED)
        )
        group = (stack.space.layer_name, place.address)
        yield place_finding(stack, place, severity, confidence, evidence, innocent, group)


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
    "there.",
    "medium; low if the code before the jump is not in memory, if the jump is a thunk (FF 25) behind a "
    "call, and if the walk is unsure",
    "A call with a jump through a pointer behind it, as in thunks.",
    "Look at the frames around it with windows.callstacks --tid: the registers show the target of the jump.",
    "no thread has a stack in user mode",
    head="a return to a gadget",
    of_stack=check_stack,
    intel=True,
)
