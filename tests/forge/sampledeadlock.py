# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process of the sample in which two threads wait for each other: each holds what the other one wants."""

from __future__ import annotations

from typing import Any, Sequence

from . import addresswaits, samplestacks, samplethreads
from .kernel import Kernel
from .locks import Sections
from .module import Module
from .process import Process
from .std import Std
from .thread import Thread

DATABASE = 0x1D2C0000000
FIRST, SECOND = 6204, 6208
POINTER_RVA = 0x7340
LIST_RVA = 0x7400
_SP, _BLOCK = 0x248, 0x58
"""Bytes from the base of a stack to Rsp of the thread, and from there to its wait block."""
_ONE_WAITS = -6
"""LockCount of a held critical section for which one thread waits, from Server 2003 SP1 on."""
_WAITS = ("KiSystemCall64", "NtWaitForSingleObject", "KeWaitForSingleObject", "KiCommitThreadWait")


def add(kernel: Kernel, process: Process, spooler: Any, kernel32: Any, ntdll: Any) -> Std:
    """Fills the process; returns its database, which the caller writes.

    Args:
        kernel: the sample's
        process: the process, which is empty
        spooler, kernel32, ntdll: the sample's modules of these names; `options()` is what `Process.module`
            takes
    """
    program = process.module("spooler.exe", dll=False, **spooler.options())
    base = process.module("KERNEL32.DLL", **kernel32.options())
    nt = process.module("ntdll.dll", **ntdll.options())
    ground = [base.at("BaseThreadInitThunk") + 0x14, nt.at("RtlUserThreadStart") + 0x21]
    frames = [nt.at("RtlInitializeCriticalSectionEx") + 0x5D]
    database = Std("6.1", "x64", DATABASE)
    database.log([*frames, program.at("create_queue") + 0x2C, program.at("main") + 0x3A, *ground])
    database.log([*frames, program.at("open_log") + 0x19, program.at("main") + 0x44, *ground])
    process.space.write_int(nt.base + POINTER_RVA, database.base)
    sections = Sections(nt, nt.base + LIST_RVA)
    held = [
        sections.add(
            index=index,
            lock_count=_ONE_WAITS,
            recursion_count=1,
            owning_thread=owner,
            entries=1,
            contention=1,
        )
        for index, owner in ((1, FIRST), (2, SECOND))
    ]
    sections.link()
    for tid, calls, wanted in (
        (FIRST, (("write_log", 0x26), ("print_job", 0x51)), held[1]),
        (SECOND, (("count_jobs", 0x1D), ("rotate_log", 0x38)), held[0]),
    ):
        callers = [program.at(name) + offset for name, offset in calls]
        thread = _waits(kernel, process, tid, nt, callers, ground)
        addresswaits.wait(process, thread, wanted.address, thread.user_stack_base - _SP + _BLOCK)
    return database


def _waits(
    kernel: Kernel, process: Process, tid: int, ntdll: Module, callers: Sequence[int], ground: Sequence[int]
) -> Thread:
    thread = process.thread(tid, start=ntdll.at("RtlUserThreadStart"))
    sp = thread.user_stack_base - _SP
    samplethreads.wait(thread, ntdll.at("NtWaitForSingleObject") + 0x14, rsp=sp, r10=0x40)
    calls = [ntdll.at("RtlEnterCriticalSection") + 0x62, *callers, *ground]
    samplestacks.put(thread, [*calls, 0])
    samplestacks.waits(kernel, thread, *_WAITS)
    return thread
