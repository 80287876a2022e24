# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images of a process whose three threads hold two critical sections and a resource, and wait for one each.

Thread 6204 holds the first section, 6208 the second, 6212 the resource. In a deadlock 6204 waits for the
second section, 6208 for the resource, 6212 for the first section. Functions that take a lock keep its address
on the stack, as those of Windows do.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, List, NamedTuple, Optional

from tests.forge import kernels, locks, sample, samplestacks, samplethreads
from tests.forge.code import RBX, RSI, Routine, module_options
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.pe import Function
from tests.forge.stacks64 import Stack64
from tests.forge.thread import Thread
from winstacks.locks.resources import WAIT_REASON

PID = 6200
FIRST, SECOND, THIRD = TIDS = 6204, 6208, 6212
SECTION_ONE, SECTION_TWO, RESOURCE = "section 1", "section 2", "resource"
OWNERLESS = "SRW lock or condition variable"
_LIST_RVA = 0x7400
_OWNERLESS_RVA = 0x7600
_USED = 0x248
"""Bytes of a waiting thread's stack that are in use."""
_TRAP_FRAME = 0x190
_ERROR_CODE = 0x160
_UNWIND = 0x12000
_ENTER = "RtlEnterCriticalSection"
_ALLOC = 0x28
_ENTER_UNWIND = 0x5900
_ENTER_INFO = bytes((1, 4, 1, 0, 4, 2 | (_ALLOC // 8 - 1) << 4, 0, 0))
"""UNWIND_INFO of a function with a fixed allocation of _ALLOC bytes."""
_ENTER_PROLOGUE = bytes((0x48, 0x83, 0xEC, _ALLOC))
"""sub rsp, _ALLOC."""

_ROUTINES: Dict[str, Routine] = {
    **samplestacks.ROUTINES,
    "ExAcquireResourceExclusiveLite": Routine(0, pushes=(RBX, RSI), alloc=0x48),
}
_WAITS = ("KeWaitForSingleObject", "KiCommitThreadWait", "KiSwapThread", "KiSwapContext")


class Scenario(NamedTuple):
    """Who holds and waits for what.

    Attributes:
        holds: the thread that holds each lock, 0 for none
        waits: the lock for which each thread waits, None where it waits for no lock
        on_stack: whether the functions that wait keep the lock's address
        running: the third thread is running
        function: the name of the function of ntdll that waits for sections
        block_of: it keeps the address of an SRW lock or a condition variable, whose wait block is on the
            stack of this thread
        bits: the low bits of that
    """

    holds: Dict[str, int] = {SECTION_ONE: FIRST, SECTION_TWO: SECOND, RESOURCE: THIRD}
    waits: Dict[int, Optional[str]] = {FIRST: SECTION_TWO, SECOND: RESOURCE, THIRD: SECTION_ONE}
    on_stack: bool = True
    running: bool = False
    function: str = _ENTER
    block_of: int = 0
    bits: int = 3


class DeadlockImage(NamedTuple):
    """An image, and where its locks are."""

    image: Image
    places: Dict[str, int]


def build(scenario: Scenario) -> DeadlockImage:
    """Builds an image."""
    known = kernels.load("win10-x64")
    placed = [
        dataclasses.replace(routine, rva=known.table.symbol(name)) for name, routine in _ROUTINES.items()
    ]
    kernel = Kernel(known.table, **{**known.options(), **module_options(placed, _UNWIND, 64)})
    process = kernel.process("spooler.exe", pid=PID, session=1)
    process.module("spooler.exe", dll=False, **sample.SPOOLER.options())
    process.module("KERNEL32.DLL", **sample.KERNEL32.options())
    options = sample.NTDLL.options()
    enter = sample.NTDLL.rvas[_ENTER]
    options["functions"] = [
        Function(enter, function.end, _ENTER_UNWIND) if function.begin == enter else function
        for function in options["functions"]
    ]
    options["contents"] = {
        **options["contents"],
        _ENTER_UNWIND: _ENTER_INFO,
        enter: _ENTER_PROLOGUE,
    }
    names = {_ENTER: scenario.function}
    options["exports"] = {names.get(name, name): rva for name, rva in options["exports"].items()}
    ntdll = process.module("ntdll.dll", **options)
    state = {THIRD: 2} if scenario.running else {}
    start = ntdll.at("RtlUserThreadStart")
    threads = {tid: process.thread(tid, start=start, state=state.get(tid, 5)) for tid in TIDS}
    sections = locks.Sections(ntdll, ntdll.base + _LIST_RVA)
    waited = list(scenario.waits.values())
    places: Dict[str, int] = {}
    for name in (SECTION_ONE, SECTION_TWO):
        owner, waiters = scenario.holds.get(name, 0), waited.count(name)
        entry = sections.add(
            # Bit 0 is clear where it is held, the bits above bit 1 are the complement of the waiters.
            lock_count=-2 - 4 * waiters if owner else -1,
            recursion_count=int(bool(owner)),
            owning_thread=owner,
            contention=waiters,
        )
        places[name] = entry.address
    sections.link()
    resources = locks.Resources(kernel)
    owner = scenario.holds.get(RESOURCE, 0)
    held = resources.add(
        active=int(bool(owner)),
        exclusive=threads.get(owner),
        waiting_exclusive=waited.count(RESOURCE),
    )
    resources.link()
    places[RESOURCE] = held.address
    if scenario.block_of:
        places[OWNERLESS] = ntdll.base + _OWNERLESS_RVA
        block = threads[scenario.block_of].user_stack_base - _USED + 0x10
        process.space.write_int(places[OWNERLESS], block | scenario.bits)
    for tid, lock in scenario.waits.items():
        if scenario.block_of:
            _wait(kernel, threads[tid], ntdll, lock, places[OWNERLESS])
            continue
        kept = places[lock] if lock is not None and scenario.on_stack else 0
        _wait(kernel, threads[tid], ntdll, lock, kept)
    return DeadlockImage(kernel.image(), places)


def _wait(kernel: Kernel, thread: Thread, ntdll: Module, lock: Optional[str], kept: int) -> None:
    """Lets a thread wait.

    Args:
        kernel: the kernel
        thread: the thread
        ntdll: of its process
        lock: for which lock, None for none
        kept: what the function that takes the lock keeps on the stack
    """
    space = thread.process.space
    sp = thread.user_stack_base - _USED
    samplethreads.wait(thread, ntdll.at("NtWaitForSingleObject") + 0x14, rsp=sp, r10=0x40)
    values: List[int] = []
    if lock in (SECTION_ONE, SECTION_TWO):
        values = [ntdll.at(sample.NTDLL.rvas[_ENTER]) + 0x62, 0, kept, 0, 0, 0]
    values += [ntdll.at("RtlUserThreadStart") + 0x21, 0]
    samplestacks.put(thread, values)
    for address in (ntdll.at(sample.NTDLL.rvas[_ENTER]) + 0x62, ntdll.at("RtlUserThreadStart") + 0x21):
        space.write(address - 5, b"\xe8\0\0\0\0")
    frame = thread.stack_base - _TRAP_FRAME
    stack = Stack64(kernel.space, frame + _ERROR_CODE)
    first = "ExAcquireResourceExclusiveLite" if lock == RESOURCE else "NtWaitForSingleObject"
    for name in ("KiSystemCall64", first, *_WAITS):
        if name == "KeWaitForSingleObject" and lock == RESOURCE:
            stack.registers[RSI] = kept
        routine = dataclasses.replace(_ROUTINES[name], rva=0)
        stack.enter(kernel.symbol(name), routine)
        stack.call(kernel.symbol(name), routine)
    thread.kthread["KernelStack"] = stack.switch_out()
    if lock == RESOURCE:
        thread.kthread["WaitReason"] = WAIT_REASON
