# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rule of unwinding from a place in an ARM64 function, derived once, before any stack is read.

Unwind codes are applied to symbols: the place on the stack of each saved register, and of the caller's stack
pointer, relative to a register of the function. Most rules have one base; then they are one read of the stack
(`EffectArm64`).
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.unwind_arm64 import (
    ADD_FP,
    ALLOC,
    CLEAR_UNWOUND_TO_CALL,
    CONTEXT,
    EC_CONTEXT,
    END,
    FP,
    MACHINE_FRAME,
    RESERVED,
    SAVE,
    SET_FP,
    SP,
    TRAP_FRAME,
    VECTORS,
    UnwindCode,
)
from ...names.decode.unwindinfo import UnwindDataError
from .registers_arm64 import COUNT, LR_AT, PLACES, SP_AT, Values

_SLOT = 8


class Base(NamedTuple):
    """A base of addresses: the value of a register of the function, or what a load found.

    Attributes:
        place: place of the register in `RegistersArm64.values`; number of the load if `loaded`
        loaded: whether the register had been restored before
    """

    place: int
    loaded: bool = False


class SlotAt(NamedTuple):
    """An address: a base, plus an offset."""

    base: Base
    offset: int


class RuleArm64(NamedTuple):
    """The unwinding of one frame.

    Attributes:
        loads: places of the values to read, eight bytes each, in order
        saved: for each restored register that a walk keeps, the number of its load; places as in `PLACES`
        sp: the caller's stack pointer; of a frame that the kernel made, its address
        frame: TRAP_FRAME, MACHINE_FRAME or CONTEXT if the kernel made the frame, else None
        interrupted: whether the caller was not left by a call
    """

    loads: Tuple[SlotAt, ...]
    saved: Dict[int, int]
    sp: SlotAt
    frame: Optional[int] = None
    interrupted: bool = False


def of_codes(codes: Sequence[UnwindCode], first: int) -> RuleArm64:
    """Returns the rule that the codes from an index on make, up to END. Raises UnwindDataError if a code is
    reserved, or needs what no dump has."""
    sp = SlotAt(Base(SP_AT), 0)
    loads: List[SlotAt] = []
    saved: Dict[int, int] = {}
    interrupted = False
    for code in codes[first:]:
        operation = code.operation
        if operation == END:
            break
        if operation == SAVE:
            for number, register in enumerate(code.registers):
                place = PLACES.get(register)
                if place is not None and register != SP:
                    saved[place] = len(loads)
                    loads.append(SlotAt(sp.base, sp.offset + code.offset + number * code.width))
            sp = SlotAt(sp.base, sp.offset + code.size)
        elif operation == ALLOC:
            sp = SlotAt(sp.base, sp.offset + code.size)
        elif operation in (SET_FP, ADD_FP):
            load = saved.get(PLACES[FP])
            base = Base(PLACES[FP]) if load is None else Base(load, True)
            sp = SlotAt(base, -code.size)
        elif operation == CLEAR_UNWOUND_TO_CALL:
            interrupted = True
        elif operation in (TRAP_FRAME, MACHINE_FRAME, CONTEXT):
            return RuleArm64(tuple(loads), saved, sp, operation, True)
        elif operation == EC_CONTEXT:
            raise UnwindDataError(StatusCode.OTHER_ARCHITECTURE)
        elif operation == VECTORS:
            raise UnwindDataError(StatusCode.VECTOR_LENGTH_UNKNOWN)
        elif operation == RESERVED:
            raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    return RuleArm64(tuple(loads), saved, sp, None, interrupted)


class EffectArm64:
    """The unwinding from a return address, as one read of the stack. `saved` is the slot index of each
    restored register, by place.

    Attributes:
        returns: slot index of the caller's return address
        values: function of the values of a state, the slots, the new stack pointer and None, concatenated;
            returns the caller's values
    """

    __slots__ = ("base", "release", "returns", "size", "start", "unpack", "values")

    def __init__(self, base: int, slots: List[int], saved: Dict[int, int], release: int) -> None:
        gaps = [after - before - _SLOT for before, after in zip(slots, slots[1:])]
        layout = struct.Struct("<Q" + "".join(f"{gap}xQ" if gap else "Q" for gap in gaps))
        sources = list(range(COUNT))
        for place, slot in saved.items():
            sources[place] = COUNT + slot
        sources[SP_AT] = COUNT + len(slots)
        sources[LR_AT] = COUNT + len(slots) + 1
        self.base = base
        self.start = slots[0]
        self.size = layout.size
        self.unpack: Callable[[Any, int], Tuple[int, ...]] = layout.unpack_from
        self.returns = saved[LR_AT]
        self.release = release
        self.values: Callable[[Values], Values] = itemgetter(*sources)


def single_read(rule: RuleArm64) -> Optional[EffectArm64]:
    """Returns a rule as one read of the stack; None if it has several bases, or is not the rule of a call."""
    base = rule.sp.base
    if rule.frame is not None or rule.interrupted or base.loaded or LR_AT not in rule.saved:
        return None
    needed = {place: rule.loads[load] for place, load in rule.saved.items()}
    if any(slot.base != base for slot in needed.values()):
        return None
    offsets = sorted({slot.offset for slot in needed.values()})
    close = offsets[-1] - offsets[0] < PAGE_SIZE
    if not close or any(low + _SLOT > high for low, high in zip(offsets, offsets[1:])):
        return None
    numbers = {offset: number for number, offset in enumerate(offsets)}
    saved = {place: numbers[slot.offset] for place, slot in needed.items()}
    return EffectArm64(base.place, offsets, saved, rule.sp.offset)
