# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x64 walker at every instruction that compiled and hand-written programs execute."""

from __future__ import annotations

import collections
import pathlib
from typing import DefaultDict, List, Set, Tuple

import pytest

from tests.support.only import only

from . import runtime
from .build import Build, build
from .emulator import STALE, Import, Machine
from .image import Program
from .survey import CHAINED, EPILOG_2, INDIRECT, Survey, table

FREE = ("-ffreestanding",)
C = [
    Build("c-O0", "frames.c", ("-O0", *FREE)),
    Build("c-O0-no-frame-pointer", "frames.c", ("-O0", "-fomit-frame-pointer", *FREE)),
    Build("c-Og", "frames.c", ("-Og", *FREE)),
    Build("c-O1", "frames.c", ("-O1", *FREE)),
    Build("c-O2", "frames.c", ("-O2", *FREE)),
    Build("c-O2-frame-pointer", "frames.c", ("-O2", "-fno-omit-frame-pointer", *FREE)),
    Build("c-O3", "frames.c", ("-O3", *FREE)),
    Build("c-Os", "frames.c", ("-Os", *FREE)),
]
# The run-time library comes with it: throwing runs thousands of instructions of code that we did not write.
CPP = [
    Build("cpp-O0", "throws.cpp", ("-O0", "-static"), ()),
    Build("cpp-O2", "throws.cpp", ("-O2", "-static"), ()),
    Build("cpp-O2-frame-pointer", "throws.cpp", ("-O2", "-fno-omit-frame-pointer", "-static"), ()),
]
ASSEMBLY = [
    Build("directives", "directives.S"),
    Build("handmade", "handmade.S"),
    Build("chained", "chained.S"),
    Build("dispatchers", "dispatchers.S"),
]
DISPATCHERS = {"exception_dispatcher": 0x590, "apc_dispatcher": 0x4D0, "callback_dispatcher": 0x30}
"""What the kernel puts below the machine frame of each, in bytes."""
EVERY_CODE = {
    *("PUSH_NONVOL", "ALLOC_SMALL", "ALLOC_LARGE", "SET_FPREG", "SAVE_NONVOL", "SAVE_NONVOL_FAR"),
    *("SAVE_XMM128", "SAVE_XMM128_FAR", "PUSH_MACHFRAME", EPILOG_2, CHAINED, INDIRECT),
}


def load(expected: Build, folder: pathlib.Path) -> Program:
    """Compiles and loads a program."""
    return Program(build(expected, folder))


def survey(program: Program) -> Survey:
    """Runs a program and walks at each of its instructions."""
    found = Survey(program)
    imports: DefaultDict[str, Import] = collections.defaultdict(lambda: runtime.nothing)
    imports.update(runtime.c_library())
    imports.update(runtime.Exceptions(found.image, found.find_image).imports())
    found.result = Machine(program, found.visit, imports).run(program.entry)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def surveys(folder: pathlib.Path) -> List[Survey]:
    found = [survey(load(program, folder)) for program in (*C, *CPP, *ASSEMBLY)]
    found.append(interrupted(load(ASSEMBLY[0], folder)))
    return found


def interrupted(program: Program) -> Survey:
    """Runs a program that is interrupted once at each of its instructions; walks in the handlers."""
    found = Survey(program)
    handlers = [program.base + program.symbols[name] for name in ("handler", "handler_with_code")]
    deepest = program.base + program.symbols["bare_leaf"]
    # Where its frame register is the interrupted program's again no unwind data can describe the handler.
    beyond = program.base + program.symbols["handler_without_frame"]
    done: Set[int] = set()

    def visit(machine: Machine, address: int) -> None:
        if beyond <= address < beyond + 9:
            return
        if any(caller.interrupted for caller in machine.callers):
            if address == deepest:
                found.walk(machine, address)
            else:
                found.visit(machine, address)
        elif address not in done:
            done.add(address)
            machine.interrupt(address, handlers[len(done) % 2], bool(len(done) % 2))

    found.result = Machine(program, visit).run(program.entry)
    assert len(done) > 450
    return found


def dispatched(program: Program, cs: int) -> Survey:
    """Runs a program that the kernel sends through a dispatcher at each of its instructions, thrice deep.

    Callbacks, exceptions and APCs take turns, so that each comes within each; walks at every instruction of
    the innermost one, and at the deepest of the others.
    """
    found = Survey(program)
    places = [(program.base + program.symbols[name], below) for name, below in DISPATCHERS.items()]
    deepest = program.base + program.symbols["deepest"]
    done: Set[Tuple[int, int]] = set()

    def visit(machine: Machine, address: int) -> None:
        depth = sum(caller.interrupted for caller in machine.callers)
        if depth < 3 and (address, depth) not in done:
            done.add((address, depth))
            machine.dispatch(address, *places[(len(done) + depth) % 3], cs)
        elif depth == 3 or address == deepest:
            found.walk(machine, address)

    found.result = Machine(program, visit).run(program.entry)
    assert len(done) > 130
    return found


@pytest.mark.parametrize("cs", [0, 0x33, STALE])
def test_user_stacks_go_on_below_the_dispatchers(cs: int, folder: pathlib.Path) -> None:
    """On a user stack the slot of SegCs holds what lay there."""
    found = dispatched(load(ASSEMBLY[-1], folder), cs)
    assert found.frames > 600


def test_code_that_contradicts_its_description_is_believed_and_said_to(surveys: List[Survey]) -> None:
    pieces = only(found for found in surveys if "cut_before_return" in found.program.symbols)
    symbols = sorted((rva, name) for name, rva in pieces.program.symbols.items())
    inside = collections.Counter(
        [name for rva, name in symbols if pieces.image.base + rva <= address][-1]
        for address in pieces.differing
    )
    # Where an epilogue is described too early or at a call, where none is, and behind the cut of one.
    assert inside == {"pp_starts": 3, "pl_starts": 1, "pe_starts": 3, "ks_2": 2, "c2_3": 1, "c2_middle": 2}
    assert not any(found.differing for found in surveys if found is not pieces)


def test_every_frame_is_right_at_more_than_10000_points(surveys: List[Survey]) -> None:
    """The comparison itself is in the survey: here is that it was made, and how often."""
    print("\n" + table(surveys))
    distinct = set().union(*(found.distinct for found in surveys))
    print(f"{len(distinct)} of them distinct; {sum(found.frames for found in surveys)} frames")
    uncovered = sum(len(found.uncovered) for found in surveys)
    print(f"{uncovered} not covered, {sum(len(found.guessed) for found in surveys)} of them unsure")
    assert len(distinct) > 10_000
    assert sum(found.frames for found in surveys) > 30_000


def test_every_unwind_code_is_met_in_every_position(surveys: List[Survey]) -> None:
    counted = sum((found.codes for found in surveys), collections.Counter())
    for name in EVERY_CODE:
        assert counted[name, "body"], name
    # A machine frame is there before the function's first instruction; who pops it does so by IRETQ. An
    # indirect entry's piece has no prologue of its own.
    for name in EVERY_CODE - {"PUSH_MACHFRAME", INDIRECT}:
        assert counted[name, "prologue"], name
        assert counted[name, "epilogue"], name


def test_programs_compute_the_same_however_they_are_built(surveys: List[Survey]) -> None:
    """For the C++ ones that takes landing pads that were entered with the right registers."""
    assert len({found.result for found in surveys[: len(C)]}) == 1
    assert len({found.result for found in surveys[len(C) : len(C) + len(CPP)]}) == 1


def test_code_that_breaks_the_rules_is_walked_from_by_a_guess_that_says_so(surveys: List[Survey]) -> None:
    """The stack probe of GCC's library pushes and has no unwind data."""
    probes = [found for found in surveys if "___chkstk_ms" in found.program.symbols]
    assert probes
    for found in probes:
        start = found.image.base + found.program.symbols["___chkstk_ms"]
        guessed = {address - start for address in found.guessed}
        assert guessed
        assert all(0 < offset < 0x40 for offset in guessed)


def test_leaves_without_unwind_data_are_walked_from(surveys: List[Survey]) -> None:
    assert all(found.positions["leaf"] for found in surveys)
