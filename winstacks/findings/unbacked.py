# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `unbacked`: a thread runs, or goes on, in private memory that may be executed."""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ..columns.words import (
    CERTAIN,
    HIGH,
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
from ..flat.stack import FlatStack
from ..memory.decode.machine import Machine
from ..memory.image import AddressSpace
from ..process.processlist import process_member
from .facts import CheckFacts
from .finding import NONE_KNOWN, Check, Finding, FramePlace, of_place, places
from .relays import of_relay
from .runtimes import beside
from .stubs import LONGEST, number_before, patched_stubs, start_of

NAME = "unbacked"

UNTOLD = "the list of function tables of the process is not in the image, and may explain it"
"""What Innocent says where that list cannot be read."""
_RELAY = "the relay of a hook that all processes have; it leads into"
_MOST_NAMED = 8
"""The most processes that are named."""


def find(stack: FlatStack, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in private memory that may be executed; of each range one is shown."""
    for place in places(stack, PRIVATE, UNMAPPED, MAPPED):
        if not facts.executable(stack.space, place.at):
            continue
        if place.name.backing == MAPPED and not _is_view(stack, place, facts):
            continue
        severity, lower, innocent = explained_at(stack, place, facts)
        copied = _copied(stack.space, place.address, facts) if place.how == TRAP else None
        if copied is not None:
            severity, innocent = LOW, copied
        sure = place.how == TRAP and not lower
        confidence = CERTAIN if sure else POSSIBLE if lower and place.how != TRAP else LIKELY
        vad = facts.vad(stack.space, place.at)
        group = (stack.trace_id, None if vad is None else vad.start)
        evidence = facts.memory(stack.space, place.address)
        yield of_place(stack, place, severity, confidence, evidence, innocent, group)


def _is_view(stack: FlatStack, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether code is in an executable view of a file that is no image; pico processes run such."""
    vad = facts.vad(stack.space, place.at)
    if vad is None or vad.image or not facts.is_user(place.at):
        return False
    return not process_member(facts.image, stack.space.eprocess, "PicoContext")


def _copied(space: AddressSpace, address: int, facts: CheckFacts) -> Optional[str]:
    """Returns what explains a thread that made a system call by a copy of a stub, or None."""
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
    """Returns what explains code in private memory.

    Returns:
        The severity, whether a runtime lowers the confidence, and what is said.
    """
    table, runtimes = facts.function_table(space, at), facts.runtimes(space)
    if table is not None:
        return LOW, False, table.said
    if facts.lacks_tables(space):
        return LOW, True, UNTOLD
    if runtimes:
        return HIGH, True, f"{', '.join(runtimes)} loaded: it makes code, and registered none here"
    return HIGH, False, NONE_KNOWN


def explained_at(stack: FlatStack, place: FramePlace, facts: CheckFacts) -> Tuple[str, bool, str]:
    """Returns what explains a frame in private memory: as `explained`, or a runtime beside it."""
    severity, lower, innocent = explained(stack.acting or stack.space, place.at, facts)
    found = beside(stack, place, facts) if severity == HIGH else None
    if found is None:
        served = of_relay(stack.space, place.at, facts) if severity == HIGH and place.how != TRAP else None
        return (severity, lower, innocent) if served is None else (LOW, True, f"{_RELAY} {served}")
    return (LOW if found.within else MEDIUM), True, found.said


def untold(facts: CheckFacts) -> Iterator[str]:
    """Yields in which processes findings became `low` for missing function tables, and what is missing."""
    lacking = sorted((pid, missing) for pid, missing in facts.untold.values() if pid is not None)
    if lacking:
        named = "; ".join(f"PID {pid}, {missing}" for pid, missing in lacking[:_MOST_NAMED])
        named += "; ..." if len(lacking) > _MOST_NAMED else ""
        yield f"function tables are not in the image, and private code is low: {named}"


CHECK = Check(
    NAME,
    "T1055, T1620",
    THREAD_KINDS,
    "A thread was interrupted in private memory that may be executed, or goes on there when a call returns.",
    "high; medium where a frame of a runtime is next to it on the stack; low where one called it and it "
    "called one, with no scan between; where the process registered a function table for the range or "
    "its list of function tables is not in the image; in copies of stubs that a sandbox made; of frames that "
    "a scan found",
    "Runtimes that make code (.NET, Java, JavaScript engines), sandboxes, and hooks of security products. A "
    "runtime that is only loaded is named in Innocent and lowers Confidence.",
    "Dump the range with windows.vadinfo --dump; look at the frames around it with windows.callstacks.",
    "no stack of a thread could be walked",
    of_stack=find,
    unchecked=untold,
)
