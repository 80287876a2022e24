# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `unbacked`: a thread runs, or will continue, in private executable memory."""

from __future__ import annotations

from typing import Iterator, Optional

from ...columns.words import (
    CALLBACK,
    CERTAIN,
    HIGH,
    LIKELY,
    LOW,
    MAPPED,
    POSSIBLE,
    PRIVATE,
    SCAN,
    THREAD_KINDS,
    TRAP,
    UNMAPPED,
)
from ...memory.decode.machine import Machine
from ...memory.decode.text import ShortText, short_of
from ...memory.image import AddressSpace
from ...process.processlist import process_member
from ...stacklist.stack import StackRecord
from ..code.explanations import explained_at, untold
from ..code.leftovers import leftovers
from ..code.lostways import over_lost_pages
from ..code.refused import refused_place
from ..code.returns import settled
from ..code.stubs import LONGEST, number_before, patched_stubs, start_of
from ..code.surroundings import with_region, with_surroundings
from ..code.unshown import unshown
from ..facts import CheckFacts
from ..finding import (
    NONE_KNOWN,
    OF_MEMORY,
    Check,
    Finding,
    FramePlace,
    frame_places,
    place_finding,
    thread_finding,
)

NAME = "unbacked"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in private executable memory; one for each range."""
    yield from _left_on(stack, facts)
    refused = refused_place(stack, facts)
    for place in frame_places(stack, PRIVATE, UNMAPPED, MAPPED):
        if facts.executable(stack.space, place.at) is False or place == refused:
            continue
        if place.name.backing == MAPPED and not _is_view(stack, place, facts):
            continue
        place = settled(stack, place, facts)
        severity, lower, innocent = explained_at(stack, place, facts)
        copied = _copied(stack.space, place.address, facts) if place.how == TRAP else None
        if copied is not None:
            severity, innocent = LOW, copied
        if place.guessed and severity == HIGH and innocent.startswith(NONE_KNOWN):
            place, severity, innocent = over_lost_pages(stack, place, severity, innocent, facts)
            lower = lower or not place.guessed
        sure = place.how == TRAP and not lower
        confidence = CERTAIN if sure else POSSIBLE if lower and place.how != TRAP else LIKELY
        vad = facts.vad(stack.space, place.at)
        group = (stack.trace_id, None if vad is None else vad.start)
        evidence = with_surroundings(stack, place, facts)
        yield place_finding(stack, place, severity, confidence, evidence, innocent, group)


def _left_on(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields values that lead into such memory, on parts of a stack to which no walk leads for lost pages."""
    shown = set()
    for left in leftovers(stack, facts):
        shown.add(left.region)
        group = (stack.trace_id, left.region)
        memory = facts.memory(stack.space, left.address)
        evidence = ShortText(f"{memory}; the stack has the address at {left.slot:#x}", short_of(memory))
        finding = thread_finding(
            *(stack, left.thread, left.severity, POSSIBLE, evidence, left.innocent, left.address),
            facts.namer(stack.space).name(left.address).symbol,
        )
        yield finding._replace(group=group, how=SCAN)
    for found in unshown(stack, shown, facts):
        evidence = with_region(stack.space, found.address, facts)
        finding = thread_finding(
            *(stack, found.thread, LOW, POSSIBLE, evidence, found.innocent, found.address),
            facts.namer(stack.space).name(found.address, return_address=False).symbol,
        )
        yield finding._replace(group=(stack.space.layer_name, found.region))


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


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the protection of memory is unknown, if so, and the reasons of `untold`."""
    yield from facts.untold_regions()
    yield from untold(facts)


CHECK = Check(
    NAME,
    "T1055, T1620",
    (*THREAD_KINDS, CALLBACK),
    "A thread was interrupted in private executable memory, a call will return there, or a callback of the "
    "process leads there: code outside all files, like injected code.",
    "high. medium if an unmodified module outside Windows' folders is on both sides of the code, or called "
    "the code, which was interrupted on a whole stack (low if the process has much generated code, or the "
    "code is a thunk that only calls the module, and the module belongs to the program); if only pages that "
    "are not in the image make the way to the code a guess; if a frame of a runtime is next to the code on "
    "the stack, or called the code through Windows' DLLs; if the stack above the code is not in the image, "
    "and a runtime is loaded, the list of function tables is not in the image, or the process has much "
    "generated code; "
    "if the exports of the module next to the code, which would show a runtime, are not in the image; if "
    "the process registered a function table for the range, and only Windows is on the stack; and if "
    "the protection of the memory is unknown, in a dump. "
    "low if a runtime is above the code, and the code called a runtime, without any guess, or was "
    "interrupted on a stack that leads from there to a function where threads begin; if registered code "
    "called the code and it was interrupted before it used the stack; if the process registered a "
    "function table for the range and other modules than Windows' are on the stack, or a runtime's own list "
    "contains the range; for relays of hooks "
    "that all processes have; for a sandbox's copies of stubs; for frames that a scan found; for values on a "
    "stack to which no walk leads, if no call precedes the address; and for memory that nothing explains, "
    "where a stack of its process is not in the image",
    "Runtimes that generate code (.NET, Java, JavaScript engines), sandboxes, and hooks of security "
    "products. If a runtime is only loaded, Innocent names it, and Confidence is lower.",
    "Dump the range with windows.vadinfo --dump; look at the frames around it with windows.callstacks.",
    "no stack of a thread could be walked",
    head="code that no file backs",
    command=OF_MEMORY,
    of_stack=check_stack,
    unchecked=unchecked,
)
