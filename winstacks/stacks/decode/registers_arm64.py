# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The known registers of one frame, ARM64.

Source: Microsoft, "Overview of ARM64 ABI conventions": functions keep x19 to x28, fp, and the low halves of
v8 to v15 for their callers.
"""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...names.decode.unwind_arm64 import D0, FP, LR, SP

KEPT = (*(f"X{number}" for number in range(19, 29)), "Fp")
"""The general registers that functions keep for their callers, by the names of CONTEXT."""

_NUMBERS = (*range(19, 29), FP, LR, SP, *range(D0 + 8, D0 + 16))

PLACES = {number: place for place, number in enumerate(_NUMBERS)}
"""The places of registers in `RegistersArm64.values`, by the numbers of `unwind_arm64`."""

FP_AT, LR_AT, SP_AT = PLACES[FP], PLACES[LR], PLACES[SP]
COUNT = len(_NUMBERS)

Values = Tuple[Optional[int], ...]


class RegistersArm64(NamedTuple):
    """An ARM64 register state: the registers with which a walk goes on; None: unknown.

    Attributes:
        ip: Pc, or the return address; without the code that authenticates it
        values: x19 to x28, fp, lr, sp, and d8 to d15, at the places of `PLACES`; sp is always known. A lr is
            as the processor had it, perhaps with an authentication code
    """

    ip: int
    values: Values

    @property
    def sp(self) -> int:
        """The stack pointer."""
        return self.values[SP_AT] or 0

    @property
    def fp(self) -> Optional[int]:
        """The frame pointer, x29."""
        return self.values[FP_AT]

    @property
    def lr(self) -> Optional[int]:
        """The link register, x30."""
        return self.values[LR_AT]

    @classmethod
    def from_known(cls, ip: int, sp: int, known: Optional[Mapping[str, int]] = None) -> RegistersArm64:
        """Makes a state from Pc, Sp and any other known registers, by the names of CONTEXT."""
        values = known or {}
        general = tuple(values.get(name) for name in (*KEPT, "Lr"))
        return cls(ip, (*general, sp, *(values.get(f"D{number}") for number in range(8, 16))))

    def returned(self, ip: int) -> RegistersArm64:
        """Returns the state after a return to the address in lr, which is unknown then."""
        return RegistersArm64(ip, (*self.values[:LR_AT], None, *self.values[LR_AT + 1 :]))

    def kept(self) -> Iterator[Tuple[str, Optional[int]]]:
        """Yields name and value of the general registers that functions keep for their callers."""
        return zip(KEPT, self.values)
