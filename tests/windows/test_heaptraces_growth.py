# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.heaptraces --baseline` on forged heaps: what it says of each stack is true."""

from __future__ import annotations

import pathlib
from typing import List, Optional, Sequence, Tuple

import pytest

from tests.forge import pageheaps, segmentheaps
from tests.support.heapimage import HEAP, HeapImage, groups
from tests.support.only import only
from winstacks.heaps.decode import umdh
from winstacks.heaps.decode.umdh import Allocation, UmdhHeap, UmdhLog, UmdhModule

KERNEL = "win10-x64"


def baseline(forged: HeapImage, sizes: Sequence[Tuple[int, int]], folder: pathlib.Path) -> str:
    """Writes an earlier log: blocks as (number of their stack, size)."""
    modules = [
        UmdhModule(module.base, module.size, f"C:\\app\\{name}")
        for name, module in (("app.exe", forged.app), ("ntdll.dll", forged.ntdll))
    ]
    blocks = [Allocation(size, 0, 0x1000 + at, number) for at, (number, size) in enumerate(sizes)]
    traces = {number: tuple(forged.stack(number)) for number, _ in sizes}
    file = folder / "earlier.log"
    log = UmdhLog(tuple(modules), (UmdhHeap(HEAP, tuple(blocks)),), traces)
    file.write_bytes("".join(umdh.write(log)).encode())
    return str(file)


def compared(forged: HeapImage, file: str, folder: pathlib.Path) -> List[Tuple[object, ...]]:
    """(blocks, growth of blocks, growth of bytes, status) of each trace."""
    names = ("Count", "CountGrowth", "BytesGrowth", "Status")
    return [tuple(node.row[name] for name in names) for node in groups(forged.run(folder, baseline=file))]


def test_growth_of_a_stack_counts_once(tmp_path: pathlib.Path) -> None:
    """A record and an entry of the database are one stack: its growth is told once."""
    forged = HeapImage(KERNEL)
    heap = forged.heap(segment_creator=0)
    heap.extended(64, forged.record(1))
    heap.extended(64, forged.record(1))
    info = pageheaps.light(forged.arch, HEAP, 32, forged.entry(1))
    heap.plain(len(info), info)
    forged.put(heap.regions(), HEAP)
    file = baseline(forged, [(1, 64), (1, 64), (1, 32)], tmp_path)
    assert compared(forged, file, tmp_path) == [(2, 0, 0, ""), (1, None, None, "")]


def test_a_block_of_unknown_size_makes_the_growth_unknown_and_nothing_gone(tmp_path: pathlib.Path) -> None:
    forged = HeapImage(KERNEL)
    heap = forged.heap(segment_creator=0)
    users = [heap.extended(64, forged.record(number)) for number in (1, 1, 2)]
    heap.put(users[0] - 1, 1, 9)
    forged.put(heap.regions(), HEAP)
    file = baseline(forged, [(1, 64), (1, 64), (2, 60), (3, 10)], tmp_path)
    assert compared(forged, file, tmp_path) == [
        (1, 0, 4, ""),
        (1, None, None, "growth unknown"),
        (1, None, None, "unsized, damaged"),
        (0, -1, -10, "gone"),
    ]


def test_a_segment_heap_does_not_say_what_is_gone(tmp_path: pathlib.Path) -> None:
    forged = HeapImage(KERNEL)
    heap = segmentheaps.SegmentHeap(HEAP, forged.arch)
    heap.segment(HEAP + 0x100000)
    heap.extra(HEAP + 0x100230, forged.record(1))
    forged.put(heap.regions(), HEAP)
    file = baseline(forged, [(1, 64)], tmp_path)
    assert compared(forged, file, tmp_path) == [(1, None, None, "unsized, not-read, growth unknown")]


def test_the_summary_sums_up_what_the_rows_show(tmp_path: pathlib.Path) -> None:
    forged = HeapImage(KERNEL)
    heap = forged.heap(segment_creator=0)
    for size in (64, 64, 48):
        heap.extended(size, forged.record(1))
    heap.extended(32, forged.record(2))
    forged.put(heap.regions(), HEAP)
    file = baseline(forged, [(1, 64), (3, 10), (3, 10)], tmp_path)
    row = only(node.row for node in forged.run(tmp_path, baseline=file, summary=True))
    rows = groups(forged.run(tmp_path, baseline=file))
    for name in ("Count", "Bytes", "CountGrowth", "BytesGrowth"):
        assert row[name] == sum(node.row[name] for node in rows), name
    assert (row["Count"], row["Bytes"], row["CountGrowth"]) == (4, 208, 4 - 3)


def test_traces_come_before_heaps(tmp_path: pathlib.Path) -> None:
    forged = HeapImage(KERNEL)
    heap = forged.heap(segment_creator=0)
    heap.extended(16, forged.record(1))
    heap.extended(64, forged.record(2))
    forged.put(heap.regions(), HEAP)
    rows = [node.row for node in forged.run(tmp_path)]
    kinds = [row["BlockKind"] for row in rows]
    assert kinds[:2] == [None, None]
    assert [row["Bytes"] for row in rows[:2]] == [64, 16]
    assert "heap" in kinds[2:] and None not in kinds[2:]


@pytest.mark.parametrize(("size", "growth"), [((1 << 63) - 1, 1 - (1 << 63)), (1 << 63, None)])
def test_the_most_bytes_that_a_stack_can_have_lost(
    size: int, growth: Optional[int], tmp_path: pathlib.Path
) -> None:
    """A column has 63 bits and a sign; a baseline may hold any number."""
    forged = HeapImage(KERNEL)
    heap = forged.heap(segment_creator=0)
    heap.extended(64, forged.record(1))
    forged.put(heap.regions(), HEAP)
    file = baseline(forged, [(1, 64), (3, size)], tmp_path)
    assert compared(forged, file, tmp_path) == [(1, 0, 0, ""), (0, -1, growth, "gone")]
