# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `shadow_stack`: the kernel's shadow stack of a thread has other return addresses than its stack.

A call pushes its return address onto both; an interrupt pushes CS, the interrupted address and the shadow
stack pointer (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, "Shadow stacks").
KernelShadowStack, the pointer of a thread that does not run, and KernelShadowStackBase, the upper end, are
members of _KTHREAD (public symbols of Windows 11). That they are used so is inferred.
"""

from __future__ import annotations

import struct
from typing import Iterator, List, Optional, Set, Tuple

from ...flat.decode.schema import KERNEL
from ...flat.stack import FlatStack
from ...threads.lister import RUNNING, TERMINATED, Thread
from ..facts import CheckFacts
from ..finding import LIKELY, MEDIUM, Check, Finding, of_place, places

NAME = "shadow_stack"

MAX_ENTRIES = 0x1000
"""The most entries that are read of a shadow stack."""

_LEAD = 4
"""So many calls may be above the innermost frame of a walk: those of the switch itself."""

_POINTER, _BASE = "Tcb.KernelShadowStack", "Tcb.KernelShadowStackBase"
_USER = ("Tcb.CetUserShadowStack", "Tcb.CetShadowStack")
_KERNEL_HALF = 1 << 63

_NONE = "threads without a kernel shadow stack"
_UNREADABLE = "the shadow stack is not in memory"
_IMPLAUSIBLE = "the pointers to the shadow stack contradict each other"
_OF_USER = "no public symbol says where shadow stacks of user mode are"
_RAN = "the thread ran while the image was taken"


def find(stack: FlatStack, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the first frame of a stack of the kernel that its shadow stack has otherwise."""
    thread, agreed = stack.thread, 0
    if thread is None or not _waits(stack, thread):
        return
    _note_user(thread, facts)
    entries = _entries(thread, facts)
    for number, value in _compared(stack, entries[1]) if entries is not None else ():
        if value is None:
            agreed += 1
            continue
        for place in places(stack):
            if place.number == number and entries is not None:
                name = facts.names(facts.image.kernel).name(value)
                evidence = (
                    f"shadow stack {entries[0]:#x} has {value:#x} {name.symbol}, {agreed} frames before agree"
                )
                group = (thread.ethread, thread.tid)
                yield of_place(stack, place, MEDIUM, LIKELY, evidence, _RAN, group)


def confirmed(stack: FlatStack, facts: CheckFacts) -> Set[int]:
    """Returns the numbers of the frames of a stack of the kernel that its shadow stack has, too."""
    if stack.thread is None or not _waits(stack, stack.thread):
        return set()
    entries = _entries(stack.thread, facts)
    return set() if entries is None else {at for at, other in _compared(stack, entries[1]) if other is None}


def _waits(stack: FlatStack, thread: Thread) -> bool:
    return bool(stack.frames) and not thread.unusable and thread.state not in (RUNNING, TERMINATED)


def _note_user(thread: Thread, facts: CheckFacts) -> None:
    flag = facts.image.types["_ETHREAD"].find(*_USER)
    if flag is not None and facts.image.memory(facts.image.kernel).member(thread.ethread, flag):
        facts.leave_out(NAME, _OF_USER, thread.space.process)


def _entries(thread: Thread, facts: CheckFacts) -> Optional[Tuple[int, List[int]]]:
    """Returns a thread's shadow stack pointer and the code addresses from there on; None without one."""
    types, memory = facts.image.types["_ETHREAD"], facts.image.memory(facts.image.kernel)
    pointer, base = types.find(_POINTER), types.find(_BASE)
    if pointer is None or base is None:
        return None
    start, end = memory.member(thread.ethread, pointer), memory.member(thread.ethread, base)
    if not start:
        facts.leave_out(NAME, _NONE, thread.space.process)
        return None
    if not end or start % 8 or not _KERNEL_HALF <= start < end <= start + 8 * MAX_ENTRIES:
        facts.leave_out(NAME, _IMPLAUSIBLE, thread.space.process)
        return None
    data = memory.load(start, end - start).read(start, end - start)
    if data is None:
        facts.leave_out(NAME, _UNREADABLE, thread.space.process)
        return None
    low = start - 8 * MAX_ENTRIES
    # What is no code: tokens and saved shadow stack pointers, which point into the shadow stack, and CS.
    values = (value for (value,) in struct.iter_unpack("<Q", data[: (end - start) // 8 * 8]))
    return start, [value for value in values if value >= _KERNEL_HALF and not low <= value <= end]


def _compared(stack: FlatStack, shadow: List[int]) -> Iterator[Tuple[int, Optional[int]]]:
    """Yields the numbers of the frames that agree, and last the first other one with what is in its place.

    It ends where the shadow stack ends, and at the first guess of the walk.
    """
    position, agreed = 0, 0
    for number, walked in enumerate(stack.walked):
        if not walked.sure or position >= len(shadow):
            return
        if not walked.returns:
            # An interrupt may be on the shadow stack; what a dispatcher goes on with is not.
            position += shadow[position] == walked.address
            continue
        reach = shadow[position : position + (1 if agreed else _LEAD + 1)]
        if walked.address not in reach:
            yield number, shadow[position]
            return
        yield number, None
        position += reach.index(walked.address) + 1
        agreed += 1


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the kernel's threads have no shadow stacks, or which have none that can be read."""
    if facts.image.types["_ETHREAD"].find(_POINTER) is None:
        yield "the threads of this kernel have no KernelShadowStack"
    reasons = list(facts.left_out(NAME))
    if reasons:
        yield "; ".join(reasons)


CHECK = Check(
    NAME,
    "T1055",
    (KERNEL,),
    "The processor's own record of return addresses, the shadow stack, has another address where the stack "
    "of a thread in the kernel has this frame: the stack was changed.",
    "medium; frames that a scan found are not compared",
    "The image is no snapshot: a thread that ran meanwhile has a newer shadow stack than stack.",
    "Compare the frames with those of windows.callstacks --tid; look at both stacks with volshell -w.",
    "no stack of a thread could be walked",
    of_stack=find,
    unchecked=unchecked,
)
