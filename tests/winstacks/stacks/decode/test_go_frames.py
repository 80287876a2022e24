# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Walks through functions of Go programs, compared with Go's own traceback and with an emulator."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional, Tuple

import pytest

from tests.support.goprograms import PROGRAMS, STARTED, GoProgram, walk, walker
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacks.decode.frames import UnwindError
from winstacks.stacks.decode.registers import GENERAL, Registers, Registers32
from winstacks.stacks.decode.registers_arm64 import KEPT, RegistersArm64


@pytest.mark.parametrize("name", STARTED)
def test_a_walk_from_a_call_of_windows_finds_what_go_says_of_the_goroutine(name: str) -> None:
    program = GoProgram(name)
    stack = walk(name, program)
    found = [program.named(frame.address) for frame in stack.frames]
    assert len(program.traceback) > 9
    start = found.index(program.traceback[0])
    assert found[start : start + len(program.traceback)] == program.traceback
    assert [frame.how for frame in stack.frames[1:]] == ["unwind"] * (len(stack.frames) - 1)
    assert all(frame.sure for frame in stack.frames)
    last = found[-1]
    assert last is not None
    assert last[0] == "runtime.goexit"
    assert (stack.end, stack.gaps) == (None, (StatusCode.STACK_SWITCHED,))


@pytest.mark.parametrize("name", STARTED)
def test_without_the_goroutines_record_the_walk_does_not_leave_the_stack(name: str) -> None:
    program = GoProgram(name)
    program.memory = program.memory.part(program.start[1], 0x1000)
    stack = walk(name, program)
    assert all(program.named(frame.address) not in program.traceback for frame in stack.frames if frame.sure)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_frame_is_sure_behind_a_call_that_goes_on_with_another_goroutine(name: str) -> None:
    program = GoProgram(name)
    begin = program.functions.get("runtime.morestack.abi0", program.functions.get("runtime.morestack"))
    assert begin is not None
    ip = next(at for at in range(program.base + begin[0] + 8, program.base + begin[1]) if _calls(program, at))
    registers: Any = Registers.from_known(ip, 0x8000, {"Rbp": 0x8100})
    if name.startswith("386"):
        registers = Registers32(ip, 0x8000, 0x8100)
    elif name.startswith("arm64"):
        registers = RegistersArm64.from_known(ip, 0x8000, {"Fp": 0x8100})
    with pytest.raises(UnwindError) as raised:
        walker(program, name, lambda *_: bytes(16)).step(registers, False)
    assert raised.value.code is StatusCode.NO_UNWIND_DATA


def _calls(program: GoProgram, address: int) -> bool:
    image = program.image()
    if program.headers.machine == 0xAA64:
        code = image.read_rva(address - image.base - 4, 4)
        return not address % 4 and code is not None and int.from_bytes(code, "little") >> 26 == 0x25
    code = image.read_rva(address - image.base - 5, 5)
    return code is not None and code[0] == 0xE8


class Processor:
    """Unicorn with a program, a goroutine's stack, and the true callers."""

    STACK, SIZE, HEAP = 0x20000000, 0x100000, 0x30000000

    def __init__(self, name: str, program: GoProgram) -> None:
        self.unicorn = pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")
        self.program, self.arm, self.size = program, name.startswith("arm64"), 4 if name[0] == "3" else 8
        if self.arm:
            constants = pytest.importorskip("unicorn.arm64_const")
            self.cpu = self.unicorn.Uc(self.unicorn.UC_ARCH_ARM64, self.unicorn.UC_MODE_ARM)
            self.numbers = {f"X{n}": getattr(constants, f"UC_ARM64_REG_X{n}") for n in range(31)}
            self.numbers["Sp"] = constants.UC_ARM64_REG_SP
        else:
            constants = pytest.importorskip("unicorn.x86_const")
            mode = self.unicorn.UC_MODE_64 if self.size == 8 else self.unicorn.UC_MODE_32
            self.cpu = self.unicorn.Uc(self.unicorn.UC_ARCH_X86, mode)
            names = GENERAL if self.size == 8 else [f"E{register[1:]}" for register in GENERAL[:8]]
            numbers = [getattr(constants, f"UC_X86_REG_{register.upper()}") for register in names]
            self.numbers = dict(zip(GENERAL, numbers))
        pages = -(-program.size // 0x1000) * 0x1000
        self.cpu.mem_map(program.base, pages)
        for rva, data in program.extents.runs:
            self.cpu.mem_write(program.base + rva, bytes(data))
        self.cpu.mem_map(self.STACK, self.SIZE)
        self.cpu.mem_map(self.HEAP, 0x10000)
        limits = (self.STACK, self.STACK + self.SIZE, self.STACK + 0x1000, self.STACK + 0x1000)
        self.cpu.mem_write(self.HEAP, b"".join(limit.to_bytes(self.size, "little") for limit in limits))
        self.cpu.mem_write(self.HEAP + 0x100, self.HEAP.to_bytes(self.size, "little"))
        self.walker = walker(program, name, self.read)
        self.callers: List[Tuple[int, int]] = []
        self.called: Optional[Tuple[int, int]] = None
        self.outcomes: List[Tuple[int, bool, str]] = []

    def read(self, address: int, length: int) -> Optional[bytes]:
        try:
            return bytes(self.cpu.mem_read(address, length))
        except self.unicorn.UcError:
            return None

    def get(self, register: str) -> int:
        return int(self.cpu.reg_read(self.numbers[register]))

    def run(self, function: str, to: int, number: int) -> None:
        """Calls a function with a number, as if from before a return address, until it leaves the program."""
        sp, slot = self.STACK + self.SIZE - 0x4000, 0 if self.arm else self.size
        self.callers = [(to, sp + slot)]
        goroutine = {8: "X28" if self.arm else "R14", 4: "Rdx"}[self.size]
        values = {"X30": to, "Sp": sp, "X0": number, "X1": number} if self.arm else {"Rsp": sp}
        if not self.arm:
            values.update({"Rax": number, "Rbx": number})
            argument = (number).to_bytes(self.size, "little")
            self.cpu.mem_write(sp, to.to_bytes(self.size, "little") + argument * 4)
        for register, value in {**values, goroutine: self.HEAP}.items():
            self.cpu.reg_write(self.numbers[register], value)
        self.cpu.hook_add(self.unicorn.UC_HOOK_CODE, self.visit)
        self.cpu.hook_add(self.unicorn.UC_HOOK_MEM_UNMAPPED, self.lacks)
        with contextlib.suppress(self.unicorn.UcError):
            self.cpu.emu_start(self.program.base + self.program.functions[function][0], to, 0, 4000)

    def lacks(self, _cpu: object, _kind: int, address: int, *_: object) -> bool:
        self.cpu.mem_map(address & ~0xFFF, 0x2000)
        self.cpu.mem_write(address & ~0xFFF, (self.HEAP + 0x100).to_bytes(self.size, "little") * 64)
        return True

    def visit(self, _cpu: object, address: int, size: int, _: object) -> None:
        if self.called is not None:
            self.callers.append(self.called)
            self.called = None
        known = any(
            low <= address - self.program.base < high for low, high in self.program.functions.values()
        )
        if not known or not self.callers:
            self.cpu.emu_stop()
            return
        sp, code = self.get("Sp" if self.arm else "Rsp"), bytes(self.cpu.mem_read(address, size))
        self.compare(address, True)
        if self.arm:
            word = int.from_bytes(code, "little")
            calls, returns = word >> 26 == 0x25 or word & 0xFFFFFC1F == 0xD63F0000, word == 0xD65F03C0
        else:
            calls = code[0] == 0xE8 or (code[0] == 0xFF and code[1] >> 3 & 7 == 2)
            returns = code[0] == 0xC3
        if calls:
            self.compare(address + size, False)
            self.called = address + size, sp
        elif returns:
            self.callers.pop()

    def compare(self, ip: int, interrupted: bool) -> None:
        """Walks one step, from an instruction or from a call behind it."""
        state: Any
        if self.arm:
            known = {register: self.get(register) for register in KEPT if register != "Fp"}
            known["Fp"] = self.get("X29")
            known.update({"Lr": self.get("X30")} if interrupted else {})
            state = RegistersArm64.from_known(ip, self.get("Sp"), known)
        elif self.size == 8:
            everything: Dict[str, int] = {register: self.get(register) for register in GENERAL}
            state = Registers.from_known(ip, everything["Rsp"], everything)
        else:
            state = Registers32(ip, self.get("Rsp"), self.get("Rbp"))
        try:
            step = self.walker.step(state, interrupted)
        except UnwindError as error:
            self.outcomes.append((ip, interrupted, error.code.name))
            return
        right = (step.registers.ip, step.registers.sp) == self.callers[-1]
        outcome = "right" if right and step.doubt is None else f"wrong or unsure: {step.doubt}"
        self.outcomes.append((ip, interrupted, outcome))


@pytest.mark.parametrize("function", ["main.work", "main.square.area"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_step_from_each_instruction_leads_to_the_caller(name: str, function: str) -> None:
    program = GoProgram(name)
    begin, end = program.functions["main.main"]
    behind = range(program.base + begin + 8, program.base + end)
    to = next(at for at in behind if _calls(program, at))
    processor = Processor(name, program)
    processor.run(function, to, 3)
    own = {ip for ip, interrupted, _ in processor.outcomes if interrupted}
    assert len(own) > 12
    assert {outcome for outcome in processor.outcomes if outcome[2] != "right"} == set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_goroutine_has_no_caller(name: str) -> None:
    program = GoProgram(name)
    functions = program.functions
    begin = functions.get("runtime.goexit.abi0", functions.get("runtime.goexit", (0, 0)))[0]
    assert begin
    ip = program.base + begin + (4 if name.startswith("arm64") else 1)
    registers: Any = Registers.from_known(ip, 0x8000)
    if name.startswith("386"):
        registers = Registers32(ip, 0x8000)
    elif name.startswith("arm64"):
        registers = RegistersArm64.from_known(ip, 0x8000)
    step = walker(program, name, lambda *_: bytes(16)).step(registers, False)
    assert (step.registers.ip, step.doubt) == (0, None)
