# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `start_mismatch`: a thread was started in private memory, or in no module of the kernel."""

from __future__ import annotations

from typing import Iterator, Optional

from ...columns.words import (
    IMAGE,
    KERNEL,
    LIKELY,
    LOW,
    MEDIUM,
    NONE,
    POSSIBLE,
    PRIVATE,
    THREAD_KINDS,
    UNMAPPED,
    USER,
    WOW64,
)
from ...memory.decode.machine import Machine
from ...memory.image import AddressSpace
from ...process.thread import Thread
from ...stacklist.frames import NamedFrame
from ...stacklist.machine import machine_facts
from ...stacklist.stack import StackRecord
from ..code.closures import closure_target
from ..code.explanations import explained, untold
from ..code.relays import BASIC
from ..code.unlisted import of_unlisted
from ..facts import CheckFacts
from ..finding import OF_MEMORY, Check, Finding, frame_places, thread_finding

NAME = "start_mismatch"

_NO_START = "the dump has no start address"
_VISTA = 6000
"""The build of Vista."""
_GROUND = ("BaseThreadInitThunk", "RtlUserThreadStart")
_EXITS = ("RtlExitUserThread", "ExitThread")
"""Functions that those in which threads begin call once the start routine has returned."""
_OTHER = "a start routine that continues in another module, such as a runtime"
_FOUR_GB = 1 << 32
_CODE_LOST = "its code, which may be a closure or delegate that jumps into a module, is not in the image"
_FREED = "the module of the start routine was unloaded"
_LOADED_ITSELF = "code that a driver loads itself (VirtualBox's VMMR0)"


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields a thread that was started in private or unmapped memory, or that began elsewhere."""
    thread = stack.thread
    start = None if thread is None else thread.win32_start_address
    if thread is not None and not start and not facts.image.table_name:
        facts.leave_out(NAME, _NO_START, f"TID {thread.tid}")
    if thread is None or thread.ended:
        return
    yield from _in_kernel(stack, thread, facts)
    if not start or not facts.is_user(start):
        return
    if not _keeps_start_address(facts) or thread.unusable or not thread.space.layer_name:
        return
    name = facts.namer(thread.space).name(start, return_address=False)
    if name.backing == PRIVATE or (name.backing == UNMAPPED and facts.vads_whole(thread.space)):
        half = _half(thread.space, start, facts)
        severity, lower, innocent = explained(half, start, facts)
        # A runtime that is loaded may have registered the range in a list that is not in the image.
        unknown = bool(facts.runtimes(half)) and facts.lacks_tables(half)
        rating = LOW if severity == LOW or unknown else MEDIUM
        private = name.backing == PRIVATE
        leads = _led(half, start, facts) if rating == MEDIUM and private else None
        rating, innocent = (rating, innocent) if leads is None else (LOW, leads)
        lost = private and rating == MEDIUM and facts.image.memory(half).read(start, 1) is None
        innocent = _FREED if name.backing == UNMAPPED else f"{innocent}; {_CODE_LOST}" if lost else innocent
        untold_kind = facts.executable(half, start) is None
        confidence = POSSIBLE if lower or lost or untold_kind else LIKELY
        yield _start_finding(stack, thread, start, name.symbol, rating, confidence, innocent, facts)
    elif name.backing == IMAGE and stack.kind in (USER, WOW64):
        first = _first(stack)
        known_module = facts.namer(thread.space).module_at(start)
        if first is None or known_module is None:
            return
        label = known_module.label_at(start)
        elsewhere = first.details.module != known_module.module.name
        ends = (first.details.function or "").lstrip("_") in _EXITS
        if elsewhere and not ends and not (label and _ground(label[1])):
            other = f"{_OTHER}: {first.shown}"
            yield _start_finding(stack, thread, start, name.symbol, LOW, POSSIBLE, other, facts)


def _in_kernel(stack: StackRecord, thread: Thread, facts: CheckFacts) -> Iterator[Finding]:
    """Yields a thread of the kernel that was started in no module.

    StartAddress is the routine. Win32StartAddress may be 0, as on running ReactOS systems.
    """
    start = facts.image.machine.canonical(thread.start_address or 0)
    if stack.kind != KERNEL or thread.unusable or not start or facts.is_user(start):
        return
    name = facts.namer(stack.space).name(start, return_address=False)
    if name.backing != NONE:
        return
    unlisted = of_unlisted(name)
    severity, innocent = unlisted or (MEDIUM, _LOADED_ITSELF)
    confidence = POSSIBLE if unlisted else LIKELY
    evidence = f"StartAddress {start:#x}, {facts.memory(stack.space, start)}"
    finding = thread_finding(stack, thread, severity, confidence, evidence, innocent, start, name.symbol)
    yield finding._replace(group=(stack.space.layer_name, start), of_threads=True)


def _half(space: AddressSpace, start: int, facts: CheckFacts) -> AddressSpace:
    """Returns the half of a process in which a thread starts: below 4 GB a WoW64 process's 32-bit half."""
    if space.machine is Machine.I386 or Machine.I386 not in facts.namer(space).process.ntdlls:
        return space
    return space._replace(machine=Machine.I386, wow64=True) if start < _FOUR_GB else space


def _led(space: AddressSpace, start: int, facts: CheckFacts) -> Optional[str]:
    """Returns where a closure or delegate leads: an image not in every process, or a registered range."""
    target = closure_target(facts.image.memory(space).read, start, space.machine)
    if target is None:
        return None
    table = facts.code_range(space, target)
    name = facts.namer(space).name(target, return_address=False)
    if table is None and (name.backing != IMAGE or _is_basic(space, target, facts)):
        return None
    return f"a closure or delegate that jumps to {target:#x} {name.symbol}" + (
        "" if table is None else f", {table.describe}"
    )


def _is_basic(space: AddressSpace, address: int, facts: CheckFacts) -> bool:
    """Returns whether an address is in a module that every process has, and not in a runtime."""
    known_module = facts.namer(space).module_at(address)
    return known_module is not None and known_module.module.stem in BASIC


def _start_finding(
    stack: StackRecord,
    thread: Thread,
    start: int,
    symbol: str,
    severity: str,
    confidence: str,
    innocent: str,
    facts: CheckFacts,
) -> Finding:
    evidence = f"Win32StartAddress {start:#x}, {facts.memory(thread.space, start)}"
    finding = thread_finding(stack, thread, severity, confidence, evidence, innocent, start, symbol)
    # Threads that were started at one address are one finding, whatever stacks each of them has.
    group = (thread.space.layer_name, start)
    return finding._replace(space=thread.space, group=group, of_threads=True)


def _first(stack: StackRecord) -> Optional[NamedFrame]:
    """Returns the frame called by the function in which a thread begins, None if no sure walk shows it."""
    inner: Optional[NamedFrame] = None
    for place in frame_places(stack):
        if _ground(place.frame.details.function):
            return inner
        inner = None if place.guessed or place.frame.details.module is None else place.frame
    return None


def _ground(function: Optional[str]) -> bool:
    """Returns whether threads begin in a function of this name; 32-bit names have leading underscores."""
    return (function or "").lstrip("_") in _GROUND


def _keeps_start_address(facts: CheckFacts) -> bool:
    """Returns whether Windows keeps the start address; before Vista a message's ID overwrites it."""
    if not facts.image.table_name:
        build = facts.image.service(machine_facts).kernel().build
        return build is not None and build >= _VISTA
    thread = facts.image.types["_ETHREAD"]
    start, message = thread.first_member("Win32StartAddress"), thread.first_member("LpcReceivedMessageId")
    return start is not None and (message is None or message.offset != start.offset)


def unchecked(facts: CheckFacts) -> Iterator[str]:
    """Yields that Windows does not keep start addresses, or else the reasons of `untold`."""
    if not _keeps_start_address(facts):
        yield "before Vista Win32StartAddress is overwritten"
    yield from facts.left_out(NAME)
    yield from untold(facts)


CHECK = Check(
    NAME,
    "T1055",
    THREAD_KINDS,
    "Win32StartAddress of a thread is in memory that belongs to no file; or the outermost function of the "
    "stack called another image than the one with the start address; or StartAddress of a thread of the "
    "kernel is in no module.",
    "medium if the start address is in private or unmapped memory, or in no module of the kernel; low if "
    "pages of the kernel's list of modules are missing, if the process registered a function table for that "
    "range, if a runtime is loaded and the list of function tables is not in the image, if a runtime's own "
    "list contains the range, if the code there jumps into a module as closures do, and if only the first "
    "frame is in another image",
    "Runtimes start threads in code that they generated; the module with the start address may have "
    "been unloaded.",
    "Look at the memory of the start with windows.vadinfo, and at the thread with windows.callstacks --tid.",
    "no stack of a thread could be walked",
    head="an implausible start of a thread",
    command=OF_MEMORY,
    of_stack=check_stack,
    unchecked=unchecked,
)
