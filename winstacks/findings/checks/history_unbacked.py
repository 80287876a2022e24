# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `history_unbacked`: Windows recorded a caller in private memory."""

from __future__ import annotations

from typing import Iterator, Set

from ...columns.words import (
    CALLBACK,
    CERTAIN,
    HIGH,
    KINDS,
    LIKELY,
    LOW,
    MEDIUM,
    PRIVATE,
    THREAD_KINDS,
    UNMAPPED,
)
from ...stacklist.stack import StackRecord
from ..code.explanations import explained_at, untold
from ..code.surroundings import with_surroundings
from ..facts import CheckFacts
from ..finding import OF_MEMORY, Check, Finding, frame_places, place_finding

NAME = "history_unbacked"
RECORDING = tuple(kind for kind in KINDS if kind not in (*THREAD_KINDS, CALLBACK))
"""The kinds of stacks that Windows recorded."""

_BACKINGS = (PRIVATE, UNMAPPED)
_GONE = "an unloaded module whose record Windows has overwritten"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the recorded callers in private memory, whatever its present protection."""
    space = stack.acting or stack.space
    worst: Set[int] = set()
    for place in frame_places(stack, *_BACKINGS):
        vad = facts.vad(space, place.at)
        start = -1 if vad is None else vad.start
        if start in worst:
            continue
        executable = facts.executable(space, place.at)
        group = (space.eprocess, start)
        if vad is None and not executable:
            if facts.is_user(place.at) and facts.vads_whole(space):
                evidence = facts.memory(space, place.address)
                yield place_finding(stack, place, LOW, LIKELY, evidence, _GONE, group)
            continue
        severity, lower, innocent = explained_at(stack, place, facts)
        if severity == HIGH and not executable:
            severity = MEDIUM
        if severity == HIGH and vad is not None:
            # The other frames of this stack in the same memory cannot be rated higher.
            worst.add(start)
        confidence = LIKELY if lower else CERTAIN
        evidence = with_surroundings(stack, place, facts)
        yield place_finding(stack, place, severity, confidence, evidence, innocent, group)


CHECK = Check(
    NAME,
    "T1055",
    RECORDING,
    "A recorded stack (of a lock, handle, object or heap block, or in a stack trace database) contains "
    "a caller in private memory. That code ran when the stack was recorded, even if the memory is no "
    "longer executable.",
    "high if the memory is executable now, medium if it is not; lower for the same reasons as unbacked; "
    "low if nothing is at the address any more",
    "As for unbacked; also memory that was freed and is used for something else now.",
    "Dump the range with windows.vadinfo --dump; windows.traces --unbacked shows all traces.",
    "the image has no recorded stack",
    head="a recorded call by code that no file backs",
    command=OF_MEMORY,
    of_stack=check_stack,
    backings=_BACKINGS,
    unchecked=untold,
)
