# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads of a process's memory: within its ranges, and across holes."""

from __future__ import annotations

from typing import List, Tuple

from hypothesis import given
from hypothesis import strategies as st
from volatility3.plugins.windows.stacktraces.base.decode.extents import Extents
from volatility3.plugins.windows.stacktraces.base.decode.field import Field
from volatility3.plugins.windows.stacktraces.base.decode.memory import WINDOW, Memory, Windows
from volatility3.plugins.windows.stacktraces.base.decode.pagetable import PAGE_SIZE

PAGES = st.sets(st.integers(0, 40), max_size=20)


def memory_of(pages: "set[int]") -> Memory:
    return Memory.over(Extents((page * PAGE_SIZE, bytes([page]) * PAGE_SIZE) for page in pages), 8)


@given(PAGES, st.integers(0, 42 * PAGE_SIZE), st.integers(1, 3 * PAGE_SIZE))
def test_reads_what_is_all_there(pages: "set[int]", address: int, length: int) -> None:
    data = memory_of(pages).read(address, length)
    wanted = [byte // PAGE_SIZE for byte in range(address, address + length)]
    if pages.issuperset(wanted):
        assert data is not None
        assert list(data) == wanted
    else:
        assert data is None


@given(PAGES, st.integers(0, 42 * PAGE_SIZE), st.integers(0, 42 * PAGE_SIZE))
def test_yields_every_page_once(pages: "set[int]", start: int, end: int) -> None:
    found: List[Tuple[int, bytes]] = [(at, bytes(data)) for at, data in memory_of(pages).pages(start, end)]
    for at, data in found:
        assert start <= at < at + len(data) <= end
        assert data == bytes([at // PAGE_SIZE]) * len(data)
    total = sum(max(min(end, (page + 1) * PAGE_SIZE) - max(start, page * PAGE_SIZE), 0) for page in pages)
    assert sum(len(data) for _, data in found) == total
    assert found == sorted(found)


def test_nothing_is_asked_for_outside_the_ranges() -> None:
    asked = []

    def reader(start: int, length: int) -> Extents:
        asked.append(start)
        return Extents([(start, bytes(length))])

    memory = Memory(Windows(reader, WINDOW), 4, [(0x20000, 0x21000), (0x21000, 0x22000)])
    assert memory.pointer(0x40000) is None
    assert memory.number(0x21FFE, 4) is None
    assert memory.links(0x1FFFC) is None
    assert list(memory.pages(0x30000, 1 << 64)) == []
    assert not asked
    assert memory.number(0x20FFE, 4) == 0
    assert memory.links(0x21000) == (0, 0)
    assert set(asked) == {0x20000}


def test_pointers_have_the_width_of_the_process() -> None:
    extents = Extents([(0x1000, bytes(range(1, 17)))])
    assert Memory.over(extents, 4).pointer(0x1000) == 0x04030201
    assert Memory.over(extents, 8).pointer(0x1000) == 0x0807060504030201
    assert Memory.over(extents, 4).links(0x1000) == (0x04030201, 0x08070605)


def test_members_are_read_as_they_are_described() -> None:
    memory = Memory.over(Extents([(0x1000, b"\xf0\xff\x34\x12")]), 4)
    assert memory.member(0x1000, Field(2, 2)) == 0x1234
    assert memory.member(0x1000, Field(2, 2, shift=4, mask=0xFF)) == 0x23
    assert memory.member(0x1000, Field(0, 2, signed=True)) == -16
    assert memory.member(0x1004, Field(-2, 2)) == 0x1234
    assert memory.member(0x1000, Field(3, 2)) is None
