# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images with threads whose stacks are known frame by frame."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from tests.forge import kernels
from tests.forge import trapentries as entries
from tests.forge.code import (
    R12,
    R13,
    R14,
    R15,
    RBP,
    RBX,
    RDI,
    RSI,
    Routine,
    module_options,
    service_handler,
    swap_context,
    system_call_stub,
    trap_handler,
)
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.process import Process
from tests.forge.stacks64 import NAMES, Stack64
from tests.forge.thread import Thread
from tests.forge.trapentries import Entry
from tests.support.trapsets import filled, registers_64

POISON = filled(b"\x60\xde\xc2\xe4\xdf\xfa\xff\xff")
PID = 1000
TRAP_FRAME = 0x190

# The kernel's functions lie where no symbol does: `at` moves them there.
SWAP = swap_context(0x000)
SWAP_THREAD = Routine(0x100, pushes=(RBX, RDI), alloc=0x30)
WAIT = Routine(0x200, pushes=(RBP, RSI, R12), alloc=0x50)
SERVICE_ENTRY = service_handler(0x300)
FAULT_ENTRY = trap_handler(0x400)
NT_WAIT = Routine(0x500, saves={RBX: 0x30, R13: 0x38}, alloc=0x48)
RESOLVES = Routine(0x600, pushes=(RBX, RSI, RDI, R12, R13, R14, R15), alloc=0x20)
THREAD_START = Routine(0x700, pushes=(RBX,), alloc=0x20)
INTERRUPT_ENTRY = trap_handler(0x680)
DISPATCH = Routine(0x780, pushes=(RBX, RBP), alloc=0x30)
KERNEL_CODE = (
    *(SWAP, SWAP_THREAD, WAIT, SERVICE_ENTRY, FAULT_ENTRY, NT_WAIT, RESOLVES, THREAD_START),
    *(INTERRUPT_ENTRY, DISPATCH),
)
UNWIND_DATA = 0xA00

DRIVER = Routine(0x1100, pushes=(RBX, R14), alloc=0x28, frame=(RBX, 0x20))

STUB = Routine(0x1100, unwind=False)
BEHIND_SYSCALL = 0x14
NUMBER = 0x55
"""What the stub of a system call calls."""
USER_START = Routine(0x1200, pushes=(RDI,), alloc=0x30)
WAIT_EX = Routine(0x1100, pushes=(RBX, RSI, RDI, R14), alloc=0x48)
MAIN = Routine(0x1100, pushes=(RBP, R15), alloc=0x100, frame=(RBP, 0x40), saves={R12: 0x88})

# What calls the stub of a system call, and from where on a 32-bit program is simulated.
RUN_SIMULATED = Routine(0x1100, pushes=(RBX, RSI, RDI, R12, R13, R14, R15), alloc=0x68)
SIMULATE = Routine(0x1180, pushes=(RBX,), alloc=0x20, frame=(RBX, 0x20))
SYSTEM_SERVICE = Routine(0x1200, pushes=(RBP, R13), alloc=0x98, saves={RSI: 0xC0})
IN_PROGRAM = (("app", MAIN, 1, "unwind"), ("kernelbase", WAIT_EX, 0, "leaf"))
IN_WOW64 = (
    *(("wow64", SIMULATE, 0, "unwind"), ("wow64cpu", RUN_SIMULATED, 2, "unwind")),
    ("wow64", SYSTEM_SERVICE, 1, "leaf"),
)

# The dispatchers of ntdll, and what each calls; the first two go on where the thread was stopped.
DISPATCHERS = {
    "KiUserExceptionDispatcher": Routine(0x1400, machine_frame=True, error_code=False, alloc=0x590),
    "KiUserApcDispatcher": Routine(0x1480, machine_frame=True, error_code=False, alloc=0x4D0),
    "KiUserCallbackDispatcher": Routine(0x1500, machine_frame=True, error_code=False, alloc=0x30),
}
CALLBACK = "KiUserCallbackDispatcher"
GETTER_RVA = 0x3000
"""Where a forged ntdll has RtlGetFunctionTableListHead."""
HEAD_RVA = 0x7800
"""The head of the list of function tables, in a forged ntdll."""

Frames = List[Tuple[int, int, str]]


def free_code(kernel_table: Any, size: int) -> int:
    """An RVA behind which a kernel's table names nothing for so many bytes."""
    names = sorted({0x1000, *(kernel_table.symbol(name) for name in kernel_table.symbols)})
    gaps = (low for low, high in zip(names, names[1:]) if high - low >= size + 0x1000)
    return next(gaps, names[0]) // 0x1000 * 0x1000 + 0x1000


def moved(routine: Routine, by: int) -> Routine:
    return dataclasses.replace(routine, rva=routine.rva + by)


class Expected(NamedTuple):
    """A stack: frames innermost first as (address, sp, how), and its status."""

    frames: Frames
    status: str = ""


class StackImage:
    """An x64 kernel and one process; `expected` by (thread ID, part)."""

    def __init__(self, name: str = "win10-x64", more: Sequence[Routine] = (), **options: Any) -> None:
        known = kernels.load(name)
        self.at = free_code(known.table, 0x1000)
        routines = [moved(routine, self.at) for routine in (*KERNEL_CODE, *more)]
        code = module_options(routines, self.at + UNWIND_DATA, 64)
        self.kernel = Kernel(known.table, **{**known.options(), **code, **options})
        self.nt = self.kernel.base + self.at
        self.driver = self.kernel.module("disk.sys", **module_options([DRIVER], 0x5800, 64)).base
        self.app = self._first_process()
        self.modules = self._user_modules(self.app)
        self.called: Sequence[Tuple[str, Routine, int, str]] = IN_PROGRAM
        self.expected: Dict[Tuple[int, str], Expected] = {}
        self.threads: Dict[int, Thread] = {}
        # The non-volatile registers of the code that was interrupted last, in the kernel and in user mode.
        self.at_trap: Dict[int, int] = {}
        self.at_entry: Dict[int, int] = {}
        self.trap = 0

    def _first_process(self) -> Process:
        return self.kernel.process("stacks.exe", pid=PID)

    def _user_modules(self, process: Process) -> Dict[str, Module]:
        stub = module_options([STUB, USER_START, *DISPATCHERS.values()], 0x5800, 64)
        code = bytearray(stub["contents"][STUB.rva])
        entering = system_call_stub(NUMBER, BEHIND_SYSCALL)
        code[: len(entering)] = entering
        stub["contents"][STUB.rva] = bytes(code)
        # lea rax, [rip + ...]; ret
        stub["contents"][GETTER_RVA] = (
            b"\x48\x8d\x05" + struct.pack("<i", HEAD_RVA - GETTER_RVA - 7) + b"\xc3"
        )
        modules = {"app": process.module("stacks.exe", dll=False, **module_options([MAIN], 0x5800, 64))}
        exports = {
            "NtWait": STUB.rva,
            "RtlUserThreadStart": USER_START.rva,
            **{name: routine.rva for name, routine in DISPATCHERS.items()},
        }
        exports["RtlGetFunctionTableListHead"] = GETTER_RVA
        modules["ntdll"] = process.module("ntdll.dll", exports=exports, **stub)
        head = modules["ntdll"].base + HEAD_RVA
        process.space.write(head, struct.pack("<QQ", head, head))
        modules["kernelbase"] = process.module(
            "kernelbase.dll", exports={"WaitEx": WAIT_EX.rva}, **module_options([WAIT_EX], 0x5800, 64)
        )
        return modules

    def simulating(self) -> None:
        """Has threads call the kernel as a 32-bit program does: through WoW64's own 64-bit modules."""
        wow64 = module_options([SIMULATE, SYSTEM_SERVICE], 0x5800, 64)
        self.modules["wow64"] = self.app.module("wow64.dll", **wow64)
        self.modules["wow64cpu"] = self.app.module("wow64cpu.dll", **self.options_of(RUN_SIMULATED))
        self.called = IN_WOW64

    @staticmethod
    def options_of(routine: Routine) -> Dict[str, Any]:
        """Options of a module that holds one function."""
        return module_options([routine], 0x5800, 64)

    def thread(self, tid: int, process: Optional[Process] = None, **options: Any) -> Thread:
        self.threads[tid] = (process or self.app).thread(tid, **options)
        return self.threads[tid]

    def user_stack(self, thread: Thread) -> Stack64:
        """A user stack down to the stub of a system call, which the caller interrupts."""
        space, modules = thread.process.space, self.modules
        stack = Stack64(
            space, thread.user_stack_base, lambda register, count: 0x7000000 + count * 16 + register
        )
        stack.start()
        stack.enter(modules["ntdll"].base, USER_START)
        stack.call(modules["ntdll"].base, USER_START)
        self._to_stub(stack)
        return stack

    def _to_stub(self, stack: Stack64) -> None:
        """Calls the stub of a system call through the program."""
        for name, routine, site, how in self.called:
            stack.enter(self.modules[name].base, routine)
            stack.call(self.modules[name].base, routine, site, how)

    def dispatched(self, tid: int, through: Sequence[str], cs: int, **options: Any) -> Thread:
        """A thread that waits in a system call, below dispatchers: the outermost comes first."""
        thread = self.thread(tid, **options)
        user, ntdll = self.user_stack(thread), self.modules["ntdll"].base
        for name in through:
            if name == CALLBACK:
                user.dispatched(ntdll + STUB.rva + BEHIND_SYSCALL, DISPATCHERS[name], cs)
            else:
                user.frames[-1] = user.frames[-1]._replace(how="unwind")
                user.enter(self.modules["app"].base, MAIN)
                user.dispatched(self.modules["app"].base + MAIN.rva + 0x15, DISPATCHERS[name], cs)
            user.call(ntdll, DISPATCHERS[name])
            self._to_stub(user)
        return self._waiting(thread, user)

    def leave_user(
        self, thread: Thread, user: Stack64, ip: int, entry: Entry, top: int = 0, part: str = "user"
    ) -> Stack64:
        """Enters the kernel from user mode; returns its stack in the handler.

        Args:
            thread: the thread
            user: its user stack
            ip: where it was
            entry: how it enters the kernel
            top: InitialStack; default: the end of a stack that nothing lies on yet
            part: which of its user parts it is
        """
        registers = registers_64(entry.mode)
        registers.update({name: user.registers[number] for number, name in NAMES.items()})
        self.at_entry = dict(user.registers)
        registers.update(rip=ip, rsp=user.sp)
        if entry.kind == entries.SYSCALL:
            registers["rax"] = NUMBER
            thread.kthread.maybe("SystemCallNumber", NUMBER)
        self.expect(thread, part, user, ip, user.sp)
        if not top:
            top = thread.stack_base
            self.kernel.space.write(thread.stack_limit, POISON(0, top - thread.stack_limit))
        stack = Stack64(self.kernel.space, top)
        frame = top - TRAP_FRAME
        stack.trap_frame(entry, registers, frame, POISON)
        if entry.kind == entries.SYSCALL:
            thread.kthread["TrapFrame"] = frame
        handler = SERVICE_ENTRY if entry.kind == entries.SYSCALL else FAULT_ENTRY
        stack.enter(self.nt, handler)
        stack.call(self.nt, handler)
        return stack

    def wait(self, thread: Thread, stack: Stack64) -> None:
        """Lets a thread wait where it is."""
        self._handle(stack, WAIT, SWAP_THREAD, SWAP)
        thread.kthread["KernelStack"] = stack.switch_out()
        self.expect(thread, "kernel", stack)

    def expect(
        self, thread: Thread, part: str, stack: Stack64, ip: int = 0, sp: int = 0, status: str = ""
    ) -> None:
        frames = [(frame.address, frame.sp, frame.how) for frame in reversed(stack.frames)]
        # How an address was found is told by the frame below it: the innermost one was saved.
        if ip:
            frames.insert(0, (ip, sp, "trap"))
        self.expected[thread.tid, part] = Expected(frames, status)

    def waiting(self, tid: int, **options: Any) -> Thread:
        """A thread that waits in a system call."""
        thread = self.thread(tid, **options)
        return self._waiting(thread, self.user_stack(thread))

    def _waiting(self, thread: Thread, user: Stack64) -> Thread:
        """Lets a thread wait in a system call."""
        ip = self.modules["ntdll"].base + STUB.rva + BEHIND_SYSCALL
        stack = self.leave_user(thread, user, ip, Entry(entries.SYSCALL, "user64", mitigated=True))
        stack.enter(self.nt, NT_WAIT)
        stack.call(self.nt, NT_WAIT)
        self.wait(thread, stack)
        return thread

    def interrupted(self, tid: int) -> int:
        """A thread that waits in a page fault of a driver, within a system call; returns the trap frame."""
        thread, stack = self._in_driver(tid)
        stack.enter(self.driver, DRIVER)
        frame = self._leave_driver(stack, Entry(entries.PAGE_FAULT, "kernel"), 0x22)
        self._handle(stack, FAULT_ENTRY, RESOLVES)
        self.wait(thread, stack)
        return frame

    def preempted(self, tid: int, kind: str, entered: bool, nested: bool = False) -> None:
        """A thread that an interrupt of a driver takes the processor from, within a system call.

        Args:
            tid: its ID
            kind: of the interrupt
            entered: the driver's function has its frame; else its first instruction is interrupted
            nested: the interrupt comes while a page fault of the driver is resolved
        """
        thread, stack = self._in_driver(tid)
        if entered:
            stack.enter(self.driver, DRIVER)
        at = 0x22 if entered else 0
        if nested:
            self._leave_driver(stack, Entry(entries.PAGE_FAULT, "kernel"), at)
            self._handle(stack, FAULT_ENTRY)
            stack.enter(self.nt, RESOLVES)
            ip = self.nt + RESOLVES.rva + 0x31
            stack.interrupt(Entry(kind, "kernel"), ip, registers_64("kernel"), POISON)
        else:
            self._leave_driver(stack, Entry(kind, "kernel"), at)
        self._handle(stack, INTERRUPT_ENTRY, DISPATCH)
        self.wait(thread, stack)

    def _in_driver(self, tid: int) -> Tuple[Thread, Stack64]:
        """A thread whose system call has called a driver's function, which has done nothing yet."""
        thread = self.thread(tid)
        user = self.user_stack(thread)
        ip = self.modules["ntdll"].base + STUB.rva + BEHIND_SYSCALL
        stack = self.leave_user(thread, user, ip, Entry(entries.SYSCALL, "user64", mitigated=True))
        self._handle(stack, NT_WAIT)
        return thread, stack

    def _leave_driver(self, stack: Stack64, entry: Entry, offset: int) -> int:
        """Interrupts the driver's function; returns the trap frame."""
        self.at_trap = dict(stack.registers)
        ip = self.driver + DRIVER.rva + offset
        return stack.interrupt(entry, ip, registers_64("kernel"), POISON)

    def _handle(self, stack: Stack64, *routines: Routine) -> None:
        """Lets functions of the kernel call each other."""
        for routine in routines:
            stack.enter(self.nt, routine)
            stack.call(self.nt, routine)

    def faulted(self, tid: int) -> Thread:
        """A thread that waits in a page fault of its own program."""
        thread = self.thread(tid)
        stack = Stack64(self.app.space, thread.user_stack_base)
        stack.start()
        stack.enter(self.modules["ntdll"].base, USER_START)
        stack.call(self.modules["ntdll"].base, USER_START)
        stack.enter(self.modules["app"].base, MAIN)
        ip = self.modules["app"].base + MAIN.rva + 0x15
        kernel = self.leave_user(thread, stack, ip, Entry(entries.PAGE_FAULT, "user64"))
        kernel.enter(self.nt, RESOLVES)
        kernel.call(self.nt, RESOLVES)
        self.wait(thread, kernel)
        return thread

    def system(self, tid: int) -> Thread:
        """A system thread that waits."""
        thread = self.thread(tid, self.kernel.system)
        stack = Stack64(self.kernel.space, thread.stack_base).start()
        stack.enter(self.nt, THREAD_START)
        stack.call(self.nt, THREAD_START)
        stack.enter(self.driver, DRIVER)
        stack.call(self.driver, DRIVER)
        self.wait(thread, stack)
        return thread
