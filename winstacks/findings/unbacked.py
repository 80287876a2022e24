# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `unbacked`: a thread runs, or will continue, in private executable memory."""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ..columns.words import (
    CERTAIN,
    HIGH,
    IMAGE,
    LIKELY,
    LOW,
    MAPPED,
    MEDIUM,
    POSSIBLE,
    PRIVATE,
    THREAD_KINDS,
    TRAP,
    UNMAPPED,
)
from ..memory.decode.machine import Machine
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..process.processlist import process_member
from ..process.vads import regions
from ..stacklist.stack import StackRecord
from .facts import CheckFacts
from .finding import NONE_KNOWN, Check, Finding, FramePlace, find_place, place_finding, unbacked_frames
from .relays import of_relay
from .returns import settled
from .runtimes import runtime_neighbour
from .stubs import LONGEST, number_before, patched_stubs, start_of

NAME = "unbacked"

UNTOLD = "the process's list of function tables is not in the image; it may have this range"
"""The text of Innocent if the list of function tables cannot be read."""
_LOST = "the stack above the code is not in the image, so its caller is unknown"
_RELAY = "the relay of a hook that all processes have; the hook leads into"
_OF_PRODUCT = ", as the relay of a hook by this product does"
_MOST_NAMED = 8
"""The most processes that are named."""


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in private executable memory; one for each range."""
    for place in unbacked_frames(stack, PRIVATE, UNMAPPED, MAPPED):
        if not facts.executable(stack.space, place.at):
            continue
        if place.name.backing == MAPPED and not _is_view(stack, place, facts):
            continue
        place = settled(stack, place, facts)
        severity, lower, innocent = explained_at(stack, place, facts)
        copied = _copied(stack.space, place.address, facts) if place.how == TRAP else None
        if copied is not None:
            severity, innocent = LOW, copied
        sure = place.how == TRAP and not lower
        confidence = CERTAIN if sure else POSSIBLE if lower and place.how != TRAP else LIKELY
        vad = facts.vad(stack.space, place.at)
        group = (stack.trace_id, None if vad is None else vad.start)
        evidence = facts.memory(stack.space, place.address)
        yield place_finding(stack, place, severity, confidence, evidence, innocent, group)


def _is_view(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether code is in an executable view of a data file; pico processes run code there."""
    vad = facts.vad(stack.space, place.at)
    if vad is None or vad.image or not facts.is_user(place.at):
        return False
    return not process_member(facts.image, stack.space.eprocess, "PicoContext")


def _copied(space: AddressSpace, address: int, facts: CheckFacts) -> Optional[str]:
    """Returns the explanation of a thread that made a system call by a copied stub, or None."""
    code = (
        None
        if space.machine is not Machine.AMD64
        else facts.image.memory(space).read(address - LONGEST, LONGEST)
    )
    number = None if code is None else number_before(code)
    if code is None or number is None:
        return None
    return patched_stubs(space, facts).explains(start_of(code, address), number)


def explained(space: AddressSpace, at: int, facts: CheckFacts) -> Tuple[str, bool, str]:
    """Returns the severity and explanation of code in private memory.

    Returns:
        The severity, whether a runtime lowers the confidence, and the innocent explanation.
    """
    table, runtimes = facts.code_range(space, at), facts.runtimes(space)
    if table is not None:
        return LOW, False, table.describe
    if facts.lacks_tables(space):
        return LOW, True, UNTOLD
    if runtimes:
        return (
            HIGH,
            True,
            f"{', '.join(runtimes)} loaded: this runtime generates code, but registered none here",
        )
    return HIGH, False, NONE_KNOWN


def explained_at(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Tuple[str, bool, str]:
    """Returns the explanation of a frame in private memory: as `explained`, or a runtime next to it."""
    severity, lower, innocent = explained(stack.acting or stack.space, place.at, facts)
    runtime = runtime_neighbour(stack, place, facts) if severity == HIGH else None
    if severity == HIGH and runtime is None and lower and _cut_off(stack, place):
        return MEDIUM, True, f"{innocent}; {_LOST}"
    if runtime is None:
        served = of_relay(stack.space, place.at, facts) if severity == HIGH else None
        if served is not None:
            return LOW, True, f"{_RELAY} {served}"
        called = _called(stack, place, facts) if innocent == NONE_KNOWN else None
        return severity, lower, innocent if called is None else f"the code called {called}{_OF_PRODUCT}"
    return (LOW if runtime.within else MEDIUM), True, runtime.describe


def _called(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Optional[str]:
    """Returns the file of a module outside Windows' folder that private code called, or None.

    A module whose folder cannot be read may be Windows' own.
    """
    inner = find_place(stack, place.number - 1) if place.number and not place.guessed else None
    if inner is None or inner.name.backing != IMAGE or facts.of_windows(stack.space, inner.at):
        return None
    vad = facts.vad(stack.space, inner.at)
    if vad is not None and not facts.image.service(regions).file_name(vad.control_area):
        return None
    known_module = facts.namer(stack.space).module_at(inner.at)
    return None if known_module is None else known_module.module.file


def _cut_off(stack: StackRecord, place: FramePlace) -> bool:
    """Returns whether the stack above a frame is not in the image, so that its caller is unknown."""
    return place.number == len(stack.frames) - 1 and has_status(stack.status, StatusCode.STACK_UNREADABLE)


def untold(facts: CheckFacts) -> Iterator[str]:
    """Yields the processes whose findings became `low` for missing function tables, and the missing data."""
    lacking = sorted((pid, missing) for pid, missing in facts.untold.values() if pid is not None)
    if lacking:
        named = "; ".join(f"PID {pid}, {missing}" for pid, missing in lacking[:_MOST_NAMED])
        named += "; ..." if len(lacking) > _MOST_NAMED else ""
        yield f"private code is low, because function tables of the process are not in the image: {named}"


CHECK = Check(
    NAME,
    "T1055, T1620",
    THREAD_KINDS,
    "A thread was interrupted in private executable memory, or a call will return there: code that no "
    "file backs, like injected code.",
    "high. medium if a frame of a runtime is next to the code on the stack, or called the code "
    "through Windows' DLLs; if a runtime is loaded and the stack above the code is not in the image; "
    "and if the exports of the module next to the code, which would show a runtime, are not in the image. "
    "low if a runtime is above the code, and the code called a runtime, without any guess, or was "
    "interrupted on a stack that leads from there to a function where threads begin; if registered code "
    "called the code and it was interrupted before it used the stack; if the process registered a "
    "function table for the range, or a runtime's own list contains the range; if the process's list of "
    "function tables is not in the image; for relays of hooks that all processes have; for a sandbox's "
    "copies of stubs; and for frames that a scan found",
    "Runtimes that generate code (.NET, Java, JavaScript engines), sandboxes, and hooks of security "
    "products. If a runtime is only loaded, Innocent names it, and Confidence is lower.",
    "Dump the range with windows.vadinfo --dump; look at the frames around it with windows.callstacks.",
    "no stack of a thread could be walked",
    of_stack=check_stack,
    unchecked=untold,
)
