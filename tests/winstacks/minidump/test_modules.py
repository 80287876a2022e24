# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a dump: what their paths say, and what paths that are shared cost."""

from __future__ import annotations

import pathlib
import struct

import pytest

import winstacks
from tests.forge.minidump import Module, Writer
from tests.support import bare
from winstacks.memory.decode.machine import Machine
from winstacks.memory.image import AddressSpace
from winstacks.minidump.modules import DumpModules
from winstacks.names.loaderlists import module_lists

from .decode.test_streams import dump_of


@pytest.mark.parametrize("separator", ["\\", "/"])
def test_both_separators_of_paths_count(separator: str, tmp_path: pathlib.Path) -> None:
    paths = [separator.join(("C:", "Windows", "System32", "wow64.dll")), separator.join(("C:", "app.exe"))]
    writer = Writer()
    writer.system_info()
    writer.modules([Module(0x10000000 * place, 0x1000, 0, path) for place, path in enumerate(paths, 1)])
    path = tmp_path / "process.dmp"
    path.write_bytes(writer.bytes())
    with winstacks.open(path) as opened:
        lists, native = opened.image.service(module_lists), opened.image.kernel
        listed = [
            [entry.name for entry in lists.process_modules(space)[0]]
            for space in (native, native._replace(machine=Machine.I386))
        ]
    assert listed == [["wow64.dll"], ["app.exe"]]


def test_modules_with_one_path_have_one_name() -> None:
    """Each would keep 60 KB of its own: 500 MB for a file of 1 MB."""
    writer, count = Writer(), 50
    path = writer.string("C:\\" + "a" * 30_000)
    rows = b"".join(
        struct.pack("<QIIII84x", 0x10000000 + 0x1000 * number, 0x1000, 0, 1, path) for number in range(count)
    )
    writer.stream(4, struct.pack("<I", count) + rows)
    image = bare.image()
    space = AddressSpace(1000, "a.exe", image.machine, str(image.layer.name))
    found, _ = DumpModules(image, dump_of(writer.bytes())).process_modules(space)
    assert [entry.name for entry in found] == ["a" * 30_000] * count
    assert len({id(entry.name) for entry in found}) == 1
