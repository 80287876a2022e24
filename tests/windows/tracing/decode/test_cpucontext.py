# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
from __future__ import annotations

import pathlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.plugins.windows.tracing.decode import cpucontext

from tests import real_trapframes
from tests.forge import kernels


def test_the_layout_of_the_public_symbols() -> None:
    table = kernels.load("win10-x64").table
    layout = cpucontext.X64
    assert layout.size == table.size("_CONTEXT")
    for name, field in layout.members.items():
        assert field[:2] == table.place("_CONTEXT", name)[:2]
    table = kernels.load("xp-x86").table
    names = {"Rip": "Eip", "Rsp": "Esp", "MxCsr": "ExtendedRegisters[24]"}
    assert cpucontext.X86.size == table.size("_CONTEXT")
    for name, field in cpucontext.X86.members.items():
        old = names.get(name, "E" + name[1:] if name[0] == "R" else name)
        assert field.offset == table.offset("_CONTEXT", old), name


@pytest.mark.shared
def test_the_context_of_the_real_crash(shared_dir: pathlib.Path) -> None:
    crash = real_trapframes.load_crash(shared_dir)
    start = int(crash.truth["context_va"], 16) - crash.stack_address
    found = cpucontext.decode("x64", crash.stack[start : start + cpucontext.X64.size])
    assert found is not None
    assert not found.user
    truth = {name: int(value, 16) for name, value in crash.truth["context"].items()}
    assert found.flags == truth["context_flags"]
    assert found.registers == {name: truth[name.replace("Seg", "").lower()] for name in found.registers}
    assert len(found.registers) == 17 + 7 + 7


def test_only_what_the_flags_say() -> None:
    data = bytearray(b"\x11" * cpucontext.X64.size)
    data[0x30:0x34] = struct.pack("<I", 0x100001)
    found = cpucontext.decode("x64", bytes(data))
    assert found is not None
    assert set(found.registers) == {"Rip", "Rsp", "EFlags", "SegCs", "SegSs"}


@pytest.mark.parametrize("flags", [0, 0x100000, 0x1F, 0x10001F, 0x11111111])
def test_flags(flags: int) -> None:
    data = bytearray(cpucontext.X64.size)
    data[0x30:0x34] = struct.pack("<I", flags)
    assert (cpucontext.decode("x64", bytes(data)) is not None) == (flags == 0x10001F)


@given(data=st.binary(max_size=0x500), arch=st.sampled_from(["x64", "x86"]))
def test_any_bytes(data: bytes, arch: str) -> None:
    found = cpucontext.decode(arch, data)
    assert found is None or len(data) >= cpucontext.LAYOUTS[arch].size
