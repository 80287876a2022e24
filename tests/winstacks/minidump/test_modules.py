# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a dump that share the text of their path."""

from __future__ import annotations

import struct

from tests.forge.minidump import Writer
from tests.support import bare
from winstacks.memory.image import AddressSpace
from winstacks.minidump.modules import DumpModules

from .decode.test_streams import dump_of


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
