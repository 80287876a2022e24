# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64 code with the unwind data of V8's builtins: one pair of codes, whatever the code does. All forged."""

from __future__ import annotations

from typing import Tuple

import pytest

from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacks.decode.frames import StackWalk
from winstacks.stacks.decode.registers_arm64 import RegistersArm64

from .test_walk_arm64 import BASE, CHAINED, LOAD, MOVE, NOP, RET, SP, Program, shown

PAIR = bytes((0xE1, 0x81, 0xE4))
"""mov fp, sp; stp fp, lr, [sp, #-16]!; end."""
STORE = 0xA9BF7BFD
ROOM, LOWER_STORE, LOWER_MOVE = 0xA9BE43FF, 0xA9017BFD, 0x910043FD
"""stp xzr, x16, [sp, #-32]!; stp fp, lr, [sp, #16]; add fp, sp, #16."""
LEAVE = 0xA8C17BFD
DROP = (0xF1000C7F, 0x5400004A, 0xD2800063, 0x91000470, 0x927FFA10, 0x8B306FFF)
"""cmp x3, #3; b.ge; mov x3, #3; add x16, x3, #1; and x16, x16, #-2; add sp, sp, x16, lsl #3."""
BRANCH, CALL = 0x14000040, 0x94000040
DIFFERS = StatusCode.CODE_AND_UNWIND_DATA_DIFFER


def builtin(*words: int, at: int = 0) -> Program:
    """Returns a program whose first function has the codes of V8, and instructions from an offset on.

    The pair that fp leads to is at SP + 40h, and has a return address in the third function.
    """
    program = Program(0, CHAINED, CHAINED, CHAINED)
    program.entries.insert(0, (0x1000, program.record(0x6000, PAIR)))
    program.put(0x1000, STORE, MOVE)
    program.put(0x1000 + at, *words)
    program.pair(SP + 0x40, SP + 0x80, program.at(2))
    program.pair(SP + 0x80, 0, 0)
    return program


def walk_from(program: Program, offset: int, lr: int) -> StackWalk:
    known = {"Fp": SP + 0x40, "Lr": lr}
    return program.walk(RegistersArm64.from_known(BASE + 0x1000 + offset, SP, known))


@pytest.mark.parametrize(
    "words",
    [
        (LEAVE, NOP),
        (LEAVE, *DROP[3:5]),
        (LEAVE, *DROP),
        (LEAVE, *DROP, RET),
        (LOAD, BRANCH),
        (RET,),
    ],
)
def test_behind_the_load_of_the_pair_the_caller_is_in_lr(words: Tuple[int, ...]) -> None:
    program = builtin(*words, at=0x50)
    walk = walk_from(program, 0x50 + 4 * len(words) - 4, program.at(1))
    assert shown(walk) == [(program.at(1), "leaf", True), (program.at(2), "unwind", True)]
    assert walk.gaps == (DIFFERS,)
    assert walk.frames[1].return_register == "Lr"


@pytest.mark.parametrize(
    "words",
    [
        (LEAVE, RET, NOP),
        (LEAVE, BRANCH, NOP),
        (LEAVE, CALL, NOP),
        (LEAVE, *[NOP] * 8),
        (LEAVE, STORE, MOVE, NOP),
        (LEAVE, ROOM, LOWER_STORE, LOWER_MOVE, NOP),
    ],
)
def test_behind_a_jump_or_a_store_the_pair_is_there_again(words: Tuple[int, ...]) -> None:
    program = builtin(*words, at=0x50)
    walk = walk_from(program, 0x50 + 4 * len(words) - 4, program.at(2))
    assert shown(walk) == [(program.at(2), "unwind", True)]
    assert not walk.gaps


def test_a_return_whose_register_holds_no_return_address_is_unsure() -> None:
    program = builtin(RET, at=0x50)
    walk = walk_from(program, 0x50, 0x1234)
    assert shown(walk)[0] == (program.at(2), "unwind", False)


def test_a_pair_that_is_stored_above_the_stack_pointer_is_a_frame() -> None:
    program = builtin(ROOM)
    program.entries[0] = (0x1004, program.record(0x6000, PAIR, 0xFC))
    program.put(0x1004, LOWER_STORE, LOWER_MOVE)
    walk = walk_from(program, 0x60, program.at(2))
    assert shown(walk) == [(program.at(2), "unwind", True)]
    assert not walk.gaps
    # Before fp leads to the pair, the caller is in lr.
    walk = walk_from(program, 8, program.at(1))
    assert shown(walk)[0] == (program.at(1), "leaf", True)


def test_a_move_that_leads_elsewhere_is_none_of_the_pair() -> None:
    program = builtin(LOWER_STORE, LOWER_MOVE + 0x1000)
    assert shown(walk_from(program, 0x60, program.at(2)))[0] == (program.at(2), "unwind", False)


@pytest.mark.parametrize("start", [(STORE, MOVE), (NOP, NOP)])
def test_a_return_address_in_lr_may_be_the_caller_of_a_builtin(start: Tuple[int, int]) -> None:
    """Behind a jump, code of V8 goes on without the frame that its unwind data describes."""
    far = Program(0, *[CHAINED] * 0x1F)
    far.entries.insert(0, (0x1000, far.record(0x6000, PAIR)))
    far.put(0x1000, *start)
    far.pair(SP + 0x40, SP + 0x80, far.at(2))
    walk = walk_from(far, 0x60, far.at(0x1F))
    assert shown(walk) == [(far.at(0x1F), "leaf", False), (far.at(2), "unwind", False)]
    assert walk.gaps == (DIFFERS,)


@pytest.mark.parametrize("start", [(STORE, MOVE), (NOP, NOP)])
def test_where_a_call_of_the_builtin_returned_is_not_its_caller(start: Tuple[int, int]) -> None:
    program = builtin(*start)
    walk = walk_from(program, 0x60, program.at(0))
    assert shown(walk)[0] == (program.at(2), "unwind", start == (STORE, MOVE))
    # Another part of the builtin may have called, too.
    walk = walk_from(program, 0x60, program.at(1))
    assert shown(walk)[0] == (program.at(2), "unwind", False)
