# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The way out of functions of Go's runtime that leave their stack or move it, in x86 programs of Go.

`asmstdcall` and `usleep2` keep the stack pointer in Ebp while Windows runs, `asmcgocall` keeps the goroutine
and the depth of its stack (see `go_x64`): the code behind the call leads to the return. Source: asm_386.s and
sys_windows_386.s of Go 1.19 to 1.27.
"""

from __future__ import annotations

import re
from typing import Optional

from ...columns.words import UNWIND
from .go_frames import GoFrame, GoStack, caller_state, frame_at
from .registers import Registers32
from .walkstep import WalkStep

_LONGEST = 80
"""Bytes of the longest exit."""
_MASK = 0xFFFFFFFF
_SLOT = 4

_EXIT = re.compile(
    rb"(?P<ret>\xc3)|(?P<based>\x89\xec)|\x83\xc4(?P<release>.)|(?P<pop>[\x58-\x5b\x5d-\x5f])"
    rb"|\x8b\x7c\x24(?P<goroutine>.)\x8b\x77(?P<end>.)\x2b\x74\x24(?P<depth>.)|(?P<switch>\x89\xf4)"
    rb"|\x8b\x4c\x24(?P<kept>.)\x89\xcc|(?P<moved>\x8b\x04\x24\x83\xc4\x04\x89\x04\x24)"
    rb"|(?:\x64\x8b\x0d|\x8b\x0d|\x64\x8b\x05|\x89\xb9).{4}|\x64\x8b\x09|\x89\x39|\x31\xc0"
    rb"|\x89\x44\x24.|\x8b\x5c\x24.|\x89[\x43\x53].",
    re.DOTALL,
)
"""One instruction of such an exit. `goroutine`: mov edi, [esp + …]; mov esi, [edi + …]; sub esi, [esp + …].
`kept`: mov ecx, [esp + …]; mov esp, ecx. `moved` lays the return address over the last argument."""


def step_in_go(stack: GoStack, registers: Registers32, interrupted: bool) -> Optional[WalkStep[Registers32]]:
    """Returns the step from a function by the table of a Go program, None if the table does not decide.
    Go's functions keep no register. Raises UnwindError."""
    frame = frame_at(stack, registers.ip, interrupted)
    if frame is None:
        return None
    if frame.is_base:
        return WalkStep(Registers32(0, registers.sp), UNWIND)
    if frame.depth is None:
        left = None if frame.stopped else _exit_of(stack, frame, registers)
        return WalkStep(left, UNWIND) if left is not None and stack.is_return(left.ip) else None
    if not registers.exact:
        return None
    slot = registers.sp + frame.depth
    address = stack.read_slot(slot)
    was_interrupted, doubt = caller_state(stack, frame, address)
    bp = None if frame.depth else registers.bp
    caller = Registers32(address or 0, slot + _SLOT, bp, before_call=slot + _SLOT)
    return WalkStep(caller, UNWIND, was_interrupted, doubt)


def _exit_of(stack: GoStack, frame: GoFrame, registers: Registers32) -> Optional[Registers32]:
    """Returns the caller of a function by the code from a return address to the function's return; None if
    other instructions than `_EXIT` lie between, or a register or slot that they need is unknown."""
    code, slot = frame.code_from(registers.ip, _LONGEST), stack.read_slot
    sp: Optional[int] = registers.sp if registers.exact else None
    bp, esi, ip, place = registers.bp, None, None, 0
    while True:
        found = _EXIT.match(code, place)
        if found is None:
            return None
        place = found.end()
        if found["based"]:
            sp = bp
        if sp is None and found.lastgroup is not None:
            return None
        top = sp or 0
        if found["ret"]:
            ip = slot(top) if ip is None else ip
            above = top + _SLOT & _MASK
            return None if ip is None else Registers32(ip, above, bp, before_call=above)
        if found["release"]:
            sp = top + found["release"][0]
        elif found["pop"]:
            bp, sp = (slot(top) if found["pop"] == b"\x5d" else bp), top + _SLOT
        elif found["moved"]:
            ip, sp = slot(top), top + _SLOT
            if ip is None:
                return None
        elif found["switch"]:
            sp = esi
        elif found["kept"]:
            sp = slot(top + found["kept"][0])
        elif found["goroutine"]:
            goroutine, depth = slot(top + found["goroutine"][0]), slot(top + found["depth"][0])
            end = None if goroutine is None else slot(goroutine + found["end"][0] & _MASK)
            esi = None if end is None or depth is None else end - depth & _MASK
