# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs the prologues and epilogues of ARM64 functions, and walks from each of their instructions.

The truth is the processor's: the registers that the caller had. The unwind data only says where prologue and
epilogues lie. `python -m tests.unwind.armcode FILE...` counts the outcomes for any ARM64 file.
"""

from __future__ import annotations

import collections
import pathlib
import random
import struct
import sys
from typing import Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from tests.support.armtruth import reader
from winstacks.memory.decode.structure import Structures
from winstacks.names.decode.functiontable_arm64 import FunctionTableArm64
from winstacks.names.decode.unwind_arm64 import (
    ALLOC,
    D0,
    END,
    FLAG_MASK,
    INSTRUCTION,
    ISLAND,
    SAVE,
    SET_FP,
    VECTORS,
    EpilogScope,
    UnwindCode,
    UnwindRecord,
)
from winstacks.names.decode.unwindinfo import RuntimeFunction, UnwindDataError
from winstacks.stacks.decode.frames import CodeImage
from winstacks.stacks.decode.registers_arm64 import KEPT, PLACES, RegistersArm64
from winstacks.stacks.decode.walk_arm64 import WalkerArm64

unicorn = pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")
arm64 = pytest.importorskip("unicorn.arm64_const")

BASE, CALLER, RETURN = 0x7FF600000000, 0x7FF500000000, 0x7FF500001004
"""Where the file and its caller lie, and the return address."""
STACK, STACK_SIZE, SP = 0xC500000000, 0x400000, 0xC500300000
HEAP, HEAP_SIZE = 0xC600000000, 0x10000
_BL = 0x94000000

_X = [getattr(arm64, f"UC_ARM64_REG_X{number}") for number in range(31)]
_D = [getattr(arm64, f"UC_ARM64_REG_D{number}") for number in range(32)]
_SP = arm64.UC_ARM64_REG_SP

RIGHT, UNSURE, WRONG, WRONG_SURE = "right", "right, unsure", "wrong, unsure", "wrong and sure"


class Outcome(NamedTuple):
    """A walk from one instruction.

    Attributes:
        rva: the instruction
        part: `prologue` or `epilogue`
        result: RIGHT, UNSURE, WRONG or WRONG_SURE
    """

    rva: int
    part: str
    result: str


class MappedFile:
    """A file, mapped as a loader maps it, without its relocations.

    Args:
        data: the file

    Attributes:
        memory: the image
        image: the module for walks
        table: its function table
    """

    def __init__(self, data: bytes) -> None:
        header = int.from_bytes(data[0x3C:0x40], "little")
        machine, sections = struct.unpack_from("<HH", data, header + 4)
        assert machine == 0xAA64, f"machine {machine:#x}"
        optional = header + 24
        size, headers = struct.unpack_from("<II", data, optional + 56)
        self.memory = bytearray(size + 0xFFF & ~0xFFF)
        self.memory[:headers] = data[:headers]
        code: List[Tuple[int, int]] = []
        at = optional + int.from_bytes(data[header + 20 : header + 22], "little")
        for place in range(at, at + 40 * sections, 40):
            virtual, rva, raw, offset = struct.unpack_from("<IIII", data, place + 8)
            length = min(raw, virtual or raw)
            self.memory[rva : rva + length] = data[offset : offset + length]
            if data[place + 39] & 0x20:
                code.append((rva, rva + virtual))
        start, length = struct.unpack_from("<II", data, optional + 112 + 24)
        read = reader(self.memory)
        self.table = FunctionTableArm64.from_bytes(bytes(self.memory[start : start + length]), read)
        self.image = CodeImage(BASE, len(self.memory), read, self.table, tuple(code), True)

    def word(self, rva: int) -> int:
        """Returns an instruction."""
        return int.from_bytes(self.memory[rva : rva + INSTRUCTION], "little")

    def functions(self) -> Iterator[Tuple[RuntimeFunction, Optional[UnwindRecord]]]:
        """Yields each entry that is no island, with its record; None: the record cannot be decoded."""
        for number in range(len(self.table)):
            entry = self.table.entry(number)
            if entry.unwind & FLAG_MASK != ISLAND:
                try:
                    yield entry, self.table.record(entry)
                except UnwindDataError:
                    yield entry, None


class Runner:
    """Runs parts of functions.

    Args:
        file: the file
        seed: draws the caller's registers
    """

    def __init__(self, file: MappedFile, seed: int) -> None:
        self.file = file
        self._random = random.Random(seed)
        self.cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.cpu.mem_map(BASE, len(file.memory))
        self.cpu.mem_write(BASE, bytes(file.memory))
        self.cpu.mem_map(STACK, STACK_SIZE)
        self.cpu.mem_map(HEAP, HEAP_SIZE)
        # Floating-point registers are usable.
        self.cpu.reg_write(arm64.UC_ARM64_REG_CPACR_EL1, 3 << 20)
        code = struct.pack("<2I", _BL, 0xD503201F) * 0x400
        self._caller = CodeImage(
            CALLER, len(code), reader(code), FunctionTableArm64.from_bytes(b"", reader(code)), None, True
        )
        self._walker = WalkerArm64(
            lambda address: next(
                (
                    image
                    for image in (file.image, self._caller)
                    if image.base <= address < image.base + image.size
                ),
                None,
            ),
            self._read,
            Structures(lambda name: None),
        )
        self._walker.most_frames = 2

    def _read(self, address: int, length: int) -> Optional[bytes]:
        if STACK <= address <= STACK + STACK_SIZE - length:
            return bytes(self.cpu.mem_read(address, length))
        if BASE <= address <= BASE + len(self.file.memory) - length:
            return bytes(self.file.memory[address - BASE : address - BASE + length])
        return None

    def outcomes(self, entry: RuntimeFunction, record: UnwindRecord) -> Iterator[Outcome]:
        """Yields the outcome at each instruction of a function's prologue and epilogues that can be run.

        A function without saved registers has none, and so has a part of a function. An epilogue with fewer
        codes than the prologue ends a region of the function.
        """
        codes = record.codes[: record.prolog]
        if not record.whole or not codes or record.codes[record.prolog].operation != END:
            return
        if any(code.operation == VECTORS for code in codes):
            return
        caller = self._called()
        yield from self._run(entry.begin, list(reversed(codes)), "prologue", caller)
        if self.cpu.reg_read(arm64.UC_ARM64_REG_PC) != BASE + entry.begin + INSTRUCTION * len(codes):
            return
        state = self.cpu.context_save()
        for scope in record.epilogs:
            undone = record.codes[scope.code : scope.code + scope.length]
            if not _is_whole(record, scope):
                continue
            self.cpu.context_restore(state)
            start = entry.begin + INSTRUCTION * scope.start
            if undone and undone[0].operation == SET_FP:
                self._allocate(self.file.word(start))
            yield from self._run(start, undone, "epilogue", caller)

    def sweep(self, entry: RuntimeFunction, most: int) -> Iterator[Outcome]:
        """Yields the outcome at the first instructions of a function, up to a call, a jump or a return.

        Conditional branches are not taken. Memory that the code would read elsewhere holds zeros.
        """
        caller = self._called()
        for at in range(entry.begin, min(entry.end, entry.begin + INSTRUCTION * most), INSTRUCTION):
            yield Outcome(at, "start", self._outcome(at, caller))
            word = self.file.word(at)
            if not _leaves(word):
                try:
                    self.cpu.emu_start(BASE + at, 0, count=1)
                except unicorn.UcError:
                    return
            elif not _is_conditional(word):
                return

    def _allocate(self, word: int) -> None:
        """Lowers the stack pointer as the body did, if an epilogue begins with add sp,sp,#n for it."""
        if word & 0xFF8003FF == 0x910003FF:
            size = (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0)
            self.cpu.reg_write(_SP, self.cpu.reg_read(_SP) - size)

    def _called(self) -> RegistersArm64:
        """Sets the registers of a call, and returns the caller's."""
        known: Dict[str, int] = {}
        for number in range(31):
            self.cpu.reg_write(_X[number], HEAP + 8 * self._random.randrange(0x100, 0x200))
        for name, number in zip(KEPT[:-1], range(19, 29)):
            known[name] = self._random.getrandbits(64)
            self.cpu.reg_write(_X[number], known[name])
        known["Fp"] = SP + 0x1000
        self.cpu.reg_write(_X[29], known["Fp"])
        self.cpu.reg_write(_X[30], RETURN)
        for number in range(8, 16):
            known[f"D{number}"] = self._random.getrandbits(64)
            self.cpu.reg_write(_D[number], known[f"D{number}"])
        self.cpu.reg_write(_SP, SP)
        return RegistersArm64.from_known(RETURN, SP, known)

    def _run(
        self, rva: int, codes: Sequence[UnwindCode], part: str, caller: RegistersArm64
    ) -> Iterator[Outcome]:
        """Yields the outcome at an instruction, and runs it, for each code; and behind the last one."""
        self.cpu.reg_write(arm64.UC_ARM64_REG_PC, BASE + rva)
        for number in range(len(codes) + 1):
            at = rva + INSTRUCTION * number
            yield Outcome(at, part, self._outcome(at, caller))
            if number == len(codes):
                return
            if _leaves(self.file.word(at)):
                # A call of the prologue: only __chkstk, which keeps all that counts, is passed over.
                if codes[number].operation == ALLOC:
                    return
                self.cpu.reg_write(arm64.UC_ARM64_REG_PC, BASE + at + INSTRUCTION)
                continue
            try:
                self.cpu.emu_start(BASE + at, 0, count=1)
            except unicorn.UcError:
                return

    def _outcome(self, rva: int, caller: RegistersArm64) -> str:
        values: List[Optional[int]] = [None] * len(PLACES)
        for number, place in PLACES.items():
            if number < 31:
                values[place] = self.cpu.reg_read(_X[number])
            else:
                values[place] = self.cpu.reg_read(_SP if number < D0 else _D[number - D0])
        walk = self._walker.walk(
            RegistersArm64(BASE + rva, tuple(values)), True, [(STACK, STACK + STACK_SIZE)]
        )
        found = walk.frames[1:2]
        if [frame.registers for frame in found] == [caller]:
            return RIGHT if found[0].sure else UNSURE
        return WRONG_SURE if any(frame.sure for frame in found) else WRONG


def _is_whole(record: UnwindRecord, scope: EpilogScope) -> bool:
    """Returns whether an epilogue undoes all that the prologue did."""
    undone = record.codes[scope.code : scope.code + scope.length]
    behind = record.codes[scope.code + scope.length]
    return behind.operation == END and _done(undone) == _done(record.codes[: record.prolog])


def _done(codes: Sequence[UnwindCode]) -> Tuple[int, List[int]]:
    """Returns the bytes that codes release, and the registers that they restore."""
    released = sum(code.size for code in codes if code.operation in (ALLOC, SAVE))
    return released, sorted(register for code in codes for register in code.registers)


def _leaves(word: int) -> bool:
    """Returns whether an instruction is a branch."""
    return word & 0x7C000000 == 0x14000000 or word & 0xFE000000 == 0xD6000000 or _is_conditional(word)


def _is_conditional(word: int) -> bool:
    """Returns whether an instruction is b.cond, cbz, cbnz, tbz or tbnz."""
    return word & 0xFE000000 == 0x54000000 or word & 0x7C000000 == 0x34000000


def survey(file: MappedFile, functions: int, seed: int) -> Tuple[Counter[str], List[Outcome]]:
    """Returns how often each outcome was met in some functions of a file, and the outcomes of wrong walks."""
    chosen = list(file.functions())
    counts: Counter[str] = collections.Counter(
        {"records": len(chosen), "undecoded": sum(record is None for _, record in chosen)}
    )
    wrong: List[Outcome] = []
    draws = random.Random(seed)
    runner = Runner(file, seed)
    for entry, record in draws.sample(chosen, min(functions, len(chosen))):
        outcomes = [] if record is None else list(runner.outcomes(entry, record))
        counts["functions"] += bool(outcomes)
        for outcome in outcomes:
            counts[f"{outcome.part}: {outcome.result}"] += 1
            if outcome.result in (WRONG, WRONG_SURE):
                wrong.append(outcome)
    return counts, wrong


if __name__ == "__main__":
    for name in sys.argv[1:]:
        surveyed, mistakes = survey(MappedFile(pathlib.Path(name).read_bytes()), 3000, 1)
        print(pathlib.Path(name).name, dict(surveyed))
        for mistake in mistakes[:20]:
            print(f"    {mistake.rva:#x} {mistake.part} {mistake.result}")
