# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `truncated`: a walk without doubt ends at a function in which no Windows stack ends.

An attacker who writes a null return address, or builds fabricated frames, hides the callers above from every
debugger. A walk that was sure of each step and ended at a null return address must end in a function in which
threads begin.
"""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ...columns.words import (
    IMAGE,
    KERNEL,
    LIKELY,
    LOW,
    MEDIUM,
    MODULE,
    NEAREST,
    POSSIBLE,
    THREAD_KINDS,
    USER,
    WOW64,
)
from ...memory.decode.machine import Machine
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.status import NOTHING, contradicted
from ...memory.decode.structure import integers
from ...memory.decode.text import counted
from ...names.decode.rules import undecorated
from ...process.processlist import is_isolated, process_member
from ...process.thread import Thread
from ...process.userstacks import UserStacks
from ...stacklist.stack import StackRecord
from ..code.runtimes import is_go
from ..facts import SWITCHING, CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, frame_places, place_finding
from ..ground import GROUND, GROUND_MODULES, ends_in_ground, in_ground_module

_SINCE_VISTA, _BEFORE = ("ntdll", "RtlUserThreadStart"), ("kernel32", "BaseThreadStart")
_NO_NAME = (MODULE, NEAREST)

_ALIVE = contradicted("State")
"""Status of a thread that has ended by its State alone."""
_FIBER = "a fiber: the TEB has fiber data"
_ZEROS = "a page of the stack that could not be read when the image was taken: it is all zeros"
_NO_GROUND = "a coroutine's stack: no return address to the first function of a thread is above it"
_MOST_ABOVE = 1 << 20
"""The most bytes of a stack above its outermost frame that are searched."""
_NARROW_CHAIN = "32-bit code without a frame pointer, which ends the chain of frames"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the outermost frame of a stack that ends where no Windows stack ends."""
    thread = stack.thread
    if thread is None or stack.status not in (NOTHING, _ALIVE) or not stack.walked or thread.ended:
        return
    if ends_in_ground(stack):
        return
    may_be_ground = in_ground_module(stack)
    if not all(frame.sure for frame in stack.walked):
        return
    *_, place = frame_places(stack)
    if place.number != len(stack.frames) - 1 or place.name.backing != IMAGE:
        return
    if may_be_ground and place.name.source in _NO_NAME:
        return
    if not _tells(stack, facts):
        return
    explained = _explained(stack, thread, facts)
    if explained is None:
        return
    severity, innocent = explained
    sp = stack.walked[-1].sp
    evidence = f"the outermost of {counted(len(stack.frames), 'frame')}, Sp {sp:#x}; "
    evidence += facts.memory(stack.space, place.address)
    confidence = POSSIBLE if severity == LOW else LIKELY
    yield place_finding(stack, place, severity, confidence, evidence, innocent, stack.trace_id)


def _tells(stack: StackRecord, facts: CheckFacts) -> bool:
    """Returns whether the functions in which stacks of the process end have names in the image."""
    if stack.kind == KERNEL:
        return True
    for module, function in (_SINCE_VISTA, _BEFORE):
        for known_module in facts.namer(stack.space).modules(module):
            if known_module.image.names.rva_of(function) is not None:
                return True
    return False


def _explained(stack: StackRecord, thread: Thread, facts: CheckFacts) -> Optional[Tuple[str, str]]:
    """Returns severity and innocent explanation; None if the process's stacks may end anywhere."""
    eprocess = stack.space.eprocess
    if stack.kind != KERNEL:
        others = ("PicoContext", "Minimal")
        if any(process_member(facts.image, eprocess, path) for path in others):
            return None
        if is_isolated(facts.image, eprocess):
            return None
    if _zeros(stack, facts):
        return LOW, _ZEROS
    if stack.kind in (USER, WOW64):
        if _has_fibers(stack, thread, facts):
            return LOW, _FIBER
        runtimes = facts.runtimes(stack.space, SWITCHING)
        if runtimes or is_go(stack, facts):
            return LOW, f"{', '.join(runtimes) or 'Go'}: a runtime that switches stacks"
    if stack.space.machine is Machine.I386:
        return LOW, _NARROW_CHAIN
    if stack.kind != KERNEL and not _ground_above(stack, thread, facts):
        return LOW, _NO_GROUND
    return MEDIUM, NONE_KNOWN


def _zeros(stack: StackRecord, facts: CheckFacts) -> bool:
    """Returns whether the page with the outermost frame's return address is lost or all zeros."""
    page = stack.walked[-1].sp // PAGE_SIZE * PAGE_SIZE
    data = facts.image.memory(stack.space).read(page, PAGE_SIZE)
    return data is None or not any(data)


def _ground_above(stack: StackRecord, thread: Thread, facts: CheckFacts) -> bool:
    """Returns whether a return address to a function in which threads begin lies above the outermost frame.

    True if unknown, because the limits of the stack are unknown.
    """
    sp, size = stack.walked[-1].sp, stack.space.machine.pointer_size
    limits = facts.image.service(UserStacks)
    ranges = limits.narrow(thread) if stack.kind == WOW64 else limits.native(thread)
    high = next((high for low, high in ranges if low <= sp <= high), None)
    if high is None:
        return True
    names = facts.namer(stack.space)
    modules = [known_module for module_name in GROUND_MODULES for known_module in names.modules(module_name)]
    extents = facts.image.memory(stack.space).load(sp, min(high - sp, _MOST_ABOVE))
    for _, data in extents.runs:
        for value in integers(bytes(data), size):
            for known_module in modules:
                rva = value - known_module.module.base
                label = (
                    known_module.image.names.find_label(rva) if 0 <= rva < known_module.module.size else None
                )
                if label is not None and undecorated(label[1]) in GROUND:
                    return True
    return False


def _has_fibers(stack: StackRecord, thread: Thread, facts: CheckFacts) -> bool:
    """Returns whether a thread was converted to a fiber, or may have been."""
    field = facts.image.process_types(thread.space.machine).find("_TEB").first_member("HasFiberData")
    if field is None or not thread.teb:
        return False
    return facts.image.memory(thread.space).member(thread.teb, field) != 0


CHECK = Check(
    "truncated",
    "T1036",
    THREAD_KINDS,
    "The walk is sure of each step, but ends in a function in which no thread begins: the frames of the "
    "callers were cut off.",
    "medium; low for 32-bit stacks, for fibers, for runtimes that switch stacks, if no return address "
    "to the first function of a thread is above the last frame, and if the page of the stack is all "
    "zeros",
    "Fibers; runtimes that switch stacks, such as Go's; pages that could not be read when the image was "
    "taken.",
    "Look at the stack above the outermost frame; windows.callstacks --tid shows the rest of the thread.",
    "no stack of a thread could be walked",
    head="a stack that ends where no thread begins",
    of_stack=check_stack,
)
