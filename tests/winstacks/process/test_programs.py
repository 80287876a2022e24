# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ImageFileName and the path under which the kernel opened the program."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.support.only import only
from winstacks.memory.decode.status import text
from winstacks.process.spaces import AddressSpaces
from winstacks.process.threadids import ThreadIds

LONG = "a-name-of-twenty.exe"
WRONG = "contradicted: ImageFileName"


@pytest.mark.parametrize("kernel_name", ["win10-x64", "win7-x86", "xp-x86"])
@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("\\Device\\HarddiskVolume2\\app.exe", b"app.exe", ""),
        (f"\\Device\\HarddiskVolume2\\{LONG}", LONG[:14].encode(), ""),
        (f"\\Device\\HarddiskVolume2\\{LONG}", LONG[:15].encode(), ""),
        (f"\\Device\\HarddiskVolume2\\{LONG}", LONG[:13].encode(), WRONG),
        ("\\Device\\HarddiskVolume2\\app.exe", b"svchost.exe", WRONG),
        ("\\Device\\HarddiskVolume2\\app.exe", b"app", WRONG),
        ("\\Device\\HarddiskVolume2\\app.exe", b"", WRONG),
        ("\\Device\\HarddiskVolume2\\\u03c7.exe", b"\xf6.exe", ""),
        ("", b"Registry", ""),
    ],
)
def test_a_name_is_that_of_the_program(
    kernel_name: str, path: str, name: bytes, expected: str, tmp_path: pathlib.Path
) -> None:
    """A name is cut; one outside ASCII is in an unknown code page, and a minimal process has no program."""
    known = kernels.load(kernel_name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    app.eprocess["ImageFileName"] = name.ljust(15, b"\0")
    if kernel.isf.has("_UNICODE_STRING", "Length"):
        string = kernel.obj("_UNICODE_STRING")
        string.put(Length=2 * len(path), MaximumLength=2 * len(path) + 2)
        string["Buffer"] = buffer = kernel.space.allocate(0x200)
        kernel.space.write(buffer, path.encode("utf-16-le"))
        app.eprocess["SeAuditProcessCreationInfo.ImageFileName"] = string
    opened = context.open_image(kernel.image(), tmp_path)
    space = only(AddressSpaces.list_spaces(opened.image, [1000]))
    assert text(space.remark) == expected


def test_system_has_one_name(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.system.eprocess["ImageFileName"] = b"updater.exe".ljust(15, b"\0")
    opened = context.open_image(kernel.image(), tmp_path)
    space = only(AddressSpaces.list_spaces(opened.image, [4]))
    assert text(space.remark) == WRONG


@pytest.mark.parametrize("kernel_name", ["xp-x86", "win10-x64"])
def test_a_process_has_one_name_everywhere(kernel_name: str, tmp_path: pathlib.Path) -> None:
    """Its space and its threads have the same one, also with bytes that are not UTF-8."""
    known = kernels.load(kernel_name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    app.eprocess["ImageFileName"] = b"caf\xe9.exe".ljust(15, b"\0")
    thread = app.thread(1004)
    opened = context.open_image(kernel.image(), tmp_path)
    image = opened.image
    space = only(AddressSpaces.list_spaces(image, [1000]))
    owner = image.service(ThreadIds).owner(image.machine.canonical(thread.ethread.address))
    assert owner is not None
    assert (space.process, owner.process) == (r"caf\xe9.exe", r"caf\xe9.exe")
