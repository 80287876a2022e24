# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `kernel_no_module`: the kernel ran code outside all modules."""

from __future__ import annotations

from typing import Iterator

from ...columns.words import (
    AWAITED,
    CERTAIN,
    HIGH,
    KINDS,
    LIKELY,
    LOW,
    MEDIUM,
    NONE,
    POSSIBLE,
    RECORDED,
    TRAP,
    USER,
)
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.status import has_status, status
from ...memory.decode.statuscodes import StatusCode
from ...names.places import ROM
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import Check, Finding, frame_places, place_finding, shows_kernel_code

_FIRMWARE = "the firmware's runtime services, the hypervisor's call page"
_PATCHGUARD = "PatchGuard, which every 64-bit kernel has, and whose context may be there"
_DAMAGED = "a module that the damaged list of modules lacks"
_TAKEN_OFF = (
    "a driver that was being loaded or unloaded; code that a driver loads itself (VirtualBox's VMMR0)"
)
_ROM = "an option ROM (physical C0000h-FFFFFh): QEMU's kvmvapic runs in one"
_HYPERCALL = "the hypervisor's call page: only vmcall and ret are in it, or HvcallCodeVa points to it"
CALL_PAGE = "HvcallCodeVa"
"""The kernel's variable with the address of this page (described: MWR Labs, "Ventures into Hyper-V")."""
_INSTRUCTIONS = (b"\x0f\x01\xc1", b"\x0f\x01\xd9")
"""vmcall and vmmcall (Intel's manual, volume 3; AMD's, volume 3)."""
_VMCALLS = tuple(instruction + b"\xc3" for instruction in _INSTRUCTIONS)
"""The same, with the ret behind them."""
_CALLS = 0x40
"""Length of the part of such a page that holds the calls; the hypervisor fills the rest."""
_FILLERS = (b"\0", b"\x90", b"\xcc")
_REGION = 0x10000


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in no module; one for each stack, or for recorded stacks that are near each other, or
    for callbacks that are.

    For all frames in a ROM, in whatever stack, one is shown. User-mode addresses on a stack of the kernel are
    its caller's; as a callback of the kernel they are code that it runs.
    """
    for place in frame_places(stack, NONE, USER) if shows_kernel_code(stack) else ():
        awaited = place.how == AWAITED
        if facts.is_user(place.at) and not awaited:
            continue
        # The status of the name shows that a list of modules, loaded or unloaded, is incomplete.
        unsure = bool(place.name.status)
        recorded = place.how == RECORDED
        rom = place.name == ROM
        near = (rom, awaited, place.at // _REGION if recorded or rom or awaited else stack.trace_id)
        confidence = POSSIBLE if unsure else CERTAIN if place.how == TRAP else LIKELY
        # A driver's headers are there, and the list of modules is whole.
        taken_off = place.name.status == status(StatusCode.IN_NO_MODULE_LIST)
        guard = awaited and not facts.is_user(place.at) and stack.space.pointer_size == 8
        innocent = _TAKEN_OFF if taken_off else _DAMAGED if unsure else _ROM if rom else _FIRMWARE
        innocent = _PATCHGUARD if innocent == _FIRMWARE and guard else innocent
        evidence = facts.memory(facts.image.kernel, place.address)
        hypercall = not unsure and not rom and _is_hypercall(place.address, facts)
        innocent = _HYPERCALL if hypercall else innocent
        # Somebody wrote to a list that is contradicted; one that is only absent has lost its pages.
        written = has_status(place.name.status, StatusCode.CONTRADICTED) and not rom
        severity = MEDIUM if written or taken_off else LOW if unsure or rom or hypercall else HIGH
        severity = MEDIUM if severity == HIGH and guard else severity
        yield place_finding(stack, place, severity, confidence, evidence, innocent, near)


def _is_hypercall(address: int, facts: CheckFacts) -> bool:
    """Returns whether an address is in the page with a hypervisor's calls.

    Either the page contains such calls and nothing else; or the kernel's variable leads to it, and a call is
    before the address, or the page is not in the image.
    """
    page = address - address % PAGE_SIZE
    memory = facts.image.memory(facts.image.kernel)
    data, pointer = memory.read(page, PAGE_SIZE), facts.image.symbol(CALL_PAGE)
    behind_call = data is None or data[: address - page].endswith(_INSTRUCTIONS)
    if pointer is not None and behind_call and memory.pointer(pointer) == page:
        return True
    code, rest = (b"", b"") if data is None else (data[:_CALLS], data[_CALLS:])
    return any(call in code for call in _VMCALLS) and rest.strip(rest[:1]) == b"" and rest[:1] in _FILLERS


CHECK = Check(
    "kernel_no_module",
    "T1014",
    tuple(KINDS),
    "The kernel ran code, or will call it for a timer, DPC or work item, at an address that belongs to no "
    "loaded module, nor to an unloaded module that Windows remembers.",
    "high; medium where MmUnloadedDrivers is contradicted, in a driver that only its headers in memory "
    "show, and where only a callback of a 64-bit kernel leads there; low in an option ROM, in the "
    "hypervisor's call page, where the list of modules is damaged or not in the image, and for frames that a "
    "scan found",
    "The firmware's runtime services, the hypervisor's call page and option ROMs belong to no module; "
    "PatchGuard's context does not, and a timer, DPC or work item may lead there. "
    "`<rom>` is memory mapped to physical C0000h-FFFFFh, where QEMU's kvmvapic runs.",
    "Read the memory there with volshell -w; compare windows.modules with windows.modscan.",
    "no stack has a frame",
    head="kernel code in no module",
    of_stack=check_stack,
    small_dump=True,
)
