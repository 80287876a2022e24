# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `syscall_outside`: a system call that Windows' own stub did not make (x64).

The trap frame of a system call holds the address after the instruction that made the call. KTHREAD holds the
number of the newest call, and so does Rax in the frame, if the kernel's entry stores it there.
"""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Tuple

from ...columns.words import (
    CERTAIN,
    HIGH,
    IMAGE,
    LIKELY,
    LOW,
    MEDIUM,
    POSSIBLE,
    PRIVATE,
    SYSCALL,
    TRAP,
    UNKNOWN,
    UNMAPPED,
    USER,
)
from ...memory.decode.machine import Machine
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...memory.image import AddressSpace
from ...process.processlist import process_member
from ...process.thread import Thread
from ...stacklist.stack import StackRecord
from ...traps.state import TrapState
from ..code.explanations import explained
from ..code.stubs import ENTERING, LONGEST, number_before, patched_stubs, start_of
from ..facts import CheckFacts
from ..finding import OF_MEMORY, Check, Finding, FramePlace, find_place, frame_places, place_finding

STUBS = ("ntdll", "win32u", "wow64win", "wow64cpu")
"""Windows modules that make system calls."""

OLDER_STUBS = ("user32", "gdi32", "imm32")
"""Further modules that make system calls if there is no win32u: before Windows 10."""

STARTS = {
    "ntdll": (
        *("LdrInitializeThunk", "RtlUserThreadStart", "KiUserApcDispatcher", "KiUserCallbackDispatcher"),
        *("KiUserExceptionDispatcher", "KiRaiseUserExceptionDispatcher"),
    )
}
"""Addresses at which the kernel starts or continues a thread that did not enter it there."""

_GOING_ON = {"ntdll": ("NtContinue", "NtContinueEx", "ZwContinue", "ZwContinueEx")}
"""System calls that let a thread continue at any address."""

_RETURN = {"ntdll": ("NtCallbackReturn", "ZwCallbackReturn")}
"""The system call that ends a callback to user mode; the thread then continues after the call that began the
callback."""

_NUMBER = 0xFFFFFFFF
_NOT_STUBS = "a program that makes system calls itself, such as copy protection or a security product"
_CONTEXT_SET = "a debugger or a runtime that set the thread's context"
_STUB_LOST = "Windows' stub with this number is not in the image: a sandbox may have patched it"
_SMEARED = "the thread ran while the image was taken"
_NO_TRAP_FRAME = (
    "the dump of a process has a CONTEXT in place of a thread's newest trap frame: only the instruction "
    "before Rip shows a system call"
)
_PICO = "a pico process: a program of WSL"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields how a thread entered the kernel, if Windows' stubs do not enter it in this way."""
    if stack.space.machine is not Machine.AMD64:
        return
    entry, thread = stack.entry, stack.thread
    newest = entry if entry is not None and entry.kind == SYSCALL else None
    if newest is None or thread is None:
        # A CONTEXT in a dump has the registers of a system call, but not what the kernel saved for it.
        yield from _resumed(stack, facts, 1 if facts.image.table_name else 0)
        return
    if _left(thread, newest):
        return
    place = next(frame_places(stack), None)
    if place is not None and not place.number and place.how == TRAP and place.name.backing != UNKNOWN:
        yield from _entered(stack, newest, thread, place, facts)
    yield from _resumed(stack, facts, 1)


def _entered(
    stack: StackRecord, entry: TrapState, thread: Thread, place: FramePlace, facts: CheckFacts
) -> Iterator[Finding]:
    """Yields what the newest trap frame of a thread shows of its system call."""
    code = _code_before(stack.space, place.address, facts)
    if code is None:
        return
    entering = code[-len(ENTERING[0]) :] in ENTERING
    if entering and _has_stubs(stack.space, place, facts):
        yield from _numbered(stack, entry, thread, place, code, facts)
    elif entering or not _sent(stack.space, thread, entry, place.address, facts):
        yield _outside(stack, place, code, entering, facts)


def _resumed(stack: StackRecord, facts: CheckFacts, first: int) -> Iterator[Finding]:
    """Yields the frames that will continue behind a system call outside all stubs: a callback or an exception
    keeps the registers of the code that it left. `first` is the number of the innermost frame that counts."""
    for number in range(first, len(stack.walked)):
        place = find_place(stack, number) if stack.walked[number].how == TRAP else None
        if place is None or place.guessed or place.name.backing == UNKNOWN:
            continue
        code = _code_before(stack.space, place.address, facts) or b""
        if code[-len(ENTERING[0]) :] in ENTERING and not _has_stubs(stack.space, place, facts):
            yield _outside(stack, place, code, True, facts)


def _outside(
    stack: StackRecord, place: FramePlace, code: bytes, entering: bool, facts: CheckFacts
) -> Finding:
    severity, confidence, innocent = _assess(stack.space, place, code, entering, facts)
    position = "behind a system call" if entering else "not behind a system call"
    evidence = f"Rip {place.address:#x} {position}; {_bytes(code)}; "
    evidence += facts.memory(stack.space, place.address)
    group = (stack.space.layer_name, place.address)
    return place_finding(stack, place, severity, confidence, evidence, innocent, group)


def _left(thread: Thread, entry: TrapState) -> bool:
    """Returns whether a frame is stale, or belongs to a thread that has ended."""
    return thread.ended or has_status(entry.status, StatusCode.STALE, StatusCode.UNREADABLE)


def _code_before(space: AddressSpace, address: int, facts: CheckFacts) -> Optional[bytes]:
    """Returns the bytes before an address, as long as a whole stub if these can be read."""
    memory = facts.image.memory(space)
    code = memory.read(address - LONGEST, LONGEST)
    return memory.read(address - len(ENTERING[0]), len(ENTERING[0])) if code is None else code


def _has_stubs(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether a frame is in a Windows module with stubs."""
    module = (place.frame.details.module or "").lower()
    if place.name.backing != IMAGE or has_status(place.name.status, StatusCode.VAD_OF_ANOTHER_FILE):
        return False
    return module in STUBS or (module in OLDER_STUBS and not facts.namer(space).modules(STUBS[1]))


def _numbered(
    stack: StackRecord, entry: TrapState, thread: Thread, place: FramePlace, code: bytes, facts: CheckFacts
) -> Iterator[Finding]:
    """Yields a finding if a complete stub made a system call with the number of another stub."""
    expected = number_before(code)
    newest = thread.system_call_number if thread.trap_frame == entry.address else None
    saved = None if "Rax" in entry.unsure else entry.registers.get("Rax")
    numbers = [number & _NUMBER for number in (newest, saved) if number is not None]
    if expected is None or not numbers or expected in numbers:
        return
    if saved is None and numbers[0] in _numbers(stack.space, _RETURN, facts):
        return
    source = "SystemCallNumber" if newest is not None else "Rax"
    evidence = f"{source} {numbers[0]:#x}, the stub has {expected:#x}; {_bytes(code)}; "
    evidence += facts.memory(stack.space, place.address)
    group = (stack.space.layer_name, place.address, numbers[0])
    yield place_finding(stack, place, MEDIUM, LIKELY, evidence, _SMEARED, group)


def _numbers(
    space: AddressSpace, functions: Mapping[str, Tuple[str, ...]], facts: CheckFacts
) -> Tuple[int, ...]:
    """Returns the numbers of several stubs of a process, as far as they can be read."""
    numbers = []
    for address in facts.entry_points(space, functions):
        code = facts.image.memory(space).read(address, LONGEST)
        ends = () if code is None else (code.find(value) for value in ENTERING)
        numbers += [number_before((code or b"")[: end + len(ENTERING[0])]) for end in ends if end >= 0]
    return tuple(value for value in numbers if value is not None)


def _sent(space: AddressSpace, thread: Thread, entry: TrapState, address: int, facts: CheckFacts) -> bool:
    """Returns whether the kernel itself lets a thread continue at an address where it did not enter."""
    if address in (thread.start_address, thread.win32_start_address):
        return True
    if address in facts.entry_points(space, STARTS):
        return True
    number = thread.system_call_number
    newest = thread.trap_frame == entry.address and number is not None
    return newest and number in _numbers(space, _GOING_ON, facts)


def _assess(
    space: AddressSpace, place: FramePlace, code: bytes, entering: bool, facts: CheckFacts
) -> Tuple[str, str, str]:
    """Returns severity, confidence and innocent explanation of a call's origin."""
    if process_member(facts.image, space.eprocess, "PicoContext"):
        return LOW, LIKELY, _PICO
    if not entering:
        return MEDIUM, LIKELY, _CONTEXT_SET
    if place.name.backing not in (PRIVATE, UNMAPPED):
        return MEDIUM, CERTAIN, _NOT_STUBS
    number = number_before(code)
    if number is not None:
        stubs = patched_stubs(space, facts)
        innocent = stubs.explains(start_of(code, place.address), number)
        if innocent is not None:
            return LOW, LIKELY, innocent
        if stubs.may_lack(number):
            return HIGH, POSSIBLE, f"{explained(space, place.at, facts)[2]}; {_STUB_LOST}"
    return HIGH, CERTAIN, explained(space, place.at, facts)[2]


def _bytes(code: bytes) -> str:
    return f"bytes before {code[-len(ENTERING[0]) :].hex(' ')}"


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that the frames of system calls do not show their origin, if that is so."""
    if not facts.image.table_name:
        yield _NO_TRAP_FRAME
    elif facts.image.machine is Machine.I386:
        yield "in a 32-bit kernel the frame of a system call does not show the code that made it"


CHECK = Check(
    "syscall_outside",
    "T1106",
    (USER,),
    "A thread made a system call outside the stubs of ntdll, win32u, wow64win and wow64cpu (before "
    "Windows 10 also user32, gdi32, imm32); or it is in a stub, but called another number than this "
    "stub has.",
    "high in private memory; medium in an image or mapping without stubs, if no system call instruction "
    "is before the address, and if the number differs; low in a sandbox's copy of a stub, and in pico "
    "processes",
    "Sandboxes of browsers run copies of the stubs that they patch; programs of WSL make system calls "
    "of Linux; copy protection and security products may make system calls of their own.",
    "Dump the range with windows.vadinfo --dump; look at the callers with windows.callstacks --tid.",
    "no thread has a stack in user mode",
    head="a system call that no stub made",
    command=OF_MEMORY,
    of_stack=check_stack,
    unchecked=unchecked,
    intel=True,
)
