# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `not_executable`: a thread will continue in memory that is not executable at present."""

from __future__ import annotations

from typing import Iterator

from ...columns.words import CALLBACK, CERTAIN, HIGH, LIKELY, LOW, MEDIUM, POSSIBLE, THREAD_KINDS, TRAP
from ...stacklist.stack import StackRecord
from ...traps.decode.frame import USER_LOWEST
from ..code.explanations import UNTOLD, untold
from ..code.refused import refused_place
from ..code.returns import settled
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, OF_MEMORY, Check, Finding, frame_places, place_finding

_NO_BIT = "the page tables have no bit that forbids execution"
_NARROW = "a 32-bit process may run code in any page: in a dump only the exception shows memory of data"
_CRASH = "a jump to data: the process is about to crash"
_NULL = "a call through a null pointer: nothing is mapped there"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the user-mode frames whose page is in memory and forbids execution; one for each range."""
    refused = refused_place(stack, facts)
    if refused is not None:
        evidence = f"the processor refused to execute it; {facts.memory(stack.space, refused.address)}"
        # Windows 7 and earlier lets a program map the pages below.
        null = refused.address < USER_LOWEST and facts.vad(stack.space, refused.address) is None
        severity, innocent = (LOW, _NULL) if null else (MEDIUM, _CRASH)
        yield place_finding(stack, refused, severity, CERTAIN, evidence, innocent, (stack.trace_id, None))
        return
    if not facts.has_no_execute(stack.space):
        return
    for place in frame_places(stack):
        page = facts.page(stack.space, place.at) if facts.is_user(place.at) else None
        if page is None or page.executable:
            continue
        place = settled(stack, place, facts)
        table = facts.code_range(stack.space, place.at)
        vad = facts.vad(stack.space, place.at)
        group = (stack.trace_id, None if vad is None else vad.start)
        evidence = facts.memory(stack.space, place.address)
        confidence = LIKELY
        if table is not None:
            innocent, severity = table.describe, LOW
        elif facts.lacks_tables(stack.space):
            innocent, severity, confidence = UNTOLD, HIGH if place.how != TRAP else MEDIUM, POSSIBLE
        elif place.how == TRAP:
            innocent, severity = _CRASH, MEDIUM
        else:
            innocent, severity = NONE_KNOWN, HIGH
        yield place_finding(stack, place, severity, confidence, evidence, innocent, group)


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that no page forbids execution, or that this is unknown, and the reasons of `untold`."""
    if not facts.has_no_execute(facts.image.kernel):
        yield _NO_BIT if facts.image.table_name else _NARROW
    yield from facts.untold_regions()
    yield from untold(facts)


CHECK = Check(
    "not_executable",
    "T1027",
    (*THREAD_KINDS, CALLBACK),
    "A call will return, or a callback leads, into a page of the process that is not executable now, "
    "according to its page table entry, or in a dump to MemoryInfoListStream. Code that encrypts itself "
    "while it sleeps looks like this.",
    "high; medium if the thread was interrupted there; low if the process registered a function table "
    "for the range, if a runtime's own list contains the range, for frames that a scan found, and for a call "
    "through a null pointer",
    "Runtimes that make their code non-executable while they write to it; a thread that is about to crash.",
    "Compare the range with recorded traces: windows.traces --unbacked --pid.",
    "no stack of a thread could be walked",
    head="a frame in memory that is not executable",
    command=OF_MEMORY,
    of_stack=check_stack,
    unchecked=unchecked,
)
