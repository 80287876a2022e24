# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""32-bit stacks that are known frame by frame: of a 32-bit Windows, and of WoW64 threads."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Mapping, Tuple

from tests.forge import kernels
from tests.forge import trapentries as entries
from tests.forge.code import Routine, module_options
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.stacks64 import Stack64
from tests.forge.stacks86 import Stack86
from tests.forge.thread import Thread
from tests.forge.trapentries import X86_BLUE, X86_OLD, Entry
from tests.support.callstackimages import Expected, StackImage, free_code, moved
from tests.support.trapsets import filled, registers_86

PID = 1000
POISON = filled(b"\x30\0\0\0")
TRAP_FRAME = {X86_OLD: 0x29C, X86_BLUE: 0x8C}

# Without a frame of its own: it saves four registers and calls SwapContext.
SWAP = Routine(0x000, unwind=False)
WAIT = Routine(0x100)
SERVICE_ENTRY = Routine(0x200, alloc=0, unwind=False)
FAULT_ENTRY = Routine(0x300, alloc=0, unwind=False)
NT_WAIT = Routine(0x400)
RESOLVES = Routine(0x500)
INTERRUPT_ENTRY = Routine(0x600, alloc=0, unwind=False)
DISPATCH = Routine(0x700)
KERNEL_CODE = (SWAP, WAIT, SERVICE_ENTRY, FAULT_ENTRY, NT_WAIT, RESOLVES, INTERRUPT_ENTRY, DISPATCH)

DRIVER = Routine(0x1100)
STUB = Routine(0x1100, unwind=False)
USER_START = Routine(0x1200)
WAIT_EX = Routine(0x1100)
MAIN = Routine(0x1100)
RET_12 = b"\xc2\x0c\x00"
CONTEXT_SIZE = 0x2CC
RECORD_SIZE = 0x50

# The dispatchers of ntdll. That of exceptions passes on what the kernel left: cld; mov ecx, [esp + 4];
# mov ebx, [esp]; push ecx; push ebx.
EXCEPTION, APC, CALLBACK = "KiUserExceptionDispatcher", "KiUserApcDispatcher", "KiUserCallbackDispatcher"
DISPATCHERS = {
    EXCEPTION: Routine(0x1400, unwind=False),
    APC: Routine(0x1480, unwind=False),
    CALLBACK: Routine(0x1500, unwind=False),
}
PASSES_ON = bytes.fromhex("fc 8b 4c 24 04 8b 1c 24 51 53")
# That of APCs: lea edi, [esp + 10h]; pop eax.
POPS_ROUTINE = bytes.fromhex("8d 7c 24 10 58")
RTL_DISPATCH = Routine(0x1300)
FAULTING = WAIT_EX.rva + 0x13
NOTHING_CHANGED: Mapping[int, int] = {}


def user_modules(owner: Any) -> Dict[str, Module]:
    """The 32-bit modules of a process (or of its 32-bit half)."""
    stub = module_options([STUB, USER_START, RTL_DISPATCH, *DISPATCHERS.values()], 0x5800, 32)
    for name, begin in ((EXCEPTION, PASSES_ON), (APC, POPS_ROUTINE)):
        rva = DISPATCHERS[name].rva
        stub["contents"][rva] = begin + stub["contents"][rva][len(begin) :]
    exports = {"NtWait": STUB.rva, "RtlUserThreadStart": USER_START.rva, "RtlDispatch": RTL_DISPATCH.rva}
    exports.update((name, routine.rva) for name, routine in DISPATCHERS.items())
    # Behind the call of the stub of a system call the arguments are popped.
    stub["contents"][STUB.rva + 0x20] = RET_12
    return {
        "app": owner.module("stacks.exe", dll=False, **module_options([MAIN], 0x5800, 32)),
        "ntdll": owner.module("ntdll.dll", exports=exports, **stub),
        "kernelbase": owner.module(
            "kernelbase.dll", exports={"WaitEx": WAIT_EX.rva}, **module_options([WAIT_EX], 0x5800, 32)
        ),
    }


def user_stack(space: Any, base: int, modules: Dict[str, Module]) -> Stack86:
    """A 32-bit user stack down to a stub of ntdll."""
    stack = Stack86(space, base).start()
    stack.enter(modules["ntdll"].base, USER_START)
    stack.call(modules["ntdll"].base, USER_START)
    _to_kernelbase(stack, modules)
    # The stub has no frame: its caller is found by what the code does, not by the chain.
    stack.call(modules["kernelbase"].base, WAIT_EX, how="leaf")
    return stack


def dispatched_stack(
    space: Any,
    base: int,
    modules: Dict[str, Module],
    through: str,
    changed: Mapping[int, int] = NOTHING_CHANGED,
) -> Stack86:
    """A 32-bit user stack down to a stub of ntdll, below a dispatcher.

    Args:
        space: where it lies
        base: its upper end
        modules: see `user_modules`
        through: the dispatcher
        changed: words of the CONTEXT of an exception or an APC that are not what the kernel wrote, by offset

    Returns:
        The stack; its `frames` lack those that nothing proves.
    """
    stack = Stack86(space, base).start()
    ntdll, kernelbase = modules["ntdll"].base, modules["kernelbase"].base
    stack.enter(ntdll, USER_START)
    stack.call(ntdll, USER_START)
    _to_kernelbase(stack, modules)
    if through != CALLBACK:
        ip = kernelbase + FAULTING
        written = bytearray(context32(ip, stack.sp, stack.bp))
        for offset, value in changed.items():
            struct.pack_into("<I", written, offset, value)
        context = stack.sp - CONTEXT_SIZE
        if through == EXCEPTION:
            pair = context - RECORD_SIZE, context
            record = struct.pack("<20I", 0xC0000005, 0, 0, ip, 2, *[0] * 15)
            stack.dispatched(struct.pack("<2I", *pair), record, bytes(written))
            stack.push(*reversed(pair))
        else:
            stack.dispatched(struct.pack("<4I", ntdll + RTL_DISPATCH.rva, 1, 2, 3), bytes(written))
            stack.sp += 4
        if not changed:
            stack.frames.append((ip, "trap"))
    else:
        # The frame pointer is still that of who called the stub: the chain goes on with the caller's caller.
        stack.call(kernelbase, WAIT_EX)
        stack.frames.pop()
        stack.dispatched(struct.pack("<8I", 0, 3, stack.sp - 0x10, 0x10, 1, 2, 3, 4))
    below_dispatcher(stack, modules, through)
    return stack


def below_dispatcher(stack: Stack86, modules: Dict[str, Module], through: str) -> None:
    """Lets a dispatcher call through the program down to a stub of ntdll."""
    stack.call(modules["ntdll"].base, DISPATCHERS[through])
    stack.enter(modules["ntdll"].base, RTL_DISPATCH)
    stack.call(modules["ntdll"].base, RTL_DISPATCH)
    _to_kernelbase(stack, modules)
    stack.call(modules["kernelbase"].base, WAIT_EX, how="leaf")


def _to_kernelbase(stack: Stack86, modules: Dict[str, Module]) -> None:
    stack.enter(modules["app"].base, MAIN)
    stack.call(modules["app"].base, MAIN, 1)
    stack.enter(modules["kernelbase"].base, WAIT_EX)


class StackImage86:
    """A 32-bit kernel and one process; `expected` by (thread ID, part): (address, how), innermost first."""

    def __init__(self, name: str) -> None:
        known = kernels.load(name)
        self.architecture = X86_OLD if known.table.has("_KTRAP_FRAME", "DbgArgPointer") else X86_BLUE
        at = free_code(known.table, 0x1000)
        code = module_options([moved(routine, at) for routine in KERNEL_CODE], 0, 32)
        self.kernel = Kernel(known.table, **{**known.options(), **code})
        self.nt = self.kernel.base + at
        self.driver = self.kernel.module("disk.sys", **module_options([DRIVER], 0, 32)).base
        self.app = self.kernel.process("stacks.exe", pid=PID)
        self.modules = user_modules(self.app)
        self.expected: Dict[Tuple[int, str], List[Tuple[int, str]]] = {}

    def waiting(self, tid: int, interrupted: bool) -> Thread:
        """A thread that waits in a system call, or in a fault of a driver within one."""
        thread, stack = self._in_system_call(tid)
        stack.call(self.nt, NT_WAIT, int(interrupted))
        if interrupted:
            self._fault(stack)
        return self._wait(thread, stack)

    def dispatched(self, tid: int, through: str, changed: Mapping[int, int] = NOTHING_CHANGED) -> Thread:
        """A thread that waits in a system call, below a dispatcher; see `dispatched_stack`."""
        thread = self.app.thread(tid)
        user = dispatched_stack(self.app.space, thread.user_stack_base, self.modules, through, changed)
        thread, stack = self._enter_kernel(thread, user)
        stack.call(self.nt, NT_WAIT)
        return self._wait(thread, stack)

    def preempted(self, tid: int, entered: bool, nested: bool = False) -> Thread:
        """A thread that an interrupt of a driver takes the processor from, within a system call.

        Args:
            tid: its ID
            entered: the driver's function has its frame; else its first instruction is interrupted
            nested: the interrupt comes while a page fault of the driver is resolved
        """
        thread, stack = self._in_system_call(tid)
        stack.call(self.nt, NT_WAIT, 1, how="framepointer" if entered else "leaf")
        if nested:
            self._fault(stack)
            stack.enter(self.nt, WAIT)
        elif entered:
            stack.enter(self.driver, DRIVER)
        module, routine = (self.nt, WAIT) if nested else (self.driver, DRIVER)
        self._interrupt(stack, entries.DEVICE, module + routine.rva + (0x13 if entered else 0))
        stack.call(self.nt, INTERRUPT_ENTRY)
        stack.enter(self.nt, DISPATCH)
        stack.call(self.nt, DISPATCH)
        return self._wait(thread, stack)

    def _in_system_call(self, tid: int) -> Tuple[Thread, Stack86]:
        """A thread whose system call has built its frame."""
        thread = self.app.thread(tid)
        return self._enter_kernel(thread, user_stack(self.app.space, thread.user_stack_base, self.modules))

    def _enter_kernel(
        self, thread: Thread, user: Stack86, top: int = 0, part: str = "user"
    ) -> Tuple[Thread, Stack86]:
        ip = self.modules["ntdll"].base + STUB.returns()
        registers = dict(registers_86("user"), eip=ip, esp=user.sp, ebp=user.bp)
        self.expected[thread.tid, part] = [(ip, "trap"), *reversed(user.frames)]
        if not top:
            top = thread.stack_base
            self.kernel.space.write(thread.stack_limit, POISON(0, top - thread.stack_limit))
        stack = Stack86(self.kernel.space, top)
        frame = top - TRAP_FRAME[self.architecture]
        stack.trap_frame(self.architecture, Entry(entries.INT2E, "user"), registers, frame, POISON)
        thread.kthread["TrapFrame"] = frame
        stack.call(self.nt, SERVICE_ENTRY)
        stack.enter(self.nt, NT_WAIT)
        return thread, stack

    def _wait(self, thread: Thread, stack: Stack86) -> Thread:
        """Lets a thread wait where it is."""
        stack.enter(self.nt, WAIT)
        stack.call(self.nt, WAIT)
        thread.kthread["KernelStack"] = stack.switch_out(self.nt, SWAP)
        self.expected[thread.tid, "kernel"] = list(reversed(stack.frames))
        return thread

    def _fault(self, stack: Stack86) -> None:
        stack.enter(self.driver, DRIVER)
        self._interrupt(stack, entries.FAULT, self.driver + DRIVER.rva + 0x13)
        stack.call(self.nt, FAULT_ENTRY)
        stack.enter(self.nt, RESOLVES)
        stack.call(self.nt, RESOLVES)

    def _interrupt(self, stack: Stack86, kind: str, ip: int) -> None:
        stack.interrupt(self.architecture, Entry(kind, "kernel"), ip, registers_86("kernel"), POISON)


def context32(ip: int, sp: int, bp: int) -> bytes:
    """A 32-bit CONTEXT with its control and integer parts."""
    data = bytearray(CONTEXT_SIZE)
    struct.pack_into("<I", data, 0, 0x10007)
    for offset, value in ((0xB4, bp), (0xB8, ip), (0xBC, 0x23), (0xC0, 0x246), (0xC4, sp), (0xC8, 0x2B)):
        struct.pack_into("<I", data, offset, value)
    return bytes(data)


class Wow64Threads:
    """Threads of a WoW64 process in an x64 image."""

    def __init__(self, image: StackImage) -> None:
        self._image = image
        self._process = image.app
        self._wow = image.app.wow64()
        self.modules = user_modules(self._wow)

    def in_system_call(self, tid: int) -> None:
        """A thread in 64-bit code: its 32-bit registers are in the CPU area."""
        self.beside(self._image.waiting(tid))

    def dispatched(self, tid: int, through: str, changed: Mapping[int, int] = NOTHING_CHANGED) -> None:
        """A thread in 64-bit code, its 32-bit stack below a dispatcher; see `dispatched_stack`."""
        self.beside(self._image.waiting(tid), through, changed)

    def beside(self, thread: Thread, through: str = "", changed: Mapping[int, int] = NOTHING_CHANGED) -> None:
        """Gives a thread in 64-bit code its 32-bit half, below a dispatcher if one is named."""
        teb = self._wow.thread(thread, context=context32(0, 0, 0))
        space = self._process.space
        if through:
            stack = dispatched_stack(space, space.read_int(teb + 4, 4), self.modules, through, changed)
        else:
            stack = self._stack(teb)
        ip = self.modules["ntdll"].base + STUB.returns()
        assert thread.teb is not None
        space.write(thread.teb["TlsSlots[1]"] + 4, context32(ip, stack.sp, stack.bp))
        self._expect(thread.tid, ip, stack)

    def in_32_bit_code(self, tid: int) -> None:
        """A thread that was interrupted in 32-bit code: its registers are in the trap frame."""
        image = self._image
        thread = image.thread(tid)
        teb = self._wow.thread(thread, context=context32(0x11111111, 0x22222222, 0x33333333))
        stack = self._stack(teb)
        ip = self.modules["kernelbase"].base + WAIT_EX.rva + 0x13
        stack.frames.pop()
        stack.sp += 4
        native = Stack64(self._process.space, thread.user_stack_base)
        native.registers[5] = stack.bp
        native.sp = stack.sp
        kernel = image.leave_user(thread, native, ip, Entry(entries.PAGE_FAULT, "user32"))
        image.wait(thread, kernel)
        image.expected[tid, "user"] = Expected([], "in 32-bit code")
        self._expect(tid, ip, stack)

    def _stack(self, teb: int) -> Stack86:
        base = self._process.space.read_int(teb + 4, 4)
        return user_stack(self._process.space, base, self.modules)

    def _expect(self, tid: int, ip: int, stack: Stack86) -> None:
        frames = [(ip, "trap"), *reversed(stack.frames)]
        self._image.expected[tid, "wow64"] = Expected([(address, -1, how) for address, how in frames])
