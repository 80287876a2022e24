# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64 epilogues: the forms that the ABI allows, and look-alikes."""

from __future__ import annotations

from typing import List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.stacks.decode.epilogue import LONGEST, Epilogue, decode

RBX, RBP, RDI, R12, R13, R14 = 3, 5, 7, 12, 13, 14


def at(code: str, frame_register: int = 0, outside: bool = True) -> Optional[Epilogue]:
    return decode(bytes.fromhex(code), 0x1000, frame_register, lambda target: outside)


@pytest.mark.parametrize(
    ("code", "adjust", "pops"),
    [
        ("c3", 0, []),
        ("f3 c3", 0, []),
        ("f2 c3", 0, []),
        ("c2 00 00", 0, []),
        ("48 83 c4 28 c3", 0x28, []),
        ("48 83 c4 80 c3", -0x80, []),
        ("48 81 c4 f0 ff 07 00 41 5e 5b c3", 0x7FFF0, [R14, RBX]),
        ("41 5c 40 5b 5f c3", 0, [R12, RBX, RDI]),
        ("5b eb 10", 0, [RBX]),
        ("5b e9 10 00 00 00", 0, [RBX]),
        ("5b f2 e9 10 00 00 00", 0, [RBX]),
        ("5b ff 25 10 00 00 00", 0, [RBX]),
        ("48 ff e0", 0, []),
        ("49 ff e3", 0, []),
        ("48 ff 60 18", 0, []),
        ("c5 f8 77 c3", 0, []),
        ("5b 41 5e c5 f8 77 c3", 0, [RBX, R14]),
        ("48 83 c4 28 5b c5 f8 77 eb 10", 0x28, [RBX]),
    ],
)
def test_ends(code: str, adjust: int, pops: List[int]) -> None:
    assert at(code) == Epilogue(None, adjust, pops)


@pytest.mark.parametrize(
    ("code", "register", "adjust"),
    [
        ("48 8d 65 20 5d c3", RBP, 0x20),
        ("48 8d a5 18 01 00 00 5d c3", RBP, 0x118),
        ("48 8d 63 f8 5d c3", RBX, -8),
        ("49 8d 65 10 5d c3", R13, 0x10),
        ("49 8d 64 24 10 5d c3", R12, 0x10),
        ("49 8d a4 24 10 02 00 00 5d c3", R12, 0x210),
    ],
)
def test_release_through_the_frame_register(code: str, register: int, adjust: int) -> None:
    assert at(code, register) == Epilogue(register, adjust, [RBP])
    assert at(code) is None
    assert at(code, RDI) is None


@pytest.mark.parametrize(
    "code",
    [
        *("", "48", "48 83 c4", "48 81 c4 00 00", "5b", "e9 00 00", "90 c3", "5c c3", "41 5c", "ff e0"),
        *("3e ff e0", "ff 24 c5 00 00 00 00", "83 c4 28 c3", "48 8d 44 24 10 c3", "48 8d 65 20 90"),
        *("48 8b e5 5d c3", "48 83 ec 28 c3", "48 ff d0", "cc", "48 83 c4 28 48 83 c4 28 c3"),
        *(
            "48 8d 25 00 00 00 00 c3",
            "49 8d 64 64 10 c3",
            "cf",
            "5b c5 f8 77 90",
            "c5 f8 77 5b c3",
            "5b c5 f8",
        ),
    ],
)
def test_look_alikes(code: str) -> None:
    assert at(code, RBP) is None


def test_a_jump_that_stays_in_the_function_ends_nothing() -> None:
    assert at("5b eb 10", outside=False) is None
    assert at("5b e9 10 00 00 00", outside=False) is None
    assert at("5b 48 ff e0", outside=False) is not None


def test_jumps_are_counted_from_behind_themselves() -> None:
    targets: List[int] = []

    def leaves(target: int) -> bool:
        targets.append(target)
        return True

    for code in ("5b eb fe", "5b e9 00 01 00 00", "f2 eb 10", "5b c5 f8 77 eb 10"):
        decode(bytes.fromhex(code), 0x1000, 0, leaves)
    assert targets == [0x1001, 0x1106, 0x1013, 0x1016]


def test_a_handler_ends_by_returning_from_its_interrupt() -> None:
    assert at("5b 48 cf") == Epilogue(None, 0, [RBX], True)


@given(st.binary(max_size=100), st.integers(0, 15), st.booleans())
def test_any_code_is_an_epilogue_or_none(code: bytes, register: int, outside: bool) -> None:
    found = decode(code, 0x1000, register, lambda target: outside)
    if found is not None:
        assert len(found.pops) < LONGEST
        assert found.base in (None, register)
