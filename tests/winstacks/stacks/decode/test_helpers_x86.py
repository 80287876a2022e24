# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Functions that set up and take down the frame of who calls them, as the runtimes of compilers have them."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode.ranges import Extents
from winstacks.stacks.decode.code_x86 import CodePages
from winstacks.stacks.decode.helpers_x86 import keeps_size, makes_room, set_up_depth, takes_down

START = 0x10000
SEH = "68 00 00 02 00 64 ff 35 00 00 00 00 8b 44 24 10 89 6c 24 10 8d 6c 24 10 2b e0 53 56 57 50 c3"
"""push handler; push fs:[0]; mov eax, [esp+10h]; mov [esp+10h], ebp; lea ebp, [esp+10h]; sub esp, eax ..."""
EH = "6a ff 50 64 a1 00 00 00 00 50 8b 44 24 0c 64 89 25 00 00 00 00 89 6c 24 0c 8d 6c 24 0c 50 c3"
"""push -1; push eax; mov eax, fs:[0]; push eax; mov eax, [esp+0Ch] ... lea ebp, [esp+0Ch]; push eax; ret."""
EH3 = "50 64 ff 35 00 00 00 00 8d 44 24 0c 2b 64 24 0c 53 56 57 89 28 8b e8 a1 00 00 02 00 33 c5 50 c3"
"""push eax; push fs:[0]; lea eax, [esp+0Ch]; sub esp, [esp+0Ch]; ...; mov [eax], ebp; mov ebp, eax ..."""
EPILOG = "8b 4d f0 64 89 0d 00 00 00 00 59 5f 5f 5e 5b 8b e5 5d 51 c3"

TOUCH = "3d 00 10 00 00 72 15 81 e9 00 10 00 00 83 09 00 2d 00 10 00 00 3d 00 10 00 00 77 eb 29 c1 83 09 00 "
"""jb last; next: sub ecx, 1000h; or [ecx], 0; ...; ja next; last: sub ecx, eax; or [ecx], 0."""
PROBE = "51 50 8d 4c 24 0c " + TOUCH + "58 59 c3"
"""push ecx; push eax; lea ecx, [esp+0Ch]; ...; pop eax; pop ecx; ret."""
ROOM = "51 8d 4c 24 08 " + TOUCH + "89 e0 89 cc 8b 08 ff 70 04 c3"
"""push ecx; lea ecx, [esp+8]; ...; mov eax, esp; mov esp, ecx; mov ecx, [eax]; push [eax+4]; ret."""


def code(text: str) -> CodePages:
    return CodePages(Extents([(START, bytes.fromhex(text) + b"\xf4" * 16)]).read)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (SEH, 8),
        (EH, 0),
        (EH3, 4),
        # One push more than it should be by the place where Ebp is stored.
        ("50 " + SEH, 4),
        # Ebp is stored elsewhere than it points, or not at all, or by a register that has something else.
        (SEH.replace("8d 6c 24 10", "8d 6c 24 14"), None),
        (SEH.replace("89 6c 24 10", ""), None),
        (EH3.replace("89 28", "8b 00 89 28"), None),
        (EH3.replace("53 56 57 89 28", "33 c0 89 28"), None),
        (EH3.replace("8b e8", "8b e9"), None),
        # It calls, jumps or returns before.
        ("e8 00 10 00 00 " + SEH, None),
        ("75 10 " + EH3, None),
        ("c3 " + EH, None),
        # An ordinary start.
        ("55 8b ec 83 ec 10 89 6c 24 10 c9 c3", None),
    ],
)
def test_a_frame_that_is_set_up_for_the_caller(text: str, depth: Optional[int]) -> None:
    assert set_up_depth(code(text), START) == depth


@pytest.mark.parametrize(
    ("text", "down"),
    [
        (EPILOG, True),
        (EPILOG.replace("8b e5 5d", "c9"), True),
        (EPILOG.replace("51 c3", "51 f2 c3"), True),
        # xor ecx, ebp; call the check of the cookie; jmp over an int3 to the other.
        ("8b 4d ec 33 cd e8 00 10 00 00 eb 01 cc " + EPILOG, True),
        # Without a return address of its own it is an end of a function, not of its caller.
        ("8b e5 5d c3", False),
        ("5b 8b e5 5d 33 c0 51 c3", False),
        ("59 5f 5e 5b 51 c3", False),
        ("8b e5 5e 5d 51 c3", False),
        (EPILOG.replace("8b e5 5d", "75 00 8b e5 5d"), False),
    ],
)
def test_a_frame_that_is_taken_down_for_the_caller(text: str, down: bool) -> None:
    assert takes_down(code(text), START) is down


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (PROBE, True),
        (PROBE.replace("83 09 00", "85 49 00"), True),
        (ROOM, False),
        # Eax is not saved, or restored into another register, or changed behind, or has gone below the other.
        (PROBE.replace("51 50", "51 52").replace("58 59", "5a 59"), False),
        (PROBE.replace("58 59", "59 58"), False),
        (PROBE.replace("59 c3", "59 83 e8 04 c3"), False),
        (PROBE.replace("59 c3", "59 2d 04 00 00 00 c3"), False),
        (PROBE.replace("59 c3", "c3"), False),
        # It pops arguments, calls, writes to the stack, moves Esp, or jumps where less has been saved.
        (PROBE.replace("c3", "c2 04 00"), False),
        ("e8 00 10 00 00 " + PROBE, False),
        (PROBE.replace("58 59", "89 0c 24 58 59"), False),
        (PROBE.replace("83 09 00", "83 09 01"), False),
        (PROBE.replace("58 59", "83 c4 04 59"), False),
        (PROBE.replace("72 15", "72 19"), False),
        (PROBE.replace("72 15", "72 16"), False),
        (PROBE[:-3], False),
    ],
)
def test_a_probe_that_leaves_the_registers_as_they_are(text: str, kept: bool) -> None:
    assert keeps_size(code(text), START) is kept


@pytest.mark.parametrize(
    ("text", "room"),
    [
        (ROOM, True),
        (ROOM.replace("29 c1", "2b c8").replace("89 cc", "8b e1"), True),
        (PROBE, False),
        (ROOM.replace("89 cc", "89 ce"), False),
        (ROOM.replace("29 c1", "29 d1"), False),
        # The new Esp is counted from another place than that from which the return address is pushed.
        (ROOM.replace("8d 4c 24 08", "8d 4c 24 04"), False),
        (ROOM.replace("ff 70 04 c3", "c3"), False),
    ],
)
def test_a_probe_that_makes_room(text: str, room: bool) -> None:
    assert makes_room(code(text), START) is room


def test_code_that_ends_early_is_no_helper() -> None:
    for text in (SEH, EH, EH3, EPILOG, PROBE, ROOM):
        whole = bytes.fromhex(text)
        for length in range(10):
            memory = CodePages(Extents([(START, whole[:length])]).read)
            assert set_up_depth(memory, START) is None
            assert not (takes_down(memory, START) or keeps_size(memory, START) or makes_room(memory, START))
    jumping = CodePages(Extents([(START, b"\xeb\xfe")]).read)
    assert not takes_down(jumping, START)


@given(st.binary(max_size=64))
def test_any_code_has_an_answer(data: bytes) -> None:
    memory = CodePages(Extents([(START, data + b"\xf4" * 16)]).read)
    depth = set_up_depth(memory, START)
    assert depth is None or depth >= 0
    assert takes_down(memory, START) in (True, False)
    assert not (keeps_size(memory, START) and makes_room(memory, START))
