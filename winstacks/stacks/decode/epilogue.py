# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64 epilogues, recognised in code bytes: the rest of an epilogue between an address and its return or jump.

The ABI allows only one form of epilogue, so that an unwinder can recognise it: `add rsp, constant` or `lea
rsp, constant[frame register]`, then pops of eight-byte registers, then a return or a jump that leaves the
function. In addition, pops followed by a return from an interrupt (`iretq`) count as the end of a handler.
`vzeroupper` may stand before the end: LLVM inserts it when the epilogue is there already. Source: Microsoft,
"x64 prolog and epilog", "Epilog code"; the accepted encodings of returns and jumps are the ones of CoreCLR's
MIT-licensed unwinder.
"""

from __future__ import annotations

import re
from typing import Callable, Iterator, List, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...names.decode.unwindinfo import Bytes
from .registers import RSP

LONGEST = 64
"""Bytes of code that are examined: a lea of eight bytes, fifteen pops of two, and the longest jump, with
room."""

LONGEST_PART = 8
"""Length of the longest instruction of an epilogue, in bytes."""

REX_W = 0x48
_VZEROUPPER = b"\xc5\xf8\x77"
IRETQ = b"\x48\xcf"
_CALL = re.compile(rb"\xe8|[\x40-\x4f]?\xff[\x10-\x17\x50-\x57\x90-\x97\xd0-\xd7]", re.DOTALL)
"""Call near, direct and indirect (FF /2)."""

_UNDONE = re.compile(
    rb"\x48(?:\x8b\xe5|\x8d\x65\x00)\x5d(?:\x48\x83\xf9.(?:\x7f\x03(?:\xc2..)?|\x0f\x8f.{4})?)?"
    rb"(\x41\x5a(?:[\x48-\x4f]\x8d..)?)?\Z"
    rb"|(\x48\x8b\x6d\x00(?:(?!\xff[\xe0-\xe7]|(?<!\x8b)[\xc3\xe9]).){0,32}\Z)",
    re.DOTALL,
)
"""mov rsp, rbp, or lea rsp, [rbp] (Intel's compilers); pop rbp; then, where V8 drops arguments, cmp rcx,
count; jg over ret n; or pop r10; lea rsp. Or mov rbp, [rbp], with which V8 begins a jump to another function.
A group is there if the return address is in R10, or if the arguments of that function are being moved over
it. Source: code of V8 in Deno 2.9.8, of libmmd.dll in Intel's runtime of 2019."""
_PUSHES_RETURN = re.compile(
    rb"(?:[\x48-\x4b]\x8d[\x20-\x27\x60-\x67\xa0-\xa7].{1,5}?)?\x41?[\x50-\x57]\xc3", re.DOTALL
)
"""lea rsp, memory; push register; ret: the register has the return address."""
_PLAIN = re.compile(rb"(?:\xc5\xf8\x77)?(?:[\xf2\xf3]?\xc3|\xc2\0\0)")
"""The end of an epilogue that returns, and drops no arguments."""
LONGEST_UNDONE = 36
"""Bytes of code before an address that `undone` examines."""


class Epilogue(NamedTuple):
    """The rest of an epilogue.

    The stack pointer becomes register `base` (None: itself) plus `adjust`; then `pops` are popped; then the
    return address is on the top of the stack, or a machine frame if the function returns from an interrupt.
    """

    base: Optional[int]
    adjust: int
    pops: List[int]
    from_interrupt: bool = False


def decode(
    code: Bytes, address: int, frame_register: int, leaves: Callable[[int], bool]
) -> Optional[Epilogue]:
    """Decodes the rest of an epilogue. Returns the rest of the epilogue; None if the code is not an epilogue,
    or too short to decide.

    Args:
        address: address of the first byte, in any unit that jumps can be counted in
        frame_register: number of the function's frame register, 0 if it has none
        leaves: returns whether a jump to an address ends the function (rather than staying in it)
    """
    code = bytes(code[:LONGEST])
    base, adjust, position = _release(code, frame_register)
    pops: List[int] = []
    for register, size in _pops(code, position):
        pops.append(register)
        position += size
    from_interrupt = code[position : position + 2] == IRETQ
    if from_interrupt or _ends(code[position:], address + position, leaves):
        return Epilogue(base, adjust, pops, from_interrupt)
    return None


def decided(code: Bytes, frame_register: int) -> bool:
    """Returns whether bytes of code are enough to rule out an epilogue."""
    code = bytes(code[:LONGEST])
    return len(code) - _behind_pops(code, frame_register) >= LONGEST_PART


def returning(code: Bytes, frame_register: int) -> Optional[Epilogue]:
    """Decodes the rest of an epilogue that ends in a return; a jump would need more than its code to be
    recognised."""
    return decode(code, 0, frame_register, lambda _target: False)


def plainly_returning(code: Bytes) -> Optional[Epilogue]:
    """Decodes the rest of an epilogue without a frame register, which ends in a return that drops no
    arguments; None if the code is another."""
    code = bytes(code[:LONGEST])
    return returning(code, 0) if _PLAIN.match(code, _behind_pops(code, 0)) else None


def calls(code: Bytes, frame_register: int) -> bool:
    """Returns whether code calls where an epilogue would return or jump: epilogues never call."""
    code = bytes(code[:LONGEST])
    return _CALL.match(code, _behind_pops(code, frame_register)) is not None


def undone(before: Bytes) -> Tuple[bool, bool]:
    """Returns whether the code before an address has undone a frame that Rbp leads to, and whether it has
    moved the return address, too.

    Builtins of V8 go on behind `pop rbp`: they drop arguments, or jump into the same function.
    """
    found = _UNDONE.search(bytes(before))
    return found is not None, found is not None and any(found.groups())


def pushes_return(code: Bytes) -> bool:
    """Returns whether code returns to an address that a register holds, as V8 does behind arguments that it
    drops."""
    return _PUSHES_RETURN.match(bytes(code)) is not None


def _behind_pops(code: bytes, frame_register: int) -> int:
    position = _release(code, frame_register)[2]
    return position + sum(size for _, size in _pops(code, position))


def _release(code: bytes, frame_register: int) -> Tuple[Optional[int], int, int]:
    """Decodes the release of the fixed allocation: (base, bytes, length of the instruction)."""
    if code[:3] == b"\x48\x83\xc4" and len(code) >= 4:
        return None, _signed(code[3:4]), 4
    if code[:3] == b"\x48\x81\xc4" and len(code) >= 7:
        return None, _signed(code[3:7]), 7
    if frame_register and len(code) > 3 and code[0] & 0xFE == REX_W and code[1] == 0x8D:
        return _lea(code, frame_register)
    return None, 0, 0


def _lea(code: bytes, frame_register: int) -> Tuple[Optional[int], int, int]:
    """Decodes `lea rsp, disp[frame register]` with a displacement of one byte or four."""
    mode, target, base = code[2] >> 6, code[2] >> 3 & 7, code[2] & 7
    if target != RSP or mode not in (1, 2) or base | (code[0] & 1) << 3 != frame_register:
        return None, 0, 0
    start = 3
    if base == RSP:
        # R12 as a base needs a SIB byte; only "no index" is the plain base.
        if code[3] != 0x24:
            return None, 0, 0
        start = 4
    end = start + (1 if mode == 1 else 4)
    if len(code) < end:
        return None, 0, 0
    return frame_register, _signed(code[start:end]), end


def _pops(code: bytes, position: int) -> Iterator[Tuple[int, int]]:
    """Yields (register, length) for each of the consecutive pops."""
    while position < len(code):
        extended = code[position] & 0xFE == 0x40 and position + 1 < len(code)
        operation = code[position + 1] if extended else code[position]
        if operation & 0xF8 != 0x58:
            return
        register = operation & 7 | (8 if extended and code[position] & 1 else 0)
        if register == RSP:
            return
        yield register, 2 if extended else 1
        position += 2 if extended else 1


def _ends(code: bytes, address: int, leaves: Callable[[int], bool]) -> bool:
    """Returns whether the code is a return, or a jump that leaves the function."""
    if code.startswith(_VZEROUPPER):
        code, address = code[len(_VZEROUPPER) :], address + len(_VZEROUPPER)
    if code[:1] == b"\xf2":
        # A bnd prefix makes no difference here.
        code, address = code[1:], address + 1
    if code[:1] in (b"\xc3", b"\xc2") or code[:2] == b"\xf3\xc3":
        return True
    if code[:1] == b"\xeb" and len(code) >= 2:
        return leaves(address + 2 + _signed(code[1:2]))
    if code[:1] == b"\xe9" and len(code) >= 5:
        return leaves(address + 5 + _signed(code[1:5]))
    if code[:2] == b"\xff\x25":
        return True
    return len(code) >= 3 and code[0] & 0xF8 == REX_W and code[1] == 0xFF and code[2] & 0x38 == 0x20


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)
