# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `returns_nowhere`: a sure walk leads to a return address where no memory is.

A function returns to its caller, and callers are code. A stack on which somebody wrote an address of no
memory (or another frame pointer, which lets the walk leave the stack) hides the callers: debuggers end
there, or go on with a guess. The walk says so only if it was sure up to there and if the VADs of the
process are complete.
"""

from __future__ import annotations

from typing import Iterator

from ...columns.words import IMAGE, LIKELY, LOW, MEDIUM, SCAN, USER
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...stacklist.stack import StackRecord
from ..code.runtimes import is_go
from ..facts import SWITCHING, CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, frame_places, place_finding

_OTHER_GAPS = (
    *(StatusCode.CODE_UNREADABLE, StatusCode.CODE_IN_NO_MODULE, StatusCode.CODE_AND_UNWIND_DATA_DIFFER),
    StatusCode.MODULE_LIST_NOT_IN_THE_FILE,
    *(StatusCode.NOT_BEHIND_A_CALL, StatusCode.NO_FUNCTION_TABLE, StatusCode.NO_UNWIND_DATA),
    *(StatusCode.UNWIND_DATA_UNREADABLE, StatusCode.UNWIND_DATA_INVALID, StatusCode.UNWIND_DATA_INCOMPLETE),
    *(StatusCode.FRAME_REGISTER_UNKNOWN, StatusCode.STACK_UNREADABLE, StatusCode.FUNCTION_TABLE_UNREADABLE),
)
"""Other reasons for guesses; those before the first one may have led the walk astray."""


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the last frame before an address of no memory, if the walk was sure up to there."""
    thread = stack.thread
    if thread is None or thread.ended or not has_status(stack.status, StatusCode.RETURNS_NOWHERE):
        return
    gaps = [item.code for item in stack.status if item.code in (StatusCode.RETURNS_NOWHERE, *_OTHER_GAPS)]
    if gaps[0] is not StatusCode.RETURNS_NOWHERE or not facts.vads_whole(stack.space):
        return
    last = None
    for place in frame_places(stack):
        if place.how == SCAN or place.guessed or place.name.backing != IMAGE:
            break
        last = place
    if last is None:
        return
    runtimes = facts.runtimes(stack.space, SWITCHING)
    switches = bool(runtimes) or is_go(stack, facts)
    switching = f"{', '.join(runtimes) or 'Go'}: a runtime that switches stacks"
    sp = stack.walked[last.number].sp
    evidence = f"the function of frame {last.number}, Sp {sp:#x}, returns to no memory; "
    evidence += facts.memory(stack.space, last.address)
    severity, innocent = (LOW, switching) if switches else (MEDIUM, NONE_KNOWN)
    yield place_finding(stack, last, severity, LIKELY, evidence, innocent, stack.trace_id)


CHECK = Check(
    "returns_nowhere",
    "T1036",
    (USER,),
    "The walk is sure of each step up to a return address where no memory is: somebody wrote it there, or "
    "changed the frame pointer, to hide the callers.",
    "medium; low for runtimes that switch stacks",
    "An image is not a snapshot: if the thread ran during acquisition, its stack is newer than its "
    "registers.",
    "Look at the stack above that frame with volshell -w; windows.callstacks --tid --candidates shows what "
    "may be return addresses.",
    "no thread has a stack in user mode",
    head="a return to no memory",
    of_stack=check_stack,
    intel=True,
)
