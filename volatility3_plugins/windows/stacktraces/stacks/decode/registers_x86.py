# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x86 registers that a walk needs."""

from __future__ import annotations

from typing import NamedTuple, Optional


class Registers32(NamedTuple):
    """Eip, Esp and Ebp of a frame.

    `exact` is False where a callee may have popped arguments of unknown size: `sp` is then below the real
    one, by those arguments. `return_slot` is where the frame's return address lies, if something else than
    the frame pointer tells.
    """

    ip: int
    sp: int
    bp: Optional[int] = None
    exact: bool = True
    return_slot: Optional[int] = None
