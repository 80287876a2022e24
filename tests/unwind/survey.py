# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Walks at every instruction that a program executes for the first time, and counts what came out.

A point is a function and a position in it. Every frame of every walk is compared with the shadow stack: the
address, the stack pointer and all non-volatile registers, vector registers included.
"""

from __future__ import annotations

import collections
from typing import Counter, Iterable, List, Optional, Sequence, Set, Tuple

from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.decode.unwindinfo import OPERATIONS
from winstacks.stacks.decode.frames import CodeImage, Frame
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.decode.step_x64 import LEAF, Unwinder
from winstacks.stacks.decode.walk_x64 import Walker64

from .emulator import (
    IMPORT_FRAME,
    IMPORT_SIZE,
    IMPORTS,
    KEPT,
    KEPT_XMM,
    STACK_SIZE,
    STACK_TOP,
    Caller,
    Machine,
)
from .image import Program, frames_of

STACK = (STACK_TOP - STACK_SIZE, STACK_TOP)
EPILOG_2 = "EPILOG (version 2)"
CHAINED = "chained"
INDIRECT = "indirect"


class Survey:
    """What walks at the points of one program found.

    `points` are the instructions walked from that the function table covers (`distinct` whatever the
    program), `positions` counts them by place in their function, `codes` by (unwind code of the function,
    place). `uncovered` are the other instructions, of which `guessed` were walked from with a guess that was
    said to be one. `differing` are those where code was believed against unwind data. `sure` counts the
    callers of `guess` that were sure. `result` is what it returned.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.image = program.image()
        self._imports = frames_of(IMPORT_SIZE, IMPORT_FRAME, IMPORTS, len(program.imports))
        assert self.image.table is not None
        self._table = self.image.table
        self.points: Set[int] = set()
        self.distinct: Set[Tuple[object, ...]] = set()
        self.uncovered: Set[int] = set()
        self.guessed: Set[int] = set()
        self.differing: Set[int] = set()
        self.positions: Counter[str] = collections.Counter()
        self.codes: Counter[Tuple[str, str]] = collections.Counter()
        self.frames = 0
        self.sure = 0
        self.result = 0

    def visit(self, machine: Machine, address: int) -> None:
        """Walks, unless this instruction has been met before."""
        if address not in self.points and address not in self.uncovered:
            self.walk(machine, address)

    def walk(self, machine: Machine, address: int) -> None:
        """Walks from an instruction, compares every frame and counts the point."""
        start = Registers(address, machine.registers(), (*[None] * 6, *machine.xmm()))
        walk = Walker64(self.find_image, machine.read).walk(start, True, [STACK])
        truth = machine.callers[:0:-1]
        if self._table.find_entry(address - self.image.base) is None:
            self._check_uncovered(address, walk.frames, truth)
            self.uncovered.add(address)
            return
        if address not in self.points:
            self.points.add(address)
            self.distinct.add(self._identity(address))
            self._count(
                address, Unwinder(self._table, self.image.base, machine.read).step(start, True).position
            )
        self.frames += len(truth)
        assert not walk.end
        if walk.gaps == (StatusCode.CODE_AND_UNWIND_DATA_DIFFER,):
            self.differing.add(address)
        else:
            assert not walk.gaps
        assert all(frame.sure for frame in walk.frames)
        assert len(walk.frames) == len(truth) + 1
        for frame, caller in zip(walk.frames[1:], truth):
            assert_same(frame, caller)

    def guess(self, machine: Machine, address: int) -> None:
        """Walks from an instruction whose stack nothing describes: no frame may be wrong and sure."""
        start = Registers(address, machine.registers(), (*[None] * 6, *machine.xmm()))
        walk = Walker64(self.find_image, machine.read).walk(start, True, [STACK])
        self.points.add(address)
        self._check_uncovered(address, walk.frames, machine.callers[:0:-1])
        self.frames += len(walk.frames) - 1
        self.sure += sum(frame.sure for frame in walk.frames[1:])

    def find_image(self, address: int) -> Optional[CodeImage]:
        """Finds the program, or the module of its imports."""
        found = (image for image in (self.image, self._imports) if 0 <= address - image.base < image.size)
        return next(found, None)

    def _identity(self, address: int) -> Tuple[object, ...]:
        """Returns what tells a point from another, in whatever program either is.

        Libraries are linked into several programs: the same function is the same wherever it lies. Functions
        that only look the same (in size, unwind data and the instruction's first bytes) count once, too.
        """
        rva = address - self.image.base
        entry = self._table.find_entry(rva)
        assert entry is not None
        head = self.image.read_rva(self._table.direct(entry).unwind, 4)
        return (entry.end - entry.begin, head, rva - entry.begin, self.image.read_rva(rva, 2))

    def _check_uncovered(self, address: int, frames: Sequence[Frame], truth: List[Caller]) -> None:
        """Where no unwind data covers the code a walk may be wrong, but never without saying so."""
        sure = [frame for frame in frames[1:] if frame.sure]
        for frame, caller in zip(sure, truth):
            assert_same(frame, caller)
        if len(sure) < len(truth):
            self.guessed.add(address)
        elif address not in self.uncovered:
            self.positions[LEAF] += 1

    def _count(self, address: int, position: str) -> None:
        """Counts a point under every unwind code of its function."""
        self.positions[position] += 1
        entry = self._table.find_entry(address - self.image.base)
        names: Set[str] = set()
        while entry is not None:
            if entry.unwind & 1:
                names.add(INDIRECT)
            info = self._table.unwind_info(self._table.direct(entry))
            names |= {OPERATIONS[code.operation] for code in info.codes}
            if info.epilogs:
                names.add(EPILOG_2)
            if info.chained:
                names.add(CHAINED)
            entry = info.chained
        for name in names or {"no codes"}:
            self.codes[name, position] += 1


def assert_same(frame: Frame, caller: Caller) -> None:
    """Asserts that a frame of a walk is what the shadow stack has."""
    assert isinstance(frame.registers, Registers)
    assert (frame.address, frame.sp, frame.returns) == (caller.ip, caller.sp, not caller.interrupted)
    assert tuple(frame.registers.general[number] for number in KEPT) == caller.general
    assert tuple(frame.registers.xmm[number] for number in KEPT_XMM) == caller.xmm


def table(surveys: Iterable[Survey]) -> str:
    """Returns the table of points by unwind code and position."""
    codes: Counter[Tuple[str, str]] = collections.Counter()
    positions: Counter[str] = collections.Counter()
    for survey in surveys:
        codes.update(survey.codes)
        positions.update(survey.positions)
    columns = ["prologue", "body", "epilogue", "leaf"]
    lines = ["unwind code of the function | " + " | ".join(columns)]
    for name in sorted({name for name, _ in codes}):
        lines.append(f"{name} | " + " | ".join(str(codes[name, column]) for column in columns))
    lines.append("all points | " + " | ".join(str(positions[column]) for column in columns))
    return "\n".join(lines)
