# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The regions of a dump ascend, whatever the order of MemoryInfoListStream."""

from __future__ import annotations

import pathlib

import pytest

import winstacks
from tests.forge import minidump
from winstacks.process.vads import regions

COMMIT, READ_WRITE, TYPE_PRIVATE = 0x1000, 4, 0x20000
STARTS = (0x30000000, 0x10000000, 0x20000000)


@pytest.mark.parametrize(("size", "whole"), [(0x10000000, True), (0x1000, False)])
def test_regions_ascend_although_the_stream_does_not(size: int, whole: bool, tmp_path: pathlib.Path) -> None:
    """A stream with gaps between its regions is contradicted: VirtualQuery leaves none."""
    writer = minidump.Writer()
    writer.system_info()
    writer.misc_info(100)
    alike = (size, COMMIT, READ_WRITE, TYPE_PRIVATE)
    writer.memory_infos([(start, start, READ_WRITE, *alike) for start in STARTS])
    path = tmp_path / "process.dmp"
    path.write_bytes(writer.bytes())
    with winstacks.open(path) as opened:
        listed, complete = opened.image.service(regions).list_regions(opened.image.kernel)
    assert (tuple(region.start for region in listed), complete) == (tuple(sorted(STARTS)), whole)
