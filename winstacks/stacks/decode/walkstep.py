# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One step of a walk up a stack, for any processor."""

from __future__ import annotations

from typing import Generic, Optional, TypeVar

from ...memory.decode.statuscodes import StatusCode
from .frames import UserTransition
from .registers import Registers, Registers32
from .registers_arm64 import RegistersArm64

R = TypeVar("R", Registers, Registers32, RegistersArm64)


class WalkStep(Generic[R]):
    """A step that was taken.

    Args:
        doubt: reason why the step is a guess, None if it is no guess
        lasting: whether all later frames are guesses, too; False: only this frame may be wrong
        trap: address of the machine frame (x86: trap frame) that held the registers
        border: user-mode state, if the next frame is in user mode
        return_register: register that held the return address: then the stack pointer may stay
    """

    __slots__ = (
        "border", "doubt", "how", "interrupted", "lasting", "registers", "remark", "return_register",
        "trap",
    )  # fmt: skip

    def __init__(
        self,
        registers: R,
        how: str,
        interrupted: bool = False,
        doubt: Optional[StatusCode] = None,
        lasting: bool = True,
        trap: int = 0,
        border: Optional[UserTransition] = None,
        remark: Optional[StatusCode] = None,
        return_register: Optional[str] = None,
    ) -> None:
        self.registers: R = registers
        self.how = how
        self.interrupted = interrupted
        self.doubt = doubt
        self.lasting = lasting
        self.trap = trap
        self.border = border
        self.remark = remark
        self.return_register = return_register
