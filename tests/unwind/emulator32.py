# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs a 32-bit program instruction by instruction and keeps the true stack of return addresses."""

from __future__ import annotations

from typing import Callable, List, Optional

from .emulator import HEAP, PAGE, PREFIXES, unicorn, x86
from .image import Program

STACK_TOP = 0x30000000
STACK_SIZE = 0x400000

_REGISTERS = (
    *(x86.UC_X86_REG_EAX, x86.UC_X86_REG_ECX, x86.UC_X86_REG_EDX, x86.UC_X86_REG_EBX, x86.UC_X86_REG_ESP),
    *(x86.UC_X86_REG_EBP, x86.UC_X86_REG_ESI, x86.UC_X86_REG_EDI, x86.UC_X86_REG_EFLAGS),
)


class Machine32:
    """An x86 processor with one program and one stack; `visit` is called before each instruction."""

    def __init__(self, program: Program, visit: Callable[[Machine32, int], None]) -> None:
        self.program = program
        self.callers: List[int] = []
        self._visit = visit
        self._called: Optional[int] = None
        self._failure: Optional[BaseException] = None
        self._jump: Optional[int] = None
        self._stopped: List[List[int]] = []
        self.cpu = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_32)
        self.cpu.mem_map(program.base, -(-len(program.memory) // PAGE) * PAGE)
        self.cpu.mem_write(program.base, program.memory)
        self.cpu.mem_map(STACK_TOP - STACK_SIZE, STACK_SIZE)
        self.cpu.mem_map(HEAP, PAGE)
        self.cpu.hook_add(unicorn.UC_HOOK_CODE, self._before)

    def run(self, entry: int) -> int:
        """Calls a function with an empty stack until it returns; returns Edx:Eax."""
        self.cpu.reg_write(x86.UC_X86_REG_ESP, STACK_TOP - 0x44)
        self.cpu.reg_write(x86.UC_X86_REG_EBP, 0)
        self.callers = [0]
        self._jump = entry
        while self._jump is not None:
            start, self._jump = self._jump, None
            self.cpu.emu_start(start, 0)
            if self._failure is not None:
                raise self._failure
        assert not self.callers, "the program did not return"
        high, low = (self.cpu.reg_read(register) for register in (x86.UC_X86_REG_EDX, x86.UC_X86_REG_EAX))
        return int(high << 32 | low)

    def read(self, address: int, length: int) -> Optional[bytes]:
        """Reads memory as the walker does: None where nothing is mapped."""
        try:
            return bytes(self.cpu.mem_read(address, length))
        except unicorn.UcError:
            return None

    def dispatch(self, ip: int, dispatcher: int, left: Callable[[int], bytes]) -> None:
        """Has the kernel go on elsewhere in user mode instead of at an instruction of the program.

        Args:
            ip: the instruction
            dispatcher: where the program goes on
            left: Esp -> what the kernel puts below it
        """
        self.callers.append(ip)
        self._stopped.append([self.cpu.reg_read(register) for register in _REGISTERS])
        sp = self.cpu.reg_read(x86.UC_X86_REG_ESP)
        data = left(sp)
        self.cpu.mem_write(sp - len(data), data)
        self.cpu.reg_write(x86.UC_X86_REG_ESP, sp - len(data))
        self._go(dispatcher)

    def go_back(self) -> None:
        """Has the kernel go back to what the last dispatcher interrupted."""
        for register, value in zip(_REGISTERS, self._stopped.pop()):
            self.cpu.reg_write(register, value)
        self._go(self.callers.pop())

    def _go(self, address: int) -> None:
        self._jump = address
        self.cpu.emu_stop()

    def _before(self, cpu: object, address: int, size: int, _: object) -> None:
        try:
            if self._called is not None:
                self.callers.append(self._called)
                self._called = None
            self._visit(self, address)
            if self._jump is not None:
                return
            operation = bytes(self.cpu.mem_read(address, size)).lstrip(PREFIXES[:3])
            # A call of the next instruction pushes where it is, and nothing ever returns there.
            if (operation[0] == 0xE8 and any(operation[1:])) or (
                operation[0] == 0xFF and operation[1] >> 3 & 7 == 2
            ):
                self._called = address + size
            elif operation[0] in (0xC3, 0xC2):
                sp = self.cpu.reg_read(x86.UC_X86_REG_ESP)
                to = int.from_bytes(self.cpu.mem_read(sp, 4), "little")
                assert to == self.callers.pop(), "the program returns to where it was not called from"
                if not self.callers:
                    self.cpu.emu_stop()
        except BaseException as failure:  # noqa: BLE001 - an exception must not cross the emulator
            self._failure = failure
            self.cpu.emu_stop()
