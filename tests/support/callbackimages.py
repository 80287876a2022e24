# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64 images with threads in callbacks to user mode, some on expanded kernel stacks: each piece is known."""

from __future__ import annotations

from typing import List, NamedTuple

from tests.forge import trapentries as entries
from tests.forge.code import R12, R13, R14, R15, RBP, RBX, RDI, RSI, Routine
from tests.forge.obj import Obj
from tests.forge.stacks64 import Stack64
from tests.forge.thread import Thread
from tests.forge.trapentries import Entry
from tests.support.callstackimages import (
    BEHIND_SYSCALL,
    CALLBACK,
    DISPATCHERS,
    NT_WAIT,
    POISON,
    RESOLVES,
    STUB,
    TRAP_FRAME,
    WAIT,
    StackImage,
)

STACK_SIZE = 0x6000
ABOVE_INITIAL = 0x370
"""Bytes between InitialStack and the end of a stack: the control block, and more."""

_REGISTERS = (RBX, RDI, RSI, R12, R13, R14, R15)
_SAVES = {RBP: 0xF8, **{register: 0x100 + 8 * place for place, register in enumerate(_REGISTERS)}}
# Its frame is an exception frame.
CALL_USER_MODE = Routine(0x880, size=0x40, alloc=0x138, saves=_SAVES)
# It goes on on another stack, where a machine frame lies below its own.
SWITCH_STACK = Routine(0x8C0, size=0x80, machine_frame=True, error_code=False, alloc=0x28)
CALLBACK_CODE = (CALL_USER_MODE, SWITCH_STACK)
_SYSCALL = Entry(entries.SYSCALL, "user64", mitigated=True)


class Memory(NamedTuple):
    """The memory of a kernel stack, and InitialStack on it."""

    base: int
    limit: int
    initial: int


class CallbackImage(StackImage):
    """A kernel and one process whose threads are in callbacks.

    Args:
        name: the kernel; Windows 7 keeps callbacks in KTHREAD.CallbackStack, later ones in control blocks
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, more=CALLBACK_CODE)
        types = self.kernel.isf
        self.chained = types.has("_KTHREAD", "CallbackStack")
        self._control = next(
            name for name in ("_KSTACK_CONTROL", "_KERNEL_STACK_CONTROL") if types.has_type(name)
        )
        # Of each thread: the memory of its stacks, and the frames of its callbacks, the oldest first.
        self.memory: List[Memory] = []
        self.callouts: List[Obj] = []

    def called_back(
        self, tid: int, callbacks: int = 2, shared: bool = False, expanded: int = 0, cs: int = 0x33
    ) -> Thread:
        """A thread that waits in a system call of the newest of several callbacks.

        Args:
            tid: its ID
            callbacks: how many
            shared: all are on the same memory (Windows 7)
            expanded: the depth whose stack was expanded; 0: none
            cs: what lies in the slot of SegCs on the user stack
        """
        thread = self.thread(tid)
        ntdll = self.modules["ntdll"].base
        user = self.user_stack(thread)
        self.memory, self.callouts = [], []
        here = self._begun(thread.stack_base, thread.stack_limit)
        for depth in range(callbacks + 1, 0, -1):
            number = "" if depth == 1 else f" {depth}"
            ip = ntdll + STUB.rva + BEHIND_SYSCALL
            stack = self.leave_user(thread, user, ip, _SYSCALL, here.initial, "user" + number)
            self._handle(stack, NT_WAIT)
            if depth == expanded:
                here = self._expand(stack, here)
            if depth == 1:
                break
            self._handle(stack, WAIT)
            stack.enter(self.nt, CALL_USER_MODE)
            stack.frames[-1] = stack.frames[-1]._replace(how="trap")
            self._expect_pieces(thread, "kernel" + number, stack)
            top = self.memory[-2].initial if depth == expanded else here.initial
            self._leave_frame(stack, top, here)
            here = self._next(here, stack, shared)
            user.dispatched(ip, DISPATCHERS[CALLBACK], cs)
            user.call(ntdll, DISPATCHERS[CALLBACK])
            self._to_stub(user)
        self.wait(thread, stack)
        self._expect_pieces(thread, "kernel", stack)
        thread.kthread.put(StackBase=here.base, StackLimit=here.limit, InitialStack=here.initial)
        entered = self.memory[-2].initial if expanded == 1 else here.initial
        thread.kthread["TrapFrame"] = entered - TRAP_FRAME
        if self.chained:
            thread.kthread["CallbackStack"] = self.callouts[-1].address if self.callouts else 0
        else:
            thread.kthread["CallbackNestingLevel"] = callbacks
        return thread

    def control(self, initial: int) -> Obj:
        """The control block at the top of a stack."""
        return self.kernel.obj(self._control, initial)

    def _begun(self, base: int, limit: int) -> Memory:
        """A stack on new memory, with an empty control block."""
        self.kernel.space.write(limit, POISON(0, base - limit))
        return self._controlled(base, limit, base - ABOVE_INITIAL)

    def _controlled(self, base: int, limit: int, initial: int) -> Memory:
        control = self.control(initial)
        self.kernel.space.write(initial, bytes(control.size))
        if self._control == "_KSTACK_CONTROL":
            control["StackBase"] = base
        self.memory.append(Memory(base, limit, initial))
        return self.memory[-1]

    def _new(self) -> Memory:
        limit = int(self.kernel.space.reserve(STACK_SIZE))
        self.kernel.space.map(limit, STACK_SIZE)
        return self._begun(limit + STACK_SIZE, limit)

    def _leave_frame(self, stack: Stack64, top: int, here: Memory) -> None:
        """Completes the exception frame of KiCallUserMode."""
        frame = self.kernel.obj("_KEXCEPTION_FRAME", stack.sp)
        frame["TrapFrame"] = top - TRAP_FRAME
        if self.chained:
            frame["InitialStack"] = here.initial
            frame["CallbackStack"] = self.callouts[-1].address if self.callouts else 0
        self.callouts.append(frame)

    def _next(self, here: Memory, stack: Stack64, shared: bool) -> Memory:
        """The stack of a callback."""
        if shared:
            initial = (stack.sp - 0x100 & ~0xF) - self.control(0).size
            return self._controlled(here.base, here.limit, initial)
        memory = self._new()
        self._link(memory, here, stack.sp)
        return memory

    def _link(self, memory: Memory, here: Memory, sp: int) -> None:
        control = self.control(memory.initial)
        for name, value in (
            *(("StackBase", here.base), ("StackLimit", here.limit)),
            *(("InitialStack", here.initial), ("KernelStack", sp)),
        ):
            control[f"Previous.{name}"] = value

    def _expand(self, stack: Stack64, here: Memory) -> Memory:
        """Goes on on another stack: its frames before that are those of the next piece."""
        self._handle(stack, RESOLVES)
        stack.frames.pop()
        stack.sp += 8
        ip = self.nt + RESOLVES.rva + 0x31
        stack.frames.append(stack.frames[-1]._replace(address=ip, sp=stack.sp, how="trap"))
        stack_memory = self._new()
        self._link(stack_memory, here, stack.sp)
        if self._control == "_KSTACK_CONTROL":
            self.control(stack_memory.initial)["StackExpansion"] = 1
        sp, stack.sp = stack.sp, stack_memory.initial - 0x40
        for value in (0x18, sp, 0x40246, 0x10, ip):
            stack.push(value)
        stack.enter(self.nt, SWITCH_STACK)
        stack.call(self.nt, SWITCH_STACK)
        return stack_memory

    def _expect_pieces(self, thread: Thread, part: str, stack: Stack64) -> None:
        """Expects the frames of a stack; those on an expanded one are of a piece that comes first."""
        self.expect(thread, part, stack)
        frames = self.expected[thread.tid, part].frames
        base = self.memory[-1].base
        newest = [frame for frame in frames if self.memory[-1].limit <= frame[1] <= base]
        if len(newest) < len(frames):
            self.expected[thread.tid, part + " expanded"] = self.expected[thread.tid, part]._replace(
                frames=newest, status="expanded"
            )
            self.expected[thread.tid, part] = self.expected[thread.tid, part]._replace(
                frames=frames[len(newest) :]
            )
