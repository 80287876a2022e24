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
from winstacks.stacks.decode.frames import MAX_FRAMES, CodeImage, ReturnCandidate, StackWalk
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.decode.surroundings import UNKNOWN, Surroundings
from winstacks.stacks.decode.walk_x64 import Walker64

BASE, SIZE = 0x140000000, 0x4000
LOW, HIGH = 0x7F0000000000, 0x7F0000008000
SP = LOW + 0x1000
KERNEL_SP = 0xFFFFF88000002000
NOWHERE = 0x7654_3210

NOTHING = bytes.fromhex("01 00 00 00")
ALLOC_8 = bytes.fromhex("01 04 01 00 04 02")
PUSHED_RBP = bytes.fromhex("01 04 02 05 04 03 01 50")
PUSHED_RBP_BY_V8 = bytes.fromhex("09 04 02 05 04 03 01 50 00 00 00 00")
SET_UP = bytes.fromhex("55 48 89 e5")
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
        self.surroundings = UNKNOWN
        self.most_frames = MAX_FRAMES
        self.others: List[CodeImage] = []
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
            images = (image, *self.others)
            return next((other for other in images if 0 <= address - other.base < other.size), None)

        walker = kind(
            find_image, read, known, may_execute, lambda _: self.own, surroundings=self.surroundings
        )
        walker.most_frames = self.most_frames
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
            "09 00 00 00",
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
    program.put(0, *[program.at(0)] * 2010)
    assert len(program.walk(start(program)).frames) == 2011
    program.most_frames = 2000
    walk = program.walk(start(program))
    assert (len(walk.frames), walk.end) == (2000, StatusCode.TOO_MANY_FRAMES)
    assert MAX_FRAMES == 1 << 16


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


@pytest.mark.parametrize(("rbp", "led"), [(SP + 0x90, True), (0x55550000, False)])
def test_a_callback_may_hide_the_frame_register_of_the_code_below_it(rbp: int, led: bool) -> None:
    """Wine's kernel side calls back with its own Rbp: nothing leads there, least of all to no memory."""
    program = Program(MACHINE_FRAME, FRAME_RBP, NOTHING)
    program.surroundings = Surroundings(is_mapped=lambda _: False)
    program.private = {0x55550000: struct.pack("<Q", NOWHERE) * 8}
    program.put(0, program.inside(1), 0, 0, SP + 0x80, 0)
    program.put(0x12, program.at(2), 0)
    walk = program.walk(start(program, Rbp=rbp))
    assert frames_of(walk)[1:] == [
        *((program.inside(1), "trap", True), (program.at(2), "unwind" if led else "scan", led)),
    ]
    assert walk.gaps == (() if led else (StatusCode.FRAME_REGISTER_UNKNOWN,))


def test_the_place_of_a_fault_that_a_runtime_pushed_is_left_like_interrupted_code() -> None:
    """Go pushes the address of a fault for the call of its handler: in a leaf the caller is on top."""
    program = Program(NOTHING, NOTHING)
    program.memory[0x1110:0x1120] = b"\x90" * 14 + b"\xff\xd0"
    fault = BASE + 0x2010
    program.put(0, fault, program.at(1), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [(fault, "unwind", False), (program.at(1), "leaf", False)]
    assert (walk.end, walk.gaps) == (None, (StatusCode.NOT_BEHIND_A_CALL,))


@pytest.mark.parametrize(("code", "ends"), [("cc 90 e8 00 00 01 00 90 cc", True), ("90" * 9, False)])
def test_a_routine_of_go_begins_above_goexit(code: str, ends: bool) -> None:
    """Its runtime pushes the second byte of goexit: `nop; call goexit1; nop`. Above are other stacks."""
    program = Program(NOTHING, NOTHING)
    program.memory[0x2000:0x2009] = bytes.fromhex(code)
    program.put(0, BASE + 0x2002, 1, program.at(1), 0)
    walk = program.walk(start(program))
    further = [] if ends else [(program.at(1), "scan", False)]
    assert frames_of(walk)[1:] == [(BASE + 0x2002, "unwind", False), *further]


def test_an_unwound_address_before_which_no_call_can_be_is_doubted() -> None:
    program = Program(NOTHING, NOTHING)
    program.put(0, program.inside(1), program.at(1), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [(program.inside(1), "unwind", False), (program.at(1), "unwind", False)]
    assert walk.gaps == (StatusCode.NOT_BEHIND_A_CALL,)
    # Where that code cannot be read nothing says so.
    program.hidden.append((0x1140, 0x1180))
    assert frames_of(program.walk(start(program)))[1] == (program.inside(1), "unwind", True)


@pytest.mark.parametrize("framed", [True, False])
def test_an_address_at_which_a_function_begins_and_before_which_no_call_is(framed: bool) -> None:
    """The kernel puts it on the stack itself, with a machine frame above; or a runtime replaces a return."""
    program = Program(NOTHING, NOTHING, MACHINE_FRAME if framed else NOTHING, NOTHING)
    begins = BASE + 0x1200
    program.put(0, begins, program.inside(3), 0x33, 0x246, SP + 0x80, 0x2B).put(0x10, program.at(1), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1] == (begins, "unwind", framed)
    assert not walk.frames[1].returns
    assert StatusCode.FUNCTION_BEGINS_THERE in walk.gaps
    if framed:
        assert frames_of(walk)[2:] == [(program.inside(3), "trap", True), (program.at(1), "unwind", True)]
        assert walk.gaps == (StatusCode.FUNCTION_BEGINS_THERE,)
    # Behind a call the address belongs to the function before it.
    program.memory[0x11FB:0x1200] = b"\xe8\0\0\0\1"
    program.put(1, program.at(3), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [(begins, "unwind", True), (program.at(3), "unwind", True)]
    assert walk.frames[1].returns and not walk.gaps


@pytest.mark.parametrize(("call", "sure"), [("ff d0", True), ("e8 e1 fe ff ff", False)])
@pytest.mark.parametrize("target", [0, 0x1234, BASE + 0x3080, 0x55550000])
def test_the_caller_of_a_place_without_code_is_on_top_of_the_stack(
    target: int, call: str, sure: bool
) -> None:
    """A call through a bad pointer; a direct call leads to code. The target: low, data, in no region."""
    program = Program(NOTHING, NOTHING)
    program.surroundings = Surroundings(is_mapped=lambda _: False)
    program.memory[0x1110:0x1120] = bytes.fromhex(call).rjust(16, b"\x90")
    program.put(0, program.at(1), program.at(0), 0)
    walk = program.walk(Registers.from_known(target, SP), True)
    how = "leaf" if sure else "scan"
    assert frames_of(walk)[1] == (program.at(1), how, sure)


@pytest.mark.parametrize(
    ("code", "slot", "leaf"),
    [
        ("c3", 0, True),
        ("48 83 c4 28 c3", 5, True),
        ("48 83 c4 20 5b c3", 5, True),
        ("c2 00 00", 0, True),
        ("c5 f8 77 c3", 0, True),
        ("90 c3", 0, False),
        ("ff e0", 0, False),
        ("48 ff e0", 0, False),
        ("ff 25 00 00 00 00", 0, False),
        ("c2 18 00", 0, False),
    ],
)
@pytest.mark.parametrize("returns", [BASE + 0x1120, BASE + 0x1180])
def test_code_that_returns_at_once_needs_no_unwind_data(
    code: str, slot: int, leaf: bool, returns: int
) -> None:
    """A stub of a system call, in a dump without the headers of its module. The second is behind no call.

    Above a return that drops arguments the stack pointer of the caller is another, and a jump may stay in its
    function.
    """
    program = Program(NOTHING, NOTHING)
    data = bytes.fromhex(code).ljust(0x100, b"\x90")
    other = CodeImage(NOWHERE, 0x100, lambda rva, length: data[rva : rva + length], None, ((0, 0x100),))
    program.others = [other]
    program.put(slot, returns).put(8, program.at(1))
    walk = program.walk(Registers.from_known(NOWHERE, SP), True)
    proven = leaf and returns == program.at(1)
    assert frames_of(walk)[1] == (program.at(1), "leaf" if proven else "scan", proven)
    if proven:
        assert walk.frames[1].sp == SP + 8 * (slot + 1)


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
    program.private = {0x66660000: bytes.fromhex("90 90 90 90 90 90 e8 00 00 00 00")}
    program.put(0, 0x6666000B, 1, program.at(0), 0)
    walk = program.walk(start(program))
    assert [(address, how, sure) for address, how, sure in frames_of(walk)] == [
        *((program.at(0), "trap", True), (0x6666000B, "unwind", True), (program.at(0), "scan", False)),
    ]
    assert walk.gaps == (StatusCode.CODE_IN_NO_MODULE,)


@pytest.mark.parametrize("mapped", [True, False, None])
@pytest.mark.parametrize("windows", [True, False])
def test_memory_that_cannot_be_read_proves_no_frame(mapped: Optional[bool], windows: bool) -> None:
    """Only unmodified code of Windows proves a return to memory that exists and is not in the image."""
    program = Program(NOTHING, NOTHING)
    program.windows = windows
    program.surroundings = Surroundings(is_mapped=lambda _: mapped)
    program.put(0, 0x66660000, 1, program.at(1), 0)
    walk = program.walk(start(program))
    if mapped is False:
        assert frames_of(walk)[1:] == [(program.at(1), "scan", False)]
        assert walk.gaps == (StatusCode.RETURNS_NOWHERE,)
        return
    sure = windows and bool(mapped)
    assert frames_of(walk)[1:] == [(0x66660000, "unwind", sure), (program.at(1), "scan", False)]
    assert walk.gaps == (StatusCode.CODE_UNREADABLE, StatusCode.CODE_IN_NO_MODULE)


@pytest.mark.parametrize("value", [0xFFFFFFFFFFF7, 0xFFF7, 0xFFFFF80000001000, 1 << 63, (1 << 64) - 9])
@pytest.mark.parametrize("info", [NOTHING, ALLOC_8])
def test_no_frame_is_where_a_user_stack_cannot_return(value: int, info: bytes) -> None:
    """The value lies on top of the stack of a leaf, or where unwind data expects the return address."""
    program = Program(info, NOTHING)
    slot = int(info is ALLOC_8)
    program.put(slot, value, program.at(1), 0)
    program.private = {0xFFFFF80000000000: b"\xe8\0\0\0\0" * 0x400}
    for first, interrupted in ((start(program), False), (Registers.from_known(BASE + 0x2000, SP), True)):
        walk = program.walk(first, interrupted)
        assert frames_of(walk)[1:] == [(program.at(1), "scan", False)]


HANDLER_ONLY = bytes.fromhex("09 00 00 00 00 20 00 00")


def test_a_function_that_only_its_handler_describes_needs_a_proven_return() -> None:
    """The stack pointer may have moved: the scan begins where it is."""
    program = Program(HANDLER_ONLY, NOTHING)
    program.put(0, 0x7777000000, program.at(1), 0)
    for first, interrupted in ((start(program), False), (Registers.from_known(program.inside(0), SP), True)):
        walk = program.walk(first, interrupted)
        assert frames_of(walk)[1:] == [(program.at(1), "scan", False)]
        assert walk.gaps == (StatusCode.UNWIND_DATA_INCOMPLETE,)
    # An address behind another call may have been left there.
    program.put(0, program.at(1), program.at(1), 0)
    assert frames_of(program.walk(start(program)))[1] == (program.at(1), "scan", False)
    # The first instruction has moved nothing.
    first = Registers.from_known(BASE + 0x1000, SP)
    assert frames_of(program.walk(first, True))[1:] == [(program.at(1), "unwind", True)] * 2


@pytest.mark.parametrize("through", [None, 0x2100])
def test_a_call_of_that_very_function_proves_its_return(through: Optional[int]) -> None:
    program = Program(HANDLER_ONLY, NOTHING)
    target = 0x1000 if through is None else through
    program.memory[0x111C:0x1120] = struct.pack("<i", target - 0x1120)
    program.memory[0x2100:0x2105] = b"\xe9" + struct.pack("<i", 0x1000 - 0x2105)
    program.put(0, program.at(1), 0)
    for first, interrupted in ((start(program), False), (Registers.from_known(program.inside(0), SP), True)):
        walk = program.walk(first, interrupted)
        assert frames_of(walk)[1:] == [(program.at(1), "unwind", True)]
        assert not walk.gaps


@pytest.mark.parametrize(
    ("code", "still"),
    [
        ("48 8b 41 08 85 c0 75 01 c3", True),
        ("0f b7 01 66 3b 02 0f 94 c0", False),  # 94 may be xchg
        ("48 83 ec 28 48 8b 01", False),
        ("41 54 48 8b 01", False),
        ("48 8d 64 24 f8", False),
        ("48 2b e0", False),
        ("48 8b e1", False),
        ("48 89 cc", False),
        ("ff d0", False),
        ("41 5a", False),
    ],
)
def test_a_function_that_only_its_handler_describes_and_that_pushes_nothing_is_a_leaf(
    code: str, still: bool
) -> None:
    """All methods of .NET have a handler; one method calls another through a pointer."""
    program = Program(HANDLER_ONLY, NOTHING)
    whole = bytes.fromhex(code)
    program.memory[0x1000:0x1100] = b"\x90" * 0x100
    program.memory[0x1000 : 0x1000 + len(whole)] = whole
    program.memory[0x111E:0x1120] = bytes.fromhex("ff d0")
    program.put(0, program.at(1), 0)
    walk = program.walk(Registers.from_known(program.inside(0), SP), True)
    assert frames_of(walk)[1:] == [(program.at(1), "unwind" if still else "scan", still)]
    # It returns to no place that no call leads to.
    program.memory[0x111B:0x1120] = bytes(5)
    assert not any(
        frame.sure for frame in program.walk(Registers.from_known(program.inside(0), SP), True).frames[1:]
    )


def test_a_scan_finds_callers_in_no_module() -> None:
    """A chain of frames in private memory: each is a guess, none is passed over."""
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


def first_functions(program: Program, *numbers: int) -> None:
    """Says that threads begin in some of the program's functions."""
    begins = [BASE + 0x1000 + 0x100 * number for number in numbers]
    program.surroundings = Surroundings(lambda at: any(low <= at < low + 0x100 for low in begins))


def test_a_scan_takes_the_innermost_value_from_which_the_thread_began() -> None:
    """Others were left by earlier calls: a walk from these ends in nothing."""
    program = Program(BROKEN, ALLOC_8, NOTHING, NOTHING)
    first_functions(program, 3)
    # From slots 1 and 3 a walk ends at a 0 in no such function; from 5 it leads to function 3.
    program.put(1, program.at(1), 5, program.at(2), 0, program.at(1), 0, program.at(2), program.at(3), 0)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [
        *((program.at(1), "scan", False), (program.at(2), "unwind", False), (program.at(3), "unwind", False)),
    ]
    assert walk.frames[1].sp == SP + 0x30
    assert walk.candidates == (
        ReturnCandidate(program.at(1), SP + 8, False),
        ReturnCandidate(program.at(2), SP + 0x18, False),
    )
    # Nothing leads there: the first value that no walk contradicts is taken.
    first_functions(program)
    assert program.walk(start(program)).frames[1].sp == SP + 0x10
    program.put(3, program.inside(2))
    assert program.walk(start(program)).frames[1].sp == SP + 0x30


def test_a_scan_may_need_further_scans_to_get_there() -> None:
    program = Program(BROKEN, NOTHING, NOTHING, FRAME_RBP)
    first_functions(program, 2)
    # Function 3 needs Rbp, which is lost; the walk goes on above it.
    program.put(1, program.at(3), 7, program.at(1), program.at(2), 0)
    walk = program.walk(start(program))
    assert [frame.address for frame in walk.frames[1:]] == [program.at(3), program.at(1), program.at(2)]
    assert [frame.how for frame in walk.frames[1:]] == ["scan", "scan", "unwind"]
    assert not walk.candidates


def test_a_pointer_to_a_function_is_no_return_address_for_a_scan() -> None:
    program = Program(BROKEN, NOTHING, NOTHING)
    program.memory[0x11FB:0x1200] = b"\xe8\1\0\0\0"
    program.put(1, BASE + 0x1200, program.at(2), 0)
    assert frames_of(program.walk(start(program)))[1] == (BASE + 0x1200, "scan", False)
    program.surroundings = Surroundings(is_start=lambda at: at == BASE + 0x1200)
    assert frames_of(program.walk(start(program)))[1] == (program.at(2), "scan", False)


def test_a_scan_finds_calls_in_assembly_without_unwind_data() -> None:
    program = Program(BROKEN, NOTHING)
    to = BASE + 0x2020
    program.memory[0x201B:0x2020] = b"\xe8" + struct.pack("<i", 0x1100 - 0x2020)
    program.put(1, to, program.at(1), 0)
    assert frames_of(program.walk(start(program)))[1:] == [
        (to, "scan", False),
        (program.at(1), "scan", False),
    ]
    # A call into the middle of a function is none.
    program.memory[0x201B:0x2020] = b"\xe8" + struct.pack("<i", 0x1101 - 0x2020)
    assert frames_of(program.walk(start(program)))[1:] == [(program.at(1), "scan", False)]


def test_where_code_is_absent_the_value_whose_code_is_there_is_no_better() -> None:
    program = Program(BROKEN, NOTHING)
    elsewhere = CodeImage(0x180000000, 0x2000, lambda *_: None, None, ((0x1000, 0x2000),))
    program.others = [elsewhere]
    values = (0x180000800, 0x180001234, program.at(1))
    program.put(1, *values, 0)
    walk = program.walk(start(program))
    assert len(walk.frames) == 1
    assert walk.end == StatusCode.UNWIND_DATA_INVALID
    assert walk.candidates == (
        ReturnCandidate(values[1], SP + 0x10, True),
        ReturnCandidate(values[2], SP + 0x18, False),
    )
    # The value leads to the function in which the thread began: it is in use.
    first_functions(program, 1)
    walk = program.walk(start(program))
    assert frames_of(walk)[1:] == [(program.at(1), "scan", False)]
    assert walk.candidates == (ReturnCandidate(values[1], SP + 0x10, True),)


OTHER = LOW + 0x4000


@pytest.mark.parametrize(("back", "end"), [(SP + 0x80, None), (SP - 0x80, StatusCode.CYCLE)])
def test_a_walk_goes_on_where_unwind_data_leads_to_another_stack_of_the_program(
    back: int, end: Optional[StatusCode]
) -> None:
    """As where a goroutine entered the kernel: its thread's stack, its own, the thread's again further up."""
    program = Program(PUSHED_RBP, PUSHED_RBP, NOTHING)
    program.stack.update({OTHER: back, OTHER + 8: program.at(1), back: 0, back + 8: program.at(2)})
    program.stack[back + 16] = 0
    first = start(program, Rbp=OTHER)
    limits = ((LOW, LOW + 0x3000),)
    walk = program.walk(first, stacks=limits)
    assert (len(walk.frames), walk.end) == (1, StatusCode.OUTSIDE_THE_STACK)
    program.surroundings = Surroundings(find_stack=lambda _: (LOW + 0x3800, HIGH))
    walk = program.walk(first, stacks=limits)
    callers = [program.at(1), program.at(2)][: 1 if end else 2]
    assert frames_of(walk)[1:] == [(caller, "unwind", True) for caller in callers]
    assert (walk.gaps, walk.end) == ((StatusCode.STACK_SWITCHED,), end)
    # A stack that overlaps the thread's is none of its own; nor is one to which no call returns.
    program.surroundings = Surroundings(find_stack=lambda _: (LOW + 0x2800, HIGH))
    assert program.walk(first, stacks=limits).end == StatusCode.OUTSIDE_THE_STACK
    program.surroundings = Surroundings(find_stack=lambda _: (LOW + 0x3800, HIGH))
    program.stack[OTHER + 8] = program.inside(1)
    assert program.walk(first, stacks=limits).end == StatusCode.OUTSIDE_THE_STACK


def test_a_scan_takes_a_caller_from_which_unwind_data_leads_to_another_stack() -> None:
    """As where Windows called back into a program of Go: unwind data leads to the goroutine that called
    Windows."""
    program = Program(BROKEN, bytes.fromhex("01 01 01 00 01 50"), FRAME_RBP, NOTHING)
    is_first = lambda at: at >= BASE + 0x1300  # noqa: E731
    program.surroundings = Surroundings(is_first, find_stack=lambda _: (LOW + 0x3800, HIGH))
    program.put(1, program.at(1), OTHER, program.at(2), program.at(3), 0)
    program.stack.update({OTHER: program.at(1), OTHER + 8: 7, OTHER + 16: 0})
    limits = ((LOW, LOW + 0x3000),)
    walk = program.walk(start(program), stacks=limits)
    assert frames_of(walk)[1:] == [
        *((program.at(1), "scan", False), (program.at(2), "unwind", False), (program.at(1), "unwind", False)),
    ]
    assert walk.gaps == (StatusCode.UNWIND_DATA_INVALID, StatusCode.STACK_SWITCHED)
    # A value that no call pushed, or memory that is no stack, contradicts the caller.
    program.stack[OTHER] = program.inside(1)
    assert frames_of(program.walk(start(program), stacks=limits))[1:2] == [(program.at(2), "scan", False)]
    program.stack[OTHER] = program.at(1)
    program.surroundings = Surroundings(is_first)
    assert frames_of(program.walk(start(program), stacks=limits))[1:2] == [(program.at(2), "scan", False)]


GO_1_19 = (
    "65 48 8b 0c 25 28 00 00 00 48 8b 7c 24 30 48 8b 77 08 48 2b 74 24 28 48 89 b9 00 00 00 00"
    "48 89 f4 89 44 24 18 c3"
)
GO_1_27 = (
    "48 8b 0d d6 e1 15 00 65 48 8b 09 48 8b 7c 24 08 48 8b 77 08 48 2b 34 24 48 89 39 48 89 f4"
    "89 44 24 20 5d c3"
)


@pytest.mark.parametrize(
    ("code", "goroutine", "depth", "pops"), [(GO_1_19, 6, 5, False), (GO_1_27, 1, 0, True)]
)
def test_go_keeps_the_depth_of_a_goroutines_stack(code: str, goroutine: int, depth: int, pops: bool) -> None:
    """Saved frame pointers lead to where that stack lay before it was copied."""
    program = Program(FRAME_RBP, NOTHING, NOTHING)
    program.memory[0x1020 : 0x1020 + len(bytes.fromhex(code))] = bytes.fromhex(code)
    program.surroundings = Surroundings(find_stack=lambda _: (LOW + 0x3800, HIGH))
    record = LOW + 0x5000
    stale = OTHER + 0x800
    program.put(goroutine, record).put(depth, 0x120)
    program.stack.update({record + 8: OTHER + 0x120, stale: program.at(2), stale + 8: 0})
    program.stack.update({OTHER + 8 * n: value for n, value in enumerate((*[7] * pops, program.at(1), 0))})
    first = Registers.from_known(program.at(0), SP, {"Rbp": stale})
    walk = program.walk(first, stacks=((LOW, LOW + 0x3000),))
    assert frames_of(walk)[1:] == [(program.at(1), "unwind", True)]
    assert walk.frames[1].sp == OTHER + 8 * (1 + pops)
    assert walk.frames[1].registers == Registers.from_known(
        program.at(1), OTHER + 8 * (1 + pops), {"Rbp": 7 if pops else stale}
    )
    assert (walk.gaps, walk.end) == ((StatusCode.STACK_SWITCHED,), None)
    # Without the goroutine's memory unwind data decides.
    program.put(goroutine, LOW - 0x5000)
    assert frames_of(program.walk(first, stacks=((LOW, LOW + 0x3000),)))[1:2] == [
        (program.at(2), "unwind", True)
    ]


LEFT = "48 8b e5 5d"
"""mov rsp, rbp; pop rbp."""


@pytest.mark.parametrize(
    ("before", "behind", "right"),
    [
        (LEFT, "e9 a0 ff ff ff", True),
        ("48 8d 65 00 5d", "ff e0", True),
        (LEFT, "41 5a 4a 8d 24 c4 41 52 c3", True),
        (LEFT, "48 83 f9 02 7f 03 c2 10 00", True),
        (LEFT + "48 83 f9 02", "7f 03 c2 10 00", True),
        (LEFT + "48 83 f9 02 7f 03 c2 10 00", "41 5a 4a 8d 24 c4 41 52 c3", True),
        (LEFT + "48 83 f9 02 0f 8f 10 00 00 00", "c2 10 00", True),
        (LEFT + "41 5a", "4a 8d 24 c4 41 52 c3", False),
        (LEFT + "41 5a 4a 8d 24 c4", "41 52 c3", False),
        ("48 8b 6d 00", "4c 8b 4c 24 10 48 83 c4 28 ff e1", False),
        ("48 8b 6d 00 4c 8b 4c 24 10 48 83 c4 28", "ff e1", False),
        ("48 8b 6d 00 49 8b c3", "48 83 c4 48 ff e1", False),
        ("c9 48 8b f0 59", "49 8d 67 08 51 c3", False),
        ("c9 48 8b f0 59 49 8d 67 08", "51 c3", False),
    ],
)
def test_a_frame_is_gone_behind_pop_rbp(before: str, behind: str, right: bool) -> None:
    """Builtins of V8 go on there: Rbp is the caller's, and leads past it."""
    program = Program(PUSHED_RBP, NOTHING, NOTHING)
    code = bytes.fromhex(before + behind)
    start_at = 0x1080 - len(bytes.fromhex(before))
    program.memory[start_at : start_at + len(code)] = code
    program.put(0, program.at(1), 0, 0, 5, program.at(2), 0)
    state = Registers.from_known(BASE + 0x1080, SP, {"Rbp": SP + 0x18})
    frames = program.walk(state, interrupted=True).frames
    if right:
        assert frames[1].sure
        assert frames[1].registers == Registers.from_known(program.at(1), SP + 8, {"Rbp": SP + 0x18})
    else:
        assert not any(frame.sure for frame in frames[1:])


def test_behind_a_return_no_frame_is_gone() -> None:
    program = Program(PUSHED_RBP, NOTHING, NOTHING)
    program.memory[0x1000:0x1004] = SET_UP
    program.memory[0x107B:0x1082] = bytes.fromhex(LEFT + "c3 90 90")
    program.put(3, 5, program.at(2), 0)
    walk = program.walk(Registers.from_known(BASE + 0x1080, SP, {"Rbp": SP + 0x18}), interrupted=True)
    assert frames_of(walk)[1:] == [(program.at(2), "unwind", True)]


@pytest.mark.parametrize("start", ["cc cc cc cc 48 8b 50 ff", "90 cc cc cc 48 8b 50 ff"])
def test_a_pair_of_codes_whose_function_sets_nothing_up_describes_no_frame(start: str) -> None:
    """V8 describes the code of a builtin before its first frame so, from the padding before it on."""
    program = Program(PUSHED_RBP_BY_V8, NOTHING, NOTHING)
    program.memory[0x1000:0x1008] = bytes.fromhex(start)
    program.put(0, program.at(1), 0, 0, 5, program.at(2), 0)
    state = Registers.from_known(BASE + 0x1080, SP, {"Rbp": SP + 0x18})
    frames = program.walk(state, interrupted=True).frames
    assert frames[1].sure
    assert frames[1].registers == Registers.from_known(program.at(1), SP + 8, {"Rbp": SP + 0x18})


@pytest.mark.parametrize("framed", [False, True])
def test_what_a_builtin_without_a_frame_calls_has_one_sure_caller(framed: bool) -> None:
    """V8 keeps registers on the stack around calls of its write barrier."""
    program = Program(NOTHING, PUSHED_RBP_BY_V8, NOTHING)
    code = bytes.fromhex("55 48 89 e5" if framed else "cc cc cc cc 57 41 50")
    program.memory[0x1100 : 0x1100 + len(code)] = code
    program.put(0, program.at(1), 7, 7, program.at(2), 0, 5, program.at(2), 0)
    state = Registers.from_known(BASE + 0x1000, SP, {"Rbp": SP + 0x28})
    frames = frames_of(program.walk(state, interrupted=True))
    assert frames[1] == (program.at(1), "unwind", True)
    assert any(sure for _, _, sure in frames[2:]) is framed


@pytest.mark.parametrize("interrupted", [False, True])
def test_code_that_v8_compiled_has_frames_though_its_table_begins_with_data(interrupted: bool) -> None:
    """One entry, from RVA 0 on, is for all of it: no function begins there."""
    program = Program(NOTHING, PUSHED_RBP_BY_V8, NOTHING)
    program.entries[1] = (0, 0x1200, program.entries[1][2])
    del program.entries[0]
    program.memory[:8] = bytes.fromhex("40 b2 a1 c3 a7 01 00 00")
    program.put(0, 7, 7, 7, 7, SP + 0x40, program.at(2), 0)
    state = Registers.from_known(program.at(1), SP, {"Rbp": SP + 0x20})
    frames = frames_of(program.walk(state, interrupted))
    assert frames[1][:2] == (program.at(2), "unwind")
    assert frames[1][2] or interrupted


def test_a_builtin_without_a_frame_that_made_room_has_no_caller_on_top() -> None:
    """The top of its stack may be an old return address."""
    program = Program(PUSHED_RBP_BY_V8, NOTHING, NOTHING)
    program.memory[0x1000:0x1008] = bytes.fromhex("cc cc cc cc 48 83 ec 08")
    program.put(0, program.at(2), program.at(1), 0, 0, 5, program.at(2), 0)
    state = Registers.from_known(BASE + 0x1008, SP, {"Rbp": SP + 0x20})
    assert not any(frame.sure for frame in program.walk(state, interrupted=True).frames[1:])


@pytest.mark.parametrize("start", ["55 48 89 e5", "55 48 8b ec", "e9 10 00 00 00", "cc 48 89 e5"])
def test_a_pair_of_codes_at_a_frame_or_a_hook_describes_it(start: str) -> None:
    program = Program(PUSHED_RBP, NOTHING, NOTHING)
    code = bytes.fromhex(start)
    program.memory[0x1000 : 0x1000 + len(code)] = code
    program.put(0, program.at(1), 0, 0, 5, program.at(2), 0)
    walk = program.walk(Registers.from_known(BASE + 0x1080, SP, {"Rbp": SP + 0x18}), interrupted=True)
    assert frames_of(walk)[1:] == [(program.at(2), "unwind", True)]


@pytest.mark.parametrize("pushed", [False, True])
def test_a_return_address_on_top_may_be_the_caller_of_a_builtin(pushed: bool) -> None:
    """Behind a return, code of V8 goes on without the frame that its unwind data describes."""
    program = Program(PUSHED_RBP_BY_V8, NOTHING, NOTHING)
    program.memory[0x1000:0x1004] = SET_UP
    program.put(0, 7 if pushed else program.at(1), 0, 0, 5, program.at(2), 0)
    walk = program.walk(Registers.from_known(BASE + 0x1080, SP, {"Rbp": SP + 0x18}), interrupted=True)
    if pushed:
        assert frames_of(walk)[1:] == [(program.at(2), "unwind", True)]
    else:
        assert frames_of(walk)[1] == (program.at(1), "leaf", False)
        assert StatusCode.CODE_AND_UNWIND_DATA_DIFFER in walk.gaps


@pytest.mark.parametrize(
    ("left", "slot", "sure"),
    [
        ("48 8b e5 5d c3", 2, False),
        ("c9 c3", 2, False),
        ("48 8b 6d 00 48 83 c4 20 ff e1", 2, False),
        ("48 8b e5 5d c3", 7, True),
        ("8b e5 c3", 2, True),
    ],
)
def test_a_return_address_below_rbp_may_be_the_caller_of_a_builtin(left: str, slot: int, sure: bool) -> None:
    """Code without a frame may have pushed registers: Rbp is the caller's then, and leads past it."""
    program = Program(PUSHED_RBP_BY_V8, NOTHING, NOTHING)
    code = bytes.fromhex("55 48 89 e5 85 c0" + left)
    program.memory[0x1000 : 0x1000 + len(code)] = code
    program.put(0, 7, 7, 7, 0, 5, program.at(2), 0).put(slot, program.at(1))
    walk = program.walk(Registers.from_known(BASE + 0x1080, SP, {"Rbp": SP + 0x20}), interrupted=True)
    assert frames_of(walk)[1] == (program.at(2), "unwind", sure)
    assert sure is not (StatusCode.CODE_AND_UNWIND_DATA_DIFFER in walk.gaps)


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


@pytest.mark.parametrize(
    ("target", "code", "sure"),
    [
        (0x1200, "", True),
        (0x2000, "", False),
        (0x1000, "", False),
        (0x1000, "e9 2b 02 00 00", True),
        (0x1000, "0f 84 2b 02 00 00", True),
        (0x1000, "ff e0", True),
        (0x1000, "ff 15 00 00 00 00", False),
    ],
)
def test_the_call_before_a_leafs_return_address_must_lead_to_it(target: int, code: str, sure: bool) -> None:
    """At once, or by way of a function that ends with a jump. Else an earlier call left the address."""
    program = Program(NOTHING, NOTHING, *[NOTHING] * 15)
    program.entries = [entry for entry in program.entries if entry[0] != 0x1200]
    program.memory[0x1001 : 0x1001 + len(bytes.fromhex(code))] = bytes.fromhex(code)
    program.memory[0x111C:0x1120] = struct.pack("<i", target - 0x1120)
    program.put(0, program.at(1), 0)
    walk = program.walk(Registers.from_known(BASE + 0x1233, SP), True)
    assert frames_of(walk)[1:] == [(program.at(1), "leaf" if sure else "scan", sure)]


@pytest.mark.parametrize(
    ("code", "sure"),
    [
        ("48 83 ec 28", False),  # sub rsp
        ("57 48 81 ec a8 00 00 00 0f 29 74 24 20", False),
        ("48 8d 64 24 a8", False),  # lea rsp, [rsp - 58h]
        ("48 8d a4 24 00 ff ff ff", False),
        ("48 83 c4 80", False),  # add rsp, -80h
        ("41 57 48 83 e4 f0", False),  # and rsp, -10h
        ("41 57 48 81 e4 00 ff ff ff", False),
        ("48 83 ec 28 48 83 c4 28 5b 41 5c c3 85 c0", False),  # a return in the middle of the function
        ("48 83 ec 28 0f 58 c3 66 0f 6f c1", False),  # c3 that is no return
        ("48 83 ec 28 48 83 c4 28", True),
        ("48 81 ec a8 00 00 00 48 81 c4 a8 00 00 00", True),
        ("48 8d 64 24 a8 48 8d 64 24 58", True),
        ("48 83 ec 80", True),  # sub rsp, -80h
        ("48 83 ec 28 48 83 c4 28 c3 cc cc cc", True),
        ("48 83 ec 28 48 83 c4 28 c3 66 90", True),
        ("48 83 ec 28 48 83 c4 28 c3 66 66 2e 0f 1f 84 00 00 00 00 00", True),
        ("0f 29 74 24 20", True),
        ("48 83 ec 28 74 04 c9 c3 66 90 0f 2e e8", False),  # a return that the function jumps over
        ("48 83 ec 28 0f 84 04 00 00 00 c9 c3 66 90 0f 2e e8", False),
        ("48 83 ec 28 74 07 48 83 c4 28 c3 66 90 0f 2e e8", False),
        ("48 83 ec 28 74 03 c9 c3 66 90 0f 2e e8", True),
        ("48 83 ec 28 c9 c3 66 90 0f 2e e8 74 f9", True),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_what_has_made_room_on_the_stack_is_no_leaf(code: str, sure: bool, before: bool) -> None:
    """Assembler code may lack unwind data. What lies on top of its frame can be an old return address."""
    program = Program(NOTHING, NOTHING)
    program.memory[0x111B:0x1121] = bytes.fromhex("ff d0 90 90 90 90")
    program.memory[0x111E:0x1120] = bytes.fromhex("ff d0")
    behind = 0x2000 + len(bytes.fromhex(code))
    program.memory[0x2000:behind] = bytes.fromhex(code)
    if before:
        program.hidden.append((0x1800, 0x1900))
    program.put(0, program.at(1), 7, 0, program.at(0), 0)
    walk = program.walk(Registers.from_known(BASE + behind, SP), True)
    assert (frames_of(walk)[1] == (program.at(1), "leaf", True)) is sure
    assert sure or not any(frame.sure for frame in walk.frames[1:])


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
