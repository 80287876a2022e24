# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One entry at an address, as the index array, the chains and the look-up of a few numbers need it."""

from __future__ import annotations

import pytest

from tests.forge.std import Std
from tests.forge.std_layouts import ALL
from tests.support import stddata
from tests.support.only import only
from winstacks.tracedb.decode.blocks import StdEntry, read_entry

cases = pytest.mark.parametrize("name, arch, kernel", ALL)


def opened(name: str, arch: str, kernel: bool):  # type: ignore[no-untyped-def]
    std = Std(name, arch, kernel=kernel, reserve=0x40000, bucket_count=3)
    for number in range(40):
        std.log([0x401000 + 16 * number + place for place in range(number % 32 + 1)])
    layout = only(member for member in stddata.layouts_of(arch).std if member.name == name)
    return std, layout.entry, stddata.reader_of(std.regions().items())(std.base, std.reserve)


@cases
def test_what_is_whole_is_read(name: str, arch: str, kernel: bool) -> None:
    std, layout, memory = opened(name, arch, kernel)
    for entry in std.entries():
        found = read_entry(layout, memory.read, entry.va)
        assert isinstance(found, StdEntry)
        assert (found.frames, layout.is_index(found.number, entry.index)) == (entry.frames, True)
        assert found.word & layout.count_mask == entry.count
        assert layout.fits(found.word, entry.depth)
        chain = [block.va for block in std.chains[entry.bucket]]
        assert found.chain == [*chain, 0][chain.index(entry.va) + 1]


@cases
def test_what_is_not_is_none(name: str, arch: str, kernel: bool) -> None:
    std, layout, memory = opened(name, arch, kernel)
    entry = std.entries()[-1]
    end = entry.va + layout.head_size + layout.pointer_size * entry.depth
    for present in (entry.va, entry.va + layout.head_size - 1, end - 1):
        part = memory.part(std.base, present - std.base)
        assert read_entry(layout, part.read, entry.va) is None
    for depth in (0, 33, 0xFFFF):
        data = bytearray(memory.read(std.base, std.lower - std.base) or b"")
        place = entry.va - std.base + layout.head_size - 2
        data[place : place + 2] = depth.to_bytes(2, "little")
        part = stddata.reader_of([(std.base, bytes(data))])(std.base, len(data))
        assert read_entry(layout, part.read, entry.va) is None


@pytest.mark.parametrize(
    "name, arch, wide", [("5.1", "x86", False), ("5.2", "x64", False), ("6.1", "x64", True)]
)
def test_a_narrow_entry_holds_the_low_half_of_its_number(name: str, arch: str, wide: bool) -> None:
    layout = only(member.entry for member in stddata.layouts_of(arch).std if member.name == name)
    assert layout.is_index(5, 5) and not layout.is_index(5, 6)
    assert layout.is_index(5, 0x10005) != wide
