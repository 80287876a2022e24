# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What following the code of an x86 function knows of Esp and Ebp: instructions as compilers make them."""

from __future__ import annotations

import struct
from typing import Optional, Tuple

import pytest

from winstacks.memory.decode.ranges import Extents
from winstacks.stacks.decode.code_x86 import CodePages
from winstacks.stacks.decode.effects_x86 import BASED, CALLERS, COPY, OTHER, OURS, StackPlace
from winstacks.stacks.decode.flow_x86 import Flow

START = 0x10000
SLOT, IMPORTED = 0x77001200, 0x77102000
"""An import of a function that pops 8 bytes."""

FRAME = "55 8b ec"
"""push ebp; mov ebp, esp."""
IN_FRAME = StackPlace(4, OURS, 4)


def followed(code: bytes, *elsewhere: Tuple[int, str]) -> Flow:
    """A function that starts at START, and what lies at other addresses."""
    parts = [(START, code), (SLOT, IMPORTED.to_bytes(4, "little"))]
    parts += [(address, bytes.fromhex(part)) for address, part in elsewhere]
    memory = Extents((address, part + b"\xf4" * 16) for address, part in parts)
    return Flow(
        CodePages(memory.read),
        START,
        {IMPORTED: 8}.get,
        lambda _: None,
        lambda _: False,
        lambda _: False,
        lambda _: False,
    )


def behind(code: str, more: str = "90 c3") -> Optional[StackPlace]:
    """What is known of Esp and Ebp behind some code."""
    data = bytes.fromhex(code)
    whole = data + bytes.fromhex(more)
    flow = followed(whole)
    place = flow.places.get(START + len(data))
    return None if place is None else place._replace(loaded=StackPlace(0, 0, None).loaded, eax=None)


@pytest.mark.parametrize(
    "code",
    [
        "b9 6c c9 99 7c",  # mov ecx, 7C99C96Ch: the immediate is no ModRM
        "b8 22 00 00 00",  # mov eax, 22h, as in a stub of a system call
        "b8 ec 00 00 00",
        "bf e5 c4 00 00",
        "04 ec",  # add al, 0ECh
        "05 e5 00 00 00",
        "2d c4 00 00 00",
        "a8 65",  # test al, 65h
        "a9 6c 65 2c 25",
        "a1 6c 00 00 00",  # mov eax, [6Ch]
        "a2 2c 25 00 00",
        "a3 64 00 00 00",
        "b0 ec",  # mov al, 0ECh
        "b4 e5",  # mov ah, 0E5h: of eight bits, number 4 is Ah
        "40",  # inc eax
        "4f",  # dec edi
        "0f c8",  # bswap eax
        "98",  # cwde
        "f0 0f ba 28 00",  # lock bts dword ptr [eax], 0: the 5 of ModRM says what is done
        "f0 0f ba 6f 04 00",
        "0f ba e8 02",
        "0f ab 28",  # bts [eax], ebp
        "f0 0f b1 29",  # lock cmpxchg [ecx], ebp
        "0f ac e8 04",  # shrd eax, ebp, 4
        "8c e8",  # mov eax, gs
        "0f ae e8",  # lfence
        "66 0f 28 ec",  # movapd xmm5, xmm4
        "f2 0f 58 e5",  # addsd xmm4, xmm5
        "66 0f 6f e5",  # movdqa xmm4, xmm5
        "66 0f ef ed",  # pxor xmm5, xmm5
        "66 0f 6e e5",  # movd xmm4, ebp
        "0f c6 ed 00",  # shufps xmm5, xmm5, 0
    ],
)
def test_what_names_neither_esp_nor_ebp_changes_neither(code: str) -> None:
    assert behind(code) == StackPlace(0, CALLERS, None)
    assert behind(f"{FRAME} {code}") == IN_FRAME


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("bd 00 00 40 00", StackPlace(4, OTHER, 4)),  # mov ebp, imm32
        ("bc 00 00 40 00", StackPlace(None, OURS, 4)),  # mov esp, imm32
        ("45", StackPlace(4, OTHER, 4)),  # inc ebp
        ("4d", StackPlace(4, OTHER, 4)),  # dec ebp
        ("44", StackPlace(None, OURS, 4)),  # inc esp
        ("4c", StackPlace(None, OURS, 4)),  # dec esp
        ("0f cd", StackPlace(4, OTHER, 4)),  # bswap ebp
        ("0f cc", StackPlace(None, OURS, 4)),  # bswap esp
        ("8b e9", StackPlace(4, OTHER, 4)),  # mov ebp, ecx
        ("0f ba ed 02", StackPlace(4, OTHER, 4)),  # bts ebp, 2
        ("0f ac c5 04", StackPlace(4, OTHER, 4)),  # shrd ebp, eax, 4
        ("f0 0f c1 29", StackPlace(4, OTHER, 4)),  # lock xadd [ecx], ebp
        ("0f af e8", StackPlace(4, OTHER, 4)),  # imul ebp, eax
        ("0f b6 e8", StackPlace(4, OTHER, 4)),  # movzx ebp, al
        ("0f 44 e9", StackPlace(4, OTHER, 4)),  # cmove ebp, ecx
        ("f2 0f 2c e8", StackPlace(4, OTHER, 4)),  # cvttsd2si ebp, xmm0
        ("66 0f 7e c5", StackPlace(4, OTHER, 4)),  # movd ebp, xmm0
        ("66 0f d7 e8", StackPlace(4, OTHER, 4)),  # pmovmskb ebp, xmm0
        ("0f 50 e8", StackPlace(4, OTHER, 4)),  # movmskps ebp, xmm0
        ("66 0f c5 e8 00", StackPlace(4, OTHER, 4)),  # pextrw ebp, xmm0, 0
        ("83 ec 10", StackPlace(20, OURS, 4)),  # sub esp, 10h
        ("6a 05", StackPlace(8, OURS, 4)),  # push 5
        ("68 ec 00 00 00", StackPlace(8, OURS, 4)),  # push 0ECh
    ],
)
def test_what_writes_esp_or_ebp_is_seen(code: str, known: StackPlace) -> None:
    assert behind(f"{FRAME} {code}") == known


def test_the_caller_of_a_stub_of_a_system_call_is_where_esp_is() -> None:
    """mov eax, 0ECh; mov edx, 7FFE0300h: the call behind them has the return address on top of the stack."""
    assert behind("b8 ec 00 00 00 ba 00 03 fe 7f", "ff 12 c2 18 00") == StackPlace(0, CALLERS, None)


LOAD = "8b 35 00 12 00 77"
"""mov esi, [SLOT]."""


@pytest.mark.parametrize(
    ("code", "depth"),
    [
        (f"56 57 {LOAD} 6a 00 6a 01 ff d6", 8),
        (f"56 57 {LOAD} 6a 00 6a 01 ff 15 00 12 00 77 6a 00 6a 01 ff d6", 8),
        ("53 8b 1d 00 12 00 77 6a 00 6a 01 8b c6 32 c0 ff d3", 4),
        ("57 8b 3d 00 12 00 77 75 02 33 c0 6a 00 6a 01 ff d7", 4),
        # What is called is unknown: nothing was loaded, or it was overwritten since, or on one of two ways.
        ("56 57 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 8b f0 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} be 01 00 00 00 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 46 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} a5 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 5e 56 6a 00 6a 01 ff d6", None),
        (f"56 {LOAD} 96 6a 00 6a 01 ff d6", None),
        (f"56 75 06 {LOAD} 6a 00 6a 01 ff d6", None),
        ("53 8b 1d 00 12 00 77 b3 01 6a 00 6a 01 ff d3", None),
        ("53 8b 1d 00 12 00 77 8a d8 6a 00 6a 01 ff d3", None),
        ("53 8b 1d 00 12 00 77 0f 94 c3 6a 00 6a 01 ff d3", None),
        ("64 8b 35 00 12 00 77 6a 00 6a 01 ff d6", None),
    ],
)
def test_a_call_through_a_register_goes_where_it_was_loaded_from(code: str, depth: Optional[int]) -> None:
    place = behind(code, "90 eb fe")
    assert place is not None
    assert place.depth == depth


def test_the_end_of_a_function_that_switches_threads() -> None:
    """call esi; mov eax, edi; pop edi; pop esi; ret: esi was loaded from an import before the switch."""
    code = f"56 57 {LOAD} e8 00 10 00 00"
    place = behind(code, "6a 00 6a 01 ff d6 8b c7 5f 5e c3")
    assert place is not None
    # What it pops tells that SwapContext has popped nothing.
    assert place.depth == 8
    whole = bytes.fromhex(f"56 57 {LOAD} 6a 00 6a 01 ff d6 8b c7 5f 5e c3")
    flow = followed(whole)
    assert list(flow.returns.values()) == [0]
    assert flow.places[START + len(whole) - 1].depth == 0


@pytest.mark.parametrize(
    ("code", "more", "depth"),
    [
        ("56 6a 01 6a 02 ff 50 04", "8b c6 5e c3", 4),  # call [eax + 4]; mov eax, esi; pop esi; ret
        ("83 ec 08 56 6a 01 ff d0", "5e 83 c4 08 c2 04 00", 12),
        ("56 57 6a 01 ff d0", "83 c4 04 5f 5e c3", 12),  # the caller pops
        ("56 57 6a 01 ff d0", "85 c0 74 03 5f 5e c3 33 c0 5f 5e c3", 8),
        ("55 56 57 ff d0", "5f 5e 5d c3", 12),  # Ebp is a register like any other
        # Of two calls the last, and what follows a call of which it is known.
        ("56 6a 01 ff d0 8b c8 6a 02 ff d1", "5e c3", 4),
        ("56 6a 01 ff d0", "6a 00 6a 01 ff 15 00 12 00 77 5e c3", 4),
        ("56 6a 01 ff d0", "6a 02 ff d1 5e c3", None),
        ("51 6a 01 ff d0", "c3", 0),
        # Ways that disagree; more than was pushed; a kept register lost; an end by Ebp; none at all.
        ("56 57 6a 01 ff d0", "85 c0 74 03 5f 5e c3 33 c0 5e c3", None),
        ("56 ff d0", "5e 5f c3", None),
        ("56 6a 01 ff d0", "c3", None),
        ("55 8b ec 56 6a 01 ff d0", "c9 c3", None),
        ("56 6a 01 ff d0", "eb fe", None),
    ],
)
def test_what_an_unknown_function_has_popped_comes_out_even(
    code: str, more: str, depth: Optional[int]
) -> None:
    place = behind(code, more)
    assert place is not None
    assert place.depth == depth


def test_where_it_comes_out_even_the_end_is_proven() -> None:
    whole = bytes.fromhex("55 56 57 6a 01 ff d0 5f 5e 5d c3")
    flow = followed(whole)
    assert flow.places[START + len(whole) - 1][:2] == (0, CALLERS)
    assert flow.proves(START + 7)


def test_a_jump_to_elsewhere_is_no_return() -> None:
    """A part that was moved away looks like a function that goes on in another."""
    flow = followed(bytes.fromhex("8b c1 e9 00 90 00 00"))
    assert flow.proves(START)
    assert flow.proves(START, returns=True) is None


@pytest.mark.parametrize(
    ("depth", "code"),
    [
        (8, "6a 08 68 00 00 02 00"),  # push 8; push table: _SEH_prolog
        (4, "6a 08 b8 00 00 02 00"),  # push 8; mov eax, handler: _EH_prolog3
        (0, "b8 00 00 02 00"),  # mov eax, handler: _EH_prolog
    ],
)
def test_a_helper_sets_up_the_frame_if_as_much_was_pushed(depth: int, code: str) -> None:
    helper = START + 0x2000
    for pushed in (0, 4, 8):
        whole = bytes.fromhex(code) + b"\xe8"
        whole += (helper - START - len(whole) - 4).to_bytes(4, "little") + b"\x90\xc3"
        memory = Extents([(START, whole + b"\xf4" * 16)])
        flow = Flow(
            CodePages(memory.read),
            START,
            lambda _: None,
            {helper: pushed}.get,
            lambda _: False,
            lambda _: False,
            lambda _: False,
        )
        assert (flow.places[START + len(whole) - 2][:2] == (None, OURS)) is (pushed == depth)


BEFORE, BEHIND = START - 0x9000, START + 0x23000


@pytest.mark.parametrize("part", [BEFORE, BEHIND])
def test_a_part_that_was_moved_away_is_in_the_function(part: int) -> None:
    """push ebp; mov ebp, esp; push esi; jz part; (back:) pop esi; pop ebp; ret, and call eax in the part."""
    away, back = (part - START - 10).to_bytes(4, "little", signed=True), START + 10 - (part + 7)
    whole = bytes.fromhex("55 8b ec 56 0f 84") + away + bytes.fromhex("5e 5d c3")
    flow = followed(whole, (part, "ff d0 e9 " + back.to_bytes(4, "little", signed=True).hex()))
    assert flow.places[part][:3] == (8, OURS, 4)
    assert flow.places[part + 2][:3] == (8, OURS, 4)
    assert flow.proves(part + 2)


def test_a_neighbour_behind_a_call_that_never_returns_does_not_come_back() -> None:
    """The part calls what never returns; behind it lies push edi; call eax; pop edi; ret."""
    away = (BEHIND - START - 10).to_bytes(4, "little", signed=True)
    whole = bytes.fromhex("55 8b ec 56 0f 84") + away + bytes.fromhex("5e 5d c3")
    flow = followed(whole, (BEHIND, "e8 00 10 00 00 57 ff d0 5f c3"))
    assert flow.places[BEHIND][:2] == (8, OURS)
    assert flow.proves(BEHIND + 6) is False


@pytest.mark.parametrize(
    ("neighbour", "proven"),
    [
        # push edi; jmp to the start of the function
        ("57 eb", None),
        # add esp, 1Ch; jmp there: a loop of the function
        ("83 c4 1c eb", True),
    ],
)
def test_what_jumps_to_the_start_does_not_change_the_state_there(
    neighbour: str, proven: Optional[bool]
) -> None:
    """sub esp, 24h; je; add esp, 24h; ret; call [import] that may never return, and what lies behind it."""
    whole = bytes.fromhex("83 ec 24 74 04 83 c4 24 c3 ff 15 00 12 00 77" + neighbour)
    flow = followed(whole + (-len(whole) - 1).to_bytes(1, "little", signed=True))
    assert flow.places[START][:3] == (0, CALLERS, None)
    assert flow.places[START + 8][:2] == (0, CALLERS)
    assert flow.proves(START + 5)
    assert flow.proves(START + 15) is proven


def test_a_part_that_never_returns_is_proven_up_to_its_call() -> None:
    """push 1; call what never returns; behind that, without any end, push edi; jmp to itself."""
    away = (BEHIND - START - 10).to_bytes(4, "little", signed=True)
    whole = bytes.fromhex("55 8b ec 56 0f 84") + away + bytes.fromhex("5e 5d c3")
    flow = followed(whole, (BEHIND, "6a 01 e8 00 10 00 00 57 eb fe"))
    assert flow.proves(BEHIND)
    assert flow.proves(BEHIND + 2)
    assert flow.proves(BEHIND + 7) is None


def test_the_start_of_another_function_behind_a_call_is_a_border() -> None:
    setup = "55 8b ec 5d c3"
    assert behind(f"56 e8 00 10 00 00 {setup}", "90") is None
    assert behind("56 e8 00 10 00 00", setup) is None
    assert behind("56 e8 00 10 00 00 90", setup) is None
    assert behind("75 00", setup) == StackPlace(0, CALLERS, None)
    # No frame is set up twice.
    assert behind("55 8b ec 40", setup) is None
    assert behind("55 8b ec 75 00", f"8b ff {setup}") is None
    assert behind("55 8b ec 75 00", "8b ff 40") == IN_FRAME


def test_a_jump_with_the_callers_frame_back_ends_a_function() -> None:
    flow = followed(bytes.fromhex("55 8b ec ff d0 5d e9 00 00 10 00"))
    assert flow.tails == {START + 6: START + 0x10000B}
    assert flow.proves(START + 5)


def test_a_jump_through_a_pointer_with_the_callers_frame_back_ends_a_function() -> None:
    jump = b"\xff\x25" + SLOT.to_bytes(4, "little")
    flow = followed(bytes.fromhex("8b ff 55 8b ec 5d") + jump)
    assert flow.tails == {START + 6: IMPORTED}
    assert flow.proves(START + 5)
    assert not followed(bytes.fromhex("8b ff 55 8b ec") + jump).tails


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("55 8d 6c 24 88", StackPlace(4, BASED, 4, frame=0x7C)),  # push ebp; lea ebp, [esp - 78h]
        ("55 8d ac 24 00 ff ff ff", StackPlace(4, BASED, 4, frame=0x104)),
        ("55 8d 6c 24 88 81 ec 88 00 00 00 83 c5 78", StackPlace(0x8C, OURS, 4)),
        ("55 8d 6c 24 88 56 83 c5 78 c9", StackPlace(0, CALLERS, None)),
        ("55 8d 6c 24 88 56 c9", StackPlace(0x78, OTHER, None)),
        ("55 8d 6c 24 88 56 8b e5", StackPlace(0x7C, BASED, 4, frame=0x7C)),
        ("53 55 8b ec", StackPlace(8, BASED, 8, frame=8)),  # push ebx; push ebp; mov ebp, esp
        ("53 55 8b ec ff d0 5d", StackPlace(4, CALLERS, None)),
        ("53 55 8b ec ff d0 8d 65 fc", StackPlace(12, BASED, 8, frame=8)),
        ("55 8b ec 83 ed 10", StackPlace(4, BASED, 4, frame=0x14)),
        ("53 8b ec", StackPlace(4, OTHER, None)),  # Ebp was not pushed
        ("55 8b ec 8b 6d 08", StackPlace(4, OTHER, 4)),
        ("55 ff d0 8b ec", StackPlace(None, OTHER, 4)),
        ("55 8d 2c 24", IN_FRAME),
        ("55 8d 6b 10", StackPlace(4, OTHER, 4)),
    ],
)
def test_a_frame_pointer_may_point_elsewhere(code: str, known: StackPlace) -> None:
    assert behind(code) == known


ALIGNED = "53 8b dc 83 ec 08 83 e4 f0 83 c4 04 55 8b 6b 04 89 6c 24 04 8b ec"
"""push ebx; mov ebx, esp; sub esp, 8; and esp, -16; add esp, 4; push ebp; mov ebp, [ebx + 4];
mov [esp + 4], ebp; mov ebp, esp."""


@pytest.mark.parametrize(
    ("code", "known"),
    [
        (ALIGNED, (None, COPY, None)),
        (ALIGNED.replace("83 ec 08", "51 51"), (None, COPY, None)),
        (f"{ALIGNED} ff d0 8b e5 5d", (None, CALLERS, None)),
        (f"{ALIGNED} ff d0 8b e5 5d 8b e3", (4, CALLERS, None)),
        (f"{ALIGNED} ff d0 8b e5 5d 8b e3 5b", (0, CALLERS, None)),
        ("8d 4c 24 04 83 e4 f0 ff 71 fc 55 89 e5", (None, COPY, None)),
        ("57 8d 7c 24 08 83 e4 f0 ff 77 fc 55 89 e5", (None, COPY, None)),
        # mov eax, size of the frame, wherever a compiler schedules it
        ("8d 4c 24 04 83 e4 f0 b8 bc 13 00 00 ff 71 fc 55 89 e5", (None, COPY, None)),
        ("8d 4c 24 04 b8 0a 13 00 00 83 e4 f0 ff 71 fc 55 89 e5", (None, COPY, None)),
        ("8d 4c 24 04 83 e4 f0 ff 71 fc b8 bc 13 00 00 55 89 e5", (None, COPY, None)),
        ("8d 4c 24 04 83 e4 f0 ff 71 fc 55 b8 bc 13 00 00 89 e5", (None, COPY, None)),
        # Not what it looks like: another register, or Ebx points elsewhere.
        ("8d 4c 24 04 83 e4 f0 ff 72 fc 55 89 e5", (None, OTHER, None)),
        (ALIGNED.replace("53 8b dc", "8b dc 53"), (None, OTHER, None)),
        (ALIGNED.replace("8b dc", "8b d9"), (None, OTHER, None)),
        (ALIGNED.replace("8b 6b 04", "8b 6b 08"), (None, OTHER, None)),
        (f"{ALIGNED} 33 db 8b e5 5d 8b e3", (None, CALLERS, None)),
    ],
)
def test_a_function_that_aligns_its_stack_keeps_a_copy_of_its_return_address(
    code: str, known: Tuple[Optional[int], int, Optional[int]]
) -> None:
    place = behind(code)
    assert place is not None
    assert place[:3] == known


def test_nothing_goes_on_behind_a_fast_fail() -> None:
    """mov ecx, 3; int 29h at the end of a function, and another function behind it."""
    assert behind("55 8b ec b9 03 00 00 00 cd 29") is None
    assert behind("55 8b ec cd 2c") == IN_FRAME


TABLE, NUMBERS = 0x30000, 0x31000
CASES = (START + 0x40, START + 0x50, START + 0x60)
SWITCH = "55 8b ec 83 f8 01 77 07 ff 24 85 00 00 03 00"
"""push ebp; mov ebp, esp; cmp eax, 1; ja over the jump; jmp [TABLE + 4 * eax]."""


@pytest.mark.parametrize(
    ("code", "cases"),
    [
        (SWITCH, 2),
        (SWITCH.replace("77 07", "0f 87 07 00 00 00"), 2),
        (SWITCH.replace("83 f8 01", "83 f9 01").replace("24 85", "24 8d"), 2),
        # movzx ecx, byte ptr [NUMBERS + eax] between: 0, 2, 1
        ("55 8b ec 83 f8 01 77 0e 0f b6 88 00 10 03 00 ff 24 8d 00 00 03 00", 3),
        # Another register is compared, or nothing is; fewer or more than an unsigned comparison tells.
        (SWITCH.replace("83 f8 01", "83 f9 01"), 0),
        (SWITCH.replace("83 f8 01 77 07", ""), 0),
        (SWITCH.replace("77 07", "7f 07"), 0),
        (SWITCH.replace("83 f8 01", "83 f8 ff"), 0),
        (SWITCH.replace("00 00 03 00", "00 00 09 00"), 0),
    ],
)
def test_a_jump_through_a_table_goes_as_far_as_its_index_is_bounded(code: str, cases: int) -> None:
    whole = bytes.fromhex(code + " 5d c3").ljust(0x70, b"\xf4")
    flow = followed(whole, (TABLE, struct.pack("<3I", *CASES).hex()), (NUMBERS, "00 02 01"))
    assert [case for case in CASES if case in flow.places] == list(CASES[:cases])
    assert all(flow.places[case] == IN_FRAME for case in CASES[:cases])


@pytest.mark.parametrize("lowers", ["29 c4", "2b e0"])
@pytest.mark.parametrize(
    ("between", "kept", "depth"),
    [
        ("", True, 0x2048),
        # push esi; mov ebx, [esp+8]; mov [esp+8], ecx; xor ecx, ecx; test ebx, ebx
        ("56 8b 5c 24 08 89 4c 24 08 31 c9 85 db", True, 0x204C),
        # The function that is called may change Eax.
        ("", False, None),
        # Other instructions may write Eax, or are taken for such: mov, xor, lea, pop, xchg, cdq, mul, sub ...
        *((text, True, None) for text in ("8b c1", "89 c8", "31 c0", "8d 01", "58", "91", "99", "f7 e1")),
        *((text, True, None) for text in ("83 e8 04", "2d 04 00 00 00", "b0 01", "0f b6 01", "0f a2")),
        # A half of Eax; more than any frame has; two ways with two sizes: jz; mov eax, 1000h
        *((text, True, None) for text in ("66 b8 20 00", "b8 00 00 00 04", "74 05 b8 00 10 00 00")),
    ],
)
def test_the_size_in_eax_is_known_where_esp_is_lowered_by_it(
    lowers: str, between: str, kept: bool, depth: Optional[int]
) -> None:
    probe = 0x18000
    first = bytes.fromhex("b8 48 20 00 00" + between) + b"\xe8"
    whole = first + (probe - START - len(first) - 4).to_bytes(4, "little") + bytes.fromhex(lowers)
    flow = Flow(
        CodePages(Extents([(START, whole + b"\x90" + b"\xf4" * 16)]).read),
        START,
        {probe: 0}.get,
        lambda _: None,
        lambda _: False,
        lambda _: False,
        lambda address: kept and address == probe,
    )
    assert flow.places[START + len(whole)].depth == depth
