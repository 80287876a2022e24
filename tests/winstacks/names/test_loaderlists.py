# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What entries of the loader's lists say besides where a module is."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import context, kernels
from tests.support.only import only
from tests.support.tracedkernels import KERNELS, new_kernel
from winstacks.names.loaderlists import LoaderLists
from winstacks.process.spaces import AddressSpaces

STAMP = 0x5F5E1234
X86 = kernels.load("win10-x86").table


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
def test_stamp_and_path(name: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel(name, 0)
    app = kernel.process("app.exe", pid=1000)
    modules = [app.module("ntdll.dll", headers=False)]
    wide = kernel.bits == 64
    if wide:
        modules.append(app.wow64().module("legacy.dll", headers=False))
    for module in modules:
        assert module.entry is not None
        # Volatility's table of WoW64 lacks the member; those of the 32-bit kernels have it.
        place = X86.offset("_LDR_DATA_TABLE_ENTRY", "TimeDateStamp")
        if module.entry.isf is kernel.isf:
            place = kernel.isf.offset("_LDR_DATA_TABLE_ENTRY", "TimeDateStamp")
        app.space.write_int(module.entry.address + place, STAMP, 4)
    image = context.open_image(kernel.image(), tmp_path).image
    lists = image.service(LoaderLists)
    _, *halves = AddressSpaces.list_spaces(image)
    halves = [half for half in halves if half.pid == 1000]
    assert len(halves) == len(modules)
    for half, module in zip(halves, modules):
        entry = only(entry for entry in lists.process_modules(half)[0] if entry.base == module.base)
        assert lists.details(half, entry) == (STAMP, module.path, None)
    listed, _ = lists.kernel_modules()
    own = kernel.isf.has_type("_KLDR_DATA_TABLE_ENTRY")
    stamp, path, _ = lists.details(image.kernel, listed[0])
    assert path == "\\SystemRoot\\system32\\ntoskrnl.exe"
    assert stamp == (kernel.nt.pe.timestamp if own else None)
    assert own == name.startswith(("win10", "win11"))


def test_an_entry_that_is_gone(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64", 0)
    image = context.open_image(kernel.image(), tmp_path).image
    lists = image.service(LoaderLists)
    listed, _ = lists.kernel_modules()
    missing = listed[0]._replace(address=kernel.space.reserve(0x1000))
    assert lists.details(image.kernel, missing) == (None, None, None)
