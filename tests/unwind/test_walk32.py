# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x86 walker at every instruction that compiled and hand-written programs execute.

There is no unwind data: what is asked is that a walk that says nothing is right, and that few say something.
"""

from __future__ import annotations

import collections
import itertools
import pathlib
from typing import Counter, List, Optional, Set

import pytest
from volatility3.plugins.windows.stacktraces.stacks.decode.frames import CodeImage, StackWalk
from volatility3.plugins.windows.stacktraces.stacks.decode.functions_x86 import Functions
from volatility3.plugins.windows.stacktraces.stacks.decode.registers import Registers32
from volatility3.plugins.windows.stacktraces.stacks.decode.walk_x86 import Walker32

from tests.support import traplayouts

from .build import Build, build
from .emulator import x86
from .emulator32 import STACK_SIZE, STACK_TOP, Machine32
from .image import Program

TYPES = traplayouts.ours("x86")
STACK = (STACK_TOP - STACK_SIZE, STACK_TOP)
OPTIONS = ("-ffreestanding", "-fno-omit-frame-pointer")
BUILDS = [
    Build("c-O0", "frames.c", ("-O0", *OPTIONS), arch="x86"),
    Build("c-O1", "frames.c", ("-O1", *OPTIONS), arch="x86"),
    Build("c-O2", "frames.c", ("-O2", *OPTIONS), arch="x86"),
    Build("c-Os", "frames.c", ("-Os", *OPTIONS), arch="x86"),
    Build("stubs", "stubs32.S", arch="x86"),
]
FORMS = Build("forms", "forms32.S", arch="x86")
RIGHT, RIGHT_UNSURE, WRONG_UNSURE = "right", "right, but unsure", "wrong, and unsure"


class Survey32:
    """What walks at the points of one program found; a wrong one that says it is sure fails."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.image = program.image()
        self.points: Set[int] = set()
        self.verdicts: Counter[str] = collections.Counter()
        self.unsure: List[int] = []
        self._functions: Optional[Functions] = None

    def find_image(self, address: int) -> Optional[CodeImage]:
        return self.image if 0 <= address - self.image.base < self.image.size else None

    def walk(self, machine: Machine32, address: int) -> StackWalk:
        sp, bp = (machine.cpu.reg_read(each) for each in (x86.UC_X86_REG_ESP, x86.UC_X86_REG_EBP))
        if self._functions is None:
            self._functions = Functions(machine.read)
        walker = Walker32(self.find_image, machine.read, TYPES, functions=self._functions)
        return walker.walk(Registers32(address, sp, bp), True, [STACK])

    def visit(self, machine: Machine32, address: int) -> None:
        if address in self.points:
            return
        self.points.add(address)
        walk = self.walk(machine, address)
        truth = machine.callers[:0:-1]
        found = [frame.address for frame in walk.frames[1:]]
        sure = list(itertools.takewhile(lambda frame: frame.sure, walk.frames[1:]))
        assert [frame.address for frame in sure] == truth[: len(sure)]
        if not walk.gaps and not walk.end:
            assert found == truth
            self.verdicts[RIGHT] += 1
        else:
            self.verdicts[RIGHT_UNSURE if found == truth else WRONG_UNSURE] += 1
            self.unsure.append(address)


@pytest.fixture(scope="module")
def surveys(tmp_path_factory: pytest.TempPathFactory) -> List[Survey32]:
    folder = tmp_path_factory.mktemp("programs")
    found = []
    for wanted in BUILDS:
        program = Program(build(wanted, folder))
        survey = Survey32(program)
        Machine32(program, survey.visit).run(program.entry)
        found.append(survey)
    return found


def test_what_is_called_sure_is_right_and_that_is_nearly_everything(surveys: List[Survey32]) -> None:
    total = sum((survey.verdicts for survey in surveys), collections.Counter())
    print("\n" + "\n".join(f"{verdict} | {total[verdict]}" for verdict in total))
    assert total[RIGHT] > 8_400
    assert total[RIGHT] > 0.975 * sum(total.values())


def test_what_hides_callers_is_never_wrong_and_sure(tmp_path: pathlib.Path) -> None:
    program = Program(build(FORMS, tmp_path))
    survey = Survey32(program)
    Machine32(program, survey.visit).run(program.entry)
    print("\n" + "\n".join(f"{verdict} | {count}" for verdict, count in survey.verdicts.items()))
    assert survey.verdicts[RIGHT] > 0.7 * sum(survey.verdicts.values()) > 100


def test_stubs_of_system_calls_are_walked_from_exactly(surveys: List[Survey32]) -> None:
    """Their callers are not on the chain of frame pointers, and yet they are found."""
    stubs = surveys[-1]
    symbols = sorted((stubs.image.base + rva, name) for name, rva in stubs.program.symbols.items())
    doubtful = collections.Counter(
        [name for start, name in symbols if start <= address][-1] for address in stubs.unsure
    )
    assert len(stubs.points) - doubtful.pop("_start") > 50
    # Before its first jump or return nothing tells what called through a register.
    assert doubtful == {"transition": 1}
