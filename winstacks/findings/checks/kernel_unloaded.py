# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `kernel_unloaded`: kernel code lay at an address from which a module has been unloaded."""

from __future__ import annotations

from typing import Iterator

from ...columns.words import HIGH, KINDS, LIKELY, LOW, MEDIUM, RECORDED, UNLOADED
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import Check, Finding, frame_places, place_finding, shows_kernel_code

_BACKINGS = (UNLOADED,)
_NAME_END = ">"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in unloaded modules; one for each module and kind of stack."""
    for place in frame_places(stack, *_BACKINGS) if shows_kernel_code(stack) else ():
        if facts.is_user(place.at):
            continue
        page = facts.page(facts.image.kernel, place.at)
        executable = page is not None and page.executable
        evidence = facts.memory(facts.image.kernel, place.address)
        recorded = place.how == RECORDED
        group = (recorded, place.name.symbol.partition(_NAME_END)[0])
        if recorded:
            innocent = "the driver ran before it was unloaded" + (
                "; another driver may use its memory now" if executable else ""
            )
            severity = MEDIUM if executable else LOW
        else:
            innocent, severity = "the driver was being unloaded when the image was taken", HIGH
        yield place_finding(stack, place, severity, LIKELY, evidence, innocent, group)


CHECK = Check(
    "kernel_unloaded",
    "T1014",
    tuple(KINDS),
    "A frame of the kernel, or the routine of a timer, DPC or work item, is at an address where a driver was "
    "loaded that has been unloaded since.",
    "high if a thread will continue there, or a callback leads there. For recorded stacks medium if the "
    "memory has executable code now, otherwise low. low for frames that a scan found",
    "A driver that did its work and was unloaded leaves such traces.",
    "Look for the driver's file and its service; windows.unloadedmodules shows when the driver was unloaded.",
    "no stack has a frame",
    head="kernel code where a module was unloaded",
    of_stack=check_stack,
    backings=_BACKINGS,
    small_dump=True,
)
