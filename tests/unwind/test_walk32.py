# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x86 walker at every instruction that compiled and hand-written programs execute.

There is no unwind data: what is asked is that a walk that says nothing is right, and that few say something.
"""

from __future__ import annotations

import collections
import itertools
import pathlib
import struct
from typing import Callable, Counter, Dict, List, Optional, Set, Tuple

import pytest

from tests.support import traplayouts
from tests.support.callstackimages86 import RECORD_SIZE, context32
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacks.decode import dispatchers_x86
from winstacks.stacks.decode.frames import CodeImage, StackWalk
from winstacks.stacks.decode.functions_x86 import Functions
from winstacks.stacks.decode.registers import Registers32
from winstacks.stacks.decode.walk_x86 import Walker32

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
DISPATCHERS = Build("dispatchers", "dispatchers32.S", arch="x86")
FORMS = Build("forms", "forms32.S", arch="x86")
MOVED = Build("moved", "moved32.S", arch="x86")
INDIRECT = Build("indirect", "indirect32.S", arch="x86")
FRAMES = Build("frames", "frames32.S", arch="x86")
HELPERS = Build("helpers", "helpers32.S", arch="x86")
DELPHI = Build("delphi", "delphi32.S", arch="x86")
BARE = Build("bare", "bare32.S", arch="x86")
RIGHT, RIGHT_UNSURE, WRONG_UNSURE = "right", "right, but unsure", "wrong, and unsure"


_NAMES = {
    "exception_dispatcher": dispatchers_x86.EXCEPTION,
    "apc_dispatcher": dispatchers_x86.APC,
    "callback_dispatcher": dispatchers_x86.CALLBACK,
}


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

    def find_dispatcher(self, address: int) -> Optional[Tuple[int, str]]:
        """Finds the program's own dispatchers, whose symbols lie in the order of `_NAMES`."""
        starts = [self.image.base + self.program.symbols.get(name, 0) for name in (*_NAMES, "goes_back")]
        found = zip(starts, starts[1:], _NAMES.values())
        return next(((low, name) for low, high, name in found if low <= address < high), None)

    def walk(self, machine: Machine32, address: int) -> StackWalk:
        sp, bp = (machine.cpu.reg_read(register) for register in (x86.UC_X86_REG_ESP, x86.UC_X86_REG_EBP))
        if self._functions is None:
            self._functions = Functions(machine.read)
        walker = Walker32(
            self.find_image,
            machine.read,
            TYPES,
            functions=self._functions,
            find_dispatcher=self.find_dispatcher,
        )
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
    for expected in BUILDS:
        program = Program(build(expected, folder))
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


def doubtful_functions(survey: Survey32) -> Set[str]:
    """The functions with points from which a walk is doubtful."""
    symbols = sorted(
        (survey.image.base + rva, name)
        for name, rva in survey.program.symbols.items()
        if not name.startswith((".", "back_"))
    )
    return {[name for start, name in symbols if start <= address][-1] for address in survey.unsure}


def test_parts_that_were_moved_away_are_in_their_functions(tmp_path: pathlib.Path) -> None:
    """Only what is called through registers, or sets up its caller's frame, is doubtful."""
    program = Program(build(MOVED, tmp_path))
    survey = Survey32(program)
    Machine32(program, survey.visit).run(program.entry)
    print("\n" + "\n".join(f"{verdict} | {count}" for verdict, count in survey.verdicts.items()))
    assert "neighbour" in doubtful_functions(survey)
    assert doubtful_functions(survey) <= {
        *("_start", "prolog", "epilog", "leaf", "framed", "frameless", "between", "neighbour"),
        *("without_frame", "another_leaf"),
    }


def test_functions_that_are_called_through_registers_are_found_by_their_code(tmp_path: pathlib.Path) -> None:
    program = Program(build(INDIRECT, tmp_path))
    survey = Survey32(program)
    Machine32(program, survey.visit).run(program.entry)
    print("\n" + "\n".join(f"{verdict} | {count}" for verdict, count in survey.verdicts.items()))
    assert doubtful_functions(survey) == {
        *("_start", "sets_up_late", "prolog", "epilog"),
    }


def test_frames_of_other_shapes_are_walked_from(tmp_path: pathlib.Path) -> None:
    """Doubtful is only where Esp is aligned and no frame pointer set up, or gone again."""
    program = Program(build(FRAMES, tmp_path))
    survey = Survey32(program)
    Machine32(program, survey.visit).run(program.entry)
    print("\n" + "\n".join(f"{verdict} | {count}" for verdict, count in survey.verdicts.items()))
    assert doubtful_functions(survey) == {
        *("_start", "aligned_by_ebx", "aligned_by_ebx_2", "aligned_by_ecx"),
    }
    assert len(survey.unsure) < 0.12 * len(survey.points)


def test_helpers_of_the_runtime_and_unknown_calls_are_walked_from(tmp_path: pathlib.Path) -> None:
    """Doubtful are the helpers themselves, what lies between two unknown calls, and where Ebp is cleared."""
    program = Program(build(HELPERS, tmp_path))
    survey = Survey32(program)
    Machine32(program, survey.visit).run(program.entry)
    print("\n" + "\n".join(f"{verdict} | {count}" for verdict, count in survey.verdicts.items()))
    assert doubtful_functions(survey) == {
        *("_start", "eh_prolog", "eh_prolog_3", "eh_epilog_3", "calls_two_unknown", "clears_ebp"),
        *("uses_ebp", "below_uses_ebp"),
    }
    assert survey.verdicts[RIGHT] > 0.75 * sum(survey.verdicts.values())


def test_functions_without_frame_pointers_are_walked_from(tmp_path: pathlib.Path) -> None:
    """Ebp is a register like any other there. Doubtful is where the stack probe exchanges Esp."""
    program = Program(build(BARE, tmp_path))
    survey = Survey32(program)
    Machine32(program, survey.visit).run(program.entry)
    print("\n" + "\n".join(f"{verdict} | {count}" for verdict, count in survey.verdicts.items()))
    assert doubtful_functions(survey) == {"_start", "_chkstk", "___chkstk"}
    assert len(survey.unsure) < 0.06 * len(survey.points)


def test_neighbours_and_constructors_of_delphi_are_walked_from(tmp_path: pathlib.Path) -> None:
    """Each caller is found. Only a constructor's is doubtful, where two depths of its stack are possible."""
    program = Program(build(DELPHI, tmp_path))
    survey = Survey32(program)
    Machine32(program, survey.visit).run(program.entry)
    print("\n" + "\n".join(f"{verdict} | {count}" for verdict, count in survey.verdicts.items()))
    assert doubtful_functions(survey) == {"_start", "constructor"}
    assert not survey.verdicts[WRONG_UNSURE]


def left_by_kernel(program: Program, machine: Machine32, ip: int) -> Dict[str, Callable[[int], bytes]]:
    """What the kernel puts below Esp for each dispatcher that it lets a thread go on in at an instruction."""
    bp = machine.cpu.reg_read(x86.UC_X86_REG_EBP)
    (routine,) = struct.unpack_from("<I", program.memory, program.symbols["apc_routine"])

    def exception(sp: int) -> bytes:
        written = context32(ip, sp, bp)
        at = sp - len(written) - RECORD_SIZE
        record = struct.pack("<20I", 0xC0000005, 0, 0, ip, 0, *[0] * 15)
        return struct.pack("<2I", at, at + RECORD_SIZE) + record + written

    return {
        "exception_dispatcher": exception,
        "apc_dispatcher": lambda sp: struct.pack("<4I", routine, 1, 2, 3) + context32(ip, sp, bp),
        "callback_dispatcher": lambda sp: struct.pack("<8I", 0, 0, sp - 0x10, 0x10, 1, 2, 3, 4),
    }


def test_below_the_dispatchers_nothing_is_wrong_and_sure(tmp_path: pathlib.Path) -> None:
    """Exceptions, APCs and callbacks at each instruction, thrice deep, so that each comes within each."""
    program = Program(build(DISPATCHERS, tmp_path))
    survey = Survey32(program)
    symbols = {name: program.base + rva for name, rva in program.symbols.items()}
    done: Set[Tuple[int, int]] = set()
    through: List[str] = []
    doubtful: Counter[Tuple[bool, bool]] = collections.Counter()

    def visit(machine: Machine32, address: int) -> None:
        if address == symbols["goes_back"]:
            through.pop()
            machine.go_back()
            return
        depth = len(through)
        # What the routine of an APC has popped the dispatcher's code does not tell.
        if depth < 3 and (address, depth) not in done and address != symbols["behind_apc"]:
            done.add((address, depth))
            through.append(list(_NAMES)[(len(done) + depth) % 3])
            left = left_by_kernel(program, machine, address)[through[-1]]
            machine.dispatch(address, symbols[through[-1]], left)
        elif address == symbols["deepest"]:
            survey.points.discard(address)
            survey.visit(machine, address)
            is_doubtful = StatusCode.DISPATCHER in survey.walk(machine, address).gaps
            doubtful[is_doubtful, "callback_dispatcher" in through] += 1

    Machine32(program, visit).run(program.entry)
    assert len(done) > 100
    # Without the kernel nothing proves what a callback interrupted; the others prove it themselves.
    assert set(doubtful) == {(False, False), (True, True)}
    assert min(doubtful.values()) > 20
