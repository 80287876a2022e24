# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `shadow_stack`: a thread's shadow stack holds other return addresses than its stack.

A call pushes its return address onto both; an interrupt in the kernel pushes CS, the interrupted address and
the shadow stack pointer (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, "Shadow
stacks").
"""

from __future__ import annotations

from typing import Iterator

from ...columns.words import KERNEL, LIKELY, MEDIUM, USER
from ...memory.decode.text import counted
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import Check, Finding, frame_places, place_finding
from ..shadowstacks import POINTER, USER_FLAG, compare_frames, shadow_stack_of

NAME = "shadow_stack"

_RAN = "the thread ran while the image was taken"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the first frame of a stack that contradicts its shadow stack."""
    thread, agreed, shadow = stack.thread, 0, shadow_stack_of(stack, facts, NAME)
    if thread is None or shadow is None:
        return
    for number, value in compare_frames(stack, shadow.returns):
        if value is None:
            agreed += 1
            continue
        for place in frame_places(stack):
            if place.number == number:
                name = facts.namer(stack.space).name(value)
                before = counted(agreed, "frame before agrees", "frames before agree")
                instead = f"has {value:#x} {name.symbol}, {before}"
                evidence = f"shadow stack {shadow.start:#x} {instead}"
                group = (stack.kind, thread.ethread, thread.tid)
                yield place_finding(stack, place, MEDIUM, LIKELY, evidence, _RAN, group)


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the threads have no shadow stacks, or which of them have none that can be read."""
    thread = facts.image.types.find("_ETHREAD")
    members = {"KernelShadowStack": (POINTER,), "CetUserShadowStack": USER_FLAG}
    missing = [name for name, paths in members.items() if thread.first_member(*paths) is None]
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
    head="a frame that the shadow stack lacks",
    of_stack=check_stack,
    unchecked=unchecked,
    kernel=True,
    intel=True,
)
