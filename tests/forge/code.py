# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Functions with call sites, for modules whose code is on stacks: code bytes, function table, unwind data."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .pe import Function

RBX, RBP, RSI, RDI, R12, R13, R14, R15 = 3, 5, 6, 7, 12, 13, 14, 15

SITE = 0x10
"""Distance of two call sites in a function."""
_PUSH_NONVOL, _ALLOC_LARGE, _SET_FPREG, _SAVE_NONVOL, _PUSH_MACHFRAME = 0, 1, 3, 4, 10


@dataclasses.dataclass(frozen=True)
class Routine:
    """A function and its stack frame, laid out in this order from the caller's down.

    Args:
        rva, size: where it lies.
        machine_frame: it is entered by an interrupt, behind an error code.
        error_code: there is one.
        pushes: registers pushed, by number.
        alloc: bytes of its fixed allocation, a multiple of 8.
        frame: (register, offset): the frame register, that far above the stack pointer.
        saves: register to offset from the stack pointer.
        unwind: whether it has unwind data: a leaf has none.
    """

    rva: int
    size: int = 0x80
    machine_frame: bool = False
    error_code: bool = True
    pushes: Tuple[int, ...] = ()
    alloc: int = 0x28
    frame: Optional[Tuple[int, int]] = None
    saves: Mapping[int, int] = dataclasses.field(default_factory=dict)
    unwind: bool = True

    def returns(self, site: int = 0) -> int:
        """The RVA that its call number `site` returns to."""
        return self.rva + SITE * (site + 2)

    def info(self) -> bytes:
        """Its UNWIND_INFO, version 1."""
        codes: List[bytes] = []
        end = 8
        for register, offset in self.saves.items():
            codes.append(struct.pack("<BBH", end, _SAVE_NONVOL | register << 4, offset // 8))
        if self.frame is not None:
            codes.append(bytes([end, _SET_FPREG]))
        if self.alloc:
            codes.append(struct.pack("<BBH", 7, _ALLOC_LARGE, self.alloc // 8))
        codes += [bytes([6, _PUSH_NONVOL | register << 4]) for register in reversed(self.pushes)]
        if self.machine_frame:
            codes.append(bytes([0, _PUSH_MACHFRAME | self.error_code << 4]))
        register, offset = self.frame or (0, 0)
        data = b"".join(codes)
        return bytes([1, end, len(data) // 2, register | offset // 16 << 4]) + data


def trap_handler(rva: int) -> Routine:
    """A trap entry: Rbp at 158h of its trap frame, Rbp then 80h into it."""
    return Routine(rva, machine_frame=True, pushes=(RBP,), alloc=0x158, frame=(RBP, 0x80))


def service_handler(rva: int) -> Routine:
    """An entry of system calls saves three registers more."""
    return dataclasses.replace(trap_handler(rva), saves={RBX: 0x140, RDI: 0x148, RSI: 0x150})


def swap_context(rva: int) -> Routine:
    """KiSwapContext: its frame is an exception frame."""
    registers = (RBX, RDI, RSI, R12, R13, R14, R15)
    saves = {register: 0x100 + 8 * place for place, register in enumerate(registers)}
    return Routine(rva, alloc=0x138, saves=saves)


def system_call_stub(number: int, behind: int = 0x14) -> bytes:
    """The stub of a system call: mov r10, rcx; mov eax, number; syscall; ret.

    Args:
        number: that of the call.
        behind: bytes up to the end of the syscall: 0xA in Windows 7 to 8.1, 0x14 since 10.
    """
    load = bytes((0x4C, 0x8B, 0xD1, 0xB8)) + struct.pack("<I", number)
    return load.ljust(behind - 2, b"\x90") + bytes((0x0F, 0x05, 0xC3))


def module_options(
    routines: Sequence[Routine], unwind_rva: int, bits: int, calls: Mapping[int, int] = {}
) -> Dict[str, Any]:
    """Options of a module (`Spec`) that holds functions: code with call sites, on x64 a function table.

    Args:
        routines: the functions.
        unwind_rva: where their unwind data go.
        bits: 32 or 64.
        calls: RVA that a call returns to, RVA that it calls (default: the function itself).
    """
    contents: Dict[int, bytes] = {}
    functions: List[Function] = []
    at = unwind_rva
    for routine in routines:
        # On x86 the code can be followed from call to call: inc eax.
        code = bytearray((b"\x40" if bits == 32 else b"\xcc") * routine.size)
        if bits == 32 and routine.unwind:
            code[:3] = b"\x55\x8b\xec"
        for end in range(2 * SITE, routine.size, SITE):
            target = calls.get(routine.rva + end, routine.rva)
            code[end - 5 : end] = b"\xe8" + struct.pack("<i", target - routine.rva - end)
        contents[routine.rva] = bytes(code)
        if bits == 64 and routine.unwind:
            info = routine.info()
            contents[at] = info
            functions.append(Function(routine.rva, routine.rva + routine.size, at))
            at += -(-len(info) // 4) * 4
    return {"contents": contents, "functions": functions}
