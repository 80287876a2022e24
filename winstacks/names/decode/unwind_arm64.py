# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the unwind data of ARM64: how a function moved the stack pointer and saved registers.

A record is packed into the second word of an entry of the function table, or lies in .xdata. Both become the
same list of codes. The place of an instruction becomes an index in the list: from there on, the codes undo
what the function has done (`UnwindRecord.at_instruction`).

Source: Microsoft, "ARM64 exception handling". It differs from what compilers write in these points:

* Packed data with CR=1 and RegI=1: two instructions, `sub sp` and `stp x19,lr` (LLVM; measured).
* Packed data with H=1 and no other saved register: no codes for the parameters (LLVM, compared with
  dumpbin). None of 665 files has H=1.
* An epilogue whose codes have no end code is the end of a region. Its last nops are padding, and the
  function's own codes follow it (measured: 545 of 1,122,318 epilogues).
* Scopes of the 32-bit ARM form, in hand-written code of 2015: the index has 8 bits (measured).
* save_any_reg with a pre-indexed store: the offset is (o + 1) * 16 (measured; Wine agrees).
"""

from __future__ import annotations

import bisect
import struct
from typing import Dict, List, Optional, Sequence, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import unsigned
from .unwindinfo import ReadRva, UnwindDataError, need

PACKED, FRAGMENT, ISLAND = 1, 2, 3
"""The low two bits of an entry's second word; 0: the rest is the RVA of a full record. Flag 3 is reserved in
the documentation. Linkers use it for branch islands: the rest is the RVA of another entry (measured)."""

FLAG_MASK = 3
INSTRUCTION = 4
"""Bytes of an instruction."""

MAX_SCOPES = 1 << 12
"""Greatest number of epilogues of one record. The most that were seen are 26."""

MAX_CODES = 1 << 12
"""Greatest number of codes of one record. An array has up to 1,020 of them; each place at which an epilogue
without an end code begins adds the codes of its sequence."""

FP, LR, SP = 29, 30, 31
"""Numbers of registers; x0 to x28 have their own."""
D0 = 32
"""Number of d0, the low half of v0; d1 and so on follow."""

# Operations of codes. The names are Microsoft's; the forms of a save are one operation.
NOP, ALLOC, SAVE, SET_FP, ADD_FP, SIGN_LR, CLEAR_UNWOUND_TO_CALL = range(7)
TRAP_FRAME, MACHINE_FRAME, CONTEXT, EC_CONTEXT, END, END_C, VECTORS, RESERVED, SAVE_NEXT = range(7, 16)

_FRAMES = {0xE8: TRAP_FRAME, 0xE9: MACHINE_FRAME, 0xEA: CONTEXT, 0xEB: EC_CONTEXT}
_PLAIN = {
    0xE1: SET_FP,
    0xE3: NOP,
    0xE4: END,
    0xE5: END_C,
    0xE6: SAVE_NEXT,
    0xEC: CLEAR_UNWOUND_TO_CALL,
    0xFC: SIGN_LR,
    **_FRAMES,
}
_LENGTHS = {0xE0: 4, 0xE2: 2, 0xE7: 3, 0xF8: 2, 0xF9: 3, 0xFA: 4, 0xFB: 5}
_OLD_SCOPE = 0x38


class UnwindCode(NamedTuple):
    """An unwind code: one instruction of a prologue or epilogue.

    Attributes:
        registers: registers of a save, ascending in memory
        offset: distance of the first of them from the stack pointer, in bytes
        size: bytes by which the instruction lowers the stack pointer (ADD_FP: by which the frame pointer lies
            above it)
        width: bytes between the registers of a save
    """

    operation: int
    registers: Tuple[int, ...] = ()
    offset: int = 0
    size: int = 0
    width: int = 8


_END = UnwindCode(END)


class EpilogScope(NamedTuple):
    """An epilogue.

    Attributes:
        start: its first instruction, counted from the start of the piece
        code: index of the code of that instruction
        length: number of its instructions that have a code; a return or jump follows
    """

    start: int
    code: int
    length: int


class UnwindRecord(NamedTuple):
    """The unwind data of a piece of code.

    Attributes:
        codes: the codes, in the order in which they undo the prologue, up to an END; other sequences follow
        prolog: number of codes that are instructions of the prologue
        epilogs: the epilogues, by start
        whole: whether the piece begins with a function; False for a part of a function that lies elsewhere
    """

    length: int
    codes: Tuple[UnwindCode, ...]
    prolog: int
    epilogs: Tuple[EpilogScope, ...]
    whole: bool

    def at_instruction(self, number: int) -> int:
        """Returns the index of the first code to undo at an instruction, counted from the start of the
        piece.

        The codes before an END apply, from the index on. An END_C has no effect.
        """
        if number < self.prolog:
            return self.prolog - number
        for epilog in self.epilogs:
            if epilog.start <= number <= epilog.start + epilog.length:
                return epilog.code + number - epilog.start
        return 0


def packed_length(word: int) -> int:
    """Returns the length of the piece of a packed record, in bytes."""
    return (word >> 2 & 0x7FF) * INSTRUCTION


def read_record(read_rva: ReadRva, word: int) -> UnwindRecord:
    """Returns the record of an entry, by the entry's second word (not of an island). Raises UnwindDataError
    if the record is unreadable or invalid."""
    if word & FLAG_MASK in (PACKED, FRAGMENT):
        return _packed(word)
    return _full(read_rva, word & ~FLAG_MASK)


def record_length(read_rva: ReadRva, rva: int) -> int:
    """Returns the bytes of the full record at an RVA, without its handler's data; 4 if it is unreadable."""
    try:
        at, _, scopes, code_words, _ = _header(read_rva, rva)
    except UnwindDataError:
        return INSTRUCTION
    return at - rva + 4 * (min(scopes, MAX_SCOPES) + code_words)


def _packed(word: int) -> UnwindRecord:
    """Returns a packed record: Microsoft's table of canonical prologues."""
    floats, integers, homes, chain = word >> 13 & 7, word >> 16 & 15, word >> 20 & 1, word >> 21 & 3
    frame = (word >> 23 & 0x1FF) * 16
    integer_bytes = 8 * integers + (8 if chain == 1 else 0)
    saved = integer_bytes + (8 * (floats + 1) if floats else 0) + 64 * homes + 15 & ~15
    local = frame - saved
    if local < 0 or integers > 10:
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    prologue: List[UnwindCode] = [UnwindCode(SIGN_LR)] if chain == 2 else []
    saves = _integer_saves(integers, chain == 1, saved)
    vectors = list(range(D0 + 8, D0 + 8 + (floats + 1 if floats else 0)))
    for first in range(0, len(vectors), 2):
        pair, offset = tuple(vectors[first : first + 2]), integer_bytes + 8 * first
        saves.append(UnwindCode(SAVE, pair, offset) if saves else UnwindCode(SAVE, pair, 0, saved))
    homing = [UnwindCode(NOP)] * 4 if homes and saves else []
    if homes and not saves:
        local = frame
    prologue += saves + homing
    if chain in (2, 3):
        if 0 < local <= 512:
            prologue.append(UnwindCode(SAVE, (FP, LR), 0, local))
        else:
            prologue += [*_allocations(local), UnwindCode(SAVE, (FP, LR))]
        prologue.append(UnwindCode(SET_FP))
    else:
        prologue += _allocations(local)
    codes = [*reversed(prologue), _END]
    length = packed_length(word)
    if word & FLAG_MASK == FRAGMENT:
        return UnwindRecord(length, tuple(codes), 0, (), False)
    # The epilogue restores the stack pointer with the save of the pair, and never the parameters.
    epilogue = [code for code in reversed(prologue) if code.operation not in (SET_FP, NOP)]
    start = length // INSTRUCTION - len(epilogue) - 1
    scope = EpilogScope(start, len(codes), len(epilogue))
    return UnwindRecord(length, (*codes, *epilogue, _END), len(prologue), (scope,), True)


def _integer_saves(count: int, with_lr: bool, saved: int) -> List[UnwindCode]:
    """Returns the stores of x19 and so on, and of lr; the first one allocates the whole area."""
    registers = list(range(19, 19 + count)) + ([LR] if with_lr else [])
    if with_lr and count == 1:
        return [UnwindCode(ALLOC, size=saved), UnwindCode(SAVE, (19, LR))]
    saves = []
    for first in range(0, len(registers), 2):
        pair = tuple(registers[first : first + 2])
        saves.append(UnwindCode(SAVE, pair, 8 * first) if first else UnwindCode(SAVE, pair, 0, saved))
    return saves


def _allocations(size: int) -> List[UnwindCode]:
    if size > 4080:
        return [UnwindCode(ALLOC, size=4080), UnwindCode(ALLOC, size=size - 4080)]
    return [UnwindCode(ALLOC, size=size)] if size else []


def _header(read_rva: ReadRva, rva: int) -> Tuple[int, int, int, int, Optional[int]]:
    """Returns of a full record: the RVA behind its header, the length of the piece in bytes, the number of
    scopes, the number of code words, and the index of the codes of a single epilogue at the end (or None)."""
    word = int.from_bytes(need(read_rva, rva, 4), "little")
    if word >> 18 & 3:
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    epilogs, code_words, at = word >> 22 & 31, word >> 27, rva + 4
    if not epilogs and not code_words:
        more = int.from_bytes(need(read_rva, at, 4), "little")
        epilogs, code_words, at = more & 0xFFFF, more >> 16 & 0xFF, at + 4
    single = epilogs if word >> 21 & 1 else None
    return at, (word & 0x3FFFF) * INSTRUCTION, 0 if single is not None else epilogs, code_words, single


def full_length(read_rva: ReadRva, rva: int) -> Optional[int]:
    """Returns the length of the piece of a full record in bytes; None if the record is unreadable."""
    word = unsigned(read_rva(rva, 4))
    return None if word is None else (word & 0x3FFFF) * INSTRUCTION


def _full(read_rva: ReadRva, rva: int) -> UnwindRecord:
    at, length, count, code_words, single = _header(read_rva, rva)
    if count > MAX_SCOPES:
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    data = need(read_rva, at, 4 * (count + code_words))
    scopes = struct.unpack_from(f"<{count}I", data)
    parsed = _Codes(bytes(data[4 * count :]))
    prolog = parsed.ended(0)
    if prolog is None:
        # The array belongs to another record: the codes reach no end.
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    epilogs = [parsed.epilog(scope & 0x3FFFF, _scope_index(scope)) for scope in scopes]
    if single is not None:
        last = parsed.epilog(0, single)
        epilogs.append(last._replace(start=length // INSTRUCTION - last.length - 1))
    starts_inside = parsed.codes[0].operation == END_C
    return UnwindRecord(length, tuple(parsed.codes), prolog, tuple(epilogs), not starts_inside)


def _scope_index(scope: int) -> int:
    """Returns the byte index of the codes of a scope."""
    return scope >> 24 if scope >> 18 & 0x3F == _OLD_SCOPE else scope >> 22


class _Codes:
    """The codes of a full record. `codes` are the codes, then the sequences of epilogues that have no end
    code."""

    def __init__(self, data: bytes) -> None:
        self.codes: List[UnwindCode] = []
        self._index_at: Dict[int, int] = {}
        position = 0
        while position < len(data):
            first = data[position]
            length = 1 if first < 0xC0 else 2 if first < 0xE0 else _LENGTHS.get(first, 1)
            self._index_at[position] = len(self.codes)
            code = data[position : position + length]
            self.codes.append(_decoded(code) if len(code) == length else UnwindCode(RESERVED))
            position += length
        self._count = len(self.codes)
        self._resolve()
        self._ends = [n for n, code in enumerate(self.codes) if code.operation in (END, END_C)]
        self._endless: Dict[int, Tuple[int, int]] = {}
        """Place and length of the sequences without an end code, by the index at which they begin."""

    def ended(self, index: int) -> Optional[int]:
        """Returns how many codes lie between an index and the next END or END_C, None if there is none."""
        place = bisect.bisect_left(self._ends, index)
        return self._ends[place] - index if place < len(self._ends) else None

    def epilog(self, start: int, position: int) -> EpilogScope:
        """Returns the epilogue whose codes begin at a byte of the array; raises UnwindDataError."""
        index = self._index_at.get(position)
        if index is None:
            raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
        count = self.ended(index)
        if count is not None:
            return EpilogScope(start, index, count)
        if index not in self._endless:
            self._endless[index] = self._add(index)
        return EpilogScope(start, *self._endless[index])

    def _add(self, index: int) -> Tuple[int, int]:
        """Adds the sequence of an epilogue without an end code; returns its place, and its length without
        the function's own codes. Raises UnwindDataError."""
        rest = self.codes[index : self._count]
        while rest and rest[-1].operation == NOP:
            rest.pop()
        own = next((n for n in self._ends if self.codes[n].operation == END), self._count)
        begin = len(self.codes)
        self.codes += [*rest, *self.codes[:own], _END]
        if len(self.codes) > MAX_CODES:
            raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
        return begin, len(rest)

    def _resolve(self) -> None:
        """Replaces each SAVE_NEXT by the save of its pair: the pair that follows the one coded after it."""
        pending: List[int] = []
        for number, code in enumerate(self.codes):
            if code.operation == SAVE_NEXT:
                pending.append(number)
                continue
            for distance, place in enumerate(reversed(pending), 1):
                self.codes[place] = _next_pair(code, distance)
            pending = []
        for place in pending:
            self.codes[place] = UnwindCode(RESERVED)


def _next_pair(code: UnwindCode, distance: int) -> UnwindCode:
    """Returns the save of the pair that lies `distance` pairs above a saved pair."""
    if code.operation != SAVE or len(code.registers) != 2:
        return UnwindCode(RESERVED)
    first, second = (register + 2 * distance for register in code.registers)
    last = 28 if first < D0 else D0 + 31
    if second > last or code.registers[1] - code.registers[0] != 1:
        return UnwindCode(RESERVED)
    return UnwindCode(SAVE, (first, second), code.offset + 2 * code.width * distance, 0, code.width)


def _decoded(code: Sequence[int]) -> UnwindCode:
    first = code[0]
    if first < 0x20:
        return UnwindCode(ALLOC, size=first * 16)
    if first < 0x40:
        return UnwindCode(SAVE, (19, 20), 0, (first & 0x1F) * 8)
    if first < 0x80:
        return UnwindCode(SAVE, (FP, LR), (first & 0x3F) * 8)
    if first < 0xC0:
        return UnwindCode(SAVE, (FP, LR), 0, ((first & 0x3F) + 1) * 8)
    if first < 0xE0:
        return _two_bytes(first, code[1])
    if first == 0xE0:
        return UnwindCode(ALLOC, size=(code[1] << 16 | code[2] << 8 | code[3]) * 16)
    if first == 0xE2:
        return UnwindCode(ADD_FP, size=code[1] * 8)
    if first == 0xE7:
        return _any_register(code[1], code[2])
    return UnwindCode(_PLAIN.get(first, RESERVED))


def _two_bytes(first: int, second: int) -> UnwindCode:
    if first < 0xC8:
        return UnwindCode(ALLOC, size=((first & 7) << 8 | second) * 16)
    if first == 0xDF:
        return UnwindCode(VECTORS)
    number, short = (first << 8 | second) >> 6, second & 0x3F
    if first < 0xD0:
        register = 19 + (number & 15)
        return _save((register, register + 1), short, bool(first & 4))
    if first < 0xD4:
        return _save((19 + (number & 15),), short, False)
    if first < 0xD6:
        return _save((19 + ((first << 8 | second) >> 5 & 15),), second & 0x1F, True)
    if first < 0xD8:
        return _save((19 + 2 * (number & 7), LR), short, False)
    vector = D0 + 8 + (number & 7)
    if first < 0xDC:
        return _save((vector, vector + 1), short, bool(first & 2))
    if first < 0xDE:
        return _save((vector,), short, False)
    return _save((D0 + 8 + (second >> 5),), second & 0x1F, True)


def _save(registers: Tuple[int, ...], units: int, allocates: bool) -> UnwindCode:
    if max(registers[:1]) < D0 and registers[-1] > LR:
        return UnwindCode(RESERVED)
    return (
        UnwindCode(SAVE, registers, 0, (units + 1) * 8)
        if allocates
        else UnwindCode(SAVE, registers, units * 8)
    )


def _any_register(second: int, third: int) -> UnwindCode:
    """Returns save_any_reg: bytes 0pxrrrrr ffoooooo."""
    kind, register, pair, allocates = third >> 6, second & 0x1F, second >> 6 & 1, second >> 5 & 1
    if second & 0x80:
        return UnwindCode(RESERVED)
    if kind == 3:
        return UnwindCode(VECTORS)
    base = 0 if kind == 0 else D0
    width, offset = (16 if kind == 2 else 8), third & 0x3F
    if (register + pair > LR and kind == 0) or register + pair > 31:
        return UnwindCode(RESERVED)
    registers = tuple(base + register + number for number in range(1 + pair))
    if allocates:
        return UnwindCode(SAVE, registers, 0, (offset + 1) * 16, width)
    return UnwindCode(SAVE, registers, offset * (16 if pair or kind == 2 else 8), 0, width)
