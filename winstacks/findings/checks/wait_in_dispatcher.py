# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `wait_in_dispatcher`: a dispatcher of callbacks called a wait directly.

Code that sleeps encrypted lets the thread pool, or an APC, call the wait, so that none of its own code is on
the stack. An ordinary program waits in a callback of its own, which lies between the wait and the dispatcher.
"""

from __future__ import annotations

import functools
from typing import FrozenSet, Iterator, List, Tuple

from ...columns.words import (
    BY_CALL,
    FRAME_POINTER,
    IMAGE,
    LIKELY,
    LOW,
    MEDIUM,
    NEAREST,
    NONE,
    PRIVATE,
    SYSCALL,
    TRAP,
    UNMAPPED,
    USER,
    WOW64,
)
from ...memory.decode.machine import Machine
from ...memory.decode.text import ShortText
from ...memory.image import AddressSpace
from ...names.decode import exports
from ...names.decode.pe import HeaderError, read_headers
from ...names.decode.rules import undecorated
from ...stacklist.stack import StackRecord
from ...waits.chains import described
from ..code.explanations import explained
from ..code.lostsections import leave_out_sections
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, FramePlace, frame_places, place_finding

NAME = "wait_in_dispatcher"

POOL = (
    *("RtlpTpTimerCallback", "RtlpTpWorkCallback", "RtlpTpWaitCallback", "RtlpTpIoCallback"),
    *("TppTimerpExecuteCallback", "TppWorkpExecuteCallback", "TppWaitpExecuteCallback"),
    *("TppIopExecuteCallback", "TppSimplepExecuteCallback", "TppExecuteWaitCallback"),
)
"""Functions of ntdll's thread pool that call callbacks; none of them is exported."""

APC = ("KiUserApcDispatcher", "RtlDispatchAPC", "BaseDispatchAPC")
"""Functions that call the routines of APCs."""

WAITS = (
    *(
        "NtWaitForSingleObject",
        "NtWaitForMultipleObjects",
        "NtDelayExecution",
        "NtSignalAndWaitForSingleObject",
    ),
    *(
        "ZwWaitForSingleObject",
        "ZwWaitForMultipleObjects",
        "ZwDelayExecution",
        "ZwSignalAndWaitForSingleObject",
    ),
)
"""System calls that wait."""

AROUND = (
    *("WaitForSingleObject", "WaitForSingleObjectEx", "WaitForMultipleObjects", "WaitForMultipleObjectsEx"),
    *("Sleep", "SleepEx", "SignalObjectAndWait", "RtlDelayExecution"),
)
"""Windows functions that call these system calls."""

RETURN = "KiFastSystemCallRet"
"""Return address of a system call by sysenter on x86: a return instruction, to the stub that made the
call."""

_MODULES = ("ntdll", "kernel32", "kernelbase")
_JUMP = "a callback that ends with a jump to the wait, or to the function of Windows"
_CHAIN = "a 32-bit callback without a frame pointer, which is not on the chain of frames"
_NAMELESS = ShortText(
    "without symbols of ntdll (--fetch-symbols) the functions of its thread pool have no names",
    "no symbols of ntdll: --fetch-symbols",
)


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the dispatcher that called a wait, or called a waiting callback in private memory."""
    frames = frame_places(stack)
    first = next(frames, None)
    if first is None or first.number or first.how != TRAP:
        return
    leave_out_sections(NAME, stack, facts)
    if _is_in(first, (RETURN,)):
        first = next(frames, None)
    if first is None or not (_is_in(first, WAITS) or _is_service(stack, first, facts)):
        return
    if not _has_names(stack.space, facts):
        facts.leave_out(NAME, _NAMELESS, stack.space.process)
    inner: List[FramePlace] = [first]
    for place in frames:
        if _is_in(place, POOL + APC) and place.name.source != NEAREST:
            yield from _called(stack, inner, place, facts)
            return
        inner.append(place)


def _called(
    stack: StackRecord, inner: List[FramePlace], dispatcher: FramePlace, facts: CheckFacts
) -> Iterator[Finding]:
    """Yields a finding if the dispatcher's callee is suspect; `inner`: frames from the wait outwards."""
    callback = inner[-1]
    evidence = f"{inner[0].name.symbol} called by {dispatcher.name.symbol}"
    if callback.name.backing in (PRIVATE, UNMAPPED, NONE):
        severity, _, innocent = explained(stack.space, callback.at, facts)
        severity = LOW if severity == LOW else MEDIUM
        evidence += f" through {callback.address:#x}; {facts.memory(stack.space, callback.address)}"
    elif all(_is_in(place, WAITS + AROUND) for place in inner) or _is_api(stack, inner, facts):
        severity, innocent = MEDIUM, _JUMP
        evidence += f"; {facts.memory(stack.space, dispatcher.address)}"
    else:
        return
    wait = None if stack.thread is None else facts.wait_of(stack.thread)
    if wait is not None and wait.awaited[0].known != BY_CALL:
        evidence += f"; WaitsFor {described(wait)}"
    if stack.space.machine is Machine.I386 and any(
        item.how == FRAME_POINTER for item in (*inner, dispatcher)
    ):
        severity, innocent = LOW, _CHAIN if innocent in (_JUMP, NONE_KNOWN) else f"{_CHAIN}; {innocent}"
    yield place_finding(stack, dispatcher, severity, LIKELY, evidence, innocent, stack.trace_id)


def _is_service(stack: StackRecord, first: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a stack begins with a system call by a module of Windows, whatever it does."""
    entry = stack.entry
    return entry is not None and entry.kind == SYSCALL and facts.of_windows(stack.space, first.at)


def _is_api(stack: StackRecord, inner: List[FramePlace], facts: CheckFacts) -> bool:
    """Returns whether a dispatcher called a function that Windows exports, and no other module is further in.

    Windows' own callbacks are not exported.
    """
    space, callback = stack.space, inner[-1]
    if callback.guessed or not all(
        place.name.backing == IMAGE and facts.of_windows_dll(space, place.at) for place in inner
    ):
        return False
    function, module = undecorated(callback.frame.details.function), callback.frame.details.module or ""
    known_module = facts.namer(space).module_at(callback.at)
    if not function or module.lower() not in _MODULES or known_module is None:
        return False
    base = known_module.module.base
    exported = functools.partial(_exported, space, base, facts)
    return function in facts.find_once(f"{__name__}: exports", space, base, exported)


def _exported(space: AddressSpace, base: int, facts: CheckFacts) -> FrozenSet[str]:
    """Returns the names that the module at an address exports, by the section of its file."""
    reader = facts.copies.original(space, base)
    try:
        headers = None if reader is None else read_headers(reader.read)
    except HeaderError:
        headers = None
    if reader is None or headers is None:
        return frozenset()
    entries = exports.read_exports(reader.load, headers, exports.MAX_EXPORTS).entries
    return frozenset(undecorated(label) for _, label in entries)


def _is_in(place: FramePlace, functions: Tuple[str, ...]) -> bool:
    """Returns whether a frame is in one of several Windows functions."""
    if place.name.symbol.partition("!")[0].lower() not in _MODULES:
        # The details of most frames are not needed otherwise.
        return False
    details = place.frame.details
    return undecorated(details.function) in functions and (details.module or "").lower() in _MODULES


def _has_names(space: AddressSpace, facts: CheckFacts) -> bool:
    """Returns whether a process's ntdll has symbols."""
    names = facts.namer(space)
    ntdll = names.process.ntdlls.get(space.machine)
    known_module = None if ntdll is None else names.module_at(ntdll.base)
    return known_module is not None and known_module.image.symbols is not None


CHECK = Check(
    NAME,
    "T1497.003, T1055.004",
    (USER, WOW64),
    "A thread waits, and the thread pool or the dispatcher of APCs itself called the wait, or another "
    "function that Windows exports: no callback is between them, or the callback is in private memory.",
    "medium; low if the dispatcher was found by a guess or by 32-bit frame pointers, and if the process "
    "registered a function table for the callback",
    "A callback that ends with a jump to the wait leaves no frame; a 32-bit callback without a frame "
    "pointer may leave none. A callback that waits itself is not a finding.",
    "Look at the timers and the other threads of the process; see context_on_stack and history_unbacked.",
    "no thread has a stack in user mode",
    head="a wait without a callback",
    of_stack=check_stack,
)
