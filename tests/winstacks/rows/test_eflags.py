# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from winstacks.rows.traps import dr7_text, eflags_text


def test_flags() -> None:
    assert eflags_text(0x246) == "PF ZF IF"
    assert eflags_text(0x2) == ""
    assert eflags_text(0x3202) == "IF IOPL=3"
    assert eflags_text(0x50246) == "PF ZF IF RF AC"


def test_breakpoints() -> None:
    assert dr7_text(0x400) == ""
    assert dr7_text(0x401) == "Dr0 execute 1 local"
    # 0x455 enables all four locally; 0xD0455 makes the first a write of 4 bytes.
    assert dr7_text(0x455) == ", ".join(f"Dr{index} execute 1 local" for index in range(4))
    assert dr7_text(0xD0101) == "Dr0 write 4 local LE"
    assert dr7_text(0xB0008003 & ~0x8000) == "Dr0 execute 1 local global"
    assert dr7_text(0x30002300 | 0xC0) == "Dr3 read/write 1 local global LE GE GD"
    assert dr7_text(0x9000_0080) == "Dr3 write 8 global"


@given(st.integers(0, (1 << 64) - 1))
def test_any_number_has_a_text(value: int) -> None:
    assert len(eflags_text(value).split()) <= 17
    assert dr7_text(value).count("Dr") <= 4
