# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `kernel_no_module`: the kernel ran code outside all modules."""

from __future__ import annotations

import re
from typing import Iterator, Optional, Tuple

from ...columns.words import (
    AWAITED,
    CERTAIN,
    HIGH,
    IMAGE,
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
from ...names.decode.grounds import KERNEL_MODULES
from ...names.places import ROM
from ...stacklist.stack import StackRecord
from ..code.unlisted import of_unlisted
from ..facts import CheckFacts
from ..finding import Check, Finding, FramePlace, frame_places, place_finding, shows_kernel_code

_FIRMWARE = "the firmware's runtime services, the hypervisor's call page"
_ROM = "an option ROM (physical C0000h-FFFFFh): QEMU's kvmvapic runs in one"
_HYPERCALL = "the hypervisor's call page: nothing but its calls is in it"
_LOST_PAGE = "the hypervisor's call page: HvcallCodeVa points to it, and the page is not in the image"
_OTHER_CODE = "HvcallCodeVa points to the page, which has other code than the hypervisor's calls"
_PATCH_GUARD = (
    "PatchGuard (Kernel Patch Protection) runs code of no module on a worker thread of each 64-bit Windows; "
    "a callback of a rootkit looks alike"
)
_WORKER = "ExpWorkerThread"
_WIDE = 8
"""Bytes of a pointer of the Windows that have PatchGuard."""
CALL_PAGE = "HvcallCodeVa"
"""The kernel's variable with the address of this page (described: MWR Labs, "Ventures into Hyper-V")."""
_VTL = rb"\x8b\xc8\xb8[\x11\x12]\0\0\0|\x48\x8b\xc1\x48\xc7\xc1[\x11\x12]\0\0\0"
"""The loads before a call or a return between virtual trust levels: mov ecx, eax; mov eax, 11h or 12h; and
mov rax, rcx; mov rcx, 11h or 12h."""
_CALLS = re.compile(rb"(?:\x90*(?:" + _VTL + rb")?\x0f\x01[\xc1\xd9]\xc3)+(?:\0*|\x90*|\xcc*)")
"""All that a page with a hypervisor's calls holds: vmcall or vmmcall, ret, and what fills the rest (Intel's
manual, volume 3; AMD's, volume 3; described: MWR Labs, "Ventures into Hyper-V")."""
_REGION = 0x10000

_BACKINGS = (NONE, USER)


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the frames in no module; one for each stack, or for recorded stacks that are near each other, or
    for callbacks that are.

    For all frames in a ROM, in whatever stack, one is shown. User-mode addresses on a stack of the kernel are
    its caller's; as a callback of the kernel they are code that it runs.
    """
    for place in frame_places(stack, *_BACKINGS) if shows_kernel_code(stack) else ():
        awaited = place.how == AWAITED
        if facts.is_user(place.at) and not awaited:
            continue
        unlisted = of_unlisted(place.name)
        recorded = place.how == RECORDED
        rom = place.name == ROM
        near = (rom, awaited, place.at // _REGION if recorded or rom or awaited else stack.trace_id)
        confidence = POSSIBLE if unlisted else CERTAIN if place.how == TRAP else LIKELY
        evidence = facts.memory(facts.image.kernel, place.address)
        severity, innocent = unlisted or ((LOW, _ROM) if rom else _judged(stack, place, facts))
        yield place_finding(stack, place, severity, confidence, evidence, innocent, near)


def _judged(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> Tuple[str, str]:
    """Returns severity and explanation of code in no module and no ROM, where the lists are whole."""
    hypercall = _of_hypervisor(place.address, facts)
    if hypercall is not None:
        return MEDIUM if hypercall == _OTHER_CODE else LOW, hypercall
    if not facts.is_user(place.at) and _like_patch_guard(stack, place):
        return MEDIUM, _PATCH_GUARD
    return HIGH, _FIRMWARE


def _of_hypervisor(address: int, facts: CheckFacts) -> Optional[str]:
    """Returns why an address may be in the page with a hypervisor's calls, None if it is not.

    All bytes of the page decide: other code may contain such a call. What the kernel's variable leads to says
    little, because anyone who writes to the kernel can write there.
    """
    page = address - address % PAGE_SIZE
    memory = facts.image.memory(facts.image.kernel)
    data, pointer = memory.read(page, PAGE_SIZE), facts.image.symbol(CALL_PAGE)
    if data is not None and _CALLS.fullmatch(data):
        return _HYPERCALL
    if pointer is None or memory.pointer(pointer) != page:
        return None
    return _LOST_PAGE if data is None else _OTHER_CODE


def _like_patch_guard(stack: StackRecord, place: FramePlace) -> bool:
    """Returns whether a worker thread of a 64-bit kernel called code of no module, or a callback will."""
    if place.how == AWAITED:
        return stack.space.machine.pointer_size == _WIDE
    if stack.space.machine.pointer_size != _WIDE or place.how == RECORDED or place.guessed:
        return False
    outer = next((each for each in frame_places(stack, IMAGE) if each.number > place.number), None)
    # Code without unwind data lets a scan find its caller.
    if outer is None:
        return False
    details = outer.frame.details
    return details.module in KERNEL_MODULES and details.function == _WORKER


CHECK = Check(
    "kernel_no_module",
    "T1014",
    tuple(KINDS),
    "The kernel ran code, or will call it for a timer, DPC, work item or APC, at an address that belongs to "
    "no loaded module, nor to an unloaded module that Windows remembers.",
    "high; medium where MmUnloadedDrivers is contradicted, in a driver that only its headers in memory show, "
    "on a worker thread of 64 bits, where PatchGuard's code runs, too, as a callback of a 64-bit kernel, "
    "which may lead to that code, and in a page to which HvcallCodeVa leads and which has other code than a "
    "hypervisor's calls; low in an option ROM, in the hypervisor's call page, where the list of modules is "
    "damaged or absent, and for frames that a scan found",
    "The firmware's runtime services, the hypervisor's call page and option ROMs belong to no module. "
    "`<rom>` is memory mapped to physical C0000h-FFFFFh, where QEMU's kvmvapic runs.",
    "Read the memory there with volshell -w; compare windows.modules with windows.modscan.",
    "no stack has a frame",
    head="kernel code in no module",
    of_stack=check_stack,
    backings=_BACKINGS,
    small_dump=True,
)
