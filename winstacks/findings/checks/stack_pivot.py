# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `stack_pivot`: the stack pointer of a thread is outside the limits in its TEB.

Windows' own functions that switch stacks (fibers, callbacks of the kernel) write the new limits into the
TEB, because exceptions are only handled on a stack within them (`RtlDispatchException`). Code that points
Rsp at other memory, as exploits and fabricated stacks do ("stack pivot"), seldom does.
"""

from __future__ import annotations

from typing import Iterator, Optional

from ...columns.words import IMAGE, LIKELY, LOW, MEDIUM, POSSIBLE, USER
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...process.processlist import process_member
from ...process.userstacks import UserStacks
from ...stacklist.stack import StackRecord
from ..code.runtimes import is_go
from ..facts import SWITCHING, CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, doubts_of, find_place, frame_places, place_finding

NAME = "stack_pivot"

_NOT_ITS_TEB = "KTHREAD.Teb leads to no TEB of the thread"
_NO_MEMORY = "the stack pointer of a thread leads to no memory of its process"
_OWN = "a program or DLL outside Windows' folder, which may switch stacks for coroutines, is on the stack:"
_CONTRADICTED = "registers or limits may be those of another thread: Status"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the innermost frame of a stack that lies in other memory than the TEB says."""
    thread = stack.thread
    if thread is None or not has_status(stack.status, StatusCode.STACK_LIMITS_UNKNOWN):
        return
    place = find_place(stack, 0)
    if place is None or thread.ended or not stack.walked or not thread.space.layer_name:
        return
    sp = stack.walked[0].sp
    limits = facts.image.service(UserStacks).native(thread)
    if not limits and thread.teb and not thread.own_teb:
        facts.leave_out(NAME, _NOT_ITS_TEB, stack.space.process)
    # A thread of a pico process has no TEB; one whose TEB is not in the image has unknown limits.
    if not limits or any(low <= sp <= high for low, high in limits):
        return
    if process_member(facts.image, stack.space.eprocess, "PicoContext"):
        return
    vad = facts.vad(stack.space, sp)
    # Without memory there the thread could not run: the registers, or the VADs, are in doubt.
    if vad is None:
        facts.leave_out(NAME, _NO_MEMORY, stack.space.process)
    if vad is None or vad.image:
        return
    where = f"in {vad.start:#x}-{vad.end - 1:#x} {vad.protection_name}"
    said = ", ".join(f"{low:#x}-{high:#x}" for low, high in limits)
    evidence = f"Sp {sp:#x} {where}, the TEB says {said}; {facts.memory(stack.space, place.address)}"
    switches = _switches(stack, facts)
    innocent = NONE_KNOWN if switches is None else switches
    severity, confidence = MEDIUM if switches is None else LOW, LIKELY
    if doubts_of(stack.status) and not facts.image.kernel_stacks:
        severity, confidence, innocent = LOW, POSSIBLE, f"{_CONTRADICTED}; {innocent}"
    yield place_finding(stack, place, severity, confidence, evidence, innocent, stack.trace_id)


def _switches(stack: StackRecord, facts: CheckFacts) -> Optional[str]:
    """Returns what in a process may switch stacks without the TEB: a runtime, or a module on the stack."""
    runtimes = facts.runtimes(stack.space, SWITCHING)
    if runtimes or is_go(stack, facts):
        return f"{', '.join(runtimes) or 'Go'}: a runtime that switches stacks"
    for place in frame_places(stack, IMAGE):
        if not facts.of_windows(stack.space, place.at):
            return f"{_OWN} {place.name.symbol}"
    return None


CHECK = Check(
    NAME,
    "T1055",
    (USER,),
    "The stack pointer of a thread is outside the limits in its TEB: the thread runs on memory that is not "
    "its stack.",
    "medium; low for runtimes that switch stacks, if a module outside Windows' folder is on the stack, and "
    "in the dump of a process if the Status of the stack is contradicted",
    "Coroutines of programs and runtimes have stacks of their own, and some leave the TEB as it is.",
    "Look at the memory at the stack pointer with windows.vadinfo; windows.trapframes --tid shows the "
    "registers.",
    "no thread has a stack in user mode",
    head="a stack pointer outside the thread's stack",
    of_stack=check_stack,
)
