# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One step up an x64 stack: from the registers in a function to those of its caller.

What RtlVirtualUnwind does, on bytes: it undoes the part of the prologue that was executed, or carries out
what is left of an epilogue. Source: Microsoft, "x64 exception handling", "Unwind procedure".
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

from ...names.decode.functiontable import FunctionTable
from ...names.decode.unwindinfo import (
    ALLOC_SMALL,
    PUSH_NONVOL,
    Bytes,
    Code,
    RuntimeFunction,
    UnwindDataError,
    UnwindInfo,
)
from . import epilogue
from .frames import Read, UnwindError
from .registers_x64 import RCX, Registers
from .state_x64 import State

PROLOGUE, BODY, EPILOGUE, LEAF = "prologue", "body", "epilogue", "leaf"

_FAR = 1 << 62
"""A position behind every prologue."""


class Step(NamedTuple):
    """The caller's registers, and how they were found.

    `position` is where in its function the frame was. `machine_frame` is the address of the machine frame
    that was popped (Rip, SegCs, EFlags, Rsp, SegSs; the caller was interrupted rather than calling), or None.
    `sure` is False where an epilogue could have gone unseen because its code could not be read.
    """

    registers: Registers
    position: str
    machine_frame: Optional[int] = None
    sure: bool = True


class Unwinder:
    """Unwinds functions of one image.

    Args:
        table: the function table of the image
        base: address at which the image is loaded
        read: reads memory, the stack's and the image's
    """

    def __init__(self, table: FunctionTable, base: int, read: Read) -> None:
        self._table = table
        self._base = base
        self._read = read

    def step(self, registers: Registers, interrupted: bool) -> Step:
        """Finds the registers that the function which holds `ip` would return to.

        Args:
            registers: the state in the function; volatile registers may be unknown
            interrupted: `ip` is where the function was stopped; else it is a return address, which may lie
                just behind the function if the call was its last instruction

        Raises:
            UnwindError: unwind data, a register that it needs or the return address is not to be had
        """
        rva = registers.ip - self._base
        entry = self._table.find(rva if interrupted else rva - 1)
        try:
            if entry is not None:
                state = State(registers, self._read)
                return self._unwind(state, entry, rva, interrupted)
        except UnwindDataError as error:
            raise UnwindError(str(error)) from None
        if not self._table.complete_at(rva if interrupted else rva - 1):
            raise UnwindError("function table unreadable")
        if not interrupted:
            raise UnwindError("no unwind data")
        return Step(State(registers, self._read).returned(), LEAF)

    def _unwind(self, state: State, piece: RuntimeFunction, rva: int, interrupted: bool) -> Step:
        """Unwinds the function that a piece of code belongs to, through its chain of unwind data."""
        entry = self._table.direct(piece)
        chain = self._table.chain(entry)
        info = chain[0]
        sure = True
        if interrupted:
            # A return address is never in an epilogue: nothing in one calls.
            if info.version > 1:
                rest = _described(chain, entry.end - rva)
            else:
                rest, sure = self._recognised(piece, info, rva)
            if rest is not None:
                state.finish(rest)
                return Step(state.returned(), EPILOGUE, state.machine_frame)
        offset = rva - entry.begin if entry.begin <= rva < entry.end else _FAR
        position = PROLOGUE if offset < info.prolog_size else BODY
        state.undo(info, offset)
        for chained in chain[1:]:
            state.undo(chained, _FAR)
        return Step(state.returned(), position, state.machine_frame, sure or position == PROLOGUE)

    def _recognised(
        self, piece: RuntimeFunction, info: UnwindInfo, rva: int
    ) -> Tuple[Optional[epilogue.Epilogue], bool]:
        """Returns what an epilogue in the code still does at an RVA, or None; and whether that is sure."""
        code = self._code(rva, piece.end)
        rest = epilogue.decode(code, rva, info.frame_register, lambda target: self._leaves(piece, target))
        return rest, rest is not None or len(code) == min(piece.end - rva, epilogue.LONGEST)

    def _code(self, rva: int, end: int) -> Bytes:
        """Returns the code bytes from an RVA on that can be read: up to a page border at least, or none."""
        wanted = min(end - rva, epilogue.LONGEST)
        for length in (wanted, min(wanted, 0x1000 - rva % 0x1000)):
            code = self._table.read_rva(rva, length)
            if code is not None:
                return code
        return b""

    def _leaves(self, piece: RuntimeFunction, target: int) -> bool:
        """Tells whether a jump to an RVA leaves the function: a tail call, by which an epilogue may end.

        A tail call goes to where a function starts; so does one to the function itself. A jump to where a
        piece starts that is chained to the function stays in it. So does a jump to a piece that has its frame
        before its first instruction: that is how GCC describes a part of a function that it moved away.
        """
        there = self._table.find(target)
        if there is None:
            return True
        if there.begin != target:
            return False
        if self._table.primary(there) == self._table.primary(piece):
            return self._table.primary(there) == there
        try:
            other = self._table.unwind_info(self._table.direct(there))
        except UnwindDataError:
            return True
        return bool(other.prolog_size or not other.codes)


def _described(chain: List[UnwindInfo], distance: int) -> Optional[epilogue.Epilogue]:
    """Returns the rest of an epilogue that version 2 codes describe, `distance` bytes before the end.

    Such an epilogue is only the pops and the return or jump: the release of the fixed allocation comes before
    it and belongs to the body. The pops mirror the pushes. An allocation of eight bytes before all pushes is
    pushed flags, which a pop of one byte takes back.
    """
    for epilog in chain[0].epilogs:
        done = epilog.distance - distance
        if 0 <= done < epilog.size:
            codes = [code for info in chain for code in info.codes]
            return epilogue.Epilogue(None, 0, list(_pops_left(codes, done)))
    return None


def _pops_left(codes: List[Code], done: int) -> Iterator[int]:
    """Yields the registers that are still popped when `done` bytes of an epilogue have been executed."""
    pushes = [number for number, code in enumerate(codes) if code.operation == PUSH_NONVOL]
    for number in pushes:
        if done <= 0:
            yield codes[number].info
        done -= 2 if codes[number].info >= 8 else 1
    if pushes and done <= 0:
        yield from (RCX for code in codes[pushes[-1] + 1 :] if code[1:] == (ALLOC_SMALL, 0, 8))
