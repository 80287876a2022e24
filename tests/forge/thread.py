# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads: ETHREAD, kernel stack, TEB and user stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .obj import Obj, filetime
from .vad import Vad

if TYPE_CHECKING:
    from .process import Process

WAITING = 5
TERMINATED = 4


class Thread:
    """A thread; made by `Process.thread`.

    Stacks grow down from their base (the upper end); `stack` and `user_stack` are the bytes at
    their upper end, so that the last byte lies just below the base.

    Args:
        tid: the thread's ID.
        start, win32_start: StartAddress and Win32StartAddress.
        state, wait_reason: numbers of KTHREAD_STATE (default: waiting) and KWAIT_REASON.
        stack: bytes at the top of the kernel stack. More can be written any time with
            `write_stack` and through `kernel.space`.
        stack_size: of the kernel stack; 0 makes no memory.
        initial_stack, kernel_stack, trap_frame: the KTHREAD members (addresses); default:
            InitialStack is the base, KernelStack the first byte of `stack`, TrapFrame null.
        teb: address of the TEB of a user thread; False for none. TEB memory is shared by nobody.
        user_stack, user_stack_size: the same for the user stack.
        listed: False keeps it out of its process' lists.
    """

    def __init__(
        self,
        process: Process,
        tid: int,
        *,
        start: int = 0,
        win32_start: Optional[int] = None,
        state: int = WAITING,
        wait_reason: int = 6,
        stack: bytes = b"",
        stack_size: int = 0x6000,
        initial_stack: Optional[int] = None,
        kernel_stack: Optional[int] = None,
        trap_frame: int = 0,
        teb: Optional[int] = None,
        user_stack: bytes = b"",
        user_stack_size: int = 0x4000,
        listed: bool = True,
    ) -> None:
        kernel = process.kernel
        self.process = process
        self.tid = tid
        self.listed = listed
        self.ethread = kernel.pool.executive("_ETHREAD", "Thread")
        self.kthread = self.ethread.member("Tcb")
        self.stack_limit = kernel.space.reserve(stack_size) if stack_size else 0
        self.stack_base = self.stack_limit + stack_size
        if stack_size:
            kernel.space.map(self.stack_limit, stack_size)
            self.write_stack(stack)
        self.kthread.put(
            StackBase=self.stack_base,
            StackLimit=self.stack_limit,
            InitialStack=self.stack_base if initial_stack is None else initial_stack,
            KernelStack=self.stack_base - len(stack) if kernel_stack is None else kernel_stack,
            TrapFrame=trap_frame,
            State=state,
            WaitReason=wait_reason,
        )
        if state == TERMINATED:
            self.end()
        self._describe(start, start if win32_start is None else win32_start)
        self.teb: Optional[Obj] = None
        self.user_stack_base = self.user_stack_limit = 0
        if process.user and teb is not False:
            self._user_half(teb or process.next_teb(), user_stack, user_stack_size)

    def _describe(self, start: int, win32_start: int) -> None:
        ethread, process = self.ethread, self.process
        ethread["Tcb.Header.Type"] = 6
        self.kthread["ApcState.Process"] = process.eprocess
        self.kthread.maybe("Process", process.eprocess)
        # XP and 2003 keep the process here, and the time shifted by three bits.
        old = ethread.maybe("ThreadsProcess", process.eprocess)
        ethread["Cid.UniqueProcess"] = process.pid
        ethread["Cid.UniqueThread"] = self.tid
        created = filetime(seconds=process.pid + self.tid)
        ethread.maybe("CreateTime.QuadPart", created << 3 if old else created)
        ethread.maybe("StartAddress", start)
        ethread.maybe("Win32StartAddress", win32_start)

    def _user_half(self, address: int, stack: bytes, size: int) -> None:
        process, space = self.process, self.process.space
        self.teb = process.obj("_TEB", address)
        process.vads.append(Vad(address, self.teb.size))
        limit = space.reserve(size)
        self.user_stack_limit, self.user_stack_base = limit, limit + size
        process.region(limit, size=size)
        self.write_user_stack(stack)
        self.kthread["Teb"] = address
        self.teb["NtTib.StackBase"] = self.user_stack_base
        self.teb["NtTib.StackLimit"] = limit
        self.teb["NtTib.Self"] = address
        self.teb["ClientId.UniqueProcess"] = process.pid
        self.teb["ClientId.UniqueThread"] = self.tid
        self.teb.maybe("DeallocationStack", limit)
        if process.peb is not None:
            self.teb["ProcessEnvironmentBlock"] = process.peb

    def end(self) -> None:
        """Makes it a thread that has ended: its object is signalled, as Windows documents."""
        self.kthread.put(**{"State": TERMINATED, "Header.SignalState": 1})

    def write_stack(self, data: bytes, base: Optional[int] = None) -> int:
        """Puts bytes on the kernel stack so that they end at `base` (default: the stack's).

        Returns the address of the first one.
        """
        start = (self.stack_base if base is None else base) - len(data)
        self.process.kernel.space.write(start, data)
        return start

    def write_user_stack(self, data: bytes, base: Optional[int] = None) -> int:
        """The same for the user stack."""
        start = (self.user_stack_base if base is None else base) - len(data)
        self.process.space.write(start, data)
        return start
