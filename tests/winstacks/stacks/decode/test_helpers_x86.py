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
from winstacks.stacks.decode.helpers_x86 import set_up_depth, takes_down

START = 0x10000
SEH = "68 00 00 02 00 64 ff 35 00 00 00 00 8b 44 24 10 89 6c 24 10 8d 6c 24 10 2b e0 53 56 57 50 c3"
"""push handler; push fs:[0]; mov eax, [esp+10h]; mov [esp+10h], ebp; lea ebp, [esp+10h]; sub esp, eax ..."""
EH = "6a ff 50 64 a1 00 00 00 00 50 8b 44 24 0c 64 89 25 00 00 00 00 89 6c 24 0c 8d 6c 24 0c 50 c3"
"""push -1; push eax; mov eax, fs:[0]; push eax; mov eax, [esp+0Ch] ... lea ebp, [esp+0Ch]; push eax; ret."""
EH3 = "50 64 ff 35 00 00 00 00 8d 44 24 0c 2b 64 24 0c 53 56 57 89 28 8b e8 a1 00 00 02 00 33 c5 50 c3"
"""push eax; push fs:[0]; lea eax, [esp+0Ch]; sub esp, [esp+0Ch]; ...; mov [eax], ebp; mov ebp, eax ..."""
EPILOG = "8b 4d f0 64 89 0d 00 00 00 00 59 5f 5f 5e 5b 8b e5 5d 51 c3"


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


def test_code_that_ends_early_is_no_helper() -> None:
    for text in (SEH, EH, EH3, EPILOG):
        whole = bytes.fromhex(text)
        for length in range(10):
            memory = CodePages(Extents([(START, whole[:length])]).read)
            assert set_up_depth(memory, START) is None
            assert not takes_down(memory, START)
    jumping = CodePages(Extents([(START, b"\xeb\xfe")]).read)
    assert not takes_down(jumping, START)


@given(st.binary(max_size=64))
def test_any_code_has_an_answer(data: bytes) -> None:
    memory = CodePages(Extents([(START, data + b"\xf4" * 16)]).read)
    depth = set_up_depth(memory, START)
    assert depth is None or depth >= 0
    assert takes_down(memory, START) in (True, False)
