# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged page heaps: the nodes of full ones, the blocks of light ones."""

from __future__ import annotations

from typing import List, Optional, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import heap_layouts, heaps, pageheaps
from tests.support import heaptypes
from tests.support.deep import rounds
from winstacks.columns.words import LIGHT
from winstacks.heaps.decode import pageheap
from winstacks.heaps.decode.block import Block
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.ntblocks import heap_blocks
from winstacks.heaps.decode.ntheap import read_heap
from winstacks.heaps.decode.pageheap import PageHeapNode, nodes, other_roots, read_information, read_root
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.tracedb.decode.recorded import RecordedStack

ARCHES = ["x64", "x86"]
HANDLE = 0x300000
ENTRY = 0x7000000
Runs = List[Tuple[int, bytes]]


def read(arch: str, runs: Runs, root: int = HANDLE + pageheaps.PAGE) -> List[PageHeapNode]:
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(arch))
    layout = heaptypes.page_heap(arch)
    found = read_root(memory, root, layout)
    assert found is not None
    seen: Set[int] = set()
    items = list(nodes(memory, found, seen))
    blocks = [node for node in items if isinstance(node, PageHeapNode)]
    assert len(blocks) == len(items)
    return blocks


@pytest.mark.parametrize("arch", ARCHES)
def test_busy_and_freed_blocks(arch: str) -> None:
    page = pageheaps.PageHeap(HANDLE, arch, 0x10000, creator=ENTRY)
    busy = {
        page.block(0x500000 + 0x2000 * number, 10 * number + 1, ENTRY + number): number for number in range(9)
    }
    freed = {
        page.block(0x600000 + 0x2000 * number, 5, ENTRY, freed=True, mapped=False) for number in range(3)
    }
    runs = page.regions()
    found = read(arch, runs)
    assert {(block.user, block.size, block.trace) for block in found if not block.freed} == {
        (user, 10 * number + 1, ENTRY + number) for user, number in busy.items()
    }
    assert {block.user for block in found if block.freed} == freed
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(arch))
    root = read_root(memory, HANDLE + pageheaps.PAGE, heaptypes.page_heap(arch))
    assert root is not None
    assert (root.normal_heap, root.creator, root.busy, root.freed) == (0x10000, ENTRY, 9, 3)
    info = heaptypes.page_heap(arch)
    for user, number in busy.items():
        before = read_information(memory, user - info.information_size, info)
        assert before is not None
        assert (before.user, before.size, before.trace, before.full) == (
            user,
            10 * number + 1,
            ENTRY + number,
            True,
        )


@pytest.mark.parametrize("arch", ARCHES)
def test_one_page_heap_leads_to_the_others(arch: str) -> None:
    handles = [HANDLE, 0x340000, 0x380000]
    runs = [
        run
        for handle in handles
        for run in pageheaps.PageHeap(handle, arch, 0x10000, next_heaps=handles).regions()
    ]
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(arch))
    layout = heaptypes.page_heap(arch)
    root = read_root(memory, HANDLE + pageheaps.PAGE, layout)
    assert root is not None
    assert other_roots(memory, root) == [handle + pageheaps.PAGE for handle in handles[1:]]


@pytest.mark.parametrize("arch", ARCHES)
def test_circles_and_wild_pointers(arch: str) -> None:
    page = pageheaps.PageHeap(HANDLE, arch, 0x10000)
    for number in range(9):
        page.block(0x500000 + 0x2000 * number, 5, ENTRY, freed=number > 5)
    runs = page.regions()
    data = bytearray(runs[0][1])
    first = 2 * pageheaps.PAGE
    size, pointer = page.form.node_size, page.form.pointer
    # A leaf of the tree leads back to its root, the last freed node to the first.
    data[first + page.form.node["right"] : first + page.form.node["right"] + pointer] = (
        HANDLE + first + 3 * size
    ).to_bytes(pointer, "little")
    data[first + 8 * size : first + 8 * size + pointer] = (HANDLE + first + 6 * size).to_bytes(
        pointer, "little"
    )
    found = read(arch, [(HANDLE, bytes(data)), *runs[1:]])
    assert len(found) == len({node.address for node in found}) == 9


@pytest.mark.parametrize("freed", [False, True])
@pytest.mark.parametrize("arch", ARCHES)
def test_the_nodes_of_all_page_heaps_have_a_limit(
    arch: str, freed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other page heaps count, and so does the anchor of the tree."""
    page = pageheaps.PageHeap(HANDLE, arch, 0x10000)
    for number in range(9):
        page.block(0x500000 + 0x2000 * number, 5, ENTRY, freed=freed)
    monkeypatch.setattr(pageheap, "_MAX_NODES", 6)
    runs = page.regions()
    assert len(read(arch, runs)) == 5
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(arch))
    root = read_root(memory, HANDLE + pageheaps.PAGE, heaptypes.page_heap(arch))
    assert root is not None
    assert len(list(nodes(memory, root, {1, 2, 3}))) == 2


@pytest.mark.parametrize("arch", ARCHES)
def test_only_a_root_is_a_root(arch: str) -> None:
    page = pageheaps.PageHeap(HANDLE, arch, 0x10000)
    memory = Memory.over(Extents(page.regions()), heaptypes.pointer_size(arch))
    layout = heaptypes.page_heap(arch)
    assert read_root(memory, HANDLE, layout) is None
    assert read_root(memory, 0x10, layout) is None
    page.member("normal", 0x12345)
    memory = Memory.over(Extents(page.regions()), heaptypes.pointer_size(arch))
    assert read_root(memory, HANDLE + pageheaps.PAGE, layout) is None


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("freed", [False, True])
@pytest.mark.parametrize("unused", [None, 0x3F])
def test_light_page_heap(arch: str, freed: bool, unused: Optional[int]) -> None:
    """Its block has a size of its own, which does not depend on the UnusedBytes (3Fh: unknown) around it."""
    heap = heaps.NtHeap(0x50000, heap_layouts.LAYOUTS[f"6.2-{arch}"], interceptor=0, flags=2)
    contents = pageheaps.light(arch, HANDLE, 123, ENTRY, freed)
    outer = heap.plain(len(contents), contents, unused=unused)
    plain = heap.plain(50)
    memory = Memory.over(Extents(heap.regions()), heaptypes.pointer_size(arch))
    known = RecordedStack("std", ENTRY, 3, (1, 2))
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch], lambda: [known])
    found = read_heap(memory, 0x50000, [heaptypes.heap(f"6.2-{arch}")])
    assert found is not None
    items = heap_blocks(memory, found, traces, [heaptypes.page_heap(arch)])
    blocks = [block for block in items if isinstance(block, Block)]
    assert [(block.user, block.size, block.form, block.freed, block.trace) for block in blocks] == [
        (outer + heaptypes.page_heap(arch).information_size, 123, LIGHT, freed, known),
        (plain, 50, "block", False, None),
    ]


@pytest.mark.parametrize("arch", ARCHES)
def test_what_only_looks_like_light_page_heap(arch: str) -> None:
    """Stamps in a block that is too small for what they claim, and those of full page heap."""
    heap = heaps.NtHeap(0x50000, heap_layouts.LAYOUTS[f"6.2-{arch}"], interceptor=0, flags=2)
    contents = pageheaps.light(arch, HANDLE, 5000, ENTRY)[:200]
    users = [heap.plain(200, contents), heap.plain(200, pageheaps.light(arch, HANDLE, 9, ENTRY, full=True))]
    memory = Memory.over(Extents(heap.regions()), heaptypes.pointer_size(arch))
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch])
    found = read_heap(memory, 0x50000, [heaptypes.heap(f"6.2-{arch}")])
    assert found is not None
    items = heap_blocks(memory, found, traces, [heaptypes.page_heap(arch)])
    blocks = [block for block in items if isinstance(block, Block)]
    assert [(block.user, block.form, block.trace) for block in blocks] == [
        (user, "block", None) for user in users
    ]


@pytest.mark.parametrize("arch", ARCHES)
def test_an_entry_of_no_known_database(arch: str) -> None:
    """Application Verifier keeps databases of its own."""
    pointer = heaptypes.pointer_size(arch)
    frames = [0x1234, 0x5678, 0x9ABC]
    entry = (
        bytes(pointer)
        + b"\x01\x08\0\0\x2a\0\x03\0"
        + b"".join(frame.to_bytes(pointer, "little") for frame in frames)
    )
    memory = Memory.over(Extents([(ENTRY, entry)]), pointer)
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch])
    assert traces.entry(ENTRY) == RecordedStack(
        "std", ENTRY, 42, tuple(frames), status(StatusCode.NO_DATABASE)
    )
    assert traces.entry(ENTRY + 0x100) == RecordedStack(
        "std", ENTRY + 0x100, 0, (), status(StatusCode.UNREADABLE)
    )
    memory = Memory.over(Extents([(ENTRY, b"\xff" * 64)]), pointer)
    assert Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch]).entry(ENTRY).status == status(
        StatusCode.HASH
    )


@settings(max_examples=rounds(60), deadline=None)
@given(
    st.sampled_from(ARCHES),
    st.lists(st.tuples(st.integers(0x1000, 0x2FFF), st.integers(0, 255)), max_size=40),
)
def test_any_damage_is_survived(arch: str, damage: List[Tuple[int, int]]) -> None:
    page = pageheaps.PageHeap(HANDLE, arch, 0x10000)
    for number in range(20):
        page.block(0x500000 + 0x2000 * number, 5, ENTRY, freed=number % 3 == 0, mapped=False)
    runs = page.regions()
    data = bytearray(runs[0][1])
    for at, value in damage:
        data[at] = value
    memory = Memory.over(Extents([(HANDLE, bytes(data))]), heaptypes.pointer_size(arch))
    layout = heaptypes.page_heap(arch)
    root = read_root(memory, HANDLE + pageheaps.PAGE, layout)
    if root is not None:
        seen: Set[int] = set()
        assert len(list(nodes(memory, root, seen))) <= len(data)
        other_roots(memory, root)


@settings(max_examples=rounds(40), deadline=None, derandomize=True)
@given(
    st.sampled_from(ARCHES),
    st.lists(st.tuples(st.integers(1, 0x1000), st.integers(0, 0xFFFF), st.booleans()), max_size=60),
)
def test_any_nodes_come_back(arch: str, blocks: List[Tuple[int, int, bool]]) -> None:
    page = pageheaps.PageHeap(HANDLE, arch, 0x10000)
    expected = {
        (page.block(0x500000 + 0x3000 * number, size, ENTRY + trace, freed=freed), size, ENTRY + trace, freed)
        for number, (size, trace, freed) in enumerate(blocks)
    }
    found = [(block.user, block.size, block.trace, block.freed) for block in read(arch, page.regions())]
    assert len(found) == len(expected)
    assert set(found) == expected
