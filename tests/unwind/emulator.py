# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs a program instruction by instruction and keeps the true stack: pushed at calls, popped at returns.

The truth is the processor's, not the unwind data's: what a call pushed, where the stack pointer was when it
did, and what the registers held that a callee must keep.
"""

from __future__ import annotations

from typing import Callable, Generator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import pytest

from .image import Program

unicorn = pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")
x86 = pytest.importorskip("unicorn.x86_const")

STACK_TOP = 0x7FF000000000
STACK_SIZE = 0x400000
IMPORTS = 0x7FE000000000
IMPORT_SIZE = 32
IMPORT_FRAME = 0x88
HEAP, HEAP_SIZE = 0x10000000, 0x400000
PAGE = 0x1000
RETURN = b"\xc3"
PREFIXES = bytes((0xF2, 0xF3, 0x3E, *range(0x40, 0x50)))
KERNEL_CS, KERNEL_SS = 0x10, 0x18
STALE = 0x7FEF5A5A5A33
"""What the stack held before."""

GENERAL = [
    getattr(x86, f"UC_X86_REG_{name}")
    for name in [
        "RAX",
        "RCX",
        "RDX",
        "RBX",
        "RSP",
        "RBP",
        "RSI",
        "RDI",
        "R8",
        "R9",
        "R10",
        "R11",
        "R12",
        "R13",
        "R14",
        "R15",
    ]
]
VOLATILE = (0, 1, 2, 8, 9, 10, 11)
KEPT = (3, 5, 6, 7, 12, 13, 14, 15)
KEPT_XMM = range(6, 16)


class Caller(NamedTuple):
    """A frame that is waiting for a call or an interrupt to return: the truth about one frame.

    `ip` is where it goes on, `sp` its stack pointer then, `general` and `xmm` its non-volatile registers.
    """

    ip: int
    sp: int
    general: Tuple[int, ...]
    xmm: Tuple[int, ...]
    interrupted: bool = False


class Call(NamedTuple):
    """What an imported function wants called: the address and up to four arguments."""

    function: int
    arguments: Tuple[int, ...]


class Resume(NamedTuple):
    """Where an imported function goes on instead of returning: all registers, and the address."""

    ip: int
    general: Sequence[int]
    xmm: Sequence[int]


Import = Callable[["Machine"], Union[int, Generator[Call, int, Union[int, Resume]]]]
"""An imported function: returns Rax, or a generator that has the program's functions called meanwhile."""


class Machine:
    """An x64 processor with one program and one stack.

    Imported functions live in a page of their own, as a module would: each is IMPORT_SIZE bytes, has a frame
    of IMPORT_FRAME bytes while it calls something, and makes those calls from its middle.

    Args:
        program: what to run
        visit: called before each instruction of the program with its address
        imports: the imported functions by name
    """

    def __init__(
        self,
        program: Program,
        visit: Callable[[Machine, int], None],
        imports: Optional[Mapping[str, Import]] = None,
    ) -> None:
        self.program = program
        self.callers: List[Caller] = []
        self._visit = visit
        self._imports = [(imports or {})[name] for name in program.imports.values()]
        self._active: List[Tuple[int, Generator[Call, int, Union[int, Resume]]]] = []
        self._called: Optional[Caller] = None
        self._failure: Optional[BaseException] = None
        self._jump: Optional[int] = None
        self.cpu = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
        self.cpu.mem_map(program.base, -(-len(program.memory) // PAGE) * PAGE)
        self.cpu.mem_write(program.base, program.memory)
        self.cpu.mem_map(STACK_TOP - STACK_SIZE, STACK_SIZE)
        self.cpu.mem_map(IMPORTS, PAGE)
        self.cpu.mem_write(IMPORTS, RETURN * PAGE)
        self.cpu.mem_map(HEAP, HEAP_SIZE)
        self._heap = HEAP
        self._stopped: List[Tuple[int, ...]] = []
        for number, slot in enumerate(program.imports):
            self.cpu.mem_write(slot, (IMPORTS + number * IMPORT_SIZE).to_bytes(8, "little"))
        self.cpu.hook_add(unicorn.UC_HOOK_CODE, self._before)

    def allocate(self, size: int) -> int:
        """Returns the address of fresh memory, zeroed and aligned to 16 bytes."""
        address = self._heap
        self._heap += -(-size // 16) * 16
        assert self._heap <= HEAP + HEAP_SIZE, "the heap is full"
        return address

    def run(self, entry: int) -> int:
        """Calls a function with an empty stack, until it returns; returns Rax."""
        self.cpu.reg_write(x86.UC_X86_REG_RSP, STACK_TOP - 0x40)
        self.push(0)
        self.callers = [Caller(0, STACK_TOP - 0x40, self.general(), self.xmm())]
        self._jump = entry
        while self._jump is not None:
            start, self._jump = self._jump, None
            self.cpu.emu_start(start, 0)
            if self._failure is not None:
                raise self._failure
        assert not self.callers, "the program did not return"
        return self.register(0)

    def register(self, number: int) -> int:
        """Returns a general register by the processor's number."""
        return int(self.cpu.reg_read(GENERAL[number]))

    def registers(self) -> Tuple[int, ...]:
        """Returns all general registers."""
        return tuple(self.cpu.reg_read_batch(GENERAL))

    def general(self) -> Tuple[int, ...]:
        """Returns the non-volatile general registers."""
        return tuple(self.cpu.reg_read_batch([GENERAL[number] for number in KEPT]))

    def xmm(self) -> Tuple[int, ...]:
        """Returns the non-volatile vector registers."""
        return tuple(self.cpu.reg_read(x86.UC_X86_REG_XMM0 + number) for number in KEPT_XMM)

    def read(self, address: int, length: int) -> Optional[bytes]:
        """Reads memory as the walker does: None where nothing is mapped."""
        try:
            return bytes(self.cpu.mem_read(address, length))
        except unicorn.UcError:
            return None

    def push(self, value: int) -> None:
        """Pushes a value onto the stack."""
        sp = self.register(4) - 8
        self.cpu.reg_write(x86.UC_X86_REG_RSP, sp)
        self.cpu.mem_write(sp, value.to_bytes(8, "little"))

    def interrupt(self, ip: int, handler: int, error_code: bool = False) -> None:
        """Interrupts the program before an instruction, as the processor does in kernel mode."""
        sp, flags = self.register(4), self.cpu.reg_read(x86.UC_X86_REG_EFLAGS)
        self.callers.append(Caller(ip, sp, self.general(), self.xmm(), True))
        self.cpu.reg_write(x86.UC_X86_REG_RSP, sp & ~0xF)
        for value in (KERNEL_SS, sp, flags, KERNEL_CS, ip, *([0] if error_code else [])):
            self.push(value)
        self._go(handler)

    def dispatch(self, ip: int, dispatcher: int, below: int, cs: int) -> None:
        """Has the kernel go on elsewhere in user mode instead of at an instruction of the program.

        The machine frame that it leaves on the user stack holds Rip and Rsp; the rest is what lay there.

        Args:
            ip: the instruction
            dispatcher: where the program goes on
            below: bytes that the kernel puts below the machine frame
            cs: what lies in the slot of SegCs
        """
        sp = self.register(4)
        self.callers.append(Caller(ip, sp, self.general(), self.xmm(), True))
        flags = self.cpu.reg_read(x86.UC_X86_REG_EFLAGS)
        self._stopped.append((*(self.register(number) for number in VOLATILE), flags))
        frame = (sp - 0x100 & ~0xF) - 0x28
        for offset, value in ((0, ip), (8, cs), (0x10, STALE), (0x18, sp), (0x20, STALE)):
            self.cpu.mem_write(frame + offset, value.to_bytes(8, "little"))
        self.cpu.reg_write(x86.UC_X86_REG_RSP, frame - below)
        self._go(dispatcher)

    def _go(self, address: int) -> None:
        self._jump = address
        self.cpu.emu_stop()

    def _before(self, cpu: object, address: int, size: int, _: object) -> None:
        """Keeps the shadow stack, and lets the visitor look."""
        try:
            if self._called is not None:
                self.callers.append(self._called)
                self._called = None
            if not IMPORTS <= address < IMPORTS + PAGE:
                self._visit(self, address)
            elif address % IMPORT_SIZE in (0, IMPORT_SIZE // 2):
                self._import(address)
            if self._jump is None:
                self._classify(address, size)
        except BaseException as failure:  # noqa: BLE001 - an exception must not cross the emulator
            self._failure, self._jump = failure, None
            self.cpu.emu_stop()

    def _import(self, address: int) -> None:
        """Carries out an imported function, or goes on with one that had something called."""
        number, offset = divmod(address - IMPORTS, IMPORT_SIZE)
        if offset:
            self._advance(IMPORTS + number * IMPORT_SIZE, self.register(0))
            return
        result = self._imports[number](self)
        if isinstance(result, int):
            self.cpu.reg_write(GENERAL[0], result)
        else:
            self._active.append((self.register(4), result))
            self._advance(address, None)

    def _advance(self, start: int, value: Optional[int]) -> None:
        """Runs the innermost generator up to its next call, its return or its jump elsewhere."""
        sp, generator = self._active[-1]
        try:
            call = generator.send(value)  # type: ignore[arg-type]
        except StopIteration as done:
            self._active.pop()
            if isinstance(done.value, Resume):
                self._resume(done.value)
            else:
                self.cpu.reg_write_batch([(GENERAL[0], done.value), (GENERAL[4], sp)])
                self._go(start + 1)
            return
        self.cpu.reg_write(GENERAL[4], sp - IMPORT_FRAME)
        self.callers.append(Caller(start + IMPORT_SIZE // 2, sp - IMPORT_FRAME, self.general(), self.xmm()))
        self.push(start + IMPORT_SIZE // 2)
        self.cpu.reg_write_batch([(GENERAL[n], v) for n, v in zip((1, 2, 8, 9), call.arguments)])
        self._go(call.function)

    def _resume(self, state: Resume) -> None:
        """Goes on in a frame further up: what is below it is gone."""
        sp = state.general[4]
        self.callers = [caller for caller in self.callers if caller.sp > sp]
        self._active = [active for active in self._active if active[0] > sp]
        self.cpu.reg_write_batch([*zip(GENERAL, state.general)])
        for number, value in zip(KEPT_XMM, state.xmm):
            self.cpu.reg_write(x86.UC_X86_REG_XMM0 + number, value)
        self._go(state.ip)

    def _classify(self, address: int, size: int) -> None:
        """Notes a call, carries out a return from interrupt, checks a return."""
        code = bytes(self.cpu.mem_read(address, size))
        operation = code.lstrip(PREFIXES)
        if operation[0] == 0xE8 or (operation[0] == 0xFF and operation[1] >> 3 & 7 == 2):
            self._called = Caller(address + size, self.register(4), self.general(), self.xmm())
        elif code == b"\x48\xcf":
            self._return_from_interrupt()
        elif operation[0] in (0xC3, 0xC2):
            self._check_return()

    def _check_return(self) -> None:
        caller, sp = self.callers.pop(), self.register(4)
        to = int.from_bytes(self.cpu.mem_read(sp, 8), "little")
        assert (to, sp + 8) == (caller.ip, caller.sp), "the program returns to where it was not called from"
        if not self.callers:
            self.cpu.emu_stop()

    def _return_from_interrupt(self) -> None:
        frame = bytes(self.cpu.mem_read(self.register(4), 40))
        ip, _, flags, sp, _ = (int.from_bytes(frame[i : i + 8], "little") for i in range(0, 40, 8))
        if flags == STALE:
            # As the kernel does from the CONTEXT that it keeps.
            *volatile, flags = self._stopped.pop()
            self.cpu.reg_write_batch([(GENERAL[number], value) for number, value in zip(VOLATILE, volatile)])
        caller = self.callers.pop()
        assert (ip, sp) == (caller.ip, caller.sp), "the handler returns to where it was not called from"
        self.cpu.reg_write(x86.UC_X86_REG_EFLAGS, flags)
        self.cpu.reg_write(x86.UC_X86_REG_RSP, sp)
        self._go(ip)
