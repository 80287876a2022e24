# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64 walks where something is missing, wrong or hostile, and across the kernel's frames: all forged."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.forge import isf
from tests.support import traplayouts
from tests.support.armtruth import reader
from tests.support.deep import rounds
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.decode.structure import Structures
from winstacks.names.decode import pointers_arm64
from winstacks.names.decode.functiontable_arm64 import FunctionTableArm64
from winstacks.names.decode.hybrid import ARM64EC, X64, CodeMap
from winstacks.stacks.decode import prologue_arm64
from winstacks.stacks.decode.frames import MAX_FRAMES, CodeImage, StackWalk
from winstacks.stacks.decode.registers_arm64 import RegistersArm64
from winstacks.stacks.decode.walk_arm64 import WalkerArm64

BASE, SIZE, STEP = 0x7FF600000000, 0x8000, 0x100
LOW, HIGH = 0xC500000000, 0xC500010000
SP = LOW + 0x1000
BL, RET, NOP = 0x94000000, 0xD65F03C0, 0xD503201F
CHAINED = 1 | STEP // 4 << 2 | 3 << 21 | 2 << 23
"""The unwind data of `stp x29,lr,[sp,#-32]!; mov x29,sp`."""
STORE, MOVE, LOAD = 0xA9BE7BFD, 0x910003FD, 0xA8C27BFD
SIGNED = 0x7E358 << 44
"""An authentication code of user mode: bits 63 to 56 and 54 to 47."""
_TABLES = ROOT / "symbols" / "windows" / "stacktraces"
TYPES = Structures.chain(
    [
        traplayouts.structures(isf.load(_TABLES / f"{kind}-10.0.16299-arm64.json"))
        for kind in ("context", "trapframe")
    ]
)


class Program:
    """A module of functions, 100h bytes each, whose first and last instructions are calls; and a stack."""

    def __init__(self, *words: int) -> None:
        self.data = bytearray(struct.pack("<I", NOP) * (SIZE // 4))
        self.entries = [(0x1000 + STEP * number, word) for number, word in enumerate(words) if word]
        self.memory: Dict[int, int] = {}
        self.hybrid: Optional[CodeMap] = None
        self.table, self.absent = True, 0
        self.code: Optional[Tuple[Tuple[int, int], ...]] = ((0x1000, 0x4000),)
        self.executable = range(0)
        for number, word in enumerate(words):
            if word == CHAINED:
                self.put(0x1000 + STEP * number, STORE, MOVE)
            for place in (0x40, STEP - 4):
                self.put(0x1000 + STEP * number + place, BL)

    def put(self, rva: int, *instructions: int) -> None:
        struct.pack_into(f"<{len(instructions)}I", self.data, rva, *instructions)

    def record(self, rva: int, codes: bytes, length: int = STEP) -> int:
        """Puts a full record, and returns its second word."""
        codes = codes.ljust(-(-len(codes) // 4) * 4, b"\xe3")
        head = struct.pack("<I", length // 4 | len(codes) // 4 << 27)
        self.data[rva : rva + 4 + len(codes)] = head + codes
        return rva

    def at(self, number: int, offset: int = 0x44) -> int:
        return BASE + 0x1000 + STEP * number + offset

    def read(self, address: int, length: int) -> Optional[bytes]:
        if BASE <= address < BASE + SIZE:
            data = reader(bytes(self.data))(address - BASE, length)
            return None if data is None else bytes(data)
        low = LOW if address < 1 << 63 else LOW | 0xFFFF << 48
        if not low <= address <= low + HIGH - LOW - length:
            return None
        start = address & -8
        words = [self.memory.get(place, 0) for place in range(start, address + length, 8)]
        return struct.pack(f"<{len(words)}Q", *words)[address - start :][:length]

    def pair(self, place: int, fp: int, lr: int) -> None:
        self.memory[place], self.memory[place + 8] = fp, lr

    def walk(self, registers: RegistersArm64, interrupted: bool = True, **options: Any) -> StackWalk:
        pdata = b"".join(struct.pack("<II", *entry) for entry in self.entries)
        read_rva = reader(bytes(self.data))
        runs = [(self.absent, pdata)]
        size = self.absent + len(pdata)
        table = FunctionTableArm64.from_runs(runs, size, read_rva) if self.table else None
        image = CodeImage(BASE, SIZE, read_rva, table, self.code, hybrid=self.hybrid)

        def find(address: int) -> Optional[CodeImage]:
            return image if BASE <= address < BASE + SIZE else None

        walker = WalkerArm64(find, self.read, TYPES, may_execute=self.executable.__contains__, **options)
        return walker.walk(registers, interrupted, [(LOW, HIGH)])


def start(program: Program, number: int = 0, offset: int = 0x44, **known: int) -> RegistersArm64:
    return RegistersArm64.from_known(program.at(number, offset), SP, {"Fp": SP, **known})


def shown(walk: StackWalk) -> List[Tuple[int, str, bool]]:
    return [(frame.address, frame.how, frame.sure) for frame in walk.frames[1:]]


def test_signed_return_addresses_are_stripped() -> None:
    program = Program(CHAINED, CHAINED, CHAINED)
    program.pair(SP, SP + 32, program.at(1) | SIGNED)
    program.pair(SP + 32, SP + 64, program.at(2) ^ SIGNED)
    walk = program.walk(start(program))
    assert shown(walk) == [(program.at(1), "unwind", True), (program.at(2), "unwind", True)]
    assert walk.end is None
    high = (1 << 64) - (1 << 47)
    assert pointers_arm64.strip(0x7FF612345678 ^ SIGNED) == 0x7FF612345678
    assert pointers_arm64.strip((high + 0x12345678) & ~SIGNED) == high + 0x12345678


def test_a_call_may_be_the_last_instruction_of_a_function() -> None:
    program = Program(CHAINED, CHAINED, 1 | STEP // 4 << 2)
    program.pair(SP, SP + 32, program.at(1, STEP))
    program.pair(SP + 32, 0, 0)
    assert shown(program.walk(start(program))) == [(program.at(2, 0), "unwind", True)]


def test_what_follows_no_call_is_unsure() -> None:
    program = Program(CHAINED, CHAINED)
    program.pair(SP, SP + 32, program.at(1, 0x48))
    program.pair(SP + 32, 0, 0)
    walk = program.walk(start(program))
    assert shown(walk) == [(program.at(1, 0x48), "unwind", False)]
    assert walk.gaps == (StatusCode.NOT_BEHIND_A_CALL,)


@pytest.mark.parametrize(
    ("moves", "sure"),
    [
        (NOP, True),
        (0xD10043FF, False),  # sub sp, sp, #16
        (0x910003FF, False),  # mov sp, sp
        (0xA9BF7BFD, False),  # stp x29, x30, [sp, #-16]!
        (0xFC1F0FE8, False),  # str d8, [sp, #-16]!
        (0x6DBF27E8, False),  # stp d8, d9, [sp, #-16]!
        (0xF84107F3, False),  # ldr x19, [sp], #16
        (0x8B2163FF, False),  # add sp, sp, x1
        (0x927CEFFF, False),  # and sp, xzr, #-16
        (0x0C9F7FE0, False),  # st1 {v0.2d}, [sp], #8
        (0x043F57FF, False),  # addvl sp, sp, #-1
        (0xA90153F3, True),  # stp x19, x20, [sp, #16]
        (0xEB01001F, True),  # cmp x0, x1
        (0xF100041F, True),  # cmp x0, #1
    ],
)
def test_leaf_is_sure_only_if_nothing_around_it_moves_the_stack_pointer(moves: int, sure: bool) -> None:
    program = Program(0, CHAINED)
    program.put(0x1080, moves)
    program.pair(SP, 0, 0)
    walk = program.walk(start(program, 0, 0x20, Lr=program.at(1)))
    assert shown(walk) == [(program.at(1), "leaf", sure)]
    assert walk.frames[1].sp == SP


@pytest.mark.parametrize(
    ("number", "offset", "register"),
    [
        (0, 0x20, "Lr"),  # a leaf
        (1, 0, "Lr"),  # the prologue has not stored the pair
        (1, 4, None),  # the pair is stored
        (1, 0x44, None),
    ],
)
def test_frame_says_which_register_held_its_return_address(
    number: int, offset: int, register: Optional[str]
) -> None:
    program = Program(0, CHAINED, CHAINED, CHAINED)
    program.pair(SP, SP + 32, program.at(2))
    program.pair(SP + 32, 0, program.at(3))
    walk = program.walk(start(program, number, offset, Lr=program.at(2) | SIGNED))
    places = [(frame.address, frame.return_register) for frame in walk.frames]
    assert places[:2] == [(program.at(number, offset), None), (program.at(2), register)]
    assert len(places) > 2 and not any(held for _, held in places[2:])


def test_leaf_whose_link_register_leads_nowhere_is_no_leaf() -> None:
    program = Program(0, CHAINED)
    for lr in (program.at(1, 0x48), program.at(0), 0x1234, LOW):
        walk = program.walk(start(program, 0, 0x20, Lr=lr, Fp=0))
        assert shown(walk) == []
        assert walk.end is StatusCode.NO_UNWIND_DATA
    ended = program.walk(start(program, 0, 0x20, Lr=0, Fp=0))
    assert (shown(ended), ended.end) == ([], None)


def test_code_without_unwind_data_that_stored_its_pair_is_no_leaf() -> None:
    program = Program(0, CHAINED, CHAINED)
    program.put(0x1020, 0xA9BF7BFD, MOVE)  # stp x29,x30,[sp,#-16]!, as in memcpy of zig
    program.pair(SP, SP + 16, program.at(1) | SIGNED)
    program.pair(SP + 16, 0, program.at(2))
    walk = program.walk(start(program, 0, 0x2C, Lr=program.at(1)))
    assert shown(walk) == [(program.at(1), "framepointer", False), (program.at(2), "unwind", False)]
    assert [frame.sp for frame in walk.frames[1:]] == [SP + 16, SP + 48]


def test_island_is_where_it_jumps_to() -> None:
    program = Program(CHAINED, CHAINED)
    program.entries.append((0x1800, 0x7000 | 3))
    # adrp x16, +0; add x16, x16, #0x44; br x16, to the body of the first function.
    program.put(0x1800, 0x90000010, 0x91011210, 0xD61F0200)
    program.pair(SP, 0, program.at(1))
    walk = program.walk(RegistersArm64.from_known(BASE + 0x1804, SP, {"Fp": SP, "Lr": 0x1234}))
    assert shown(walk)[0] == (program.at(1), "unwind", True)


def test_chain_is_followed_where_no_unwind_data_is() -> None:
    program = Program(CHAINED, CHAINED, CHAINED)
    program.table = False
    program.pair(SP + 0x20, SP + 0x80, program.at(1) | SIGNED)
    program.pair(SP + 0x80, 0, program.at(2))
    walk = program.walk(start(program, Fp=SP + 0x20))
    assert shown(walk) == [(program.at(1), "framepointer", False), (program.at(2), "framepointer", False)]
    assert [frame.sp for frame in walk.frames[1:]] == [SP + 0x30, SP + 0x90]
    assert (walk.end, walk.gaps) == (None, (StatusCode.NO_FUNCTION_TABLE,))


@pytest.mark.parametrize(
    ("instruction", "lr", "found"),
    [
        (0xD65F03C0, BASE + 0x1144, True),
        (0xD65F0BFF, BASE + 0x1144 ^ SIGNED, True),
        (0xD65F03C0, BASE + 0x1148, False),
        (0xD65F03C0, LOW, False),
        (0xD65F0020, BASE + 0x1144, False),
    ],
)
@pytest.mark.parametrize(("table", "word"), [(False, CHAINED), (True, 0), (True, SIZE)])
def test_code_that_returns_at_once_needs_no_unwind_data(
    table: bool, word: int, instruction: int, lr: int, found: bool
) -> None:
    """A stub of a system call, in a dump that lacks the headers of its module: its caller is in no pair.

    Or the dump lacks a part of the function table, or the unwind data.
    """
    program = Program(word, CHAINED, CHAINED)
    program.table = table
    program.absent = 0 if word else FunctionTableArm64.ENTRY_SIZE
    program.put(0x1080, instruction)
    program.pair(SP + 0x20, 0, program.at(2))
    walk = program.walk(start(program, offset=0x80, Fp=SP + 0x20, Lr=lr))
    caller = (program.at(1), "leaf", True) if found else (program.at(2), "framepointer", False)
    assert shown(walk)[0] == caller


def test_chain_begins_around_the_stack_pointer_in_go() -> None:
    program = Program(CHAINED, CHAINED, CHAINED)
    program.table = False
    program.pair(SP - 8, SP + 0x78, program.at(1))
    program.pair(SP + 0x78, 0, program.at(2))
    walk = program.walk(start(program, Fp=SP - 8))
    assert shown(walk) == [(program.at(1), "framepointer", False), (program.at(2), "framepointer", False)]
    assert [frame.sp for frame in walk.frames[1:]] == [SP + 8, SP + 0x88]
    assert walk.end is None


@pytest.mark.parametrize("call", [BL, NOP])
def test_chain_is_followed_through_code_outside_modules(call: int) -> None:
    program = Program(CHAINED, CHAINED, CHAINED)
    generated = [LOW + 0x8008, LOW + 0x8108]
    program.executable = range(LOW + 0x8000, LOW + 0x9000)
    program.memory.update({generated[0] - 8: BL << 32, generated[1] - 8: call << 32})
    program.memory[SP + 0x30] = program.at(2)  # what an earlier call has left
    program.pair(SP, SP + 0x40, generated[0])
    program.pair(SP + 0x40, SP + 0x80, generated[1])
    program.pair(SP + 0x80, 0, program.at(1))
    walk = program.walk(start(program))
    chain = [(generated[1], "framepointer", False), (program.at(1), "framepointer", False)]
    assert shown(walk)[0] == (generated[0], "unwind", True)
    assert (shown(walk)[1:3] == chain) == (call == BL)
    assert walk.gaps[0] is StatusCode.CODE_IN_NO_MODULE


@pytest.mark.parametrize("fp", [SP - 8, SP - 16, SP + 4, HIGH - 8, HIGH, 0, (1 << 64) - 8])
def test_chain_that_leaves_the_stack_is_not_followed(fp: int) -> None:
    program = Program(CHAINED)
    program.table = False
    walk = program.walk(start(program, Fp=fp))
    assert (shown(walk), walk.end) == ([], StatusCode.NO_FUNCTION_TABLE)


def test_chain_that_leads_back_ends() -> None:
    program = Program(CHAINED, CHAINED)
    program.table = False
    program.pair(SP, SP, program.at(1))
    assert len(program.walk(start(program)).frames) == 2


def test_a_walk_ends_after_the_frames_that_its_walker_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast path counts them, too."""
    program = Program(*[CHAINED] * 9)
    for number in range(1, 9):
        place = SP + 32 * (number - 1)
        program.pair(place, place + 32, program.at(number))
    assert len(program.walk(start(program)).frames) == 9
    monkeypatch.setattr(WalkerArm64, "most_frames", 4)
    walk = program.walk(start(program))
    assert (len(walk.frames), walk.end) == (4, StatusCode.TOO_MANY_FRAMES)


def kernel_frames(program: Program, code: int) -> None:
    """Makes the first function one whose frame the kernel made."""
    program.entries[0] = (0x1000, program.record(0x6000, bytes([code, 0xE4])))


def fill(program: Program, name: str, address: int, **members: int) -> None:
    """Puts a structure on the stack."""
    structure = TYPES[name]
    data = bytearray(-(-structure.size // 8) * 8)
    for member, value in members.items():
        field = structure.field(member)
        data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    for place, (word,) in zip(range(address, address + len(data), 8), struct.iter_unpack("<Q", data)):
        program.memory[place] = word


def test_machine_frame_has_the_interrupted_state() -> None:
    program = Program(CHAINED, CHAINED)
    kernel_frames(program, 0xE9)
    program.pair(SP, SP + 0x400, program.at(1, 0x48))
    program.pair(SP + 0x400, 0, 0)
    walk = program.walk(start(program, Fp=SP + 0x400))
    assert shown(walk) == [(program.at(1, 0x48), "trap", True)]
    assert (walk.frames[1].sp, walk.frames[1].returns) == (SP + 0x400, False)


def test_context_has_all_registers_of_the_interrupted_code() -> None:
    program = Program(CHAINED, CHAINED)
    kernel_frames(program, 0xEA)
    fill(program, "_CONTEXT", SP, Cpsr=0, X19=19, Fp=SP + 0x600, Lr=7, Sp=SP + 0x600, Pc=program.at(1, 0x48))
    program.pair(SP + 0x600, 0, 0)
    walk = program.walk(start(program))
    assert shown(walk) == [(program.at(1, 0x48), "trap", True)]
    registers = walk.frames[1].registers
    assert isinstance(registers, RegistersArm64)
    assert (dict(registers.kept())["X19"], registers.lr, registers.fp) == (19, 7, SP + 0x600)


@pytest.mark.parametrize(("flags", "caller"), [(0x400007, 2), (0x20400007, 3)])
def test_context_of_a_call_continues_at_the_call(flags: int, caller: int) -> None:
    """RtlRaiseException sets CONTEXT_UNWOUND_TO_CALL (listing: Wine); a call that never returns is last."""
    leaf = 1 | STEP // 4 << 2
    program = Program(CHAINED, CHAINED, leaf, leaf)
    kernel_frames(program, 0xEA)
    program.entries[1] = (0x1000 + STEP, program.record(0x6100, b"\xe1\x83\xe4"))
    at = SP + 0x600
    fill(program, "_CONTEXT", SP, ContextFlags=flags, Fp=at, Lr=program.at(2), Sp=at, Pc=program.at(1, STEP))
    program.pair(at, 0, program.at(3))
    walk = program.walk(start(program))
    assert shown(walk)[:2] == [(program.at(1, STEP), "trap", True), (program.at(caller), "unwind", True)]


def test_trap_frame_leads_on_or_to_the_border() -> None:
    program = Program(CHAINED, CHAINED)
    kernel_frames(program, 0xE8)
    members = {"Fp": SP + 0x600, "Lr": 7, "Sp": SP + 0x600, "Pc": program.at(1, 0x48)}
    fill(program, "_KTRAP_FRAME", SP, Spsr=4, **members)
    program.pair(SP + 0x600, 0, 0)
    walk = program.walk(start(program, X19=19))
    assert shown(walk) == [(program.at(1, 0x48), "trap", True)]
    registers = walk.frames[1].registers
    assert isinstance(registers, RegistersArm64)
    assert (dict(registers.kept())["X19"], registers.lr) == (19, 7)
    fill(program, "_KTRAP_FRAME", SP, Spsr=0, **members)
    walk = program.walk(start(program))
    assert walk.border is not None
    assert (walk.border.trap, walk.border.ip, walk.border.sp) == (SP, program.at(1, 0x48), SP + 0x600)


def test_popped_cookie_leaves_its_caller_as_interrupted() -> None:
    program = Program(CHAINED, CHAINED)
    program.entries[0] = (0x1000, program.record(0x6000, bytes([0xEC, 0x01, 0xE4])))
    # The second function stands in its prologue: only `interrupted` undoes nothing there.
    program.put(0x1000, NOP, NOP)
    walk = program.walk(start(program, Lr=program.at(1, 0), Fp=0))
    assert shown(walk)[0] == (program.at(1, 0), "unwind", True)
    assert not walk.frames[1].returns


@pytest.mark.parametrize(
    ("codes", "end"),
    [
        (b"\xeb\xe4", StatusCode.OTHER_ARCHITECTURE),
        (b"\xdf\x01\xe4", StatusCode.VECTOR_LENGTH_UNKNOWN),
        (b"\xed\xe4", StatusCode.UNWIND_DATA_INVALID),
        (b"\x01\x01\x01\x01", StatusCode.UNWIND_DATA_INVALID),
    ],
)
def test_what_cannot_be_unwound_is_said(codes: bytes, end: StatusCode) -> None:
    program = Program(CHAINED)
    program.entries[0] = (0x1000, program.record(0x6000, codes))
    walk = program.walk(start(program, Fp=0))
    assert (shown(walk), walk.end) == ([], end)


def test_x64_code_of_a_hybrid_image_ends_the_walk() -> None:
    program = Program(CHAINED, CHAINED)
    program.pair(SP, SP + 32, program.at(1))
    program.hybrid = CodeMap([0x1000, 0x1100], [0x1100, 0x1200], [ARM64EC, X64])
    walk = program.walk(start(program))
    assert shown(walk) == [(program.at(1), "unwind", True)]
    assert walk.end is StatusCode.OTHER_ARCHITECTURE


def test_a_record_that_never_leaves_its_frame_ends() -> None:
    program = Program(CHAINED)
    # stp x29,lr,[sp] without an allocation: the stack pointer stays.
    program.entries[0] = (0x1000, program.record(0x6000, b"\x40\xe4"))
    program.pair(SP, SP, program.at(0))
    walk = program.walk(start(program))
    assert len(walk.frames) < MAX_FRAMES
    assert walk.end is not None


@settings(max_examples=rounds(1000))
@given(
    codes=st.binary(min_size=1, max_size=24),
    stack=st.lists(st.integers(0, (1 << 64) - 1), max_size=40),
    offset=st.integers(0, STEP // 4 - 1),
    interrupted=st.booleans(),
)
def test_any_record_and_any_stack_end(codes: bytes, stack: List[int], offset: int, interrupted: bool) -> None:
    program = Program(CHAINED, CHAINED)
    program.entries[0] = (0x1000, program.record(0x6000, codes))
    for number, word in enumerate(stack):
        program.memory[SP + 8 * number] = word
    walk = program.walk(start(program, 0, 4 * offset), interrupted)
    assert 1 <= len(walk.frames) <= MAX_FRAMES


@pytest.mark.parametrize(
    ("place", "instructions"),
    [
        (0, (NOP, NOP)),  # another function than the one of the record
        (0, (0xA9BD7BFD, MOVE)),  # another size
        (0, (STORE, 0x910043FD)),  # add x29, sp, #16
        (0x44, (STORE,)),
        (0x40, (STORE, NOP)),
        (0x44, (MOVE,)),
        (0x44, (RET,)),
        (0x40, (LOAD, NOP)),
    ],
)
def test_code_that_contradicts_its_unwind_data_is_unsure(place: int, instructions: Tuple[int, ...]) -> None:
    program = Program(CHAINED, CHAINED)
    program.put(0x1000 + place, *instructions)
    program.pair(SP, SP + 32, program.at(1))
    program.pair(SP + 32, 0, 0)
    walk = program.walk(start(program))
    assert shown(walk) == [(program.at(1), "unwind", False)]
    assert walk.gaps == (StatusCode.CODE_AND_UNWIND_DATA_DIFFER,)
    # Of a frame that called, only the call matters.
    assert shown(program.walk(start(program), False))[:1] == [(program.at(1), "unwind", True)]


@pytest.mark.parametrize("address", [0x1234, 0x7FF700000044, BASE + 0x4044, LOW + 0x44])
def test_memory_that_is_not_there_or_no_code_proves_no_caller(address: int) -> None:
    program = Program(CHAINED, CHAINED)
    program.put(0x4040, BL)
    program.pair(SP, SP + 32, address)
    walk = program.walk(start(program))
    assert shown(walk)[:1] == [(address, "unwind", False)]
    assert StatusCode.NOT_BEHIND_A_CALL in walk.gaps


@pytest.mark.parametrize("place", [0, 0x1234, BASE + 0x5000, LOW + 0x8000])
@pytest.mark.parametrize(
    ("call", "found"), [(0xD63F0100, True), (0xD63F0900, True), (BL, False), (NOP, False)]
)
def test_call_to_a_place_without_code_left_its_address_in_lr(place: int, call: int, found: bool) -> None:
    program = Program(CHAINED, CHAINED)
    program.put(0x1040, call)
    program.pair(SP, 0, program.at(1))
    registers = RegistersArm64.from_known(place, SP, {"Fp": 0, "Lr": program.at(0) ^ SIGNED})
    walk = program.walk(registers)
    assert ((program.at(0), "leaf", True) in shown(walk)) == found
    assert all((frame.return_register == "Lr") == (frame.how == "leaf") for frame in walk.frames)


@pytest.mark.parametrize("interrupted", [True, False])
def test_whoever_called_replaced_code_is_unsure(interrupted: bool) -> None:
    program = Program(CHAINED, CHAINED, CHAINED)
    program.pair(SP, SP + 32, program.at(1))
    program.pair(SP + 32, SP + 64, program.at(2))

    def replaced(address: int) -> bool:
        return program.at(1, 0) <= address < program.at(2, 0)

    walk = program.walk(start(program), interrupted, replaced=replaced)
    assert shown(walk)[:2] == [(program.at(1), "unwind", True), (program.at(2), "unwind", False)]
    assert walk.gaps == (StatusCode.CODE_AND_UNWIND_DATA_DIFFER,)
    # Before the first instruction the caller is in the link register, whatever the code is.
    first = start(program, 1, 0, Lr=program.at(2))
    assert shown(program.walk(first, True, replaced=replaced))[0] == (program.at(2), "unwind", True)


@pytest.mark.parametrize(
    ("words", "length"),
    [
        ((0x14000010, NOP), 4),  # b
        ((0x58000050, 0xD61F0200), 8),  # ldr x16, #8; br x16
        ((0x90000010, 0xF9400210, 0xD61F0200), 12),  # adrp; ldr; br x16
        ((STORE, MOVE, NOP, NOP, 0xD61F0200), 0),
        ((), 0),
    ],
)
def test_the_jump_of_a_hook(words: Tuple[int, ...], length: int) -> None:
    assert prologue_arm64.detour(struct.pack(f"<{len(words)}I", *words)) == length
