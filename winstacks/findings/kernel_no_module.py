# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `kernel_no_module`: the kernel ran code that lies in no module."""

from __future__ import annotations

from typing import Iterator

from ..columns.words import CERTAIN, HIGH, KINDS, LIKELY, LOW, NONE, POSSIBLE, RECORDED, TRAP
from ..flat.stack import FlatStack
from ..memory.decode.pagetable import PAGE_SIZE
from ..names.places import ROM
from .facts import CheckFacts
from .finding import Check, Finding, of_place, places

_FIRMWARE = "the firmware's runtime services, the hypervisor's call page"
_ROM = "an option ROM (physical C0000h-FFFFFh): QEMU's kvmvapic runs in one"
_HYPERCALL = "the hypervisor's call page: vmcall, ret, and nothing else"
_VMCALLS = (b"\x0f\x01\xc1\xc3", b"\x0f\x01\xd9\xc3")
"""vmcall; ret, and vmmcall; ret (Intel's manual, volume 3; AMD's, volume 3)."""
_CALLS = 0x40
"""Bytes of such a page in which the calls are; the hypervisor fills the rest."""
_FILLERS = (b"\0", b"\x90", b"\xcc")
_REGION = 0x10000


def find(stack: FlatStack, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in no module; of a stack, or of all recorded stacks near each other, one is shown.

    Of all frames in a ROM, whatever stack they are of, one is shown.
    """
    for place in places(stack, NONE):
        if facts.is_user(place.at):
            continue
        # The name says so where a list of modules, loaded or unloaded, is not whole.
        unsure = bool(place.name.status)
        recorded = place.how == RECORDED
        rom = place.name == ROM
        near = (rom, place.at // _REGION if recorded or rom else stack.trace_id)
        confidence = POSSIBLE if unsure else CERTAIN if place.how == TRAP else LIKELY
        innocent = "a module that the damaged list lacks" if unsure else _ROM if rom else _FIRMWARE
        evidence = facts.memory(facts.image.kernel, place.address)
        hypercall = not unsure and not rom and _is_hypercall(place.address, facts)
        innocent = _HYPERCALL if hypercall else innocent
        severity = LOW if unsure or rom or hypercall else HIGH
        yield of_place(stack, place, severity, confidence, evidence, innocent, near)


def _is_hypercall(address: int, facts: CheckFacts) -> bool:
    """Returns whether a page has the calls of a hypervisor, and nothing else."""
    data = facts.image.memory(facts.image.kernel).read(address - address % PAGE_SIZE, PAGE_SIZE)
    code, rest = (b"", b"") if data is None else (data[:_CALLS], data[_CALLS:])
    return any(each in code for each in _VMCALLS) and rest.strip(rest[:1]) == b"" and rest[:1] in _FILLERS


CHECK = Check(
    "kernel_no_module",
    "T1014",
    tuple(KINDS),
    "The kernel ran code at an address that is in no module, and where none was unloaded from.",
    "high; low in an option ROM, in a page with nothing but a hypervisor's calls, where a list of modules is "
    "damaged, and of frames that a scan found",
    "The firmware's runtime services, the hypervisor's call page and option ROMs are in no module: `<rom>` "
    "is memory mapped to physical C0000h-FFFFFh, where QEMU's kvmvapic runs.",
    "Read the memory there with volshell -w; compare windows.modules with windows.modscan.",
    "no stack has a frame",
    of_stack=find,
    small_dump=True,
)
