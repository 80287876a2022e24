# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The step from a function of a Go program, ARM64.

Such a function has lr at the stack pointer, and its caller's fp below; without a frame lr is in its
register. Functions in assembler may do otherwise, unless they begin with the store of lr. Source: obj7.go of
Go 1.19 and 1.27.
"""

from __future__ import annotations

from typing import Optional

from ...columns.words import LINK_REGISTER, UNWIND
from ...names.decode.pointers_arm64 import strip
from ...names.decode.unwind_arm64 import INSTRUCTION
from . import code_arm64
from .go_frames import GoStack, caller_state, frame_at
from .registers_arm64 import RegistersArm64
from .walkstep import WalkStep

_SLOT = 8


def step_in_go(
    stack: GoStack, registers: RegistersArm64, interrupted: bool
) -> Optional[WalkStep[RegistersArm64]]:
    """Returns the step from a function by the table of a Go program, None if the table does not decide.
    Raises UnwindError."""
    frame = frame_at(stack, registers.ip, interrupted)
    if frame is None or frame.may_have_left:
        return None
    if frame.is_base:
        return WalkStep(RegistersArm64.from_known(0, registers.sp), UNWIND)
    image, function, sp = frame.image, frame.function, registers.sp
    if not frame.depth:
        to = strip(registers.lr or 0)
        called = function.assembler and function.begin <= to - image.base < function.end
        if not frame.stopped or called or not stack.is_return(to):
            return None
        return WalkStep(registers.returned(to), UNWIND, return_register=LINK_REGISTER)
    if function.assembler and not code_arm64.stores_lr(image.read_rva(function.begin, INSTRUCTION)):
        return None
    saved = stack.read_slot(sp)
    to = strip(saved or 0)
    was_interrupted, doubt = caller_state(stack, frame, None if saved is None else to)
    fp = None if frame.stopped else stack.read_slot(sp - _SLOT)
    caller = RegistersArm64.from_known(to, sp + frame.depth, {} if fp is None else {"Fp": fp})
    return WalkStep(caller, UNWIND, was_interrupted, doubt)
