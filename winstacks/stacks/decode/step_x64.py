# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One step up an x64 stack: from the registers in a function to the registers of its caller.

The step does the work of RtlVirtualUnwind on bytes: it undoes the executed part of the prologue, or carries
out the rest of an epilogue. Source: Microsoft, "x64 exception handling", "Unwind procedure".
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ...memory.decode.memory import ReadMemory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.functiontable import FunctionTable
from ...names.decode.unwindinfo import (
    ALLOC_SMALL,
    PUSH_NONVOL,
    Bytes,
    Code,
    ReadRva,
    RuntimeFunction,
    UnwindDataError,
    UnwindInfo,
)
from . import epilogue
from .calls_x64 import CodePlace, rule_at
from .epilogue import Epilogue
from .frames import UnwindError
from .leaf_x64 import MOST_CODE, makes_room
from .registers import MASK, RCX, RSP, VOLATILE, VOLATILE_XMM, Registers
from .rule_x64 import REGISTERS, RETURN, Rule, SavedAt, of_epilogue

PROLOGUE, BODY, EPILOGUE, LEAF = "prologue", "body", "epilogue", "leaf"


def carry_out(rule: Rule, registers: Registers, read: ReadMemory) -> Tuple[Registers, Optional[int]]:
    """Returns the registers after the return, and the address of the machine frame that was popped, if any.

    Volatile registers are unknown after the return. They are unknown behind a machine frame, too, because its
    builder saved them elsewhere. Raises UnwindError if a base register of the rule, the return address or the
    caller's stack pointer is unknown.
    """
    loaded: List[Optional[int]] = []

    def resolved(place: SavedAt) -> int:
        """Returns the address of a place."""
        if place.base >= REGISTERS:
            value, missing = loaded[place.base - REGISTERS], StatusCode.STACK_UNREADABLE
        else:
            value, missing = registers.general[place.base], StatusCode.FRAME_REGISTER_UNKNOWN
        if value is None:
            raise UnwindError(missing)
        return value + place.offset & MASK

    for load in rule.loads:
        data = read(resolved(load.place), load.size)
        loaded.append(None if data is None else int.from_bytes(data, "little"))
    general, xmm = list(registers.general), list(registers.xmm)
    for number, source in rule.general.items():
        general[number] = loaded[source]
    for number, source in rule.xmm.items():
        xmm[number] = loaded[source]
    sp = resolved(rule.sp)
    if rule.ip is None:
        data = read(sp, 8)
        ip = None if data is None else int.from_bytes(data, "little")
        sp = sp + 8 & MASK
        machine_frame = None
    else:
        ip, machine_frame = loaded[rule.ip], resolved(rule.loads[rule.ip].place)
    if ip is None:
        raise UnwindError(StatusCode.STACK_UNREADABLE)
    general[RSP] = sp
    for number in VOLATILE:
        general[number] = None
    for number in VOLATILE_XMM:
        xmm[number] = None
    return Registers(ip, tuple(general), tuple(xmm)), machine_frame


class Step(NamedTuple):
    """The caller's registers, and how they were found.

    `position` is the place of the frame in its function. `machine_frame` is the address of the machine frame
    that was popped (Rip, SegCs, EFlags, Rsp, SegSs; the caller was interrupted and did not call), or None.
    `sure` is False if an epilogue may have been missed because its code could not be read. `differs` is True
    if the unwind data contradicts the code: the code was followed. `undescribed` is the RVA at which the
    function begins, if its unwind data has a handler and no codes and its code was not followed: nothing then
    shows that the return address is on top of the stack. `ambiguous` is True if the function may have undone
    its frame long before: builtins of V8 go on behind returns.
    """

    registers: Registers
    position: str
    machine_frame: Optional[int] = None
    sure: bool = True
    differs: bool = False
    undescribed: Optional[int] = None
    ambiguous: bool = False


class Unwinder:
    """Unwinds functions of one image. `read_rva` reads the image's code; None: the reader of the table reads
    it."""

    def __init__(
        self, table: FunctionTable, base: int, read: ReadMemory, read_rva: Optional[ReadRva] = None
    ) -> None:
        self._table = table
        self._read_rva = read_rva or table.read_rva
        self._base = base
        self._read = read

    def step(self, registers: Registers, interrupted: bool) -> Step:
        """Finds the registers to which the function that holds `ip` would return.

        Args:
            registers: register state in the function; volatile registers may be unknown
            interrupted: whether the function was stopped at `ip`; False: `ip` is a return address, which may
                lie just behind the function if the call was its last instruction

        Raises:
            UnwindError: unwind data, a needed register or the return address is not available
        """
        rva = registers.ip - self._base
        entry = self._table.find_entry(rva if interrupted else rva - 1)
        try:
            if entry is not None:
                return self._unwind(registers, entry, rva, interrupted)
        except UnwindDataError as error:
            raise UnwindError(error.code) from None
        if not self._table.complete_at(rva if interrupted else rva - 1):
            raise UnwindError(StatusCode.FUNCTION_TABLE_UNREADABLE)
        if not interrupted:
            raise UnwindError(StatusCode.NO_UNWIND_DATA)
        return Step(carry_out(RETURN, registers, self._read)[0], LEAF)

    def _unwind(self, registers: Registers, piece: RuntimeFunction, rva: int, interrupted: bool) -> Step:
        """Unwinds the function that a piece of code belongs to, through its chain of unwind data."""
        place = CodePlace.at_rva(self._table, piece, rva)
        if not interrupted:
            # A return address is never in an epilogue: no instruction of an epilogue calls.
            if place.is_generated and place.sets_up_nothing(self._read_rva):
                raise UnwindError(StatusCode.UNWIND_DATA_INCOMPLETE)
            return self._carried_out(registers, place, None)
        if place.chain[0].version > 1:
            return self._described(registers, place, rva)
        rest, sure = self._recognised(piece, place.chain[0], rva)
        if rest is None and self._is_frameless(place, rva):
            return self._carried_out(registers, place, Epilogue(None, 0, []))._replace(differs=True)
        step = self._carried_out(registers, place, rest)
        if step.position == BODY and place.is_generated:
            step = step._replace(ambiguous=True)
        return step if sure or step.position == PROLOGUE else step._replace(sure=False)

    def _carried_out(self, registers: Registers, place: CodePlace, rest: Optional[Epilogue]) -> Step:
        """Carries out the rest of an epilogue; if there is none, undoes the executed part of the prologue."""
        if rest is not None:
            rule, position = of_epilogue(rest), EPILOGUE
        else:
            rule = rule_at(self._table, place)[0]
            position = PROLOGUE if place.offset < place.chain[0].prolog_size else BODY
        caller, machine_frame = carry_out(rule, registers, self._read)
        begin = place.entry.begin if rest is None and place.handler_only else None
        return Step(caller, position, machine_frame, undescribed=begin)

    def _described(self, registers: Registers, place: CodePlace, rva: int) -> Step:
        """Steps by the version 2 description; by the code, if it can be read and contradicts the description.

        The code contradicts if it returns, or if it calls in a described epilogue. A jump that is not
        described as the end of an epilogue stays in the function.
        """
        described = _epilogue_at(place.chain, place.entry.end - rva)
        code, frame_register = self._code(rva), place.chain[0].frame_register
        shown = epilogue.returning(code, frame_register) or described
        if described is not None and epilogue.calls(code, frame_register):
            shown = None
        step = self._carried_out(registers, place, shown)
        if shown == described:
            return step
        try:
            described_step = self._carried_out(registers, place, described)
        except UnwindError:
            return step._replace(differs=True)
        return described_step if described_step.registers == step.registers else step._replace(differs=True)

    def _recognised(
        self, piece: RuntimeFunction, info: UnwindInfo, rva: int
    ) -> Tuple[Optional[Epilogue], bool]:
        """Returns the rest of an epilogue in the code at an RVA, or None; and whether this is sure.

        The code of an epilogue may continue behind the piece: a chained entry may begin within it.
        """
        code = self._code(rva)
        rest = epilogue.decode(code, rva, info.frame_register, lambda target: self._leaves(piece, target))
        return rest, rest is not None or epilogue.decided(code, info.frame_register)

    def _is_frameless(self, place: CodePlace, rva: int) -> bool:
        """Returns whether a function with only a frame pointer has no frame at an RVA, and is not at its end.

        It has undone the frame, or the code at its start does not set one up. Raises UnwindError if the place
        of the return address is unknown.
        """
        if not place.is_pair:
            return False
        before = self._read_rva(rva - epilogue.LONGEST_UNDONE, epilogue.LONGEST_UNDONE)
        is_undone, moved = (False, False) if before is None else epilogue.undone(before)
        if moved or epilogue.pushes_return(self._code(rva)):
            raise UnwindError(StatusCode.UNWIND_DATA_INCOMPLETE)
        if is_undone or not place.sets_up_nothing(self._read_rva):
            return is_undone
        size = min(rva - place.entry.begin, MOST_CODE)
        code = self._read_rva(rva - size, size)
        if code is not None and makes_room(code):
            raise UnwindError(StatusCode.UNWIND_DATA_INCOMPLETE)
        return True

    def _code(self, rva: int) -> Bytes:
        """Returns the readable code bytes from an RVA on: up to a page border at least, or none."""
        for length in (epilogue.LONGEST, min(epilogue.LONGEST, PAGE_SIZE - rva % PAGE_SIZE)):
            code = self._read_rva(rva, length)
            if code is not None:
                return code
        return b""

    def _leaves(self, piece: RuntimeFunction, target: int) -> bool:
        """Returns whether a jump to an RVA leaves the function: a tail call, which may end an epilogue.

        A tail call goes to the start of a function, perhaps of the same one. A jump to the start of a piece
        that is chained to the function stays in the function. So does a jump to a piece that has its frame
        before its first instruction: GCC describes a moved part of a function in this way.
        """
        there = self._table.find_entry(target)
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


def _epilogue_at(chain: List[UnwindInfo], distance: int) -> Optional[Epilogue]:
    """Returns the rest of an epilogue that version 2 codes describe, `distance` bytes before the end.

    Such an epilogue consists only of the pops and the return or jump: the release of the fixed allocation
    comes before it and belongs to the body. The pops mirror the pushes. An allocation of eight bytes before
    all pushes is the pushed flags, which a one-byte pop removes.
    """
    for epilog in chain[0].epilogs:
        executed = epilog.distance - distance
        if 0 <= executed < epilog.size:
            codes = [code for info in chain for code in info.codes]
            return Epilogue(None, 0, list(_pops_left(codes, executed)))
    return None


def _pops_left(codes: List[Code], executed: int) -> Iterator[int]:
    """Yields the registers that are still to be popped after the first `executed` bytes of an epilogue."""
    pushes = [number for number, code in enumerate(codes) if code.operation == PUSH_NONVOL]
    for number in pushes:
        if executed <= 0:
            yield codes[number].info
        executed -= 2 if codes[number].info >= 8 else 1
    if pushes and executed <= 0:
        yield from (RCX for code in codes[pushes[-1] + 1 :] if code[1:] == (ALLOC_SMALL, 0, 8))
