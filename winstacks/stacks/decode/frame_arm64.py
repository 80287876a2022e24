# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether an interrupted ARM64 function has the frame that its unwind data describes, as its code shows.

V8 describes whole builtins with the codes of one frame: stp fp,lr,[sp,#-16]!; mov fp,sp. A builtin may store
this pair in another form, later, or several times, and goes on behind its end. Sources: code of V8 in Deno
2.9.6 and Node 26.7.
"""

from __future__ import annotations

import struct
from typing import Optional, Sequence

from ...memory.decode.records import NamedTuple
from ...names.decode.functiontable_arm64 import FunctionTableArm64
from ...names.decode.unwind_arm64 import (
    END,
    END_C,
    FLAG_MASK,
    FP,
    INSTRUCTION,
    ISLAND,
    LR,
    SAVE,
    SET_FP,
    UnwindRecord,
)
from ...names.decode.unwindinfo import RuntimeFunction, UnwindDataError
from . import code_arm64
from .frames import CodeImage
from .prologue_arm64 import agrees, loads_pair, outside_of_body, stores_pair

_STORE, _STORE_MASK = 0xA9007BFD, 0xFFC07FFF
"""stp fp, lr, [sp, #n], n in units of 8 bytes from bit 15 on."""
_ADD_FP, _ADD_FP_MASK = 0x910003FD, 0xFFC003FF
_LONGEST_END = 7
"""Instructions behind ldp fp, lr in which V8 drops arguments: cmp, b.ge, mov, add, and, add sp, ret."""


class Look(NamedTuple):
    """The testimony of code about a frame.

    Attributes:
        differs: whether the code contradicts the unwind data
        in_link: whether the code shows that lr holds the return address, and fp is the caller's
        own: the entry of the function, if its unwind data describes a pair and no end of it: lr may hold the
            return address all the same
    """

    differs: bool = False
    in_link: bool = False
    own: Optional[RuntimeFunction] = None

    def is_own(self, rva: int) -> bool:
        """Returns whether a call of the function itself returns to an RVA: lr has such an address behind any
        call that returned."""
        return self.own is not None and self.own.begin < rva <= self.own.end


def look(image: CodeImage, table: FunctionTableArm64, rva: int) -> Look:
    """Looks at the code around an interrupted instruction, as far as the code can be read.

    Only for interrupted code: a return address is in a body, whatever approximates it.
    """
    entry = table.find_entry(rva)
    if entry is None or entry.unwind & FLAG_MASK == ISLAND:
        return Look()
    try:
        record = table.record(entry)
    except UnwindDataError:
        return Look()
    number = (rva - entry.begin) // INSTRUCTION
    most = min(number, _LONGEST_END)
    around = image.read_rva(rva - INSTRUCTION * most, INSTRUCTION * (most + 1))
    words = () if around is None else struct.unpack(f"<{most + 1}I", around)
    code = image.read_rva(entry.begin, INSTRUCTION * record.prolog) if record.prolog else None
    agreed = code is None or agrees(code, record)
    # Behind the prologue: codes may end with the store of the pair, as in funclets of C++.
    body = number > record.prolog and not record.at_instruction(number)
    left = body and record.codes[0].operation not in (END, END_C) and outside_of_body(*words[-2:])
    if not _is_pair(record):
        return Look(left or not agreed)
    stored = code is not None and _stores_pair(*struct.unpack("<2I", code))
    in_link = _is_gone(words) or (number == 1 and stored)
    return Look(left or in_link or not (agreed or stored), in_link, entry if number > 1 else None)


def _is_pair(record: UnwindRecord) -> bool:
    """Returns whether unwind data describes stp fp,lr,[sp,#-n]!; mov fp,sp and no epilogue."""
    codes = record.codes[: record.prolog]
    described = [code.operation for code in codes] == [SET_FP, SAVE] and codes[1].registers == (FP, LR)
    return described and not record.epilogs


def _stores_pair(first: int, second: int) -> bool:
    """Returns whether two instructions are stp fp,lr,[sp,#n]; add fp,sp,#n: room was made before them."""
    offset = (first >> 15 & 0x7F) * 8
    described = first & _STORE_MASK == _STORE and second & _ADD_FP_MASK == _ADD_FP
    return described and second >> 10 & 0xFFF == offset


def _is_gone(words: Sequence[int]) -> bool:
    """Returns whether a pair is gone before the last of some instructions: ldp fp, lr is behind the last
    jump, call or store of a pair, or the instruction is a return."""
    if words and code_arm64.returns(words[-1]):
        return True
    for word in words[-2::-1]:
        if code_arm64.goes_elsewhere(word) or stores_pair(word):
            return False
        if loads_pair(word):
            return True
    return False
