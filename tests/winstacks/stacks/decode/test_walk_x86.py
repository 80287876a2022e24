# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 walks: trap frames on the way, and stacks that are broken or hostile. (Code that ran: tests/unwind.)"""

from __future__ import annotations

import struct
from typing import Any, Collection, Dict, FrozenSet, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import traplayouts
from tests.support.deep import rounds
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacks.decode import dispatchers_x86
from winstacks.stacks.decode.frames import MAX_FRAMES, CodeImage, StackWalk
from winstacks.stacks.decode.registers import Registers32
from winstacks.stacks.decode.walk_x86 import TRAP_MARK, Walker32

BASE, SIZE = 0x80400000, 0x4000
TYPES = traplayouts.ours("x86")
LOW, HIGH = 0xF8000000, 0xF8003000
SP = LOW + 0x1000
DISPATCHER = 15


def at(number: int) -> int:
    """Where the call in function `number` returns to."""
    return BASE + 0x1020 + 0x100 * number


class Program:
    """Functions that set up a frame and call the next, and a stack."""

    def __init__(self) -> None:
        self.memory = bytearray(b"\x40" * SIZE)
        self.stack: Dict[int, int] = {}
        self.reads = 0
        self.private: Dict[int, bytes] = {}
        self.data: List[int] = []
        self.dispatcher = ""
        self.windows = self.changed = self.absent = False
        self.refused: FrozenSet[int] = frozenset()
        for number in range(16):
            begin = 0x1000 + 0x100 * number
            self.memory[begin - 2 : begin + 3] = b"\xcc\xcc\x55\x8b\xec"
            # Function n calls function n - 1: outer ones have higher numbers.
            self.memory[begin + 0x1B : begin + 0x20] = b"\xe8" + struct.pack("<i", -0x120)

    def put(self, address: int, *values: int) -> Program:
        for number, value in enumerate(values):
            self.stack[address + 4 * number] = value & 0xFFFFFFFF
        return self

    def trap_frame(self, address: int, ip: int, bp: int, cs: int = 8, flags: int = 0x202) -> Program:
        self.put(address, bp, ip, TRAP_MARK)
        self.put(address + 0x60, bp, 0, ip, cs, flags)
        return self

    def read_rva(self, rva: int, length: int) -> Optional[bytes]:
        known = not self.absent and rva >= 0 and rva + length <= SIZE
        return bytes(self.memory[rva : rva + length]) if known else None

    @staticmethod
    def begins(rva: int) -> bool:
        """Every 100h bytes a function has a name."""
        return rva % 0x100 == 0

    def find_dispatcher(self, address: int) -> Optional[Tuple[int, str]]:
        begin = BASE + 0x1000 + 0x100 * DISPATCHER
        return (begin, self.dispatcher) if self.dispatcher and begin <= address < begin + 0x80 else None

    def walk(
        self,
        registers: Registers32,
        interrupted: bool = False,
        known: Collection[int] = (),
        end: int = HIGH,
        stacks: Tuple[Tuple[int, int], ...] = ((LOW, HIGH),),
    ) -> StackWalk:
        code = (0x1000, 0x3000)
        image = CodeImage(BASE, SIZE, self.read_rva, None, (code,), self.windows, self.begins)
        data = bytearray(HIGH - LOW)
        for address, value in self.stack.items():
            struct.pack_into("<I", data, address - LOW, value)
        of_image = [] if self.absent else [(BASE, bytes(self.memory))]
        memory = Extents([*of_image, (LOW, bytes(data[: end - LOW])), *self.private.items()])

        def read(address: int, length: int) -> Optional[memoryview]:
            self.reads += 1
            return memory.read(address, length)

        def find_image(address: int) -> Optional[CodeImage]:
            return image if BASE <= address < BASE + SIZE else None

        def may_execute(address: int) -> bool:
            return address // 0x1000 not in self.data

        walker = Walker32(
            *(find_image, read, TYPES, known, may_execute),
            find_dispatcher=self.find_dispatcher,
            own_copy=lambda _: self.changed,
        )
        walker.refused = self.refused
        return walker.walk(registers, interrupted, stacks)


def frames_of(walk: StackWalk) -> List[Tuple[int, str, bool]]:
    return [(frame.address, frame.how, frame.sure) for frame in walk.frames]


def chain(program: Program) -> Program:
    """Three frames: function 1, called by 2, called by 3, which nobody called."""
    return program.put(SP + 0x20, SP + 0x40, at(2)).put(SP + 0x40, SP + 0x60, at(3)).put(SP + 0x60, 0, 0)


def test_the_chain_of_frame_pointers() -> None:
    walk = chain(Program()).walk(Registers32(at(1), SP, SP + 0x20))
    assert frames_of(walk) == [
        *((at(1), "trap", True), (at(2), "framepointer", True), (at(3), "framepointer", True)),
    ]
    assert (walk.end, walk.gaps) == (None, ())


def test_a_trap_frame_in_the_chain() -> None:
    program = chain(Program())
    program.put(SP + 0x100, SP + 0x200, at(5))
    program.trap_frame(SP + 0x200, at(6) + 2, SP + 0x300)
    program.put(SP + 0x300, SP + 0x320, at(7)).put(SP + 0x320, 0, 0)
    walk = program.walk(Registers32(at(4), SP + 0xF0, SP + 0x100))
    assert [(address, how) for address, how, _ in frames_of(walk)] == [
        *((at(4), "trap"), (at(5), "framepointer"), (at(6) + 2, "trap"), (at(7), "framepointer")),
    ]
    assert walk.frames[2].sp == SP + 0x274
    assert (walk.frames[2].returns, walk.frames[2].trap) == (False, SP + 0x200)


def test_user_mode_is_the_border() -> None:
    program = Program().put(SP + 0x20, SP + 0x100, at(2))
    program.trap_frame(SP + 0x100, 0x77F01234, 0x12FF00, cs=0x1B).put(SP + 0x174, 0x12FE00, 0x23)
    walk = program.walk(Registers32(at(1), SP, SP + 0x20))
    assert walk.border is not None
    assert (walk.border.ip, walk.border.sp, walk.border.cs) == (0x77F01234, 0x12FE00, 0x1B)
    assert (len(walk.frames), walk.end) == (2, None)


def test_a_frame_without_the_mark_is_one_only_if_it_is_known() -> None:
    program = Program().put(SP + 0x20, SP + 0x100, at(2))
    program.trap_frame(SP + 0x100, 0x77F01234, 0x12FF00, cs=0x1B).put(SP + 0x108, 0)
    registers = Registers32(at(1), SP, SP + 0x20)
    assert program.walk(registers).border is None
    assert program.walk(registers, known=[SP + 0x100]).border is not None


def test_what_the_switch_frame_tells_comes_first() -> None:
    program = chain(Program()).put(SP + 0x10, at(1))
    walk = program.walk(Registers32(BASE + 0x2800, SP, SP + 0x20, return_slot=SP + 0x10))
    assert [(address, how) for address, how, _ in frames_of(walk)][:3] == [
        *((BASE + 0x2800, "trap"), (at(1), "unwind"), (at(2), "framepointer")),
    ]


def test_a_broken_chain_goes_on_by_scan() -> None:
    program = Program().put(SP + 8, 7, SP + 0x40, at(2)).put(SP + 0x40, 0, 0)
    for bp in (None, SP - 0x100, SP + 0x21, 0x12345678):
        walk = program.walk(Registers32(at(1), SP, bp))
        assert frames_of(walk)[1:] == [(at(2), "scan", False)]
        assert len(walk.gaps) == 1


def test_a_scan_finds_callers_in_no_module() -> None:
    program = Program().put(SP + 8, 0x20000050, 0, 0x20000040, 0, 0x20010040, 0, at(2)).put(SP + 0x40, 0, 0)
    code = b"\xcc" * 0x3B + bytes.fromhex("e8 00 01 00 00") + b"\xcc" * 0x40
    program.private = {0x20000000: code, 0x20010000: code}
    guessed = [(address, "scan", False) for address in (0x20000040, 0x20010040, at(2))]
    assert frames_of(program.walk(Registers32(at(1), SP, None)))[1:] == guessed
    program.data = [0x20010]
    assert frames_of(program.walk(Registers32(at(1), SP, None)))[1:] == [guessed[0], guessed[2]]


def test_a_scan_finds_trap_frames_by_their_mark() -> None:
    program = Program().trap_frame(SP + 0x40, at(3) + 1, SP + 0x200).put(SP + 0x200, 0, 0)
    walk = program.walk(Registers32(at(1), SP, None))
    assert (walk.frames[1].address, walk.frames[1].how, walk.frames[1].sure) == (at(3) + 1, "trap", False)


def left(code: bytes = b"", windows: bool = True, changed: bool = False, to: int = 0x20000040) -> StackWalk:
    """The walk from function 1 of a module, from which the frame pointer leads to memory of none."""
    program = Program().put(SP + 0x20, SP + 0x40, to).put(SP + 0x40, SP + 0x60, at(3)).put(SP + 0x60, 0, 0)
    program.private = {0x20000000: code.rjust(0x40, b"\x5a").ljust(0x80, b"\x5a")}
    program.data = [0x20000]
    program.windows, program.changed = windows, changed
    return program.walk(Registers32(at(1), SP, SP + 0x20))


def test_windows_returns_to_what_may_not_be_executed() -> None:
    """Its code shows that the frame is set up: what lies above the saved frame pointer was pushed."""
    for code, gaps in ((b"", [StatusCode.NOT_BEHIND_A_CALL]), (b"\xe8\0\1\0\0", [])):
        walk = left(code)
        assert frames_of(walk)[1] == (0x20000040, "framepointer", True)
        assert [gap for gap in walk.gaps if gap == StatusCode.NOT_BEHIND_A_CALL] == gaps


def test_other_code_that_leads_there_is_doubted() -> None:
    for walk in (left(windows=False), left(changed=True), left(to=at(9) + 1)):
        assert frames_of(walk)[1:] == [(at(3), "scan", False)]


def test_cycles_missing_pages_and_the_end_of_the_stack() -> None:
    program = Program().put(SP + 0x20, SP + 0x20, at(2))
    walk = program.walk(Registers32(at(1), SP, SP + 0x20))
    assert len(walk.frames) <= 3
    assert walk.end == StatusCode.FRAME_POINTER_IMPLAUSIBLE
    walk = chain(Program()).walk(Registers32(at(1), SP, SP + 0x20), end=SP + 0x40)
    assert (len(walk.frames), walk.end) == (2, StatusCode.STACK_UNREADABLE)
    walk = (
        Program().put(HIGH - 8, 0, at(2)).walk(Registers32(at(1), SP, HIGH - 8), stacks=((LOW, HIGH - 0x10),))
    )
    assert walk.end == StatusCode.FRAME_POINTER_IMPLAUSIBLE


def test_an_ebp_that_leads_off_the_stack_is_no_frame_pointer() -> None:
    """Code without frame pointers keeps something else in Ebp, here the address of a pointer to code."""
    program = chain(Program()).put(SP + 0x20, 0xFA000000, at(2)).put(SP + 0x44, at(3))
    program.private = {0xFA000000: struct.pack("<2I", 0, at(4))}
    walk = program.walk(Registers32(at(1), SP, SP + 0x20))
    assert frames_of(walk)[1:3] == [(at(2), "framepointer", True), (at(3), "scan", False)]
    assert walk.end is None and walk.gaps[0] is StatusCode.FRAME_POINTER_IMPLAUSIBLE


def test_an_ebp_that_leads_off_the_stack_to_an_address_outside_all_modules_is_no_frame_pointer() -> None:
    """Not even in code of Windows that sets up a frame: one write to the saved register leads anywhere."""
    program = Program().put(SP + 0x44, at(3))
    program.windows = True
    program.private = {0x20000000: b"\x5a" * 0x80, 0xFA000000: struct.pack("<2I", 0, 0x20000040)}
    walk = program.walk(Registers32(at(1), SP, 0xFA000000))
    assert frames_of(walk)[1:] == [(at(3), "scan", False)]


def test_a_function_that_was_not_called_from_there_is_doubted() -> None:
    program = Program().put(SP + 0x20, SP + 0x40, at(9)).put(SP + 0x40, 0, 0)
    walk = program.walk(Registers32(at(1), SP, SP + 0x20))
    assert frames_of(walk)[1:] == [(at(9), "framepointer", False)]
    assert walk.gaps == (StatusCode.FRAME_POINTER_UNSURE,)


def test_behind_a_call_that_never_returns_another_function_may_start() -> None:
    """Function 2 is called through a register, and its own call is the last thing that it does."""
    program = chain(Program())
    program.memory[0x131B:0x1320] = bytes.fromhex("90 90 90 ff d0")
    program.memory[0x1220:0x1223] = bytes.fromhex("55 8b ec")
    walk = program.walk(Registers32(at(1), SP, SP + 0x20))
    assert frames_of(walk)[1:] == [(at(2), "framepointer", True), (at(3), "framepointer", True)]
    assert (walk.end, walk.gaps) == (None, ())


def test_a_caller_of_a_function_that_another_module_exports_in_the_name_of_its_own_is_sure() -> None:
    """Function 2 calls function 1 as a program calls kernel32!Sleep, which jumps on to kernelbase!Sleep."""
    program = chain(Program())
    imports, forwarder = 0x2F00, 0x2E00
    program.memory[0x121A:0x1220] = b"\xff\x15" + struct.pack("<I", BASE + imports)
    program.memory[imports : imports + 8] = struct.pack("<II", BASE + forwarder, BASE + 0x1100)
    jump = b"\xff\x25" + struct.pack("<I", BASE + imports + 4)
    program.memory[forwarder : forwarder + 12] = bytes.fromhex("8b ff 55 8b ec 5d") + jump
    program.memory[0x1121:0x1123] = bytes.fromhex("c9 c3")
    walk = program.walk(Registers32(at(1), SP, SP + 0x20))
    assert frames_of(walk)[1:] == [(at(2), "framepointer", True), (at(3), "framepointer", True)]
    assert (walk.end, walk.gaps) == (None, ())


ENTRY = SP + 0x28
RECORD, CONTEXT = ENTRY + 8, ENTRY + 0x58
INTERRUPTED = CONTEXT + 0x2CC


def raised() -> Program:
    """Function 14, called by the dispatcher of an exception of function 3; its callers are 4 and 5."""
    program = Program()
    program.dispatcher = "KiUserExceptionDispatcher"
    begin = 0x1000 + 0x100 * DISPATCHER
    program.memory[begin : begin + 10] = bytes.fromhex("fc 8b 4c 24 04 8b 1c 24 51 53")
    program.memory[begin + 0x40 : begin + 0x42] = b"\xcc\xcc"
    program.put(SP + 0x18, INTERRUPTED + 0x10, at(DISPATCHER), RECORD, CONTEXT, RECORD, CONTEXT)
    program.put(RECORD, 0xC0000005, 0, 0, at(3) - 7, 2)
    program.put(CONTEXT, 0x1003F).put(
        CONTEXT + 0xB4, INTERRUPTED + 0x10, at(3) - 7, 0x1B, 0x10246, INTERRUPTED
    )
    program.put(INTERRUPTED + 0x10, INTERRUPTED + 0x30, at(4)).put(
        INTERRUPTED + 0x30, INTERRUPTED + 0x50, at(5)
    )
    return program.put(INTERRUPTED + 0x50, 0, 0)


def from_below(program: Program, **options: Any) -> StackWalk:
    return program.walk(Registers32(at(14), SP, SP + 0x18), **options)


def test_the_context_of_an_exception() -> None:
    for flags in (0x10007, 0x1003F, 0x1007F, 0x1001F, 0x5001003F):
        walk = from_below(raised().put(CONTEXT, flags))
        assert frames_of(walk)[2:] == [
            *((at(3) - 7, "trap", True), (at(4), "framepointer", True), (at(5), "framepointer", True)),
        ]
        assert (walk.frames[2].sp, walk.frames[2].returns) == (INTERRUPTED, False)
        assert (walk.end, walk.gaps) == (None, ())
    program = raised()
    for offset, pushed in ((0, 0), (1, 0), (5, 0), (8, 0), (9, 4), (10, 8)):
        # Interrupted in the dispatcher itself, whatever it has pushed.
        start = Registers32(BASE + 0x1000 + 0x100 * DISPATCHER + offset, ENTRY - pushed, INTERRUPTED + 0x10)
        assert frames_of(program.walk(start, True)) == [(start.ip, "trap", True), *frames_of(walk)[2:]]


@pytest.mark.parametrize("ip", [0, 0x45])
def test_an_exception_of_a_call_into_no_memory(ip: int) -> None:
    """Function 3 called through a pointer that leads nowhere: EXCEPTION_RECORD confirms the CONTEXT's Eip."""
    program = raised().put(RECORD + 12, ip).put(CONTEXT + 0xB8, ip).put(INTERRUPTED, at(3))
    program.memory[0x131B:0x1320] = bytes.fromhex("90 90 90 ff d0")
    walk = from_below(program)
    assert frames_of(walk)[2:] == [
        *((ip, "trap", True), (at(3), "leaf", True), (at(4), "framepointer", True)),
        (at(5), "framepointer", True),
    ]
    assert (walk.end, walk.gaps) == (None, ())


@pytest.mark.parametrize("private", [False, True])
def test_a_copied_return_address_does_not_tell_where_its_caller_s_stack_begins_but_the_original_does(
    private: bool,
) -> None:
    """A function that aligns Esp (GCC's `Sleep` of Wine's kernelbase) lies below a caller without a frame,
    which may lie in memory that is not executable while it sleeps.

    What the caller's depth leads to from the copy is an old value, here a return address.
    """
    program = Program()
    program.windows = private
    # lea ecx, [esp+4]; and esp, -8; push [ecx-4]; push ebp; mov ebp, esp; push ecx; sub esp, 14h; call eax
    aligned = bytes.fromhex("cc cc 8d 4c 24 04 83 e4 f8 ff 71 fc 55 89 e5 51 83 ec 14 ff d0")
    aligned += bytes.fromhex("8b 4d fc 83 ec 08 c9 8d 61 fc c2 04 00 cc")
    # sub esp, 1Ch; mov [esp], eax; call ebx, which leads to the function above; sub esp, 4; add esp, 1Ch; ret
    frameless = bytes.fromhex("cc cc 83 ec 1c 89 04 24 ff d3 83 ec 04 83 c4 1c c3 cc")
    program.memory[0x10FE : 0x10FE + len(aligned)] = aligned
    program.memory[0x11FE : 0x11FE + len(frameless)] = frameless
    program.private, program.data = {0x20000000: frameless.ljust(0x80, b"\xcc")}, [0x20000]
    program.memory[0x131B:0x1320] = program.memory[0x141B:0x1420] = bytes.fromhex("90 90 90 ff d0")
    waits, behind, bp = BASE + 0x1113, 0x2000000A if private else BASE + 0x1208, SP + 0x20
    # Saved Ebp, the copy, the return address itself; the caller's frame of 1Ch bytes; its return address.
    program.put(bp, SP + 0x60, behind, behind).put(bp + 0x24, at(4)).put(bp + 0x28, at(3))
    program.put(SP + 0x60, 0, 0)
    walk = program.walk(Registers32(waits, SP, bp))
    assert [frame.address for frame in walk.frames[:2]] == [waits, behind]
    assert at(4) not in [frame.address for frame in walk.frames if frame.sure]
    # The walk goes no further above code that is not executable.
    assert [frame.address for frame in walk.frames[2:3]] == ([] if private else [at(3)])


def test_what_does_not_prove_itself_is_no_context() -> None:
    doubtful = [(at(4), "framepointer", False), (at(5), "framepointer", True)]
    flags, ip, cs, eflags, sp = (CONTEXT + number for number in (0, 0xB8, 0xBC, 0xC0, 0xC4))
    pairs = [
        *((flags, 0), (flags, 0x12345678), (flags, 0x10002), (flags, 0x10003), (flags, 0x10001F)),
        *((sp, HIGH + 0x1000), (sp, LOW - 4), (sp, SP), (sp, INTERRUPTED - 4), (sp, 0)),
        *((ip, BASE + 0x3800), (ip, BASE + 0x100), (ip, 0), (ip, 0x20000000)),
        *((cs, 8), (cs, 0), (eflags, 0), (eflags, 0x20246)),
        *((RECORD + 16, 16), (RECORD + 16, 0xFFFFFFFF)),
        *((ENTRY, RECORD + 1), (ENTRY, 0), (ENTRY, ENTRY), (ENTRY, CONTEXT), (ENTRY, HIGH)),
        *((ENTRY + 4, CONTEXT + 2), (ENTRY + 4, CONTEXT + 4), (ENTRY + 4, RECORD), (ENTRY + 4, HIGH - 4)),
        *((ENTRY + 4, 0), (ENTRY + 4, 0xFFFFFFFC)),
    ]
    for slot, value in pairs:
        walk = from_below(raised().put(slot, value))
        assert frames_of(walk)[2:] == doubtful, (hex(slot), hex(value))
        assert (walk.end, walk.gaps) == (None, (StatusCode.DISPATCHER,))
    # Data, where it is known what may be executed; limits that nobody knows.
    program = raised().put(ip, 0x20000004)
    program.private, program.data = {0x20000000: bytes(0x100)}, [0x20000]
    assert frames_of(from_below(program))[2:] == doubtful
    assert frames_of(from_below(raised(), stacks=()))[2:] == doubtful
    # The code does not tell where the dispatcher was entered.
    program = raised()
    begin = 0x1000 + 0x100 * DISPATCHER
    program.memory[begin : begin + 10] = bytes.fromhex("8b e1 40 40 40 40 40 40 40 40")
    assert frames_of(from_below(program))[2:] == doubtful


def test_the_other_dispatchers_have_no_context() -> None:
    for name in ("KiUserApcDispatcher", "KiUserCallbackDispatcher"):
        program = raised()
        program.dispatcher = name
        walk = from_below(program)
        assert frames_of(walk)[2:] == [(at(4), "framepointer", False), (at(5), "framepointer", True)]
        assert walk.gaps == (StatusCode.DISPATCHER,)
        # No frame pointer: a scan has to do.
        walk = from_below(program.put(SP + 0x18, 0x12345678))
        assert (walk.frames[2].how, walk.frames[2].sure) == ("scan", False)
        assert walk.gaps[0] is StatusCode.DISPATCHER
        walk = from_below(program.put(SP + 0x18, 0))
        assert (len(walk.frames), walk.end, walk.gaps) == (2, None, (StatusCode.DISPATCHER,))


def test_names_of_dispatchers() -> None:
    for label in ("KiUserApcDispatcher", "_KiUserApcDispatcher@20"):
        assert dispatchers_x86.named(label) == "KiUserApcDispatcher"
    for label in ("KiUserApcDispatcherX", "KiRaiseUserExceptionDispatcher", "", "_@4"):
        assert dispatchers_x86.named(label) is None


VALUES = st.one_of(
    st.integers(0, SIZE - 1).map(lambda offset: BASE + offset),
    st.integers(0, 15).map(at),
    st.integers(0, 0x60).map(lambda slot: SP + 4 * slot),
    st.sampled_from([0, 8, 0x1B, TRAP_MARK, 0xFFFFFFFF, 0x80000000]),
    st.integers(0, 0xFFFFFFFF),
)


@settings(max_examples=rounds(300), deadline=None)
@given(
    st.lists(VALUES, max_size=96),
    st.lists(st.tuples(st.integers(0, 0x2000), st.binary(max_size=16)), max_size=6),
    st.tuples(VALUES, VALUES, VALUES),
    st.booleans(),
    st.sampled_from(["", *sorted(dispatchers_x86.NAMES)]),
)
def test_hostile_stacks_and_code(
    stack: List[int],
    code: List[Tuple[int, bytes]],
    registers: Tuple[int, int, int],
    interrupted: bool,
    dispatcher: str,
) -> None:
    program = Program().put(SP, *stack)
    program.dispatcher = dispatcher
    for offset, data in code:
        program.memory[0x1000 + offset : 0x1000 + offset + len(data)] = data
    ip, sp, bp = registers
    for stacks in (((LOW, HIGH),), ()):
        for slot in (None, sp):
            start = Registers32(ip, sp, bp, return_slot=slot)
            walk = program.walk(start, interrupted, [SP + 0x20], stacks=stacks)
            assert 0 < len(walk.frames) <= MAX_FRAMES
    assert program.reads < 400_000


@pytest.mark.parametrize("offset", [0, 1])
def test_the_first_byte_of_a_function_whose_code_is_absent(offset: int) -> None:
    """[Esp] is the return address there; one byte later it may be a pushed value."""
    program = Program().put(SP, at(5), at(6))
    program.absent = True
    walk = program.walk(Registers32(BASE + 0x1400 + offset, SP, None), interrupted=True)
    assert ((at(5), "leaf", True) in frames_of(walk)) == (not offset)


def test_a_call_of_data_returns_to_the_caller_on_the_stack() -> None:
    """Eip is on the stack, which is no code; the call before [Esp] is one through a register."""
    program = Program().put(SP, at(2))
    program.memory[at(2) - 5 - BASE : at(2) - BASE] = b"\x90\x90\x90\xff\xd0"
    program.data = [address // 0x1000 for address in range(LOW, HIGH, 0x1000)]
    walk = program.walk(Registers32(SP + 0x100, SP, None), interrupted=True)
    assert [(address, how) for address, how, _ in frames_of(walk)][1] == (at(2), "leaf")


@pytest.mark.parametrize("caller", [at(2), BASE + 0x3080, 0x55550000])
def test_a_call_of_data_by_code_that_is_absent(caller: int) -> None:
    """[Esp] is taken as a guess if it leads to code of a module: not into its data, and not to nowhere."""
    program = Program().put(SP, caller)
    program.absent = True
    program.data = [address // 0x1000 for address in range(LOW, HIGH, 0x1000)]
    walk = program.walk(Registers32(SP + 0x100, SP, None), interrupted=True)
    assert frames_of(walk)[1:] == [(caller, "leaf", False)] * (caller == at(2))
    assert (StatusCode.CODE_UNREADABLE in walk.gaps) == (caller == at(2))


@pytest.mark.parametrize("refused", [False, True])
def test_a_place_that_the_processor_refused_to_execute_is_no_code(refused: bool) -> None:
    """Nothing else shows it: the module's code is absent, and the place lies among it."""
    program = Program().put(SP, at(2))
    program.absent, ip = True, BASE + 0x1480
    program.refused = frozenset([ip] if refused else [])
    walk = program.walk(Registers32(ip, SP, None), interrupted=True)
    assert ((at(2), "leaf", False) in frames_of(walk)) == refused


def test_values_that_lead_to_absent_code_are_candidates() -> None:
    """The chain of frame pointers is broken: no frame is made up, and what may be a caller is counted."""
    program = Program().put(SP, at(2), 0x1234, BASE + 0x3080, SP, at(5))
    program.absent = True
    walk = program.walk(Registers32(BASE + 0x1480, SP, 1), interrupted=True)
    assert len(walk.frames) == 1
    assert walk.candidates == ((at(2), SP, True), (at(5), SP + 16, True))
    program.absent = False
    assert program.walk(Registers32(BASE + 0x1480, SP, 1), interrupted=True).candidates == ()
