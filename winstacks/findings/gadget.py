# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `gadget`: a return address at which code only jumps on, through a register or memory."""

from __future__ import annotations

from typing import Iterator

from ..flat.decode.schema import USER
from ..flat.stack import FlatStack
from .facts import CheckFacts
from .finding import LIKELY, LOW, MEDIUM, NONE_KNOWN, POSSIBLE, Check, Finding, of_place
from .returns import returned

NAME = "gadget"

_CALLED = "a call before it: code that jumps on after it, as thunks do"


def find(stack: FlatStack, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames of a stack to which a return leads, and from which a jump leads elsewhere."""
    for place, called, jumps in returned(stack, NAME, facts):
        if not jumps:
            continue
        said = "a call" if called else "code that cannot be read" if called is None else "no call"
        evidence = f"a jump at {place.address:#x}, {said} before it; "
        evidence += facts.memory(stack.space, place.address)
        severity, confidence, innocent = (
            (MEDIUM, LIKELY, NONE_KNOWN) if called is False else (LOW, POSSIBLE, _CALLED)
        )
        group = (stack.space.layer_name, place.address)
        yield of_place(stack, place, severity, confidence, evidence, innocent, group)


CHECK = Check(
    NAME,
    "T1055",
    (USER,),
    "A return address, found by unwind data, in an image that is as other processes have it, is that of a "
    "jump through a register or memory: who returns there goes on elsewhere.",
    "medium; low with a call or code that is not in memory before it, and where the walk is unsure",
    "A call that is followed by a jump through a pointer, such as a thunk's.",
    "Look at the frames around it with windows.callstacks --tid: registers say where the jump leads.",
    "no thread has a stack in user mode",
    of_stack=find,
)
