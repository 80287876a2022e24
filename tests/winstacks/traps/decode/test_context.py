# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
from __future__ import annotations

import pathlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import kernels
from tests.support import real_trapframes, traplayouts
from tests.support.deep import rounds

X64, X86 = traplayouts.context("x64"), traplayouts.context("x86")
FORMS = {"x64": X64, "x86": X86}

# ContextFlags of winnt.h: which part has which registers, those of x86 under their x64 names.
PARTS = {
    "x64": {
        1: "Rip Rsp EFlags SegCs SegSs",
        2: "Rax Rcx Rdx Rbx Rbp Rsi Rdi R8 R9 R10 R11 R12 R13 R14 R15",
        4: "SegDs SegEs SegFs SegGs",
        8: "MxCsr",
        0x10: "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7",
    },
    "x86": {
        1: "Rip Rsp Rbp EFlags SegCs SegSs",
        2: "Rax Rcx Rdx Rbx Rsi Rdi",
        4: "SegDs SegEs SegFs SegGs",
        0x10: "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7",
        0x20: "MxCsr",
    },
}


def test_the_layout_of_the_public_symbols() -> None:
    table = kernels.load("win10-x64").table
    assert X64.size == table.size("_CONTEXT")
    for name, field in X64.fields.items():
        assert field[:2] == table.place("_CONTEXT", name)[:2]
    table = kernels.load("xp-x86").table
    names = {"Rip": "Eip", "Rsp": "Esp", "MxCsr": "ExtendedRegisters[24]"}
    assert X86.size == table.size("_CONTEXT")
    for name, field in X86.fields.items():
        old = names.get(name, "E" + name[1:] if name[0] == "R" else name)
        assert field.offset == table.offset("_CONTEXT", old), name


@pytest.mark.shared
def test_the_context_of_the_real_crash(shared_dir: pathlib.Path) -> None:
    crash = real_trapframes.load_crash(shared_dir)
    start = int(crash.truth["context_va"], 16) - crash.stack_address
    found = X64.decode(crash.stack[start : start + X64.size])
    assert found is not None
    assert not found.user
    truth = {name: int(value, 16) for name, value in crash.truth["context"].items()}
    assert found.flags == truth["context_flags"]
    assert found.registers == {name: truth[name.replace("Seg", "").lower()] for name in found.registers}
    assert len(found.registers) == 17 + 7 + 7


def test_only_what_the_flags_say() -> None:
    data = bytearray(b"\x11" * X64.size)
    data[0x30:0x34] = struct.pack("<I", 0x100001)
    found = X64.decode(bytes(data))
    assert found is not None
    assert set(found.registers) == {"Rip", "Rsp", "EFlags", "SegCs", "SegSs"}


@pytest.mark.parametrize("flags", [0, 0x100000, 0x1F, 0x10001F, 0x11111111])
def test_flags(flags: int) -> None:
    data = bytearray(X64.size)
    data[0x30:0x34] = struct.pack("<I", flags)
    assert (X64.decode(bytes(data)) is not None) == (flags == 0x10001F)


@given(data=st.binary(max_size=0x500), arch=st.sampled_from(["x64", "x86"]))
def test_any_bytes(data: bytes, arch: str) -> None:
    found = FORMS[arch].decode(data)
    assert found is None or len(data) >= FORMS[arch].size


@settings(max_examples=rounds(80), deadline=None, derandomize=True)
@given(
    arch=st.sampled_from(["x64", "x86"]),
    parts=st.sets(st.sampled_from([1, 2, 4, 8, 0x10, 0x20]), min_size=1),
    data=st.binary(min_size=0x4D0, max_size=0x4D0),
)
def test_what_a_processor_wrote_comes_back(arch: str, parts: "set[int]", data: bytes) -> None:
    """Every member at the place of the public symbols, and none of a part that was not written."""
    table = kernels.load("win10-x64" if arch == "x64" else "xp-x86").table
    old = {"Rip": "Eip", "Rsp": "Esp", "MxCsr": "ExtendedRegisters[24]"} if arch == "x86" else {}
    written = bytearray(data[: table.size("_CONTEXT")])
    flags = sum(parts) | (0x100000 if arch == "x64" else 0x10000)
    struct.pack_into("<I", written, table.offset("_CONTEXT", "ContextFlags"), flags)
    found = FORMS[arch].decode(bytes(written))
    assert found is not None and found.flags == flags
    expected = {name: part for part, names in PARTS[arch].items() for name in names.split()}
    assert set(found.registers) == {name for name, part in expected.items() if part in parts}
    for name, value in found.registers.items():
        member = old.get(name, "E" + name[1:] if arch == "x86" and name[0] == "R" else name)
        size = 2 if name.startswith("Seg") else 4 if arch == "x86" or name in ("EFlags", "MxCsr") else 8
        offset = table.offset("_CONTEXT", member)
        assert value == int.from_bytes(written[offset : offset + size], "little"), name
    assert found.user == (1 in parts and found.registers["SegCs"] & 3 == 3)


@pytest.mark.parametrize("arch", ["x64", "x86"])
@given(data=st.data())
def test_what_is_encoded_is_decoded(arch: str, data: st.DataObject) -> None:
    """A part without a known register is left out; in the others what is not known is 0, and named."""
    parts = {part: names.split() for part, names in PARTS[arch].items() if part in (1, 2, 4, 0x10)}
    known = data.draw(
        st.dictionaries(
            st.sampled_from(sorted({name for names in parts.values() for name in names})),
            st.integers(0, 0xFFFF),
        )
    )
    encoded, unknown = FORMS[arch].encode({**known, "ErrorCode": 4})
    found = FORMS[arch].decode(encoded)
    there = {name for names in parts.values() if known.keys() & names for name in names}
    assert (found is not None) == bool(known)
    if found is not None:
        assert dict(found.registers) == {name: known.get(name, 0) for name in there}
        assert found.flags & 0xFF == sum(part for part, names in parts.items() if known.keys() & names)
    assert set(unknown) == there - known.keys()
