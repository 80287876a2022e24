# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image with many threads, all of which wait in a system call below stacks of the same depth."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from tests.forge import code
from tests.forge import trapentries as entries
from tests.forge.code import R12, R14, RBX, RDI, RSI, Routine
from tests.forge.module import Module
from tests.forge.process import Process
from tests.forge.stacks64 import NAMES, Expected, Stack64
from tests.forge.thread import Thread
from tests.forge.trapentries import Entry
from tests.support.callstackimages import (
    BEHIND_SYSCALL,
    MAIN,
    NT_WAIT,
    NUMBER,
    SERVICE_ENTRY,
    STUB,
    SWAP,
    SWAP_THREAD,
    TRAP_FRAME,
    USER_START,
    WAIT,
    WAIT_EX,
    StackImage,
)
from tests.support.trapsets import filled, registers_64

from .images import DRIVERS, PID, Image, module_options, save

FRAMES = 30
"""Frames of a thread, in its kernel and its user part together."""

_FIRST_TID = 0x10000
_LIBRARIES, _FILTERS = 9, 4
_USER_CALLS, _KERNEL_CALLS = 12, 9
_ZERO = filled(b"\0")

ROUTINES = (
    Routine(0x1100, pushes=(RBX, RSI), alloc=0x28),
    Routine(0x1200, pushes=(RDI,), alloc=0x58),
    Routine(0x1300, alloc=0x88, saves={RBX: 0x60, RDI: 0x68}),
    Routine(0x1400, pushes=(RBX, R12, R14), alloc=0x20),
)
Called = List[Tuple[int, Routine]]


class DeepStacks(StackImage):
    """A kernel with processes whose threads wait in a system call, called through libraries and drivers."""

    def wait_deep(
        self, thread: Thread, base: Mapping[str, int], libraries: Called, filters: Called
    ) -> List[Expected]:
        """Lets a thread wait, called through functions of libraries and of filter drivers.

        Args:
            thread: the thread
            base: of the modules ntdll, app and kernelbase of its process
            libraries, filters: what it calls, the outermost first

        Returns:
            Its frames, those of the user part first, the outermost first in each part.
        """
        user = Stack64(thread.process.space, thread.user_stack_base).start()
        call(user, [(base["ntdll"], USER_START), (base["app"], MAIN)])
        call(user, libraries)
        call(user, [(base["kernelbase"], WAIT_EX)])
        ip = base["ntdll"] + STUB.rva + BEHIND_SYSCALL
        kernel = self._enter(thread, user, ip)
        call(kernel, [(self.nt, SERVICE_ENTRY), (self.nt, NT_WAIT)])
        call(kernel, filters)
        call(kernel, [(self.nt, routine) for routine in (WAIT, SWAP_THREAD, SWAP)])
        thread.kthread["KernelStack"] = kernel.switch_out()
        return [*user.frames, Expected(ip, user.sp, "trap", {}), *kernel.frames]

    def _enter(self, thread: Thread, user: Stack64, ip: int) -> Stack64:
        registers = registers_64("user64")
        registers.update({name: user.registers[number] for number, name in NAMES.items()})
        registers.update(rip=ip, rsp=user.sp, rax=NUMBER)
        thread.kthread.maybe("SystemCallNumber", NUMBER)
        stack = Stack64(self.kernel.space, thread.stack_base)
        frame = thread.stack_base - TRAP_FRAME
        stack.trap_frame(Entry(entries.SYSCALL, "user64", mitigated=True), registers, frame, _ZERO)
        thread.kthread["TrapFrame"] = frame
        return stack


class ManyStacks(DeepStacks):
    """A kernel, and processes with the same modules at the same addresses."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(DRIVERS):
            self.kernel.module(f"driver{number:03}.sys", **module_options(8))
        filters = [
            self.kernel.module(f"filter{number}.sys", **library_options()) for number in range(_FILTERS)
        ]
        self._filters = _called(filters)
        self._libraries = _called(_load(self.app))

    def process(self, number: int) -> Process:
        """A process like the first one."""
        process = self.kernel.process(f"app{number}.exe", pid=PID + 4 * number, session=1)
        self._user_modules(process)
        _load(process)
        return process

    def waiting_deep(self, tid: int, process: Process) -> None:
        """A thread that waits, called through libraries and drivers."""
        base = {name: module.base for name, module in self.modules.items()}
        libraries = some(self._libraries, tid, _USER_CALLS)
        filters = some(self._filters, tid, _KERNEL_CALLS)
        frames = self.wait_deep(self.thread(tid, process), base, libraries, filters)
        assert len(frames) == FRAMES


@functools.lru_cache(maxsize=None)
def threads(folder: pathlib.Path, processes: int, count: int) -> Image:
    """So many processes with so many threads each."""
    many_stacks = ManyStacks()
    for number in range(processes):
        process = many_stacks.process(number) if number else many_stacks.app
        for thread in range(count):
            many_stacks.waiting_deep(_FIRST_TID + 4 * (number * count + thread), process)
    return save(many_stacks.kernel, folder, f"threads-{processes}-{count}")


def spread_threads(folder: pathlib.Path, count: int) -> Image:
    """So many threads, in ten processes or in a hundred."""
    processes = 10 if count <= 1000 else 100
    return threads(folder, processes, count // processes)


def library_options(routines: Sequence[Routine] = ROUTINES) -> Dict[str, Any]:
    """Options of a module (`Spec`) whose functions are on stacks and exported."""
    exports = {f"Called{number}": routine.rva for number, routine in enumerate(routines)}
    return {**code.module_options(routines, 0x5800, 64), "exports": exports}


def _load(process: Process) -> List[Module]:
    return [process.module(f"library{number}.dll", **library_options()) for number in range(_LIBRARIES)]


def _called(modules: List[Module]) -> Called:
    return [(module.base, routine) for routine in ROUTINES for module in modules]


def some(functions: Called, start: int, count: int) -> Called:
    """So many of some functions, others for another start."""
    return [functions[(start + number * 5) % len(functions)] for number in range(count)]


def call(stack: Stack64, functions: Called) -> None:
    """Lets functions call each other, and the last one something else."""
    for module, routine in functions:
        stack.enter(module, routine)
        stack.call(module, routine)
