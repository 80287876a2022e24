# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The known registers of one frame, x64 and x86."""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Tuple

from ...memory.decode.records import NamedTuple

MASK = (1 << 64) - 1

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI = range(8)
R12, R13, R14, R15 = range(12, 16)
GENERAL = (
    "Rax", "Rcx", "Rdx", "Rbx", "Rsp", "Rbp", "Rsi", "Rdi",
    "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
)  # fmt: skip
"""The general registers, in the processor's numbering."""

NON_VOLATILE = frozenset((RBX, RSP, RBP, RSI, RDI, R12, R13, R14, R15))
KEPT = tuple(GENERAL[number] for number in sorted(NON_VOLATILE - {RSP}))
"""Registers that functions keep for their callers, so that a walk can recover them."""
NON_VOLATILE_XMM = frozenset(range(6, 16))
VOLATILE = tuple(number for number in range(16) if number not in NON_VOLATILE)
VOLATILE_XMM = tuple(number for number in range(16) if number not in NON_VOLATILE_XMM)

Values = Tuple[Optional[int], ...]
NOTHING: Values = (None,) * 16


class Registers(NamedTuple):
    """An x64 register state; a register with an unknown value is None.

    `general` and `xmm` hold 16 values each, numbered as in machine code. `ip` and the stack pointer are
    always known: unwinding needs both.
    """

    ip: int
    general: Values
    xmm: Values = NOTHING

    @property
    def sp(self) -> int:
        """The stack pointer."""
        return self.general[RSP] or 0

    @classmethod
    def from_known(cls, ip: int, sp: int, known: Optional[Mapping[str, int]] = None) -> Registers:
        """Makes a state from Rip, Rsp and any other known general registers, by name."""
        values = dict(known or {}, Rsp=sp)
        return cls(ip & MASK, tuple(map(values.get, GENERAL)))

    def kept(self) -> Iterator[Tuple[str, Optional[int]]]:
        """Yields name and value of the registers that functions keep for their callers."""
        return ((name, self.named(name)) for name in KEPT)

    def returned(self, ip: int) -> Registers:
        """Returns the state after a return to an address that lay on top of the stack."""
        general = (*self.general[:RSP], self.sp + 8, *self.general[RSP + 1 :])
        return Registers(ip, general, self.xmm)

    def with_bp(self, bp: Optional[int]) -> Registers:
        """Returns the state with another Rbp; None: unknown."""
        return self._replace(general=(*self.general[:RBP], bp, *self.general[RBP + 1 :]))

    def named(self, name: str) -> Optional[int]:
        """Returns a general register by its name, None if unknown."""
        return self.general[GENERAL.index(name)]


class Registers32(NamedTuple):
    """An x86 register state: Eip, Esp and Ebp.

    `exact` is False if a callee may have popped an unknown number of argument bytes: the real stack pointer
    is then above `sp` by these bytes. `callee` is the address of that callee, if known: its code shows the
    number. `return_slot` is the address of the frame's return address, if it is known without the frame
    pointer. `before_call` is Esp before the call that returns to `ip`, None if `ip` was interrupted or the
    place of that return address is unknown.
    """

    ip: int
    sp: int
    bp: Optional[int] = None
    exact: bool = True
    return_slot: Optional[int] = None
    callee: Optional[int] = None
    before_call: Optional[int] = None

    def returned(self, ip: int) -> Registers32:
        """Returns the state after a return to an address that lay on top of the stack."""
        return Registers32(ip, self.sp + 4, self.bp, exact=False)
