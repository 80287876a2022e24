# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pages that Windows 11 24H2 and later map behind an image: its VAD is larger than SizeOfImage."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import kernels
from tests.forge.kernel import Kernel
from tests.support.only import only
from tests.winstacks.names.test_symbolizer_damage import app, names
from winstacks.memory.decode.status import text


@pytest.mark.parametrize("name", ["win10-x64", "xp-x86"])
@pytest.mark.parametrize("behind", [0x1000, 0x3000])
def test_they_contradict_nothing_and_are_the_images(name: str, behind: int, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    process, ntdll = app(kernel)
    vad = only(vad for vad in process.vads if vad.start == ntdll.base)
    vad.section, vad.size = None, vad.size + behind
    found = names(kernel.image(), tmp_path, 1000)
    inside, after = found.name(ntdll.base + 0x1020), found.name(ntdll.base + ntdll.size + 0x10)
    assert (inside.symbol, text(inside.status)) == ("ntdll!Send+0x20", "")
    assert (after.backing, text(after.status)) == ("image", "")
