# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `shadow_stack`: a thread's shadow stack holds other return addresses than its stack.

A call pushes its return address onto both; an interrupt in the kernel pushes CS, the interrupted address and
the shadow stack pointer (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, "Shadow
stacks").
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Set, Tuple

from ..columns.words import KERNEL, LIKELY, MEDIUM, USER
from ..process.thread import RUNNING, TERMINATED, Thread
from ..stacklist.stack import StackRecord
from .facts import CheckFacts
from .finding import Check, Finding, place_finding, unbacked_frames
from .shadowstacks import POINTER, USER_FLAG, ShadowStack, kernel_shadow_stack, of_user

NAME = "shadow_stack"

_LEAD = {KERNEL: 4, USER: 0}
"""The most calls above the innermost frame of a walk, by kind: the calls of the thread switch itself."""

_RAN = "the thread ran while the image was taken"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the first frame of a stack that contradicts its shadow stack."""
    thread, agreed, shadow = stack.thread, 0, _shadow(stack, facts, noted=True)
    if thread is None or shadow is None:
        return
    for number, value in _compared(stack, shadow.returns):
        if value is None:
            agreed += 1
            continue
        for place in unbacked_frames(stack):
            if place.number == number:
                name = facts.namer(stack.space).name(value)
                instead = f"has {value:#x} {name.symbol}, {agreed} frames before agree"
                evidence = f"shadow stack {shadow.start:#x} {instead}"
                group = (stack.kind, thread.ethread, thread.tid)
                yield place_finding(stack, place, MEDIUM, LIKELY, evidence, _RAN, group)


def confirmed(stack: StackRecord, facts: CheckFacts) -> Set[int]:
    """Returns the numbers of the frames of a stack that its shadow stack confirms."""
    shadow = _shadow(stack, facts)
    if shadow is None:
        return set()
    return {number for number, other in _compared(stack, shadow.returns) if other is None}


def _shadow(stack: StackRecord, facts: CheckFacts, noted: bool = False) -> Optional[ShadowStack]:
    """Returns the shadow stack that belongs to a stack, None if there is none to compare.

    Args:
        noted: whether to note the reason as left out
    """
    thread = stack.thread
    if stack.kind not in _LEAD or thread is None or not _waits(stack, thread):
        return None
    shadow = (kernel_shadow_stack if stack.kind == KERNEL else of_user)(thread, facts)
    if isinstance(shadow, ShadowStack):
        return shadow
    if noted and shadow:
        facts.leave_out(NAME, shadow, thread.space.process)
    return None


def _waits(stack: StackRecord, thread: Thread) -> bool:
    return bool(stack.frames) and not thread.unusable and thread.state not in (RUNNING, TERMINATED)


def _compared(stack: StackRecord, shadow: List[int]) -> Iterator[Tuple[int, Optional[int]]]:
    """Yields the numbers of the frames that agree, then the first that differs, with its shadow address.

    The comparison ends where the shadow stack ends, at the first guess of the walk, and in user mode where a
    dispatcher continues with a state that Windows saved: the content of the shadow stack there is not
    documented.
    """
    position, agreed, lead = 0, 0, _LEAD[stack.kind]
    for number, walked in enumerate(stack.walked):
        if not walked.sure or position >= len(shadow):
            return
        if not walked.returns and stack.kind == USER:
            if number:
                return
            continue
        if not walked.returns:
            # An interrupt may be on the shadow stack; the frame that a dispatcher continues with is not.
            position += shadow[position] == walked.address
            continue
        reach = shadow[position : position + (1 if agreed else lead + 1)]
        if walked.address not in reach:
            yield number, shadow[position]
            return
        yield number, None
        position += reach.index(walked.address) + 1
        agreed += 1


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the threads have no shadow stacks, or which of them have none that can be read."""
    thread = facts.image.types.first_structure("_ETHREAD")
    members = {"KernelShadowStack": (POINTER,), "CetUserShadowStack": USER_FLAG}
    missing = [
        name for name, paths in members.items() if thread is None or thread.first_member(*paths) is None
    ]
    reasons = [f"the threads of this kernel have no {' and no '.join(missing)}"] if missing else []
    reasons.extend(facts.left_out(NAME))
    if reasons:
        yield "; ".join(reasons)


CHECK = Check(
    NAME,
    "T1055",
    (KERNEL, USER),
    "The shadow stack, in which the processor keeps return addresses, has another address than the "
    "thread's stack at this frame: the stack was changed.",
    "medium; frames that a scan found are not compared",
    "An image is not a snapshot: if the thread ran during acquisition, its shadow stack is newer than its "
    "stack.",
    "Compare the frames with the rows of windows.callstacks --tid; look at both stacks with volshell -w.",
    "no stack of a thread could be walked",
    of_stack=check_stack,
    unchecked=unchecked,
    kernel=True,
)
