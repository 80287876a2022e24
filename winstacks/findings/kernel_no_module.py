# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `kernel_no_module`: the kernel ran code that lies in no module."""

from __future__ import annotations

from typing import Iterator

from ..flat.decode.schema import KINDS, RECORDED, TRAP
from ..flat.stack import FlatStack
from .facts import CheckFacts
from .finding import CERTAIN, HIGH, LIKELY, LOW, POSSIBLE, Check, Finding, of_place, places

_FIRMWARE = "the firmware's runtime services, the hypervisor's call page"
_REGION = 0x10000


def find(stack: FlatStack, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in no module; of a stack, or of all recorded stacks near each other, one is shown."""
    for place in places(stack, "none"):
        if facts.is_user(place.at):
            continue
        # The name says so where a list of modules, loaded or unloaded, is not whole.
        unsure = bool(place.name.status)
        recorded = place.how == RECORDED
        near = place.at // _REGION if recorded else stack.trace_id
        confidence = POSSIBLE if unsure else CERTAIN if place.how == TRAP else LIKELY
        innocent = "a module that the damaged list lacks" if unsure else _FIRMWARE
        evidence = facts.memory(facts.image.kernel, place.address)
        severity = LOW if unsure else HIGH
        yield of_place(stack, place, severity, confidence, evidence, innocent, near)


CHECK = Check(
    "kernel_no_module",
    "T1014",
    tuple(KINDS),
    "The kernel ran code at an address that is in no module, and where none was unloaded from.",
    "high; low where a list of modules is damaged, and of frames that a scan found",
    "The firmware's runtime services and the hypervisor's call page are in no module.",
    "Read the memory there with volshell -w; compare windows.modules with windows.modscan.",
    "no stack has a frame",
    of_stack=find,
)
