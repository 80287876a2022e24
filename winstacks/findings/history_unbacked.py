# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `history_unbacked`: Windows recorded a caller in private memory."""

from __future__ import annotations

from typing import Iterator, Set

from ..columns.words import CERTAIN, HIGH, KINDS, LIKELY, LOW, MEDIUM, PRIVATE, THREAD_KINDS, UNMAPPED
from ..stacklist.stack import StackRecord
from .facts import CheckFacts
from .finding import Check, Finding, of_place, unbacked_frames
from .unbacked import explained_at, untold

NAME = "history_unbacked"
RECORDING = tuple(kind for kind in KINDS if kind not in THREAD_KINDS)
"""The kinds of stacks that Windows recorded."""

_GONE = "a module that was unloaded, and whose record was overwritten"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the recorded callers in private memory, whatever its present protection."""
    space = stack.acting or stack.space
    worst: Set[int] = set()
    for place in unbacked_frames(stack, PRIVATE, UNMAPPED):
        vad = facts.vad(space, place.at)
        start = -1 if vad is None else vad.start
        if start in worst:
            continue
        executable = facts.executable(space, place.at)
        group = (space.eprocess, start)
        if vad is None and not executable:
            if facts.is_user(place.at) and facts.vads_whole(space):
                evidence = facts.memory(space, place.address)
                yield of_place(stack, place, LOW, LIKELY, evidence, _GONE, group)
            continue
        severity, lower, innocent = explained_at(stack, place, facts)
        if severity == HIGH and not executable:
            severity = MEDIUM
        if severity == HIGH and vad is not None:
            # The other frames of this stack in the same memory cannot be rated higher.
            worst.add(start)
        confidence = LIKELY if lower else CERTAIN
        evidence = facts.memory(space, place.address)
        yield of_place(stack, place, severity, confidence, evidence, innocent, group)


CHECK = Check(
    NAME,
    "T1055",
    RECORDING,
    "A stack trace database, or the trace of a heap block, lock, handle or object has a caller in private "
    "memory: what ran then, though it may sleep under another protection now.",
    "high where the memory may be executed now; medium where it may not; low where the process registered a "
    "function table for the range, where its list of them is not in the image, and where nothing is left",
    "As for unbacked; memory that was freed and used for something else since.",
    "Dump the range with windows.vadinfo --dump; windows.traces --unbacked shows all traces.",
    "no trace is kept",
    of_stack=check_stack,
    unchecked=untold,
)
