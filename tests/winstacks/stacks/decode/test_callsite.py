# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Return addresses are behind calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.stacks.decode.frames import LONGEST_CALL, direct_target, is_call


@pytest.mark.parametrize(
    "code",
    [
        *("e8 01 02 03 04", "ff d0", "41 ff d3", "ff 10", "ff 14 24", "ff 50 08", "ff 54 24 08"),
        *("ff 15 01 02 03 04", "ff 14 25 01 02 03 04", "ff 14 c5 01 02 03 04", "ff 90 01 02 03 04"),
        *("ff 94 24 01 02 03 04", "49 ff 94 24 01 02 03 04", "67 ff 12"),
    ],
)
def test_calls(code: str) -> None:
    assert is_call(b"\x90" * 8 + bytes.fromhex(code))
    assert is_call(bytes.fromhex(code))


@pytest.mark.parametrize(
    "code",
    ["", "90", "ff", "e9 01 02 03 04", "ff e0", "ff 25 01 02 03 04", "ff 15 01 02", "ff 14", "ff 54 24"],
)
def test_no_calls(code: str) -> None:
    assert not is_call(b"\x90" * 8 + bytes.fromhex(code))
    assert not is_call(bytes.fromhex(code))


def test_direct_targets() -> None:
    assert direct_target(bytes.fromhex("90 e8 10 00 00 00"), 0x1000) == 0x1010
    assert direct_target(bytes.fromhex("e8 f0 ff ff ff"), 0x1000) == 0xFF0
    assert direct_target(bytes.fromhex("ff 15 00 00 00 00"), 0x1000) is None
    assert direct_target(b"\xe8", 0x1000) is None


@given(st.binary(max_size=12))
def test_any_code_before(code: bytes) -> None:
    assert is_call(code) in (True, False)
    assert is_call(code) == is_call(code[-LONGEST_CALL:])
