# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Innocent programs whose Windows DLLs have lost their headers, exports and function tables."""

from __future__ import annotations

from typing import Callable, List

import pytest

from tests.machines import unnamed
from tests.support.clean import patched
from tests.support.clean.host64 import Host64
from tests.support.clean.images import shared_pages
from tests.support.findingimages import Row, found

_CODE = 1 << 29
"""IMAGE_SCN_MEM_EXECUTE."""


def _without_names(host: Host64, *stems: str) -> List[Row]:
    """The findings of a machine that has lost all pages of some modules but their code."""
    image = host.kernel.image()
    lose = shared_pages(host.kernel)
    for section in host.kernel.sections:
        stem = section.path.rpartition("\\")[2].partition(".")[0].lower()
        if stems and stem not in stems:
            continue
        loaded = [
            module.pe
            for process in host.kernel.processes
            for module in process.all()
            if module.section is section
        ]
        parts = loaded[0].sections if loaded else []
        code = [(part.rva, part.rva + part.size) for part in parts if part.characteristics & _CODE]
        for rva in sorted(section.frames):
            if not any(low <= rva < high for low, high in code):
                lose(section, rva)
    return found(image)


def test_patches_of_the_functions_beside_are_low() -> None:
    """A sandbox has patched stubs; the thread is in the stub between two of them, whose bounds are lost."""
    host = Host64("win10-x64")
    patched.browser(host)
    child = host.program("msedge.exe", "chrome.dll", functions="wWinMain Loop")
    patched.intercept(child)
    child.waits("wWinMain", "kernelbase!DeviceIoControl", call="ntdll!NtDeviceIoControlFile")
    for name in ("notepad.exe", "calc.exe", "mspaint.exe", "write.exe"):
        host.program(name, functions="main").waits("main", "kernelbase!SleepEx")
    rows = [row for row in _without_names(host, "ntdll") if row["Finding"] == "modified_code"]
    assert {row["Severity"] for row in rows} == {"low"}
    assert any("may be of the function beside" in row["Innocent"] for row in rows)


def test_a_copied_stub_is_known_by_the_code_of_the_stubs() -> None:
    host = Host64("win10-x64")
    patched.in_a_thunk(host)
    rows = [row for row in _without_names(host, "ntdll") if row["Finding"] == "syscall_outside"]
    assert [row["Severity"] for row in rows] == ["low"]
    assert "a sandbox: the stub at 0x" in rows[0]["Innocent"]


@pytest.mark.parametrize("program", unnamed.PROGRAMS, ids=lambda program: program.__name__)
def test_a_generator_of_code_is_explained_by_the_module_that_called_it(
    program: Callable[[Host64], object],
) -> None:
    """A row that is low with all pages stays low, or rises to medium because names are lost."""
    whole, lost = Host64("win10-x64"), Host64("win10-x64")
    program(whole)
    program(lost)
    before = {row["Severity"] for row in found(whole.kernel.image()) if row["Finding"] == "unbacked"}
    after = {row["Severity"] for row in _without_names(lost, "ntdll", "kernel32", "kernelbase")}
    assert "high" in before or "high" not in after
