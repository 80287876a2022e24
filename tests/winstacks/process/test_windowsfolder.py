# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The folder of Windows, where it has another name, or lies below others as in a container."""

from __future__ import annotations

from typing import Iterator

import pytest

from tests.machines.implants import DELAY, IMPLANT, SLEEP, interrupted, memory, victim, waits
from tests.support.clean import libraries
from tests.support.clean.host64 import Host64, Private
from tests.support.findingimages import found

USUAL = "\\Windows\\"
FOLDERS = (
    "\\WINNT\\",
    "\\ReactOS\\",
    "\\ProgramData\\docker\\windowsfilter\\4f1c\\Files\\Windows\\",
    "\\VSMB-{dcc079ae-60ba-4d07-847c-3493609c0870}\\os\\Windows\\",
)


@pytest.fixture(params=FOLDERS)
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host64]:
    """A machine whose Windows lies elsewhere."""
    usual = libraries.path_of

    def path_of(file: str) -> str:
        path = usual(file)
        return path.replace(USUAL, request.param, 1) if path[path.index("\\") :].startswith(USUAL) else path

    monkeypatch.setattr(libraries, "path_of", path_of)
    libraries.library.cache_clear()
    yield Host64("win10-x64")
    libraries.library.cache_clear()


def test_windows_explains_no_code_that_it_calls(host: Host64) -> None:
    """Windows' DLLs are no modules of a program that may have made the code between them."""
    waits(host, IMPLANT, SLEEP, call=DELAY)
    waits(host, "ntdll!TppWorkpExecuteCallback", IMPLANT, SLEEP, call=DELAY)
    program = victim(host)
    base = memory(program)
    interrupted(program, Private(base), at=base + 0x120)
    rows = found(host.kernel.image(), "unbacked")
    assert [row["Severity"] for row in rows] == 3 * ["high"]
    assert {row["Innocent"] for row in rows} == {"nothing known in this process"}


def test_code_that_sleeps_masked_is_found(host: Host64) -> None:
    """No call is before its address: the walk is sure of it because Windows' code returns to it."""
    waits(host, "main", IMPLANT, SLEEP, call=DELAY, masked=True, asleep=True)
    assert [row["Severity"] for row in found(host.kernel.image(), "not_executable")] == ["high"]


def test_a_file_named_ntdll_takes_no_folder_away(host: Host64) -> None:
    """An implant that maps such a file from elsewhere changes nothing for Windows' own."""
    program = victim(host)
    path = "\\Users\\ann\\System32\\ntdll.dll"
    program.load("vendor.dll", functions="Run", path=f"C:{path}")
    program.waits(Private(memory(program)), SLEEP, call=DELAY)
    assert [row["Severity"] for row in found(host.kernel.image(), "unbacked")] == ["high"]
