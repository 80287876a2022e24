# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The registers of one frame, as far as they are known, x64 and x86."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple

MASK = (1 << 64) - 1

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI = range(8)
R12, R13, R14, R15 = range(12, 16)
GENERAL = (
    *("Rax", "Rcx", "Rdx", "Rbx", "Rsp", "Rbp", "Rsi", "Rdi"),
    *("R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"),
)
"""The general registers in the order in which the processor numbers them."""

NON_VOLATILE = frozenset((RBX, RSP, RBP, RSI, RDI, R12, R13, R14, R15))
NON_VOLATILE_XMM = frozenset(range(6, 16))
VOLATILE = tuple(number for number in range(16) if number not in NON_VOLATILE)
VOLATILE_XMM = tuple(number for number in range(16) if number not in NON_VOLATILE_XMM)

Values = Tuple[Optional[int], ...]
NOTHING: Values = (None,) * 16


class Registers(NamedTuple):
    """An x64 register state; a register whose value is not known is None.

    `general` and `xmm` hold 16 values each, numbered as in machine code. `ip` and the stack pointer are
    always known: without them there is nothing to unwind.
    """

    ip: int
    general: Values
    xmm: Values = NOTHING

    @property
    def sp(self) -> int:
        """The stack pointer."""
        return self.general[RSP] or 0

    @classmethod
    def of(cls, ip: int, sp: int, known: Optional[Mapping[str, int]] = None) -> Registers:
        """Makes a state from Rip, Rsp and whatever other general registers are known, by name."""
        values = dict(known or {}, Rsp=sp)
        return cls(ip & MASK, tuple(map(values.get, GENERAL)))

    def named(self, name: str) -> Optional[int]:
        """Returns a general register by its name, None if it is not known."""
        return self.general[GENERAL.index(name)]


class Registers32(NamedTuple):
    """An x86 register state: Eip, Esp and Ebp.

    `exact` is False where a callee may have popped arguments of unknown size: `sp` is then below the real
    one, by those arguments. `callee` is then the address of that callee, if it is known: its code tells how
    many they are. `return_slot` is where the frame's return address lies, if something else than the frame
    pointer tells.
    """

    ip: int
    sp: int
    bp: Optional[int] = None
    exact: bool = True
    return_slot: Optional[int] = None
    callee: Optional[int] = None
