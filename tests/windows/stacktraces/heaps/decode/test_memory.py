# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads of a process's memory: within its ranges, and across holes."""

from __future__ import annotations

from typing import List, Tuple

from hypothesis import given
from hypothesis import strategies as st
from volatility3.plugins.windows.stacktraces.base.decode.extents import Extents
from volatility3.plugins.windows.stacktraces.heaps.decode.memory import PAGE, HeapMemory

PAGES = st.sets(st.integers(0, 40), max_size=20)


def memory_of(pages: "set[int]") -> HeapMemory:
    return HeapMemory.over(Extents((page * PAGE, bytes([page]) * PAGE) for page in pages), 8)


@given(PAGES, st.integers(0, 42 * PAGE), st.integers(1, 3 * PAGE))
def test_reads_what_is_all_there(pages: "set[int]", address: int, length: int) -> None:
    data = memory_of(pages).read(address, length)
    wanted = [byte // PAGE for byte in range(address, address + length)]
    if pages.issuperset(wanted):
        assert data is not None
        assert list(data) == wanted
    else:
        assert data is None


@given(PAGES, st.integers(0, 42 * PAGE), st.integers(0, 42 * PAGE))
def test_yields_every_page_once(pages: "set[int]", start: int, end: int) -> None:
    found: List[Tuple[int, bytes]] = [(at, bytes(data)) for at, data in memory_of(pages).pages(start, end)]
    for at, data in found:
        assert start <= at < at + len(data) <= end
        assert data == bytes([at // PAGE]) * len(data)
    total = sum(max(min(end, (page + 1) * PAGE) - max(start, page * PAGE), 0) for page in pages)
    assert sum(len(data) for _, data in found) == total
    assert found == sorted(found)


def test_nothing_is_asked_for_outside_the_ranges() -> None:
    asked = []

    def reader(start: int, length: int) -> Extents:
        asked.append(start)
        return Extents([(start, bytes(length))])

    memory = HeapMemory(reader, [(0x20000, 0x21000), (0x21000, 0x22000)], 4)
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
    assert HeapMemory.over(extents, 4).pointer(0x1000) == 0x04030201
    assert HeapMemory.over(extents, 8).pointer(0x1000) == 0x0807060504030201
    assert HeapMemory.over(extents, 4).links(0x1000) == (0x04030201, 0x08070605)
