# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a walk up a stack yields, and the bounds that every walk keeps.

A return address is known by the call before it: `is_call`, for x86 and x64. Source of that: Intel 64 and
IA-32 Architectures Software Developer's Manual, volume 2, CALL (E8, FF /2).
"""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ...memory.decode.status import Word
from ...names.decode.functiontable import FunctionTable
from ...names.decode.unwindinfo import Bytes, ReadRva
from .registers import MASK, Registers

LONGEST_CALL = 7
"""Bytes of the longest call without prefixes: FF /2 with a SIB byte and a displacement of four bytes."""

_NEAR = 5
_DISPLACEMENT = {0: 0, 1: 1, 2: 4}


def is_call(before: Bytes) -> bool:
    """Returns whether bytes of code end in a call.

    Args:
        before: the bytes before the supposed return address; LONGEST_CALL of them decide every case
    """
    return next(lengths(before), None) is not None


def lengths(before: Bytes) -> Iterator[int]:
    """Yields how many bytes the call before an address may have; `before` is that of `is_call`."""
    code = bytes(before[-LONGEST_CALL:])
    if code[-_NEAR:-4] == b"\xe8":
        yield _NEAR
    for start in range(len(code) - 1):
        if code[start] == 0xFF and _indirect(code[start + 1 :]):
            yield len(code) - start


def direct_target(before: Bytes, address: int) -> Optional[int]:
    """Returns where a direct call that ends at an address goes, or None if none does.

    Args:
        before: the bytes before the address, five or more
        address: the return address, in any unit that code is counted in
    """
    code = bytes(before[-_NEAR:])
    if len(code) == _NEAR and code[0] == 0xE8:
        return address + int.from_bytes(code[1:], "little", signed=True)
    return None


def _indirect(operand: bytes) -> bool:
    """Returns whether bytes are exactly the operand of a call through a register or memory (FF /2)."""
    mode, operation, base = operand[0] >> 6, operand[0] >> 3 & 7, operand[0] & 7
    if operation != 2:
        return False
    if mode == 3:
        return len(operand) == 1
    sib = base == 4
    if sib and len(operand) < 2:
        return False
    no_base = mode == 0 and (operand[1] & 7 if sib else base) == 5
    return len(operand) == 1 + sib + (4 if no_base else _DISPLACEMENT[mode])


MAX_FRAMES = 1024
MAX_SCANNED = 0x10000
"""Bytes of stack that one walk looks through, in all, for something that may be a return address."""

Read = Callable[[int, int], Optional[Bytes]]
"""(address, length) -> the bytes of memory there, or None unless all can be read."""

MayExecute = Callable[[int], bool]
"""address -> whether it may be code, as far as that is known; asked of readable memory in no module."""

OwnCopy = Callable[[int], bool]
"""address -> whether the process has a copy of its own of that page of a module: it was changed there."""

FindDispatcher = Callable[[int], Optional[Tuple[int, str]]]
"""address -> start and name of the dispatcher that ntdll's names say it is in, None if it is in none."""


def shared(_address: int) -> bool:
    """What is a process's own where no process can change code: an `OwnCopy`."""
    return False


def anywhere(_address: int) -> bool:
    """What may be code where nothing is known of it: a `MayExecute`."""
    return True


def nowhere(_address: int) -> Optional[Tuple[int, str]]:
    """Finds the dispatchers where there are none, as in the kernel: a `FindDispatcher`."""
    return None


class UnwindError(Exception):
    """A frame that cannot be unwound; `word` says why."""

    def __init__(self, word: Word) -> None:
        super().__init__(word.value)
        self.word = word


class CodeImage(NamedTuple):
    """A module as a walk needs it.

    Attributes:
        base: where it lies
        size: its bytes
        read_rva: reads it
        table: None where the image has no function table (x86) or none that can be read
        code: the RVA ranges that hold code, None if that is not known
        windows: whether it is a file of Windows itself: of the kernel, or in its folder by the VAD
    """

    base: int
    size: int
    read_rva: ReadRva
    table: Optional[FunctionTable]
    code: Optional[Tuple[Tuple[int, int], ...]] = None
    windows: bool = False

    def executable(self, address: int) -> bool:
        """Returns whether an address of the image may be code."""
        rva = address - self.base
        return self.code is None or any(low <= rva < high for low, high in self.code)


FindImage = Callable[[int], Optional[CodeImage]]
"""address -> the module that it lies in."""


class Frame(NamedTuple):
    """One frame.

    Attributes:
        address: where execution was or will return to
        sp: the stack pointer there
        how: how the address was found, a word of `words.HOWS`
        returns: False if execution was interrupted at the address
        sure: False from the first guess on
        registers: the whole state, where the walk keeps one (x64)
        trap: address of the machine frame (x86: trap frame) that held the interrupted address, 0 for any
            other frame
    """

    address: int
    sp: int
    how: str
    returns: bool
    sure: bool = True
    registers: Optional[Registers] = None
    trap: int = 0


class Border(NamedTuple):
    """Where a walk left the kernel: the user-mode state, and the machine frame (x86: trap frame) it was in.

    `sure` is False if the walk had to guess on its way here.
    """

    trap: int
    ip: int
    sp: int
    cs: int
    registers: Optional[Registers] = None
    sure: bool = True


class StackWalk(NamedTuple):
    """A stack.

    Attributes:
        frames: its frames, innermost first
        end: None if the walk came to the stack's own end, else why it ended
        gaps: the reasons for which it had to guess its way on, and what else is odd about the way
        border: where it left the kernel, None if it did not
    """

    frames: Tuple[Frame, ...]
    end: Optional[Word] = None
    gaps: Tuple[Word, ...] = ()
    border: Optional[Border] = None


class Stacks:
    """The stacks that a walk may run on, each of which it goes up once.

    Args:
        ranges: (low, high) of each; none at all means that the limits are not known
    """

    def __init__(self, ranges: Iterable[Tuple[int, int]]) -> None:
        self._ranges: List[Tuple[int, int]] = list(ranges)
        self._left: List[Optional[Tuple[int, int]]] = []

    def limit(self, sp: int) -> Optional[int]:
        """Returns the end of the stack that an address lies in; None if no stack holds it.

        The end itself counts: a stack pointer is there when the stack is empty.
        """
        if not self._ranges:
            return sp + MAX_SCANNED
        stack = self._stack(sp)
        return stack[1] if stack else None

    def reach(self, sp: int) -> int:
        """Returns up to where all addresses above a stack pointer are on its stack; 0 if it is on none."""
        if not self._ranges:
            return MASK
        stack = self._stack(sp)
        if stack is None:
            return 0
        before = self._ranges[: self._ranges.index(stack)]
        return min([stack[1], *(low - 1 for low, _ in before if low > sp)])

    def together(self, first: int, second: int) -> bool:
        """Returns whether two addresses are known to lie on one stack."""
        stack = self._stack(first)
        return stack is not None and stack == self._stack(second)

    def objection(self, sp: int, to: int) -> Optional[Word]:
        """Returns why a stack pointer cannot have moved from one value to another, or None if it can."""
        here, there = self._stack(sp), self._stack(to)
        if self._ranges and there is None:
            return Word.OUTSIDE_THE_STACK
        if here == there:
            return None if to > sp else Word.CYCLE
        if there in self._left:
            return Word.CYCLE
        self._left.append(here)
        return None

    def _stack(self, sp: int) -> Optional[Tuple[int, int]]:
        return next((stack for stack in self._ranges if stack[0] <= sp <= stack[1]), None)
