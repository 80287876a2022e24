# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The way out of functions of Go's runtime that leave their stack or align it, in x64 programs of Go.

`asmcgocall` of Go's runtime calls Windows, and C, on the thread's own stack. Meanwhile the goroutine's stack
may be copied, so neither a stack pointer nor a saved Rbp leads back: the runtime keeps the goroutine
and its stack's depth. The code behind the call shows where both are kept. Before Go 1.21 no unwind data
describes `asmstdcall`, `usleep2` and `tstart_stdcall`, either: the code behind their calls leads to their
return. Source: asm_amd64.s and sys_windows_amd64.s of Go 1.19 to 1.27.
"""

from __future__ import annotations

import re
from typing import Callable, Optional

from ...columns.words import UNWIND
from ...memory.decode.memory import ReadMemory
from .frames import CodeImage, FindImage, UnwindError, direct_target
from .go_frames import GoFrame, GoStack, caller_state, frame_at, leaves
from .leaf_x64 import code_at
from .registers import MASK, RBP, Registers
from .step_x64 import Step
from .walkstep import WalkStep

_BACK = re.compile(
    rb".{0,24}?\x48\x8b\x7c\x24(.)\x48\x8b\x77(.)\x48\x2b(?:\x74\x24(.)|\x34\x24)"
    rb"\x48\x89(?:\x39|\xb9.{4})\x48\x89\xf4\x89\x44\x24.(\x5d?)\xc3",
    re.DOTALL,
)
"""mov rdi, [rsp + place of the goroutine]; mov rsi, [rdi + end of its stack]; sub rsi, [rsp + place of the
depth]; mov [rcx], rdi; mov rsp, rsi; mov [rsp + …], eax; pop rbp; ret. Before them is the address of the
thread's data in Rcx."""
_LONGEST = 64
_SLOT = 8

_EXIT = re.compile(
    rb"(?P<ret>\xc3)|\x48(?:\x81\xc4(?P<release>.{4})|\x83\xc4(?P<small>.))|(?P<pop>[\x58-\x5b\x5d-\x5f\x9d])"
    rb"|\x48\x8b\x64\x24(?P<kept>.)|\x48\x8b(?:\x74\x24(?P<rsi>.)|\x34\x24)\x48\x89\xf4"
    rb"|\x48\x8b\x6c\x24(?P<rbp>.)|[\x48\x4c]\x8b[\x5c\x64\x6c\x74\x7c]\x24.|\x48\x8b\x3c\x24"
    rb"|\x44?\x0f\x10(?:[\x44-\x7c]\x24.|[\x84-\xbc]\x24.{4})|\x31\xc0|\x89\x44\x24."
    rb"|\x48\x89\x41.|\x66\x0f\xd6\x41.|\x65\x48\x8b\x3c\x25.{4}|\x8b\x47.",
    re.DOTALL,
)
"""One instruction of such an exit (for mov rsi, [rsp + …]; mov rsp, rsi: two). `pop` includes popfq."""
_LONGEST_EXIT = 160
_NEAR_CALL = 5
_DUFF = "runtime.duff"
"""Beginning of the names of functions that clear or copy memory. Around a call of them Rbp leads to a pair
below the stack pointer."""


def back_to_goroutine(find_image: FindImage, read: ReadMemory, registers: Registers) -> Optional[Registers]:
    """Returns the caller of `asmcgocall` on the goroutine's stack.

    None elsewhere than behind the call in `asmcgocall`, or if the goroutine is not in the image. None, too,
    without a function table and a table of Go: a walk could not go on there. Go keeps no register but Rbp.
    """
    image = find_image(registers.ip)
    if image is None or (image.table is None and image.go is None):
        return None
    code = code_at(find_image, read, registers.ip, _LONGEST)
    found = None if code is None else _BACK.match(bytes(code))
    if found is None:
        return None

    def slot(address: Optional[int], offset: Optional[bytes] = None) -> Optional[int]:
        """Reads a slot; None if its address is unknown or it is not in the image."""
        if address is None:
            return None
        data = read(address + int.from_bytes(offset or b"", "little") & MASK, _SLOT)
        return None if data is None else int.from_bytes(data, "little")

    end, depth = slot(slot(registers.sp, found[1]), found[2]), slot(registers.sp, found[3])
    if end is None or depth is None:
        return None
    sp = end - depth & MASK
    bp = registers.general[RBP]
    if found[4]:
        bp, sp = slot(sp), sp + _SLOT
    ip = slot(sp)
    return None if ip is None else Registers.from_known(ip, sp + _SLOT).with_bp(bp)


def step_in_go(
    stack: GoStack, registers: Registers, interrupted: bool, unwind: Callable[[Registers, bool], Step]
) -> Optional[WalkStep[Registers]]:
    """Returns the step from a function by the table of a Go program; None if other unwind data has the same
    step, or if the table does not decide.

    Other unwind data of Go, since Go 1.21, misses some epilogues, and calls around which Rbp moves. Where it
    is right it has Rbp. Go's functions keep no other register, and the table does not say where. `unwind` is
    the step by other unwind data. Raises UnwindError.
    """
    frame = frame_at(stack, registers.ip, interrupted)
    if frame is None:
        return None
    if frame.is_base:
        return WalkStep(Registers.from_known(0, registers.sp), UNWIND)
    described = frame.image.find_entry(frame.address) is not None
    if described and (frame.depth is None or frame.misses):
        return None
    if frame.depth is None:
        caller = None if frame.stopped else _exit_of(stack, frame, registers)
        return WalkStep(caller, UNWIND) if caller is not None and stack.is_return(caller.ip) else None
    slot = registers.sp + frame.depth
    ip = stack.read_slot(slot)
    if described and _leads_to(unwind, registers, frame.stopped, ip, slot + _SLOT):
        return None
    was_interrupted, doubt = caller_state(stack, frame, ip)
    bp = None if frame.depth else registers.general[RBP]
    caller = Registers.from_known(ip or 0, slot + _SLOT).with_bp(bp)
    return WalkStep(caller, UNWIND, was_interrupted, doubt)


def moves_rbp(image: CodeImage, address: int) -> bool:
    """Returns whether Rbp is not what unwind data needs at a call of a Go program that ends at an address."""
    if image.go is None:
        return False
    code = image.read_rva(address - image.base - _NEAR_CALL, _NEAR_CALL)
    target = None if code is None else direct_target(code, address)
    callee = None if target is None else image.go.find(target - image.base)
    return leaves(image, address) or (callee is not None and callee.name.startswith(_DUFF))


def _leads_to(
    unwind: Callable[[Registers, bool], Step], registers: Registers, stopped: bool, ip: Optional[int], sp: int
) -> bool:
    """Returns whether unwind data leads to a caller."""
    try:
        other = unwind(registers, stopped).registers
    except UnwindError:
        return False
    return (other.ip, other.sp) == (ip, sp)


def _exit_of(stack: GoStack, frame: GoFrame, registers: Registers) -> Optional[Registers]:
    """Returns the caller of a function by the code from a return address to the function's return; None if
    other instructions than `_EXIT` lie between, or a slot of the stack is not in the image."""
    code = frame.code_from(registers.ip, _LONGEST_EXIT)
    sp, bp, place = registers.sp, registers.general[RBP], 0
    while True:
        found = _EXIT.match(code, place)
        if found is None:
            return None
        place, kind = found.end(), found.lastgroup
        number = 0 if kind is None else int.from_bytes(found[kind], "little")
        value = stack.read_slot(sp + (number if kind in ("kept", "rsi", "rbp") else 0) & MASK)
        if value is None:
            return None
        if kind == "ret":
            return Registers.from_known(value, sp + _SLOT).with_bp(bp)
        if kind in ("release", "small"):
            sp += number
        elif kind == "pop":
            sp += _SLOT
            bp = value if found[0] == b"\x5d" else bp
        elif kind == "rbp":
            bp = value
        elif kind in ("kept", "rsi") or found[0].endswith(b"\x89\xf4"):
            sp = value
