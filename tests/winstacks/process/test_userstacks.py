# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The limits of user stacks, where what leads to them is not known."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.support import bare
from tests.support.only import rows_of
from winstacks.memory.decode.status import text
from winstacks.process.threads import Threads
from winstacks.process.userstacks import UserStacks, narrow_teb


def test_a_process_without_page_tables_has_no_teb32() -> None:
    """Its DirectoryTableBase is in doubt, and its TEB was read from the kernel's structures."""
    image = bare.image(8)
    assert narrow_teb(image, image.kernel._replace(layer_name=""), 0x7FF0_0000_0000) == 0


@pytest.mark.parametrize(
    ("name", "member", "known"),
    [
        ("win7-x64", "NtTib.ExceptionList", False),
        ("win10-x64", "NtTib.ExceptionList", True),
        ("win10-x64", "WowTebOffset", True),
    ],
)
def test_a_member_that_leads_to_the_teb32_of_another_thread(
    name: str, member: str, known: bool, tmp_path: pathlib.Path
) -> None:
    """Windows 10 has two ways to the TEB32. Where both lead to another's, the limits are unknown."""
    table = kernels.load(name)
    kernel = Kernel(table.table, **table.options())
    app = kernel.process("app.exe", pid=1000)
    wow, first, second = app.wow64(), app.thread(1004, teb=0x7EFD8000), app.thread(1008, teb=0x7EFD0000)
    own, other = wow.thread(first), wow.thread(second)
    wow.finish()
    assert first.teb is not None
    first.teb[member] = other - first.teb.address if member == "WowTebOffset" else other
    opened = context.open_image(kernel.image(), tmp_path)
    limits = UserStacks(opened.image)
    threads = rows_of(2, Threads.list_threads(opened.image, [1000]))
    assert [limits.teb32(thread) for thread in threads] == [own if known else 0, other]
    assert [bool(limits.narrow(thread)) for thread in threads] == [known, True]
    assert [text(thread.status) for thread in threads] == ["", ""]
