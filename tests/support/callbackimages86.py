# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""32-bit images with threads in callbacks to user mode: each piece of their stacks is known."""

from __future__ import annotations

import struct
from typing import List

from tests.forge.code import Routine
from tests.forge.obj import Obj
from tests.forge.stacks86 import Stack86
from tests.forge.thread import Thread
from tests.support.callbackimages import ABOVE_INITIAL, STACK_SIZE, Memory
from tests.support.callstackimages86 import (
    CALLBACK,
    NT_WAIT,
    POISON,
    RESOLVES,
    STUB,
    TRAP_FRAME,
    WAIT,
    StackImage86,
    below_dispatcher,
    user_stack,
)

_SAVED = (0xB, 0x51, 0xD1)
_EXPAND = 4
"""ExpandCalloutStack in StackControlFlags."""


class CallbackImage86(StackImage86):
    """A kernel and one process whose threads are in callbacks.

    XP has its callbacks on one stack and chains them from KTHREAD.CallbackStack; Windows 7 counts them there,
    and like later ones keeps them in control blocks.

    Args:
        name: the kernel
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        types = self.kernel.isf
        self.call_user_mode = Routine(types.symbol("KiCallUserMode"), alloc=0)
        controls = ("_KSTACK_CONTROL", "_KERNEL_STACK_CONTROL")
        self._control = next((control for control in controls if types.has_type(control)), "")
        self.chained = not self._control
        self.memory: List[Memory] = []
        self.callouts: List[int] = []

    def called_back(self, tid: int, callbacks: int = 2, expanded: int = 0) -> Thread:
        """A thread that waits in a system call of the newest of several callbacks.

        Args:
            tid: its ID
            callbacks: how many
            expanded: the depth whose stack was expanded; 0: none
        """
        thread = self.app.thread(tid)
        user = user_stack(self.app.space, thread.user_stack_base, self.modules)
        self.memory, self.callouts = [], []
        here = self._begun(thread.stack_base, thread.stack_limit)
        for depth in range(callbacks + 1, 0, -1):
            number = "" if depth == 1 else f" {depth}"
            top = here.initial
            _, stack = self._enter_kernel(thread, user, top, "user" + number)
            stack.call(self.nt, NT_WAIT, int(depth == expanded))
            trap_frame = top - TRAP_FRAME[self.architecture]
            before = 0
            if depth == expanded:
                before = len(stack.frames)
                here = self._expand(stack, here)
            if depth == 1:
                break
            stack.enter(self.nt, WAIT)
            stack.call(self.nt, WAIT)
            stack.frames[-1] = (stack.frames[-1][0], "trap")
            self._expect(tid, "kernel" + number, stack, before)
            stack.enter(self.kernel.base, self.call_user_mode)
            stack.push(*_SAVED)
            here = self._next(here, stack, trap_frame)
            user.frames.append((self.modules["ntdll"].base + STUB.returns(), "trap"))
            user.dispatched(struct.pack("<8I", 0, 3, user.sp - 0x10, 0x10, 1, 2, 3, 4))
            below_dispatcher(user, self.modules, CALLBACK)
        self._wait(thread, stack)
        self._expect(tid, "kernel", stack, before)
        thread.kthread.put(StackBase=here.base, StackLimit=here.limit, InitialStack=here.initial)
        if self.chained:
            thread.kthread["CallbackStack"] = self.callouts[-1] if self.callouts else 0
        else:
            thread.kthread.first(("CallbackNestingLevel", "CallbackDepth"), callbacks)
        return thread

    def control(self, initial: int) -> Obj:
        """The control block at the top of a stack."""
        return self.kernel.obj(self._control, initial)

    def _begun(self, base: int, limit: int) -> Memory:
        """A stack on new memory."""
        self.kernel.space.write(limit, POISON(0, base - limit))
        memory = Memory(base, limit, base - ABOVE_INITIAL)
        if self._control:
            self.kernel.space.write(memory.initial, bytes(self.control(0).size))
        self.memory.append(memory)
        return memory

    def _new(self) -> Memory:
        limit = int(self.kernel.space.reserve(STACK_SIZE))
        self.kernel.space.map(limit, STACK_SIZE)
        return self._begun(limit + STACK_SIZE, limit)

    def _next(self, here: Memory, stack: Stack86, trap_frame: int) -> Memory:
        """The stack of a callback."""
        if self.chained:
            stack.push(self.callouts[-1] if self.callouts else 0, trap_frame, here.initial)
            self.callouts.append(stack.sp)
            self.memory.append(here._replace(initial=stack.sp & ~0xF))
            return self.memory[-1]
        self.callouts.append(stack.sp)
        memory = self._new()
        self._link(memory, here, stack.sp)["PreviousTrapFrame"] = trap_frame
        return memory

    def _link(self, memory: Memory, here: Memory, sp: int) -> Obj:
        control = self.control(memory.initial)
        for name, value in (
            *(("StackBase", here.base), ("StackLimit", here.limit)),
            *(("InitialStack", here.initial), ("KernelStack", sp)),
        ):
            control[f"Previous.{name}"] = value
        return control

    def _expand(self, stack: Stack86, here: Memory) -> Memory:
        """Goes on on another stack, with a frame pointer that leads back."""
        stack.enter(self.nt, RESOLVES)
        stack_memory = self._new()
        control = self._link(stack_memory, here, stack.sp)
        if not control.maybe("StackExpansion", 1):
            control["StackControlFlags"] = _EXPAND
        stack.sp = stack_memory.initial - 0x40
        stack.call(self.nt, RESOLVES)
        return stack_memory

    def _expect(self, tid: int, part: str, stack: Stack86, before: int) -> None:
        """Expects the frames of a stack; those beyond the first so many are on an expanded one."""
        frames = list(reversed(stack.frames))
        if before:
            self.expected[tid, part + " expanded"] = frames[: len(frames) - before]
            frames = frames[len(frames) - before :]
        self.expected[tid, part] = frames
