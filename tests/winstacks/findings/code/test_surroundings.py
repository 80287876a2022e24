# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Evidence of `unbacked` about the code's caller, its bytes, its region and others like it."""

from __future__ import annotations

import pytest

from tests.forge.vad import EXECUTE_READWRITE
from tests.support.clean.host64 import JITTED, Host64, Private
from tests.support.findingimages import Row, found
from tests.support.only import only

SLEEP = "kernelbase!SleepEx"


def _row(*files: str, beside: str = "", call: str = SLEEP) -> Row:
    """The row of a thread that waits in a call by private code."""
    host = Host64("win10-x64")
    program = host.program("victim.exe", *files, functions="main Work")
    code = program.jitted(protection=EXECUTE_READWRITE)
    program.process.space.write(code, b"MZ")
    program.waits("main", Private(code), call, start="Work")
    if beside:
        host.program(beside, functions="main").jitted(protection=EXECUTE_READWRITE)
    return only(found(host.kernel.image(), "unbacked"))


def test_the_evidence_names_caller_callee_bytes_region_and_start() -> None:
    evidence = _row()["Evidence"]
    for words in (
        *("called by victim!main+0x20", "called kernelbase!SleepEx+0x20", "begins with MZ"),
        *("region of 0x2000 bytes, 0x2000 private, ", "entropy ", "its thread began at victim!Work"),
        *("behind the bytes ", "no other process has such a region"),
    ):
        assert words in evidence


def test_the_bytes_before_the_return_address_end_in_its_call() -> None:
    before = _row()["Evidence"].partition("behind the bytes ")[2][:23]
    assert bytes.fromhex(before)[-5:-4] == b"\xe8"
    assert JITTED.returns() > 5


def test_other_processes_with_such_a_region_are_counted_and_named() -> None:
    assert "1 other process with such a region: other.exe" in _row(beside="other.exe")["Evidence"]


@pytest.mark.parametrize("files", [("guard.dll",)])
def test_a_called_module_is_no_hook_where_nothing_is_hooked(files: tuple[str, ...]) -> None:
    row = _row(*files, call="guard!HookNtCreateFile")
    assert row["Innocent"] == "nothing known in this process"
    assert "called guard!HookNtCreateFile" in row["Evidence"]
