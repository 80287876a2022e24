# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Closures, delegates and thunks: the address to which each form jumps."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.findings.code.closures import called_by_thunk, closure_target
from winstacks.memory.decode.machine import Machine

AT, FAR, NEAR = 0x7FF700001000, 0x7FF812345678, 0x12345678
X64, X86 = Machine.AMD64, Machine.I386
_DATA = "88 77 66 55 f7 7f 00 00"
_FAR = FAR.to_bytes(8, "little").hex()
_NEAR = NEAR.to_bytes(4, "little").hex()


def target_of(code: bytes, machine: Machine, at: int = AT) -> Optional[int]:
    def read(address: int, length: int) -> Optional[bytes]:
        start = address - at
        return code[start : start + length] if 0 <= start <= len(code) - length else None

    return closure_target(read, at, machine)


@pytest.mark.parametrize(
    ("form", "code", "machine", "expected"),
    [
        ("libffi, Windows x64", f"4c8d15f9ffffff ff2503000000 0f1f00 {_FAR}", X64, FAR),
        ("libffi with endbr64", f"f30f1efa 4c8d15f5ffffff ff2502000000 0000 {_FAR}", X64, FAR),
        ("libffi 3.0", f"49bb {_FAR} 49ba {_DATA} f8 49ffe3", X64, FAR),
        ("libffi, static trampoline", f"4c8b1506000000 ff2508000000 {_DATA} {_FAR}", X64, FAR),
        ("UMEntryThunk", f"49ba {_DATA} 48b8 {_FAR} 48ffe0", X64, FAR),
        ("data last", f"48b8 {_FAR} 49ba {_DATA} ffe0", X64, FAR),
        ("ATL x64", f"48b9 {_DATA} 48b8 {_FAR} ffe0", X64, FAR),
        ("libffi x86", "b8 88776655 e9 f6ff0000", X86, AT + 0x10000),
        ("libffi x86, stdcall", f"b9 88776655 b8 {_NEAR} ffe0", X86, NEAR),
        ("libffi x86, push", f"68 88776655 b8 {_NEAR} ffe0", X86, NEAR),
        ("ATL x86", "c7442404 88776655 e9 f3ff0000", X86, AT + 0x10000),
        ("a register that nothing loads", f"49ba {_DATA} ffe0", X64, None),
        ("a function", "4883ec28 e800000000 4883c428 c3", X64, None),
        ("a function", "55 8bec 83ec10", X86, None),
        ("nothing", "", X64, None),
    ],
)
def test_forms(form: str, code: str, machine: Machine, expected: Optional[int]) -> None:
    assert target_of(bytes.fromhex(code), machine) == (
        expected and expected & (1 << 8 * machine.pointer_size) - 1
    )


@pytest.mark.parametrize(
    ("code", "machine", "expected"),
    [
        ("e800000000 8d442408 50 ff1520000100 59 83c410 ffe1", X86, NEAR),
        ("e800000000 8d442408 50 ff1520000100 59 83c410 ffe1", X64, None),
        ("e800000000 8d442408 50 ff1500000200 59 83c410 ffe1", X86, None),
        ("e800000000 8d442408 50 ff1520000100 59 83c410 ffd1", X86, None),
        ("e801000000 8d442408 50 ff1520000100 59 83c410 ffe1", X86, None),
    ],
)
def test_a_thunk_that_calls(code: str, machine: Machine, expected: Optional[int]) -> None:
    """AutoHotkey's for x86: its call returns 16 bytes behind its start."""
    memory = bytes.fromhex(code).ljust(0x20, b"\0") + NEAR.to_bytes(4, "little")

    def read(address: int, length: int) -> Optional[bytes]:
        start = address - 0x10000
        return memory[start : start + length] if 0 <= start <= len(memory) - length else None

    assert called_by_thunk(read, 0x10010, machine) == expected


@pytest.mark.parametrize("at", [0, (1 << 64) - 0x1000])
@pytest.mark.parametrize("displacement", ["ffffff7f", "00000080"])
def test_addresses_wrap_around(at: int, displacement: str) -> None:
    """lea r10, [rip + displacement]; jmp r10, at the ends of the address space."""
    code = bytes.fromhex(f"4c8d15{displacement} 41ffe2")
    expected = at + 7 + int.from_bytes(code[3:7], "little", signed=True) & (1 << 64) - 1
    assert target_of(code, X64, at) == expected


@given(st.binary(max_size=80), st.sampled_from((X64, X86)))
def test_any_bytes_end_in_an_address_or_in_none(code: bytes, machine: Machine) -> None:
    target = target_of(code, machine)
    assert called_by_thunk(lambda address, length: code[:length], AT, machine) is None or machine is X86
    assert target is None or 0 <= target < 1 << 8 * machine.pointer_size
