# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The results of a walk up a stack, and the bounds that every walk keeps.

A return address is recognised by the call before it: `is_call`, for x86 and x64. Source: Intel 64 and IA-32
Architectures Software Developer's Manual, volume 2, CALL (E8, FF /2).
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from ...columns.words import AWAITED
from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.functiontable import FunctionTable
from ...names.decode.hybrid import CodeMap
from ...names.decode.pclntab import GoTable
from ...names.decode.unwindinfo import Bytes, ReadRva, RuntimeFunction
from .registers import MASK, Registers
from .registers_arm64 import RegistersArm64

LONGEST_CALL = 7
"""Length in bytes of the longest call without prefixes: FF /2 with a SIB byte and a four-byte
displacement."""

ENTERING = (b"\x0f\x05", b"\xcd\x2e")
"""syscall, int 2Eh (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""

LONG_NOP = rb"(?:\x66*\x2e?\x0f\x1f(?:\0|\x40\0|\x44\0\0|\x80\0{4}|\x84\0{5}))"
"""Pattern of a nop of three and more bytes, x86 and x64. Source: Intel's manual (NOP)."""
_NEAR = 5
_DISPLACEMENT = {0: 0, 1: 1, 2: 4}


def is_call(before: Bytes) -> bool:
    """Returns whether bytes of code end in a call. `before` has the bytes before the supposed return address;
    the last LONGEST_CALL of them are enough."""
    return next(lengths(before), None) is not None


def lengths(before: Bytes) -> Iterator[int]:
    """Yields the possible lengths of the call before an address; `before` is as for `is_call`."""
    code = bytes(before[-LONGEST_CALL:])
    if code[-_NEAR:-4] == b"\xe8":
        yield _NEAR
    for start in range(len(code) - 1):
        if code[start] == 0xFF and _indirect(code[start + 1 :]):
            yield len(code) - start


def direct_target(before: Bytes, address: int) -> Optional[int]:
    """Returns the target of a direct call that ends at an address, None if no direct call does.

    Args:
        before: the last bytes before the address, five or more
        address: return address, in any unit that code is counted in
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


AnyRegisters = Union[Registers, RegistersArm64]
"""A register state that frames keep."""

MAX_FRAMES = 1 << 16
"""Frames of one walk. A stack of 1 MB may have more than 10,000 in a recursion."""
MAX_SCANNED = 0x10000
"""Bytes of stack that one walk scans in total for possible return addresses."""

MAX_STACKS = 16
"""Stacks that one walk may run on."""

MayExecute = Callable[[int], bool]
"""address -> whether it may be code, as far as is known; called for readable memory outside all modules."""

OwnCopy = Callable[[int], bool]
"""address -> whether the process has changed the module code at the address."""

FindDispatcher = Callable[[int], Optional[Tuple[int, str]]]
"""address -> start and name of the dispatcher that holds it by the names of ntdll, None if none does."""


def shared(_address: int) -> bool:
    """Returns False: for address spaces in which no process can change code; an `OwnCopy`."""
    return False


def may_execute_anywhere(_address: int) -> bool:
    """Returns True: for address spaces in which executable memory cannot be recognised; a `MayExecute`."""
    return True


def find_no_dispatcher(_address: int) -> Optional[Tuple[int, str]]:
    """Returns None: for address spaces without dispatchers, such as the kernel's; a `FindDispatcher`."""
    return None


def _begins_nowhere(_rva: int) -> bool:
    """Returns False: for code without names; a `CodeImage.begins`."""
    return False


class UnwindError(Exception):
    """A frame that cannot be unwound; `code` is the reason."""

    def __init__(self, code: StatusCode) -> None:
        super().__init__(code.value)
        self.code = code


class CodeImage(NamedTuple):
    """A module, as a walk needs it.

    Attributes:
        table: function table; None if the image has none (x86), or none that can be read
        code: RVA ranges that hold code, None if unknown
        windows: whether the module belongs to Windows: a kernel module, or a file in the folder of Windows
            according to its VAD
        begins: returns whether a function begins at an RVA, by names or by the input's own proof
        hybrid: kinds of code of an image for ARM64EC, None for any other image
        go: functions of a Go program, None of any other image
    """

    base: int
    size: int
    read_rva: ReadRva
    table: Optional[FunctionTable]
    code: Optional[Tuple[Tuple[int, int], ...]] = None
    windows: bool = False
    begins: Callable[[int], bool] = _begins_nowhere
    hybrid: Optional[CodeMap] = None
    go: Optional[GoTable] = None

    def kind(self, address: int) -> Optional[int]:
        """Returns the kind of code at an address of a hybrid image (`names.decode.hybrid`), else None."""
        return None if self.hybrid is None else self.hybrid.kind(address - self.base)

    def executable(self, address: int) -> bool:
        """Returns whether an address of the image may be code."""
        rva = address - self.base
        return self.code is None or any(low <= rva < high for low, high in self.code)

    def find_entry(self, address: int) -> Optional[RuntimeFunction]:
        """Returns the entry of the function table that holds an address of the image, None if none does."""
        return None if self.table is None else self.table.find_entry(address - self.base)

    def entry_begins(self, address: int) -> bool:
        """Returns whether an entry of the function table begins at an address of the image."""
        entry = self.find_entry(address)
        return entry is not None and entry.begin == address - self.base

    def has_no_entry(self, address: int) -> bool:
        """Returns whether the function table is complete at an address, and no entry holds the address: nor
        does the table of a Go program."""
        rva = address - self.base
        if self.table is None or not self.table.complete_at(rva) or self.table.find_entry(rva) is not None:
            return False
        return self.go is None or self.go.find(rva) is None


FindImage = Callable[[int], Optional[CodeImage]]
"""address -> the module that holds it."""


class Frame(NamedTuple):
    """One frame of a stack.

    Attributes:
        address: address where execution was interrupted or will return to
        how: method by which the address was found, a word of `words.HOWS`
        returns: whether the address is a return address; False if execution was interrupted there
        sure: False if the address is a guess, or was found through a guess
        registers: complete register state, if the walk keeps one (x64, ARM64)
        trap: address of the machine frame (x86: trap frame) that held the interrupted address, 0 for any
            other frame
        return_register: register that held the return address, a word of `words.RETURN_REGISTERS`; None if
            it was not in a register
    """

    address: int
    sp: int
    how: str
    returns: bool
    sure: bool = True
    registers: Optional[AnyRegisters] = None
    trap: int = 0
    return_register: Optional[str] = None

    @property
    def stack_pointer(self) -> Optional[int]:
        """The stack pointer; None of a callback, which has no stack yet."""
        return None if self.how == AWAITED else self.sp


class UserTransition(NamedTuple):
    """The point where a walk left the kernel: the user-mode state, and the machine frame (x86: trap frame)
    with it.

    `sure` is False if the walk had to guess before it came here.
    """

    trap: int
    ip: int
    sp: int
    cs: int
    registers: Optional[AnyRegisters] = None
    sure: bool = True


class ReturnCandidate(NamedTuple):
    """A value on a stack that may be a return address and is none of the frames. `absent` says whether the
    code there is not in the image, so that a call may be before the address."""

    address: int
    slot: int
    absent: bool


class StackWalk(NamedTuple):
    """The result of a walk up a stack.

    Attributes:
        frames: frames, innermost first
        end: None if the walk reached the end of the stack, else the reason for which it ended
        gaps: reasons for which the walk had to guess, and other irregularities
        border: the point where the walk left the kernel, None if it did not
        candidates: further values in the parts of the stack that were scanned
    """

    frames: Tuple[Frame, ...]
    end: Optional[StatusCode] = None
    gaps: Tuple[StatusCode, ...] = ()
    border: Optional[UserTransition] = None
    candidates: Tuple[ReturnCandidate, ...] = ()


def as_candidates(walk: StackWalk, slot_size: int) -> Tuple[ReturnCandidate, ...]:
    """Returns the candidates of a walk, and its frames as such, by their place on the stack."""
    frames = (
        ReturnCandidate(frame.address, frame.trap or frame.sp - slot_size, False) for frame in walk.frames
    )
    return tuple(sorted((*frames, *walk.candidates), key=lambda candidate: candidate.slot))


class StackRanges:
    """The stacks that a walk may run on; the walk only goes up each stack. `ranges` are (low, high) of each
    stack; empty if the limits are unknown."""

    def __init__(self, ranges: Iterable[Tuple[int, int]]) -> None:
        self._ranges: List[Tuple[int, int]] = list(ranges)
        self._added: List[Tuple[int, int]] = []
        self._left: Dict[Optional[Tuple[int, int]], int] = {}
        """For each stack that the walk has left: the stack pointer there."""

    def limit(self, sp: int) -> Optional[int]:
        """Returns the upper end of the stack that holds an address; None if no stack does, or if the end is
        unknown, because a walk has added the stack.

        The end itself belongs to the stack: the stack pointer of an empty stack is there.
        """
        if not self._ranges:
            return sp + MAX_SCANNED
        stack = self._stack(sp)
        return stack[1] if stack and stack not in self._added else None

    def reach(self, sp: int) -> int:
        """Returns the address up to which a stack pointer may rise on its stack; 0 if it is on no stack."""
        if not self._ranges:
            return MASK
        stack = self._stack(sp)
        if stack is None:
            return 0
        before = self._ranges[: self._ranges.index(stack)]
        return min([stack[1], *(low - 1 for low, _ in before if low > sp)])

    def joins(self, first: int, second: int) -> bool:
        """Returns whether a walk may go between two addresses: they share a stack, or no limits are known."""
        return not self._ranges or self.together(first, second)

    def together(self, first: int, second: int) -> bool:
        """Returns whether two addresses are known to lie on one stack."""
        stack = self._stack(first)
        return stack is not None and stack == self._stack(second)

    def objection(self, sp: int, to: int) -> Optional[StatusCode]:
        """Returns why a stack pointer cannot have moved from one value to another, None if it can."""
        stack, target_stack = self._stack(sp), self._stack(to)
        if self._ranges and target_stack is None:
            return StatusCode.OUTSIDE_THE_STACK
        if stack == target_stack:
            return None if to > sp else StatusCode.CYCLE
        if target_stack in self._left and to <= self._left[target_stack]:
            return StatusCode.CYCLE
        self._left[stack] = sp
        return None

    def add(self, low: int, high: int) -> bool:
        """Adds memory that holds a stack; returns False if it overlaps a stack, or there are too many."""
        if len(self._ranges) >= MAX_STACKS or any(start < high and low < end for start, end in self._ranges):
            return False
        self._ranges.append((low, high))
        self._added.append((low, high))
        return True

    def _stack(self, sp: int) -> Optional[Tuple[int, int]]:
        return next((stack for stack in self._ranges if stack[0] <= sp <= stack[1]), None)
