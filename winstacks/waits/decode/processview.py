# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One half of a process as the decoders of waits see it: its memory, its threads, and where ntdll is.

A thread that waits in user mode stands behind a system call of ntdll. The return address there is in the
function that called the stub. Sources: x64 stubs call the kernel directly, so the return address is at Rsp;
a stub of a 32-bit process calls KiFastSystemCall, so Esp points to the address in the stub; WoW64 keeps
Esp at the return address of the stub itself (measured: 17 builds of XP to 11).
"""

from __future__ import annotations

from functools import cached_property
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ...memory.decode.memory import ReadMemory
from ...memory.decode.ranges import span_at
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import integers, unsigned

Range = Tuple[int, int]
"""(start, end) of addresses; the end is exclusive."""

INNERMOST = 0x400
"""Bytes of a stack, from the stack pointer on, in which ntdll keeps what it waits for. Measured: at most 200h
bytes for critical sections of XP to 11; slim locks and condition variables use the rest."""

NARROW = 4
"""Bytes of a pointer in 32-bit code."""


class ThreadView(NamedTuple):
    """A thread of one half.

    Attributes:
        teb: its TEB of this half as an address range, None if unknown
        ip, sp: where it stands in user mode, None if unknown
        registers: its other registers there by name (x86: by x64 names), in the order in which they are
            asked; only the non-volatile ones, which a system call keeps
        arguments: the first arguments of its system call, None where they are unknown
        hints: what may be its first arguments, if the entry into the kernel saved volatile registers
        waits: whether the kernel says that it waits; None without a kernel
        caller: the address behind the call of its system call's stub, if a register has it; None if the stack
            does
    """

    tid: int
    stacks: Tuple[Range, ...]
    teb: Optional[Range] = None
    ip: Optional[int] = None
    sp: Optional[int] = None
    registers: Mapping[str, int] = {}
    arguments: Tuple[Optional[int], ...] = ()
    hints: Tuple[int, ...] = ()
    waits: Optional[bool] = None
    caller: Optional[int] = None


class ProcessView:
    """One half of a process.

    Args:
        ntdll: address range of its ntdll, None if unknown
        in_code: returns whether an address lies in the code of a module
        is_stub: returns whether an address is in a stub of a system call; None if that is unknown
    """

    def __init__(
        self,
        read: ReadMemory,
        pointer_size: int,
        threads: Sequence[ThreadView],
        ntdll: Optional[Range],
        in_code: Callable[[int], bool] = lambda address: False,
        is_stub: Callable[[int], Optional[bool]] = lambda address: None,
    ) -> None:
        self.read = read
        self.pointer_size = pointer_size
        self.threads = threads
        self.ntdll = ntdll
        self._in_code = in_code
        self._is_stub = is_stub
        self.by_tid: Dict[int, ThreadView] = {thread.tid: thread for thread in threads}

    @cached_property
    def _stacks(self) -> List[Tuple[int, int, ThreadView]]:
        return sorted(
            ((low, high, thread) for thread in self.threads for low, high in thread.stacks if low < high),
            key=lambda stack: stack[:2],
        )

    @cached_property
    def _tebs(self) -> List[Range]:
        return sorted(thread.teb for thread in self.threads if thread.teb is not None)

    def pointer(self, address: int) -> Optional[int]:
        """Returns the pointer at an address, None if it is not there."""
        return unsigned(self.read(address, self.pointer_size))

    def thread_on(self, address: int) -> Optional[ThreadView]:
        """Returns the thread on whose stack an address lies, None if it lies on none."""
        stack = span_at(self._stacks, address)
        return stack and stack[2]

    def in_teb(self, address: int) -> bool:
        """Returns whether an address lies in a TEB, whose exception list leads to the stack."""
        return span_at(self._tebs, address) is not None

    def in_ntdll(self, address: Optional[int]) -> bool:
        return address is not None and self.ntdll is not None and self.ntdll[0] <= address < self.ntdll[1]

    def innermost(self, thread: ThreadView, length: int = INNERMOST) -> Tuple[int, ...]:
        """Returns the words of a thread's stack from its stack pointer on, as far as they are there."""
        sp, size = thread.sp, self.pointer_size
        if sp is None or sp % size:
            return ()
        end = next((high for low, high in thread.stacks if low <= sp < high), sp)
        length = min(length, end - sp)
        while length > 0:
            data = self.read(sp, length)
            if data is not None:
                return integers(data, size)
            # The next page may be missing.
            length = min(length - 1, (sp + length - 1) // 0x1000 * 0x1000 - sp)
        return ()

    def call(self, thread: ThreadView) -> Call:
        """Returns who called the stub of the system call at which a thread stands, and its arguments."""
        words = self.innermost(thread, 8 * self.pointer_size)
        known, hints = thread.arguments, thread.hints
        if not words or not self.in_ntdll(thread.ip):
            return Call(False, known, hints)
        if self.pointer_size != NARROW:
            return Call(self.in_ntdll(words[0] if thread.caller is None else thread.caller), known, hints)
        # A stub that was called by KiFastSystemCall's way lies at the first address on the stack.
        by_stub = self.in_ntdll(words[0]) and len(words) > 1 and self._called_stub(words)
        place = 2 if by_stub else 1
        found = words[place : place + 2]
        return Call(self.in_ntdll(words[place - 1]), tuple(known[: len(found)]) + found[len(known) :])

    def _called_stub(self, words: Sequence[int]) -> bool:
        told = self._is_stub(words[0])
        return self.in_ntdll(words[1]) or self._in_code(words[1]) if told is None else told


class Call(NamedTuple):
    """The system call at which a thread stands.

    Attributes:
        in_ntdll: whether code of ntdll called the stub: no other code waits for locks of ntdll
        arguments: its first arguments, None where they are unknown
    """

    in_ntdll: bool
    arguments: Tuple[Optional[int], ...]
    hints: Tuple[int, ...] = ()

    def argument(self, number: int) -> Optional[int]:
        """Returns an argument, None if it is unknown."""
        return self.arguments[number] if number < len(self.arguments) else None
