# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What unwinding does from an x64 return address: found out once, and carried out for every stack.

Most frames of a stack are calls that have not returned yet. What unwind data says of such a call depends on
the place in the function alone. Its rule is put into the form of one read of the stack: where the saved
registers and the caller's return address lie, and how far the stack pointer moves. A rule that does not take
this form (a machine frame, two bases, a saved stack pointer) is left to `step_x64`, which carries out any.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...names.decode.functiontable import FunctionTable
from ...names.decode.unwindinfo import RuntimeFunction, UnwindDataError, UnwindInfo
from .registers import NON_VOLATILE, NON_VOLATILE_XMM, RSP, Values
from .rule_x64 import REGISTERS, Rule, of_prologue

MOST = 1 << 12
"""How many return addresses of an address space, and rules of a module, are kept."""

_SLOT = 8


class Effect:
    """What unwinding from a return address does, as one read of the stack.

    Args:
        base: the number of the register from which offsets count
        slots: offsets of what is read, ascending, eight bytes each and disjoint
        general: which slot each general register was saved in
        xmm: which slot the lower half of each Xmm register was saved in; the upper half is in the next one
        returns: the slot of the caller's return address
        release: what is added to the base for the caller's stack pointer

    Attributes:
        base: as given
        start: offset of the first byte that is read
        size: how many bytes are read
        unpack: takes bytes and where in them the read begins, and returns the slots
        returns: as given
        release: as given
        xmm: pairs of a register and its slot
        general: takes 16 registers, the slots, the new stack pointer and None; returns the caller's registers
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


Site = Tuple[Optional[Effect], bool]
"""Of a return address: the effect, None where it takes more than one; whether code shows that no call is
before it."""


class CodePlace(NamedTuple):
    """A place in a function, as unwind data sees it.

    Attributes:
        entry: the piece of code that holds it
        chain: the unwind data of that piece, then that of the pieces to which it is chained
        offset: how far the first unwind data was carried out: places behind a prologue have the same
    """

    entry: RuntimeFunction
    chain: List[UnwindInfo]
    offset: int

    @classmethod
    def of(cls, table: FunctionTable, piece: RuntimeFunction, rva: int) -> CodePlace:
        """Returns the place of an RVA, which is in a piece or just behind it; raises UnwindDataError."""
        entry = table.direct(piece)
        chain = table.chain(entry)
        whole = max(chain[0].prolog_size, *(code.offset for code in chain[0].codes), 0)
        inside = entry.begin <= rva < entry.end
        return cls(entry, chain, min(rva - entry.begin, whole) if inside else whole)


def rule_at(table: FunctionTable, place: CodePlace) -> Tuple[Rule, Optional[Effect]]:
    """Returns what unwinding from a place does; as one read of the stack, too, where it is one.

    The table keeps both: processes share a table if they are proven to have the same unwind data.
    """
    kept, key = table.derived, (place.entry.unwind, place.offset)
    found: Optional[Tuple[Rule, Optional[Effect]]] = kept.get(key)
    if found is None:
        if len(kept) >= MOST:
            kept.clear()
        found = kept[key] = _derived(place)
    return found


def _derived(place: CodePlace) -> Tuple[Rule, Optional[Effect]]:
    rule = of_prologue(place.chain, place.offset)
    return rule, _single_read(rule)


def effect_at(table: FunctionTable, rva: int) -> Optional[Effect]:
    """Returns what unwinding from the return address at an RVA does, None if that is no single read."""
    piece = table.find(rva - 1)
    if piece is None:
        return None
    try:
        return rule_at(table, CodePlace.of(table, piece, rva))[1]
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
