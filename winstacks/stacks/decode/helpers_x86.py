# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Functions of the x86 runtime that set up and take down the stack frame of their caller.

Stack probes touch the pages of a frame of the size in Eax. _chkstk makes room of that size too; GNU's
___chkstk_ms leaves `sub esp, eax` to its caller:

    _chkstk         push ecx; lea ecx, [esp+4]; sub ecx, eax; ...; xchg eax, esp; ...; ret
    ___chkstk       push ecx; lea ecx, [esp+8]; ...; sub ecx, eax; ...; mov esp, ecx; ...; push [eax+4]; ret
    ___chkstk_ms    push ecx; push eax; ...; lea ecx, [esp+0Ch]; ...; pop eax; pop ecx; ret

The others are _SEH_prolog and its variants for functions with __try, and _EH_prolog, _EH_prolog3 and their
variants for functions with C++ exceptions. They are recognised by their code:

    _SEH_prolog     push handler; push fs:[0]; ...; mov [esp+10h], ebp; lea ebp, [esp+10h]; ...
    _EH_prolog3     push eax; push fs:[0]; lea eax, [esp+0Ch]; ...; mov [eax], ebp; mov ebp, eax; ...
    their epilogs   ...; pop ecx; ...; mov esp, ebp; pop ebp; push ecx; ret

Source: the code that Microsoft's compilers call, in redistributable libraries; GNU's libgcc; Intel's
manual, volume 2.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from .clues_x86 import MOV_ESP_EBP
from .code_x86 import CodePages
from .effects_x86 import operand, registers_written
from .instructions_x86 import Instruction, instruction

_MOST = 24
"""Number of instructions of a helper that are examined."""

_MASK = 0xFFFFFFFF
_PUSHES = frozenset((*range(0x50, 0x58), 0x68, 0x6A))
_STORE_EBP, _LEA_EBP, _LEA_EAX = b"\x89\x6c\x24", b"\x8d\x6c\x24", b"\x8d\x44\x24"
_STORE_BY_EAX, _EBP_FROM_EAX = b"\x89\x28", b"\x8b\xe8"
_ESP_LESS = (b"\x2b\xe0", b"\x2b\x64\x24")
_MOST_OF_A_PROBE = 40
"""Number of instructions of a stack probe that are examined."""
_PUSH_ECX, _LOWER_ECX, _JUMP_EAX = b"\x51", (b"\x2b\xc8", b"\x29\xc1"), b"\xff\xe0"
_LEA_ECX = b"\x8d\x4c\x24"
_ESP_LOWERED = (b"\x94", b"\x8b\xe1", b"\x89\xcc", b"\x87\xe0", b"\x87\xc4")
"""xchg eax, esp; mov esp, ecx."""
_COMPARE_EAX, _LESS_EAX = 0x3D, 0x2D
_ON_REGISTERS = frozenset((0x29, 0x31, 0x81, 0x83))
_READS = frozenset((0x2B, 0x33, 0x39, 0x3B, 0x85, 0x8B, 0x8D))
"""Instructions with a ModRM byte that write a register: those that write memory if ModRM names it, and
others."""
_TOUCH = b"\x83\x09\x00"
"""or dword [ecx], 0: it leaves the memory as it is."""


def set_up_depth(code: CodePages, start: int) -> Optional[int]:
    """Returns the bytes that the caller of a helper has pushed, if the helper sets up the caller's frame.

    The caller saves its own Ebp right below its return address. Returns the bytes between Esp and the
    caller's return address before the call; None if the function is no such helper.
    """
    address, pushed = start, 0
    stored: Optional[int] = None
    by_eax: Optional[int] = None
    for _ in range(_MOST):
        data, offset = code.window(address)
        decoded = instruction(data, offset)
        if decoded is None:
            return None
        # Places are counted from the slot of the helper's return address.
        text = data[offset : decoded.end]
        if _pushes(decoded, data):
            pushed += 4
        elif text[:3] == _STORE_EBP:
            stored = text[3] - pushed
        elif text[:3] == _LEA_EBP:
            return stored if stored is not None and stored == text[3] - pushed >= 0 else None
        elif text[:3] == _LEA_EAX:
            by_eax = text[3] - pushed
        elif text == _STORE_BY_EAX and by_eax is not None:
            stored = by_eax
        elif text == _EBP_FROM_EAX and by_eax is not None:
            return stored if stored == by_eax >= 0 else None
        elif text.startswith(_ESP_LESS):
            # Room for locals: the caller has pushed its size, so Esp is unknown from here on.
            pushed = 1 << 16
        elif _is_transfer(decoded, data):
            return None
        elif decoded.opcode in (0x8B, 0xA1, 0xB8, 0x33):
            by_eax = None
        address += decoded.end - offset
    return None


def takes_down(code: CodePages, start: int) -> bool:
    """Returns whether a function takes down its caller's frame: it restores the Ebp and Esp of the caller's
    caller.

    The function keeps its own return address in a register, and returns to it.
    """
    address, before = start, b""
    restored = pushed = False
    for _ in range(_MOST):
        data, offset = code.window(address)
        decoded = instruction(data, offset)
        if decoded is None:
            return False
        text = data[offset : decoded.end]
        address += decoded.end - offset
        if decoded.opcode in (0xE9, 0xEB):
            address = address + operand(data, decoded) & _MASK
        elif text == b"\xc9" or (text == b"\x5d" and before in MOV_ESP_EBP):
            restored, pushed = True, False
        elif restored and 0x50 <= decoded.opcode <= 0x57:
            pushed = True
        elif decoded.opcode == 0xC3:
            return pushed
        elif restored or (decoded.opcode != 0xE8 and _is_transfer(decoded, data)):
            return False
        before = text
    return False


def makes_room(code: CodePages, start: int) -> bool:
    """Returns whether a function makes room on its caller's stack, of the size in Eax (_chkstk).

    It computes the new Esp in Ecx, touches the pages between, and returns to the address that it copies to
    the new place or keeps.
    """
    address, lowered, moved = start, False, False
    above: Optional[int] = None
    pushed = 0
    for number in range(_MOST_OF_A_PROBE):
        data, offset = code.window(address)
        decoded = instruction(data, offset)
        if decoded is None:
            return False
        text = data[offset : decoded.end]
        if number == 0 and text != _PUSH_ECX:
            return False
        if text[:3] == _LEA_ECX and not lowered:
            above = text[3]
        lowered = lowered or text in _LOWER_ECX
        if moved:
            pushed += 4 * _pushes(decoded, data)
        moved = moved or (lowered and text in _ESP_LOWERED)
        if text == _JUMP_EAX:
            return moved and above == 8 + pushed
        if decoded.opcode in (0xC3, 0xE8):
            return moved and decoded.opcode != 0xE8 and above == 4 + pushed
        address += decoded.end - offset
    return False


def keeps_size(code: CodePages, start: int) -> bool:
    """Returns whether a function changes neither its caller's Esp nor any of its registers (___chkstk_ms).

    It saves the registers that it writes, takes them back in turn, and has nothing of its own on the stack
    when it returns. All ways to an instruction have saved the same registers.
    """
    address, saved = start, b""
    at: Dict[int, bytes] = {}
    jumps: List[Tuple[int, bytes]] = []
    for _ in range(_MOST_OF_A_PROBE):
        data, offset = code.window(address)
        decoded = instruction(data, offset)
        if decoded is None or decoded.prefixed:
            return False
        at[address] = saved
        address += decoded.end - offset
        opcode, number = decoded.opcode, decoded.opcode & 7
        if opcode == 0xC3:
            return not saved and all(at.get(target) == then for target, then in jumps)
        if 0x70 <= opcode <= 0x7F:
            jumps.append((address + operand(data, decoded) & _MASK, saved))
        elif 0x50 <= opcode <= 0x57 and number not in saved:
            saved += bytes([number])
        elif 0x58 <= opcode <= 0x5F and saved[-1:] == bytes([number]):
            saved = saved[:-1]
        elif not _writes_only(data, offset, decoded, saved):
            return False
    return False


def _writes_only(data: bytes, offset: int, decoded: Instruction, saved: bytes) -> bool:
    """Returns whether an instruction surely writes no more than registers of those that are saved."""
    opcode = decoded.opcode
    if opcode in (_COMPARE_EAX, _LESS_EAX):
        return opcode == _COMPARE_EAX or 0 in saved
    if opcode not in _ON_REGISTERS and opcode not in _READS:
        return False
    byte = data[decoded.modrm]
    if opcode in _ON_REGISTERS and byte < 0xC0:
        return data[offset : decoded.end] == _TOUCH
    return all(number in saved for number in registers_written(opcode, byte >> 6, byte >> 3 & 7, byte & 7))


def _pushes(decoded: Instruction, data: bytes) -> bool:
    return decoded.opcode in _PUSHES or (decoded.opcode == 0xFF and data[decoded.modrm] & 0x38 == 0x30)


def _is_transfer(decoded: Instruction, data: bytes) -> bool:
    """Returns whether an instruction calls, jumps, returns or stops."""
    opcode = decoded.opcode
    if opcode == 0xFF:
        return data[decoded.modrm] & 0x38 in (0x10, 0x18, 0x20, 0x28)
    return (
        0x70 <= opcode <= 0x7F
        or 0xE0 <= opcode <= 0xE3
        or 0x0F80 <= opcode <= 0x0F8F
        or opcode in (0xC2, 0xC3, 0xCC, 0xCD, 0xCF, 0xE8, 0xE9, 0xEB, 0xF4, 0x0F0B)
    )
