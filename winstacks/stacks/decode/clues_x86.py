# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The state of the stack frame, recognised in x86 code: frame not set up yet, or already taken down.

x86 images have no unwind data. But entries and exits have the same form everywhere:

    push ebp; mov ebp, esp          (mov edi, edi before it where functions can be patched)
    lea esp, [ebp - n] or the like; pop edi; pop esi; pop ebx; pop ebp; ret

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; the prologues of Microsoft's
and GNU's compilers.
"""

from __future__ import annotations

import re
from typing import Iterator, List, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import unsigned
from .frames import LONG_NOP

EBP, ESP = 5, 4
LONGEST = 32
"""Bytes of code that are enough to recognise an exit."""

_MOV_EBP_ESP = (b"\x8b\xec", b"\x89\xe5")
_SET_UP = tuple(b"\x55" + move for move in _MOV_EBP_ESP)
PATCHABLE = b"\x8b\xff"
LONGEST_PATCHING = len(PATCHABLE)
_PADDING = (b"\xcc\xcc", b"\x90" * 5)
_STARTS = (PATCHABLE, *_SET_UP, *_PADDING)
_BEFORE = re.compile(
    rb"(?:\xcc|\x90|\x00{8}|\xcd\x29|\xc3|\xc2.\x00|[\xe8\xe9]...[\x00\x01\xfe\xff]|\xff\x25...."
    rb"|\x8d(?:[\x74\xb4\xbc\xa4][\x24-\x27]|[\x40\x49\x76\xb6\x9b\xbf])\x00+|\x8b\xc0)\Z",
    re.DOTALL,
)
_SEH_CALL = re.compile(rb"(?:\x6a.|\x68.{4})\x68.{4}\xe8.{3}[\x00-\x02\xfd-\xff]", re.DOTALL)
"""push constant; push 32-bit constant; call: the start of functions that use _SEH_prolog."""
_BEHIND_PADDING = re.compile(rb"(?:\xcc\xcc|\x90{5})(?=[^\xcc\x90])|(?<=[\xcc\x90])(?=\x8b\xff)")
"""The end of padding that code does not run into, or of any padding before a patchable start."""
_LEA_NOP = rb"(?:[\x2e\x66\x90]?\x8d(?:\x74\x26\0|\x76\0|\xb4\x26\0{4}|\xb6\0{4}))"
_NOPS = rb"(?:" + _LEA_NOP + rb"|" + LONG_NOP + rb")*(?:\x66\x90|\x90{0,4})"
"""Padding of GNU's assembler and of LLVM: lea esi, [esi + 0] or nop [eax] in several lengths, and nops."""
_PADDED_START = re.compile(_LEA_NOP + _NOPS + rb"(?:[\x53\x55-\x57]|[\x81\x83]\xec)")
"""Such padding, and behind it what a function begins with: a push of a register it keeps, or sub esp."""
_BEHIND_END = re.compile(
    rb"(?:\xc3|\xcd\x29|\xc2.\x00|\xeb.|\xe9.{4})(?:\xcc|" + _NOPS + rb")(?=[^\xcc\x90])", re.DOTALL
)
_DELPHI = rb"(?:\x8b\xc0|\x8d\x40\0)"
"""Padding of Delphi, which aligns functions to 4: mov eax, eax; lea eax, [eax + 0]; or nop."""
_BEHIND_ANY_END = re.compile(
    rb"(?:\xc3|\xc2.\x00|\xe9...[\x00\xff]|\xff\x25.{4})(?:" + _DELPHI + rb"|\x90)?(?=[^\xcc\x90])", re.DOTALL
)
_START_BEHIND_END = re.compile(rb"(?:\xc3|\xc2.\x00)(?=[\x51\x53\x55-\x57]|\x83[\xc4\xec])", re.DOTALL)
"""A return, and behind it what a function begins with, without padding."""
LONGEST_BEGIN = 2
"""Bytes of what a function begins with there."""
_ALIGNED, _LEAST_ALIGNED = 16, 4
_BEHIND_CALL = re.compile(rb"\xe8...[\x00\x01\xfe\xff]\Z", re.DOTALL)
LONGEST_START = 5
"""Bytes of code that are enough to recognise the start of a function."""
_PUSH_EBP = re.compile(rb"(?:\x8b\xff)?\x55")
CLEAR_EBP = re.compile(rb"[\x31\x33]\xed")
"""xor ebp, ebp."""
MOV_ESP_EBP = (b"\x8b\xe5", b"\x89\xec")
_LEAVE = b"\xc9"
_CALL = b"\xe8"
_END = re.compile(
    rb"(?:\xc3|\xc2.\x00)(?:\xcc|\x90|\x66\x90|\x8d[\x74\x76\xb4\xb6]|" + _DELPHI + rb"|" + LONG_NOP + rb")",
    re.DOTALL,
)
_BOUNDED = re.compile(
    rb"\x83([\xf8-\xff])(.)(?:\x77.|\x0f\x87.{4})(?:\x0f\xb6([\x80-\xbf])(.{4}))?\Z", re.DOTALL
)
"""cmp register, number; ja; then optionally movzx register, byte ptr [numbers + register]."""
LONGEST_BOUND = 24
TABLE_JUMP = 7
"""Length of a jump through a table, in bytes."""
_JUMPS = (b"\xe9", b"\xeb", b"\xff\x25")


class FunctionExit(NamedTuple):
    """The rest of an exit: the stack pointer becomes Ebp (`from_ebp`) or stays, plus `adjust`; then `pops`
    are popped, the return address is next, and the return releases `arguments` bytes."""

    from_ebp: bool
    adjust: int
    pops: Tuple[int, ...]
    arguments: int


def at_entry(code: bytes) -> bool:
    """Returns whether code starts a function that sets up a frame: its return address is on top."""
    return code.startswith(_SET_UP) or code.startswith(tuple(PATCHABLE + start for start in _SET_UP))


def behind_push(before: bytes, code: bytes) -> bool:
    """Returns whether code is between the two instructions of an entry: the caller's Ebp is on top."""
    return before.endswith(b"\x55") and code.startswith(_MOV_EBP_ESP)


def behind_release(before: bytes, code: bytes) -> bool:
    """Returns whether code is the jump that ends a function after the caller's Ebp was popped."""
    return before.endswith((b"\x5d", _LEAVE)) and code.startswith(_JUMPS)


def sets_up_frame(code: bytes) -> bool:
    """Returns whether code contains an entry."""
    return any(start in code for start in _SET_UP)


def has_border(code: bytes) -> bool:
    """Returns whether another function seems to start in code.

    The signs of a start are an entry, a return followed by padding, or padding that code would not run into.
    """
    return (
        sets_up_frame(code)
        or any(padding in code for padding in _PADDING)
        or _END.search(code) is not None
        or _SEH_CALL.search(code) is not None
    )


def saves_ebp(code: bytes) -> bool:
    """Returns whether code seems to push Ebp in the function to which its last byte belongs."""
    pushed = code.rfind(b"\x55")
    return pushed >= 0 and not has_border(code[pushed:])


def calls_into(code: bytes, start: int, end: int) -> bool:
    """Returns whether code, from an address up to an end, seems to call something within itself."""
    position = code.find(_CALL)
    while position >= 0:
        behind = position + 5
        target = start + behind + int.from_bytes(code[position + 1 : behind], "little", signed=True)
        if start < target <= end and target != start + behind:
            return True
        position = code.find(_CALL, position + 1)
    return False


def ends(code: bytes) -> bool:
    """Returns whether code ends as it does before a function: with padding, or an instruction that execution
    does not pass."""
    return _BEFORE.search(code[-8:]) is not None


def at_border(code: bytes, at: int) -> bool:
    """Returns whether a function starts at a position in code, or padding lies there."""
    return code.startswith(_STARTS, at) or _PADDED_START.match(code, at) is not None


def at_padding(code: bytes, at: int) -> bool:
    """Returns whether padding lies at a position in code."""
    return code.startswith(_PADDING, at)


def find_starts(code: bytes) -> Iterator[Tuple[int, bool]]:
    """Yields the positions at which functions that push Ebp first may start.

    Each comes with a bool: whether the code before it surely ends there. A call ends code only if it never
    returns.
    """
    for match in _PUSH_EBP.finditer(code):
        before = code[max(match.start() - 8, 0) : match.start()]
        if ends(before):
            yield match.start(), _BEHIND_CALL.search(before) is None
        elif code.startswith(_SET_UP, match.end() - 1):
            yield match.start(), False


def bare_starts(code: bytes, address: int) -> Iterator[int]:
    """Yields the positions at which any function may start: behind padding, or aligned behind a return or a
    jump."""
    for match in _BEHIND_PADDING.finditer(code):
        yield match.end()
    for match in _BEHIND_END.finditer(code):
        if (address + match.end()) % _ALIGNED == 0:
            yield match.end()


def ends_before(code: bytes) -> List[int]:
    """Returns the positions right behind a return or a jump, aligned or not: a function may start there."""
    return [match.end() for match in _BEHIND_ANY_END.finditer(code)]


def begins_behind_end(code: bytes, address: int) -> bool:
    """Returns whether a function seems to begin right behind a return in code, aligned to 4 bytes."""
    matches = _START_BEHIND_END.finditer(code)
    return any((address + match.end()) % _LEAST_ALIGNED == 0 for match in matches)


def jump_by_table(before: bytes, jump: bytes) -> Optional[Tuple[int, int, Optional[int]]]:
    """Decodes a jump through a table with a comparison right before it that bounds the table's entries.

    cmp register, n; ja; jmp [table + 4 * register]; optionally, movzx register, byte ptr [numbers + register]
    lies between. Returns (address of the table, greatest entry number, address of the bytes that hold entry
    numbers or None); None if the code is no such jump.
    """
    match = _BOUNDED.search(before)
    if match is None or len(jump) < TABLE_JUMP or jump[:2] != b"\xff\x24" or jump[2] & 0xC7 != 0x85:
        return None
    compared, most, loaded, numbers = match[1][0] & 7, match[2][0], match[3], match[4]
    index = compared
    if loaded is not None:
        if loaded[0] & 7 != compared:
            return None
        index = loaded[0] >> 3 & 7
    if jump[2] >> 3 & 7 != index or most > 0x7F:
        return None
    return int.from_bytes(jump[3:], "little"), most, unsigned(numbers)


def exit_at(code: bytes) -> Optional[FunctionExit]:
    """Decodes the rest of an exit; None if the code is no exit, or too short to decide."""
    from_ebp, adjust, position, pops = _release(code)
    while position < len(code) and code[position] & 0xF8 == 0x58 and code[position] & 7 != ESP:
        pops += (code[position] & 7,)
        position += 1
    end = code[position:]
    if end[:1] in (b"\xf2", b"\xf3"):
        end = end[1:]
    if end[:1] == b"\xc3":
        return FunctionExit(from_ebp, adjust, pops, 0)
    if end[:1] == b"\xc2" and len(end) >= 3:
        return FunctionExit(from_ebp, adjust, pops, int.from_bytes(end[1:3], "little"))
    # A jump ends a function only if the caller's frame is restored.
    if EBP in pops and end.startswith(_JUMPS):
        return FunctionExit(from_ebp, adjust, pops, 0)
    return None


def _release(code: bytes) -> Tuple[bool, int, int, Tuple[int, ...]]:
    """Decodes the release of locals: (from Ebp, bytes, length of the instruction, registers it pops)."""
    if code[:1] == _LEAVE:
        return True, 0, 1, (EBP,)
    if code[:2] in MOV_ESP_EBP:
        return True, 0, 2, ()
    for start, from_ebp, size in (
        (b"\x83\xc4", False, 1),
        (b"\x81\xc4", False, 4),
        (b"\x8d\x65", True, 1),
        (b"\x8d\xa5", True, 4),
    ):
        if code[:2] == start and len(code) >= 2 + size:
            return from_ebp, int.from_bytes(code[2 : 2 + size], "little", signed=True), 2 + size, ()
    return False, 0, 0, ()
