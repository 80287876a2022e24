# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `no_call`: a return address that does not follow a call."""

from __future__ import annotations

from typing import Iterator

from ...columns.words import LIKELY, LOW, MEDIUM, POSSIBLE, USER
from ...stacklist.stack import StackRecord
from ..code.returns import call_site
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, place_finding

NAME = "no_call"

_HAND_WRITTEN = (
    "code written by hand, which may push a return address: the module is not a DLL in Windows' folder"
)


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the first frame of a stack whose return address follows no call, and points to no jump."""
    for place, called, jumps in call_site(stack, NAME, facts):
        if called is False and not jumps:
            evidence = f"no call before {place.address:#x}; {facts.memory(stack.space, place.address)}"
            of_windows = facts.of_windows_dll(stack.space, place.at)
            severity, confidence, innocent = (
                (MEDIUM, LIKELY, NONE_KNOWN) if of_windows else (LOW, POSSIBLE, _HAND_WRITTEN)
            )
            yield place_finding(stack, place, severity, confidence, evidence, innocent, stack.trace_id)
            return


CHECK = Check(
    NAME,
    "T1055",
    (USER,),
    "The code before a return address is not a call, so the frame was made in another way. Unwind data "
    "found the address, and other processes have the same code there.",
    "medium; low in programs and in modules outside Windows' folder, and if missing or changed code "
    "makes the walk unsure",
    "Hand-written code that pushes a return address. The check leaves out Go's goexit and the "
    "dispatchers of ntdll.",
    "Look at the frames around it with windows.callstacks --tid; the true callers may be further out.",
    "no thread has a stack in user mode",
    head="a return address that no call made",
    of_stack=check_stack,
    intel=True,
)
