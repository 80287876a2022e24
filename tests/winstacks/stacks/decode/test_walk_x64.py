# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64 walks where something is missing, wrong or hostile: they end, and say why."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Tuple, Type

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.deep import rounds
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.decode.functiontable import FunctionTable
from winstacks.stacks.decode.frames import MAX_FRAMES, CodeImage, StackWalk
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.decode.walk_x64 import Walker64

BASE, SIZE = 0x140000000, 0x4000
LOW, HIGH = 0x7F0000000000, 0x7F0000008000
SP = LOW + 0x1000
KERNEL_SP = 0xFFFFF88000002000

NOTHING = bytes.fromhex("01 00 00 00")
ALLOC_8 = bytes.fromhex("01 04 01 00 04 02")
FRAME_RBP = bytes.fromhex("01 04 01 05 04 03")
MACHINE_FRAME = bytes.fromhex("01 00 01 00 00 0a")
BROKEN = bytes.fromhex("07 00 00 00")


class Program:
    """A module of functions, 100h bytes each, and a stack."""

    def __init__(self, *infos: bytes) -> None:
        self.memory = bytearray(b"\xcc" * SIZE)
        self.entries: List[Tuple[int, int, int]] = []
        self.stack: Dict[int, int] = {}
        self.hidden: List[Tuple[int, int]] = []
        self.missing_stack = (0, 0)
        self.runs: Optional[List[Tuple[int, int]]] = None
        self.reads = 0
        self.private: Dict[int, bytes] = {}
        self.data: List[int] = []
        self.own = False
        self.windows = False
        for number, info in enumerate(infos):
            begin, unwind = 0x1000 + 0x100 * number, 0x3000 + 0x20 * number
            self.entries.append((begin, begin + 0x100, unwind))
            self.memory[unwind : unwind + len(info)] = info
            self.memory[begin + 0x1B : begin + 0x20] = b"\xe8\0\0\0\0"

    def at(self, number: int) -> int:
        """Where the call in a function returns to."""
        return BASE + 0x1020 + 0x100 * number

    def inside(self, number: int) -> int:
        """An instruction of a function."""
        return BASE + 0x1080 + 0x100 * number

    def put(self, slot: int, *values: int) -> Program:
        """Puts values on the stack, from a slot above SP on."""
        for number, value in enumerate(values):
            self.stack[SP + 8 * (slot + number)] = value
        return self

    def read_rva(self, rva: int, length: int) -> Optional[bytes]:
        self.reads += 1
        if rva < 0 or rva + length > SIZE:
            return None
        if any(low < rva + length and rva < high for low, high in self.hidden):
            return None
        return bytes(self.memory[rva : rva + length])

    def walk(
        self,
        start: Registers,
        interrupted: bool = False,
        stacks: Tuple[Tuple[int, int], ...] = ((LOW, HIGH),),
        known: Optional[Dict[int, Registers]] = None,
        kind: Type[Walker64] = Walker64,
    ) -> StackWalk:
        pdata = b"".join(struct.pack("<III", *entry) for entry in self.entries)
        runs = [(low, pdata[low:high]) for low, high in self.runs or [(0, len(pdata))]]
        table = FunctionTable.from_runs(runs, len(pdata), self.read_rva)
        image = CodeImage(BASE, SIZE, self.read_rva, table, ((0x1000, 0x3000),), self.windows)
        data = bytearray(HIGH - LOW)
        for address, value in self.stack.items():
            struct.pack_into("<Q", data, address - LOW, value & (1 << 64) - 1)
        low, high = self.missing_stack
        memory = Extents([(LOW, bytes(data[: low - LOW] if high else data)), *self.private.items()])

        def read(address: int, length: int) -> Optional[memoryview]:
            self.reads += 1
            return memory.read(address, length)

        def may_execute(address: int) -> bool:
            return address // 0x1000 not in self.data

        def find_image(address: int) -> Optional[CodeImage]:
            return image if BASE <= address < BASE + SIZE else None

        walker = kind(find_image, read, known, may_execute, lambda _: self.own)
        return walker.walk(start, interrupted, stacks)


class StepByStep(Walker64):
    """Takes every step as if it were the first of its kind."""

    def follow(self, registers: Registers, _frames: Any, _sure: bool) -> Registers:
        return registers


INFOS = tuple(
    map(
        bytes.fromhex,
        (
            "01 00 00 00",
            "01 04 01 00 04 02",
            "01 04 01 05 04 03",
            "01 00 01 00 00 0a",
            "01 08 04 00 08 52 04 c0 02 30 01 50",
            "01 10 05 00 10 34 06 00 0c 32 08 60 04 e0 00 00",
            "01 10 04 25 10 03 0c 42 04 50 02 30",
            "01 10 06 25 10 32 0e 03 0c 42 08 34 04 00 02 50",
            "01 18 05 00 18 68 02 00 10 78 01 00 08 62 00 00",
            "01 08 03 00 08 01 20 00 02 40 00 00",
            "01 08 02 00 08 f0 04 40",
            "01 08 04 00 08 34 00 00 06 64 00 00",
        ),
    )
)
"""Pushes, allocations, saved registers of both kinds, frame registers, a machine frame, what saves Rsp."""


@settings(max_examples=rounds(400), deadline=None)
@given(
    infos=st.lists(st.sampled_from(INFOS), min_size=1, max_size=5),
    values=st.lists(st.integers(0, 15), max_size=60),
    interrupted=st.booleans(),
    rbp=st.sampled_from((0, SP + 0x40, SP + 0x100, LOW - 0x40, HIGH - 8)),
    limits=st.sampled_from((((LOW, HIGH),), (), ((SP + 0x80, HIGH), (LOW, HIGH)), ((LOW, SP + 0x90),))),
    missing=st.sampled_from(((0, 0), (SP + 0x60, 0))),
)
def test_many_steps_at_once_are_the_same_steps(
    infos: List[bytes],
    values: List[int],
    interrupted: bool,
    rbp: int,
    limits: Tuple[Tuple[int, int], ...],
    missing: Tuple[int, int],
) -> None:
    program = Program(*infos)
    program.missing_stack = missing if not missing[0] else (missing[0], HIGH)
    others = (0, SP + 0x40, SP + 0xC0, program.inside(0), 0x5555, BASE + 0x1000, 1 << 63)
    for slot, value in enumerate(values):
        program.put(slot, program.at(value % len(infos)) if value < 9 else others[value - 9])
    known = {"Rbp": rbp, "Rbx": 1, "Rcx": 2, "R12": 3}
    begin = start(program, **known)._replace(xmm=tuple(range(16)))
    assert program.walk(begin, interrupted, limits) == program.walk(
        begin, interrupted, limits, kind=StepByStep
    )


def frames_of(walk: StackWalk) -> List[Tuple[int, str, bool]]:
    return [(frame.address, frame.how, frame.sure) for frame in walk.frames]


def start(program: Program, number: int = 0, **known: int) -> Registers:
    return Registers.from_known(program.at(number), SP, known)


def test_a_return_address_of_zero_is_the_end() -> None:
    program = Program(NOTHING, ALLOC_8).put(0, 0)
    program.put(0, program.at(1), 0x99, 0)
    walk = program.walk(start(program))
    assert frames_of(walk) == [(program.at(0), "trap", True), (program.at(1), "unwind", True)]
    assert (walk.end, walk.gaps, walk.border) == (None, (), None)


def test_a_frame_that_leads_back_is_a_cycle() -> None:
    program = Program(FRAME_RBP)
    program.put(-0x10, program.at(0))
    walk = program.walk(start(program, Rbp=SP - 0x80))
    assert (len(walk.frames), walk.end) == (1, StatusCode.CYCLE)


def test_a_stack_of_nothing_but_return_addresses_is_cut_off() -> None:
    program = Program(NOTHING)
    program.put(0, *[program.at(0)] * (MAX_FRAMES + 10))
    walk = program.walk(start(program))
    assert (len(walk.frames), walk.end) == (MAX_FRAMES, StatusCode.TOO_MANY_FRAMES)


def test_a_stack_page_that_is_missing_ends_the_walk() -> None:
    program = Program(NOTHING)
    program.put(0, program.at(0))
    program.missing_stack = (SP + 8, HIGH)
    walk = program.walk(start(program))
    assert (len(walk.frames), walk.end) == (2, StatusCode.STACK_UNREADABLE)


def test_leaving_the_stack_ends_the_walk() -> None:
    program = Program(MACHINE_FRAME, NOTHING)
    program.put(0, program.inside(1), 0x10, 0x246, 0x7F1234560000, 0x18)
    walk = program.walk(start(program))
    assert (len(walk.frames), walk.end) == (1, StatusCode.OUTSIDE_THE_STACK)


def test_an_interrupt_may_have_come_from_another_stack_once() -> None:
    """As a DPC that runs on its processor's stack interrupts a thread: but nobody goes to and fro."""
    program = Program(MACHINE_FRAME, NOTHING)
    other = LOW + 0x100
    program.stack[other] = program.at(0)
    frame = (program.inside(1), 0x10, 2, SP, 0x18)
    program.stack.update({other + 8 + 8 * number: value for number, value in enumerate(frame)})
    program.put(0, program.at(0), program.inside(1), 0x10, 2, other, 0x18)
    walk = program.walk(Registers.from_known(program.at(1), other), stacks=((LOW, LOW + 0x800), (SP, HIGH)))
    assert [frame.how for frame in walk.frames] == ["trap", "unwind", "trap", "unwind"]
    assert walk.end == StatusCode.CYCLE


def test_user_mode_is_the_border() -> None:
    program = Program(MACHINE_FRAME)
    program.private = {KERNEL_SP: struct.pack("<5Q", 0x77001234, 0x33, 0x246, 0x12F000, 0x2B)}
    stacks = ((KERNEL_SP - 0x1000, KERNEL_SP + 0x1000),)
    walk = program.walk(Registers.from_known(program.at(0), KERNEL_SP, {"R12": 5}), stacks=stacks)
    assert (len(walk.frames), walk.end) == (1, None)
    assert walk.border is not None
    assert (walk.border.ip, walk.border.sp, walk.border.cs, walk.border.trap) == (
        0x77001234,
        0x12F000,
        0x33,
        KERNEL_SP,
    )
    assert isinstance(walk.border.registers, Registers)
    assert walk.border.registers.named("R12") == 5


@pytest.mark.parametrize("cs", [0, 0x10, 0x33, 0x7FEF5A5A5A33])
def test_on_a_user_stack_no_selector_is_the_border(cs: int) -> None:
    program = Program(MACHINE_FRAME, NOTHING)
    program.put(0, program.inside(1), cs, 0x5A5A, SP + 0x100, 0x5A5A).put(0x20, program.at(1), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [(program.inside(1), "trap", True), (program.at(1), "unwind", True)]
    assert (walk.end, walk.gaps, walk.border) == (None, (), None)
    assert not walk.frames[1].returns


def test_an_unwound_address_before_which_no_call_can_be_is_doubted() -> None:
    program = Program(NOTHING, NOTHING)
    program.put(0, program.inside(1), program.at(1), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [(program.inside(1), "unwind", False), (program.at(1), "unwind", False)]
    assert walk.gaps == (StatusCode.NOT_BEHIND_A_CALL,)
    # Where that code cannot be read nothing says so.
    program.hidden.append((0x1140, 0x1180))
    assert frames_of(program.walk(start(program)))[1] == (program.inside(1), "unwind", True)


NOWHERE = 0x7654_3210
TRUSTED = pytest.mark.parametrize(("windows", "own"), [(True, False), (True, True), (False, False)])


@TRUSTED
def test_an_address_in_no_module_to_which_unmodified_windows_returns_is_sure(
    windows: bool, own: bool
) -> None:
    """What pushed it and jumped is no call; what follows is a guess all the same."""
    program = Program(NOTHING, NOTHING)
    program.windows, program.own = windows, own
    program.private = {NOWHERE - 0x10: b"\x90" * 0x20}
    program.put(0, NOWHERE, program.at(1), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [(NOWHERE, "unwind", windows and not own), (program.at(1), "scan", False)]
    assert walk.gaps == (StatusCode.NOT_BEHIND_A_CALL, StatusCode.CODE_IN_NO_MODULE)


@TRUSTED
@pytest.mark.parametrize("returns", [NOWHERE, BASE + 0x1080])
def test_the_top_slot_of_a_stub_is_its_return_address(windows: bool, own: bool, returns: int) -> None:
    program = Program(NOTHING, NOTHING)
    program.windows, program.own = windows, own
    program.private = {NOWHERE - 0x10: b"\x90" * 0x20}
    program.memory[0x2000:0x2003] = b"\x0f\x05\xc3"
    program.put(0, returns, program.at(1), 0)
    walk = program.walk(Registers.from_known(BASE + 0x2002, SP), True)
    leaf = (returns, "leaf", True) if windows and not own else (program.at(1), "scan", False)
    assert frames_of(walk)[1] == leaf


def test_code_that_contradicts_version_2_is_believed_unless_the_process_changed_it() -> None:
    """17763 ntdll a3983: `add rsp,38h; ret` is described as an epilogue of two pops."""
    info = bytes.fromhex("02 00 05 00 05 16 00 06 00 62 00 60 00 30")
    program = Program(info, NOTHING)
    program.memory[0x10FB:0x1100] = bytes.fromhex("48 83 c4 38 c3")
    program.put(7, program.at(1), 0)
    first = Registers.from_known(BASE + 0x10FB, SP)
    walk = program.walk(first, True)
    assert frames_of(walk)[1:] == [(program.at(1), "unwind", True)]
    assert walk.gaps == (StatusCode.CODE_AND_UNWIND_DATA_DIFFER,)
    program.own = True
    walk = program.walk(first, True)
    assert frames_of(walk)[1:] == [(program.at(1), "unwind", False)]
    assert walk.gaps == (StatusCode.CODE_AND_UNWIND_DATA_DIFFER,)
    # What cannot be read contradicts nothing.
    program.hidden.append((0x10FB, 0x1100))
    program.put(0, 1, 2, program.at(1), 0)
    assert frames_of(program.walk(first, True))[1:] == [(program.at(1), "unwind", True)]


@pytest.mark.parametrize(
    ("reason", "break_it"),
    [
        (
            StatusCode.UNWIND_DATA_INVALID,
            lambda program: program.memory.__setitem__(slice(0x3000, 0x3004), BROKEN),
        ),
        (StatusCode.UNWIND_DATA_UNREADABLE, lambda program: program.hidden.append((0x3000, 0x3004))),
        (StatusCode.FUNCTION_TABLE_UNREADABLE, lambda program: setattr(program, "runs", [(12, 24)])),
        (StatusCode.NO_UNWIND_DATA, lambda program: program.entries.pop(0)),
    ],
)
def test_a_walk_goes_on_by_scan_and_is_sure_no_more(reason: StatusCode, break_it: object) -> None:
    program = Program(NOTHING, NOTHING)
    # What lies before it on the stack is no return address: no code, no call before it, no module.
    program.put(0, 5, program.inside(1), BASE + 0x3010, 0x55555555, program.at(1), program.at(1), 0)
    assert callable(break_it)
    break_it(program)
    walk = program.walk(start(program))
    assert frames_of(walk) == [
        *((program.at(0), "trap", True), (program.at(1), "scan", False), (program.at(1), "unwind", False)),
    ]
    assert (walk.gaps, walk.end) == ((reason,), None)


def test_code_in_no_module_is_a_frame_and_then_scanned_over() -> None:
    program = Program(NOTHING)
    program.put(0, 0x66660000, 1, program.at(0), 0)
    walk = program.walk(start(program))
    assert [(address, how, sure) for address, how, sure in frames_of(walk)] == [
        *((program.at(0), "trap", True), (0x66660000, "unwind", True), (program.at(0), "scan", False)),
    ]
    assert walk.gaps == (StatusCode.CODE_IN_NO_MODULE,)


def test_a_scan_finds_callers_in_no_module() -> None:
    """A chain of frames of code that no file backs: each is a guess, none is passed over."""
    program = Program(NOTHING)
    code = b"\xcc" * 0x3B + bytes.fromhex("e8 00 00 00 00") + b"\xcc" * 0x40
    program.private = {0x66660000: code, 0x66680000: code}
    first, second, none = 0x66660040, 0x66680040, 0x66660050
    program.put(0, first, none, 0x77770040, first, 1, second, program.at(0), 0)
    walk = program.walk(start(program))
    guessed = [(first, "scan", False), (second, "scan", False), (program.at(0), "scan", False)]
    assert frames_of(walk) == [(program.at(0), "trap", True), (first, "unwind", True), *guessed]
    assert (walk.gaps, walk.end) == ((StatusCode.CODE_IN_NO_MODULE,), None)
    # What cannot be executed is data, whatever it looks like.
    program.data = [0x66680]
    assert frames_of(program.walk(start(program)))[2:] == [guessed[0], guessed[2]]


def test_a_leaf_that_code_in_no_module_called() -> None:
    program = Program(NOTHING)
    program.private = {0x66660000: bytes.fromhex("90 90 90 90 90 90 e8 00 00 00 00")}
    program.put(0, 0x6666000B, 0)
    leaf = Registers.from_known(BASE + 0x2000, SP)
    assert frames_of(program.walk(leaf, True))[1] == (0x6666000B, "leaf", True)
    program.data = [0x66660]
    assert len(program.walk(leaf, True).frames) == 1


def test_a_scan_stops_at_a_known_machine_frame() -> None:
    program = Program(BROKEN, NOTHING)
    program.put(3, program.inside(1), 0x10, 0x246, SP + 0x100, 0x18)
    program.put(0x20, 0)
    known = {SP + 24: Registers.from_known(program.inside(1), SP + 0x100, {"Rax": 7})}
    walk = program.walk(start(program), known=known)
    assert frames_of(walk) == [(program.at(0), "trap", True), (program.inside(1), "trap", False)]
    assert walk.frames[1].registers == known[SP + 24]
    assert walk.frames[1].trap == SP + 24


def test_an_epilogue_that_could_not_be_seen_makes_the_caller_unsure() -> None:
    program = Program(ALLOC_8, NOTHING)
    program.put(1, program.at(1), 0)
    program.hidden.append((0x1080, 0x1100))
    walk = program.walk(Registers.from_known(program.inside(0), SP), True)
    assert frames_of(walk)[1:] == [(program.at(1), "unwind", False)]
    assert walk.gaps == (StatusCode.CODE_UNREADABLE,)
    # Nothing in an epilogue calls: behind a call there is no doubt.
    assert frames_of(program.walk(start(program)))[1:] == [(program.at(1), "unwind", True)]


def test_a_leaf_without_a_return_address_is_not_believed() -> None:
    program = Program(NOTHING)
    program.put(0, 0x1234, program.at(0), 0)
    walk = program.walk(Registers.from_known(BASE + 0x2000, SP), True)
    assert frames_of(walk)[1:] == [(program.at(0), "scan", False)]


def test_a_leaf_whose_callers_code_is_paged_out_is_doubted() -> None:
    program = Program(NOTHING, NOTHING)
    program.put(0, program.at(1), 0)
    leaf = Registers.from_known(BASE + 0x2000, SP)
    assert frames_of(program.walk(leaf, True))[1:] == [(program.at(1), "leaf", True)]
    program.hidden.append((0x1100, 0x1200))
    walk = program.walk(leaf, True)
    assert frames_of(walk)[1:] == [(program.at(1), "leaf", False)]
    assert walk.gaps == (StatusCode.CODE_UNREADABLE,)


@pytest.mark.parametrize(("code", "sure"), [("ff d0", True), ("90 90", False)])
def test_too_little_code_before_an_address_disproves_nothing(code: str, sure: bool) -> None:
    """The page that the call begins in is paged out: its end shows a short call, but no absence of one."""
    program = Program(*[NOTHING] * 20)
    caller = BASE + 0x2002
    program.memory[0x2000:0x2002] = bytes.fromhex(code)
    program.hidden.append((0x1000, 0x2000))
    program.put(0, caller, 0)
    walk = program.walk(Registers.from_known(BASE + 0x2800, SP), True)
    assert frames_of(walk)[1:] == [(caller, "leaf", sure)]


VALUES = st.one_of(
    st.integers(0, SIZE - 1).map(lambda offset: BASE + offset),
    st.integers(0, 0x40).map(lambda slot: SP + 8 * slot),
    st.sampled_from([0, 1, 0x10, 0x33, (1 << 64) - 1, 1 << 63]),
    st.integers(0, (1 << 64) - 1),
)
INFO = st.builds(
    lambda head, codes: bytes(head) + bytes([len(codes)]) + codes,
    st.tuples(st.sampled_from([1, 2, 0x21, 0x22, 9, 3]), st.integers(0, 255)),
    st.binary(max_size=40),
)


@settings(max_examples=rounds(300), deadline=None)
@given(
    st.lists(st.binary(max_size=48) | INFO, min_size=1, max_size=8),
    st.lists(
        st.tuples(st.integers(0x1000, 0x1900), st.integers(0x1000, 0x2000), st.integers(0x2FF0, 0x3110)),
        max_size=12,
    ),
    st.lists(VALUES, max_size=64),
    st.tuples(*[VALUES] * 4),
    st.booleans(),
)
def test_hostile_tables_unwind_data_and_stacks(
    infos: List[bytes],
    entries: List[Tuple[int, int, int]],
    stack: List[int],
    registers: Tuple[int, ...],
    interrupted: bool,
) -> None:
    program = Program(*infos)
    program.entries += entries
    program.put(0, *stack)
    ip, rbp, rbx, sp = registers
    first = Registers.from_known(ip, SP if sp & 1 else sp & (1 << 64) - 1, {"Rbp": rbp, "Rbx": rbx})
    for stacks in (((LOW, HIGH),), ()):
        walk = program.walk(first, interrupted, stacks)
        assert 0 < len(walk.frames) <= MAX_FRAMES
    assert program.reads < 400_000


def test_a_chain_of_the_longest_unwind_data_costs_little() -> None:
    codes = bytes.fromhex("00 02") * 255
    info = bytes([0x21, 0, 255, 0]) + codes + b"\0\0" + struct.pack("<III", 0x1000, 0x1100, 0x2000)
    program = Program(NOTHING)
    program.memory[0x2000 : 0x2000 + len(info)] = info
    program.entries[0] = (0x1000, 0x1100, 0x2000)
    program.put(0, *[program.at(0)] * 2000)
    walk = program.walk(start(program))
    assert walk.gaps == (StatusCode.UNWIND_DATA_INVALID,)
    assert program.reads < 100_000
