# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check of contexts that were prepared on a stack."""

from __future__ import annotations

import struct

import pytest

from tests.support.findingimages import ALL, TID, FindingImage, found, severities
from tests.support.only import only
from winstacks.findings.checks import context_on_stack

CHECK = "context_on_stack"
FORMS = {8: (0x30, 0x98, 0xF8, 0x10000B, 0x4D0), 4: (0, 0xC4, 0xB8, 0x10007, 0x2CC)}
"""Offsets of ContextFlags, Rsp and Rip, flags, and size of CONTEXT (winnt.h), by pointer size."""
RECORDS = {8: (0x10, 0x98), 4: (0xC, 0x50)}
"""Offset of ExceptionAddress, and size of EXCEPTION_RECORD."""
ENTRIES = {"NtContinue": "ntdll.dll", "VirtualProtect": "kernel32.dll", "SystemFunction032": "cryptsp.dll"}
RVA = 0x1800


class PreparedContext:
    """A thread on whose stack a CONTEXT lies.

    Args:
        name: of the kernel
        function: at which it begins
        more: bytes behind its entry
        flags: ContextFlags; default: those of a whole context
    """

    def __init__(self, name: str, function: str = "VirtualProtect", more: int = 0, flags: int = -1) -> None:
        self.forged = forged = FindingImage(name)
        self.size = 8 if forged.wide else 4
        file = ENTRIES[function]
        module = forged.app.module(f"{file}", exports={function: RVA})
        self.target = module.base + RVA + more
        at_flags, at_sp, at_ip, known, self.length = FORMS[self.size]
        data = bytearray(self.length)
        struct.pack_into("<I", data, at_flags, known if flags < 0 else flags)
        top = forged.thread.user_stack_base
        for place, value in ((at_sp, top - 0x100), (at_ip, self.target)):
            data[place : place + self.size] = value.to_bytes(self.size, "little")
        frame = forged.thread.kthread["TrapFrame"]
        member = "Rsp" if forged.wide else "HardwareEsp"
        at_frame = frame + forged.kernel.isf.offset("_KTRAP_FRAME", member)
        sp = forged.kernel.space.read_int(at_frame, self.size) - 0x1000
        forged.kernel.space.write_int(at_frame, sp, self.size)
        self.address = sp + 0x200
        forged.app.space.write(self.address, bytes(data))

    def raised(self) -> None:
        """Puts the record of an exception behind the context."""
        at_address, size = RECORDS[self.size]
        data = bytearray(size)
        struct.pack_into("<I", data, 0, 0x80000003)
        data[at_address : at_address + self.size] = self.target.to_bytes(self.size, "little")
        self.forged.app.space.write(self.address + self.length + 0x20, bytes(data))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("function", ENTRIES)
def test_a_context_that_begins_at_a_function(name: str, function: str) -> None:
    context = PreparedContext(name, function)
    row = only(found(context.forged.image(), CHECK))
    assert (row["Severity"], row["PID"], row["TID"], row["Kind"]) == ("high", 1000, TID, "user")
    assert row["Address"] == context.target
    assert row["Symbol"] == f"{ENTRIES[function][:-4]}!{function}"
    assert row["Evidence"].startswith(f"CONTEXT {context.address:#x} with ContextFlags 0x10")


@pytest.mark.parametrize("name", ALL)
def test_one_within_the_function_is_silent(name: str) -> None:
    assert found(PreparedContext(name, more=4).forged.image(), CHECK) == []


@pytest.mark.parametrize("name", ALL)
def test_the_address_alone_is_silent(name: str) -> None:
    """ContextFlags are not those of a CONTEXT."""
    assert found(PreparedContext(name, flags=0x41424344).forged.image(), CHECK) == []


@pytest.mark.parametrize("name", ALL)
def test_the_dispatch_of_an_exception_is_silent(name: str) -> None:
    context = PreparedContext(name)
    context.raised()
    assert found(context.forged.image(), CHECK) == []


def test_no_stack_has_many_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    context = PreparedContext("win10-x64")
    context.raised()
    monkeypatch.setattr(context_on_stack, "MAX_RAISED", 0)
    assert len(found(context.forged.image(), CHECK)) == 1


@pytest.mark.parametrize(
    ("more", "padding", "expected"),
    [
        (-8, "0f1f840000000000", ["high"]),
        (-3, "cccccc", ["high"]),
        (-12, "0f05c3cd2ec30f1f840000000000", []),
    ],
)
def test_a_context_in_the_padding_before_such_a_function(
    more: int, padding: str, expected: list[str]
) -> None:
    """Who goes on there runs into the function; in the function before a thread may have been."""
    context = PreparedContext("win10-x64", "NtContinue", more)
    code = bytes.fromhex(padding)
    context.forged.app.space.write(context.target - more - len(code), code)
    assert severities(context.forged.image(), CHECK) == expected
