# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks of the sample's threads: one waits for an object, one was interrupted in injected code."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Sequence

from .code import (
    R12,
    R13,
    R14,
    RBP,
    RBX,
    RDI,
    RSI,
    Routine,
    module_options,
    service_handler,
    swap_context,
    trap_handler,
)
from .isf import Isf
from .kernel import Kernel
from .process import Process
from .stacks64 import Stack64
from .thread import Thread

_TRAP_FRAME = 0x190
_ERROR_CODE = 0x160
_KEPT = {RBP: 0x158, RBX: 0x140, RDI: 0x148, RSI: 0x150}
_UNWIND_DATA = 0x12000
"""RVA where the kernel's table names nothing."""

ROUTINES = {
    "KiSwapContext": swap_context(0),
    "KiSwapThread": Routine(0, pushes=(RBX, RDI), alloc=0x30),
    "KiCommitThreadWait": Routine(0, pushes=(RBP, RSI, R14), alloc=0x40),
    "KeWaitForSingleObject": Routine(0, pushes=(RBX, RSI, RDI, R12, R13), alloc=0x60),
    "NtWaitForSingleObject": Routine(0, saves={RBX: 0x50, RSI: 0x58}, alloc=0x68),
    "KiSystemCall64": service_handler(0),
    "KiInterruptDispatch": trap_handler(0),
    "KiDispatchInterrupt": Routine(0, pushes=(RBX,), alloc=0x20),
}


def kernel_options(table: Isf) -> Dict[str, Any]:
    """Code, function table and unwind data of the kernel's functions that are on the stacks."""
    placed = [dataclasses.replace(routine, rva=table.symbol(name)) for name, routine in ROUTINES.items()]
    return module_options(placed, _UNWIND_DATA, 64)


def waits(kernel: Kernel, thread: Thread, *functions: str) -> None:
    """Lets a thread wait in the kernel, below the trap frame that it has at the top of its stack."""
    frame = thread.stack_base - _TRAP_FRAME
    stack = Stack64(kernel.space, frame + _ERROR_CODE)
    stack.registers.update({number: kernel.space.read_int(frame + at) for number, at in _KEPT.items()})
    for name in (*functions, "KiSwapThread", "KiSwapContext"):
        stack.enter(kernel.symbol(name), dataclasses.replace(ROUTINES[name], rva=0))
        stack.call(kernel.symbol(name), dataclasses.replace(ROUTINES[name], rva=0))
    thread.kthread["KernelStack"] = stack.switch_out()


def add(kernel: Kernel, updater: Process) -> None:
    """Fills the stacks of the first two threads of the sample's process, whose functions all keep nothing."""
    first, second = updater.threads[:2]
    modules = {module.name: module for module in updater.modules}
    program, kernel32, ntdll = (modules[name] for name in ("updater.exe", "KERNEL32.DLL", "ntdll.dll"))
    ground = [kernel32.at("BaseThreadInitThunk") + 0x14, ntdll.at("RtlUserThreadStart") + 0x21, 0]
    calls = (("open_store", 0x22), ("load_settings", 0x47), ("main", 0x31))
    below = [program.at(name) + offset for name, offset in calls]
    put(first, [*below, *ground])
    # What the injected code has of its own on the stack, then who called it.
    put(second, [0x1D2B0000400, 0x30, 7, *ground])
    functions = ("KiSystemCall64", "NtWaitForSingleObject", "KeWaitForSingleObject", "KiCommitThreadWait")
    waits(kernel, first, *functions)
    waits(kernel, second, "KiInterruptDispatch", "KiDispatchInterrupt")


def put(thread: Thread, values: Sequence[int]) -> None:
    """Puts values on the user stack of a thread, the first where its stack pointer points."""
    frame = thread.stack_base - _TRAP_FRAME
    sp = thread.process.kernel.space.read_int(frame + 0x180)
    for number, value in enumerate(values):
        thread.process.space.write_int(sp + 8 * number, value, 8)
