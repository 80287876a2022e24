# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The unwinding from an x64 return address, as a rule that is derived once and applied to every stack.

Most frames of a stack are calls that have not returned yet. Unwind data describes such a call by its place in
the function alone. The rule is put into the form of one read of the stack: the places of the saved registers
and of the caller's return address, and the distance that the stack pointer moves. A rule that does not fit
this form (a machine frame, two bases, a saved stack pointer) is left to `step_x64`, which applies any rule.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import Any, Callable, Dict, List, Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.functiontable import FunctionTable
from ...names.decode.unwindinfo import (
    EHANDLER,
    UHANDLER,
    ReadRva,
    RuntimeFunction,
    UnwindDataError,
    UnwindInfo,
)
from .prologue_x64 import LONGEST_DETOUR, PAIR, sets_up_nothing
from .registers import NON_VOLATILE, NON_VOLATILE_XMM, RBP, RSP, Values
from .rule_x64 import REGISTERS, Rule, of_prologue

_SLOT = 8


class Effect:
    """The unwinding from a return address, as one read of the stack.

    Args:
        base: number of the register from which offsets count
        slots: offsets of the eight-byte slots to read, ascending and disjoint
        general: slot index of each saved general register, by register number
        xmm: slot index of the lower half of each saved Xmm register; the upper half is in the next slot
        release: distance from the base to the caller's stack pointer, in bytes

    Attributes:
        start: offset of the first byte to read
        unpack: function of bytes and the position of the read in them; returns the slots
        xmm: pairs of a register number and its slot index
        general: function of 16 registers, the slots, the new stack pointer and None, concatenated; returns
            the caller's registers
    """

    __slots__ = ("base", "general", "release", "returns", "size", "start", "unpack", "xmm")

    def __init__(
        self,
        base: int,
        slots: List[int],
        general: Dict[int, int],
        xmm: Dict[int, int],
        returns: int,
        release: int,
    ) -> None:
        gaps = [after - before - _SLOT for before, after in zip(slots, slots[1:])]
        layout = struct.Struct("<Q" + "".join(f"{gap}xQ" for gap in gaps))
        sp = REGISTERS + len(slots)
        sources = [number if number in NON_VOLATILE else sp + 1 for number in range(REGISTERS)]
        for number, slot in general.items():
            sources[number] = REGISTERS + slot
        sources[RSP] = sp
        self.base = base
        self.start = slots[0]
        self.size = layout.size
        self.unpack: Callable[[Any, int], Tuple[int, ...]] = layout.unpack_from
        self.returns = returns
        self.release = release
        self.xmm = tuple(xmm.items())
        self.general: Callable[[Values], Values] = itemgetter(*sources)


Site = Tuple[Optional[Effect], Optional[StatusCode]]
"""For a return address: the effect, None if a single read cannot express it; and the reason to doubt that
something returns there, None without a doubt."""


class CodePlace(NamedTuple):
    """A place in a function, as unwind data describes it.

    Attributes:
        chain: unwind data of that piece, then the unwind data of each piece to which it is chained
        offset: executed bytes of the first prologue: all places behind the prologue have the same offset
    """

    entry: RuntimeFunction
    chain: List[UnwindInfo]
    offset: int

    @classmethod
    def at_rva(cls, table: FunctionTable, piece: RuntimeFunction, rva: int) -> CodePlace:
        """Returns the place of an RVA, which is in a piece or just behind it; raises UnwindDataError."""
        entry = table.direct(piece)
        chain = table.chain(entry)
        prologue_size = max(chain[0].prolog_size, *(code.offset for code in chain[0].codes), 0)
        inside = entry.begin <= rva < entry.end
        return cls(entry, chain, min(rva - entry.begin, prologue_size) if inside else prologue_size)

    @property
    def is_pair(self) -> bool:
        """Whether the unwind data describes push rbp; mov rbp, rsp and nothing else."""
        info = self.chain[0]
        return info.frame_register == RBP and [code.operation for code in info.codes] == PAIR

    @property
    def is_generated(self) -> bool:
        """Whether the unwind data is the pair with a handler, as V8 describes all its code."""
        return self.is_pair and bool(self.chain[0].flags & EHANDLER)

    def sets_up_nothing(self, read_rva: ReadRva) -> bool:
        """Returns whether the code at the start, if it can be read, lacks the frame that a pair describes.

        An entry from RVA 0 on is no function: V8 has one for all code that it compiles, with the entry itself
        at the start (described: V8, `unwinding-info-win64.cc`).
        """
        is_function = self.is_pair and self.entry.begin > 0
        start = read_rva(self.entry.begin, LONGEST_DETOUR) if is_function else None
        return start is not None and sets_up_nothing(start, self.chain[0])

    @property
    def handler_only(self) -> bool:
        """Whether the unwind data has a handler and no codes.

        A C compiler gives a frame to every function with a handler. Assembly does not always describe its
        frame: the handler finds it. Sources: OpenSSL's perlasm modules (`se_handler`), HotSpot's
        os::register_code_area.
        """
        flags = self.chain[0].flags & (EHANDLER | UHANDLER)
        return bool(flags) and not any(info.codes or info.frame_register for info in self.chain)


def rule_at(table: FunctionTable, place: CodePlace) -> Tuple[Rule, Optional[Effect]]:
    """Returns the rule of unwinding from a place, and its form as one read of the stack if it has one.

    The table keeps both: processes share a table if they are proven to have the same unwind data.
    """
    rules, key = table.derived, (place.entry.unwind, place.offset)
    rule: Optional[Tuple[Rule, Optional[Effect]]] = rules.get(key)
    return rules.keep(key, _derived(place)) if rule is None else rule


def _derived(place: CodePlace) -> Tuple[Rule, Optional[Effect]]:
    rule = of_prologue(place.chain, place.offset)
    return rule, None if place.handler_only else _single_read(rule)


def effect_at(table: FunctionTable, rva: int) -> Optional[Effect]:
    """Returns the effect of unwinding from the return address at an RVA; None if one read is too little.

    The table keeps it, as it does the rules: processes that share a table return to the same addresses.
    """
    if rva not in table.effects:
        table.effects.keep(rva, _effect_at(table, rva))
    effect: Optional[Effect] = table.effects[rva]
    return effect


def _effect_at(table: FunctionTable, rva: int) -> Optional[Effect]:
    piece = table.find_entry(rva - 1)
    if piece is None:
        return None
    try:
        place = CodePlace.at_rva(table, piece, rva)
        frameless = place.is_generated and place.sets_up_nothing(table.read_rva)
        return None if frameless else rule_at(table, place)[1]
    except UnwindDataError:
        return None


def _single_read(rule: Rule) -> Optional[Effect]:
    """Returns a rule as one read of the stack; None if it has several bases or a machine frame."""
    general = {number: source for number, source in rule.general.items() if number in NON_VOLATILE}
    xmm = {number: source for number, source in rule.xmm.items() if number in NON_VOLATILE_XMM}
    places = [rule.loads[source].place for source in (*general.values(), *xmm.values())]
    base = rule.sp.base
    if base >= REGISTERS or any(place.base != base for place in places):
        return None
    of_general = {number: rule.loads[source].place.offset for number, source in general.items()}
    of_xmm = {number: rule.loads[source].place.offset for number, source in xmm.items()}
    halves = [offset + half for offset in of_xmm.values() for half in (0, _SLOT)]
    slots = sorted({rule.sp.offset, *of_general.values(), *halves})
    if slots[-1] - slots[0] >= PAGE_SIZE or any(a + _SLOT > b for a, b in zip(slots, slots[1:])):
        return None
    number_of = {offset: number for number, offset in enumerate(slots)}
    return Effect(
        base,
        slots,
        {number: number_of[offset] for number, offset in of_general.items()},
        {number: number_of[offset] for number, offset in of_xmm.items()},
        number_of[rule.sp.offset],
        rule.sp.offset + _SLOT,
    )
