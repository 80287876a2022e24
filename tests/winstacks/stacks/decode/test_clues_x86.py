# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What x86 code tells of its frame."""

from __future__ import annotations

from typing import Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.stacks.decode import clues_x86
from winstacks.stacks.decode.clues_x86 import EBP, ESP, FunctionExit, exit_at

EBX, ESI, EDI = 3, 6, 7


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("c3", FunctionExit(False, 0, (), 0)),
        ("c2 0c 00", FunctionExit(False, 0, (), 12)),
        ("f3 c3", FunctionExit(False, 0, (), 0)),
        ("83 c4 04 c2 08 00", FunctionExit(False, 4, (), 8)),
        ("81 c4 00 01 00 00 5b c3", FunctionExit(False, 0x100, (EBX,), 0)),
        ("8d 65 f4 5b 5e 5f 5d c3", FunctionExit(True, -12, (EBX, ESI, EDI, EBP), 0)),
        ("8d a5 00 ff ff ff 5d c3", FunctionExit(True, -256, (EBP,), 0)),
        ("c9 c2 04 00", FunctionExit(True, 0, (EBP,), 4)),
        ("8b e5 5d c3", FunctionExit(True, 0, (EBP,), 0)),
        ("89 ec 5d c3", FunctionExit(True, 0, (EBP,), 0)),
        ("5e 5d e9 00 00 00 00", FunctionExit(False, 0, (ESI, EBP), 0)),
        ("c9 ff 25 00 00 00 00", FunctionExit(True, 0, (EBP,), 0)),
    ],
)
def test_exits(code: str, found: FunctionExit) -> None:
    assert exit_at(bytes.fromhex(code)) == found


@pytest.mark.parametrize(
    "code", ["", "5d", "c2 0c", "83 c4", "5e e9 00 00 00 00", "5c c3", "e9 00", "90", "8d 65"]
)
def test_no_exits(code: str) -> None:
    assert exit_at(bytes.fromhex(code)) is None


def test_entries() -> None:
    assert clues_x86.at_entry(b"\x55\x8b\xec\x83")
    assert clues_x86.at_entry(b"\x55\x89\xe5")
    assert clues_x86.at_entry(b"\x8b\xff\x55\x8b\xec")
    assert not clues_x86.at_entry(b"\x55\x57")
    assert clues_x86.behind_push(b"\x55", b"\x8b\xec")
    assert not clues_x86.behind_push(b"\x56", b"\x8b\xec")
    assert clues_x86.behind_release(b"\x5d", b"\xe9\0\0\0\0")
    assert not clues_x86.behind_release(b"\x5e", b"\xe9\0\0\0\0")


def test_borders_between_functions() -> None:
    assert clues_x86.has_border(b"\x90\x55\x8b\xec")
    assert clues_x86.has_border(b"\xc3\xcc")
    assert clues_x86.has_border(b"\xc2\x0c\x00\x90")
    assert clues_x86.has_border(bytes.fromhex("c3 66 2e 0f 1f 84 00 00 00 00 00"))
    assert clues_x86.has_border(bytes.fromhex("c2 08 00 8d 40 00"))
    assert clues_x86.has_border(bytes.fromhex("c3 8b c0"))
    assert not clues_x86.has_border(b"\x8b\xc3\x40\xc3")


@given(st.binary(max_size=40))
def test_any_code(code: bytes) -> None:
    found = exit_at(code)
    if found is not None:
        pops: Tuple[int, ...] = found.pops
        assert ESP not in pops
        assert 0 <= found.arguments < 0x10000


@pytest.mark.parametrize("end", ["c3", "c2 08 00", "eb f2", "e9 00 10 00 00"])
@pytest.mark.parametrize(
    "padding",
    [
        *("", "cc", "90", "90 90 90 90", "66 90", "8d 76 00", "8d 74 26 00", "2e 8d 74 26 00"),
        # lea esi, [esi + 0], alone and with others
        *("8d b6 00 00 00 00", "8d b4 26 00 00 00 00", "2e 8d b4 26 00 00 00 00"),
        # nop [eax + 0], as LLVM aligns
        *("0f 1f 00", "0f 1f 40 00", "0f 1f 44 00 00", "66 0f 1f 44 00 00", "0f 1f 80 00 00 00 00"),
        *("0f 1f 84 00 00 00 00 00", "66 66 66 2e 0f 1f 84 00 00 00 00 00"),
        *("8d b4 26 00 00 00 00 90", "8d b4 26 00 00 00 00 66 90", "8d b4 26 00 00 00 00 8d 76 00"),
    ],
)
def test_a_function_may_start_behind_the_padding_of_any_compiler(end: str, padding: str) -> None:
    code = bytes.fromhex(end + padding)
    whole = code + b"\x53\x83\xec\x18"
    assert len(code) in clues_x86.bare_starts(whole, 0x10000 - len(code))
    assert len(code) not in clues_x86.bare_starts(whole, 0x10008 - len(code))


@pytest.mark.parametrize("padding", ["", "90", "8b c0", "8d 40 00"])
def test_a_function_of_delphi_may_start_behind_padding_to_four_bytes(padding: str) -> None:
    code = bytes.fromhex("c2 08 00" + padding)
    assert len(code) in clues_x86.ends_before(code + b"\x53\x8b\xd8")
    assert clues_x86.ends(b"\x90" * 8 + code)


def test_code_behind_other_instructions_is_no_start() -> None:
    for before in (
        "c3 0f 1f 40 08",
        "c3 0f 1f 04 00",
        "c3 8d 76 04",
        "c3 8b 76 00",
        "74 f2 8d 76 00",
        "8d 76 00",
    ):
        code = bytes.fromhex(before)
        assert len(code) not in clues_x86.bare_starts(code + b"\x53\x83\xec\x18", 0x10000 - len(code))


def test_padding_and_a_start_behind_it_are_a_border() -> None:
    for start in ("53", "55", "83 ec 1c", "81 ec 8c 00 00 00"):
        assert clues_x86.at_border(bytes.fromhex("8d b6 00 00 00 00" + start), 0)
        assert clues_x86.at_border(bytes.fromhex("8d b4 26 00 00 00 00 66 90" + start), 0)
        assert not clues_x86.at_border(bytes.fromhex("8d b6 04 00 00 00" + start), 0)
    # The head of a loop is padded too.
    assert not clues_x86.at_border(bytes.fromhex("8d b6 00 00 00 00 8b 44 24 10"), 0)
