# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.heaptraces` on heaps that ntdll filled, compared with the calls."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.windows.heaptraces import HeapTraces

from tests.forge import context, real_sets
from tests.support import grid, realtruth
from tests.support.only import only
from winstacks.heaps.decode import umdh

Row = Dict[str, Any]

pytestmark = pytest.mark.shared

# Set, kernel: the x86 one of Windows 10 is also the 32-bit half of a WoW64 process.
SETS = [
    ("16299.15-x86-heap", "win10-x86"),
    ("16299.15-x86-heap", "win10-x64"),
    ("7601.17514-x64-heap-lfh", "win7-x64"),
    ("19044.1766-x64-heap-lfh", "win10-x64"),
    ("7601.17514-x64-heap-inline", "win7-x64"),
    ("2600.5512-x86-heap", "xp-x86"),
]


def _children(row: Row, column: str) -> List[Row]:
    return [child for child in row["__children"] if child[column] is not None]


def _stack(row: Row) -> Tuple[int, ...]:
    return tuple(child["Address"] for child in _children(row, "Frame"))


def _masked(frames: List[int]) -> Tuple[int, ...]:
    return tuple(map(realtruth.masked, frames))


def check(rows: List[Row], truth: Dict[str, Any]) -> None:
    """Compares the rows of a run with --blocks with what is true of the heaps."""
    heap = truth["heap"]
    groups = [row for row in rows if row["Count"] is not None]
    busy: Dict[int, Tuple[Any, ...]] = {}
    freed: Dict[int, Tuple[int, ...]] = {}
    untraced = set()
    sizes = {freed_block["user"]: freed_block["size"] for freed_block in heap["freed_blocks"]}
    for row in groups:
        blocks = _children(row, "Block")
        assert row["Count"] == len(blocks)
        assert (row["Bytes"] or 0) == sum(block["Size"] or 0 for block in blocks)
        if row["TraceKind"] != "inline":
            assert {block["EntryAddress"] for block in blocks} == {row["EntryAddress"]}
        for block in blocks:
            if row["Status"] == "":
                assert block["Status"] == "" and block["Block"] not in busy
                busy[block["Block"]] = (block["Heap"], block["Size"], _stack(row))
            elif row["Status"].startswith("freed"):
                assert row["Status"].split(", unsized")[0] == block["Status"] == "freed, stack of the free"
                assert block["Block"] not in freed
                assert block["Size"] in (None, sizes[block["Block"]])
                freed[block["Block"]] = _stack(row)
            else:
                assert row["Status"] == "untraced, unsized" and not _stack(row)
                untraced.add(block["Block"])
    traces = [*heap["blocks"], *heap["ntdll_blocks"]]
    assert busy == {
        trace["user"]: (trace["heap"], trace["size"], _masked(trace["frames"])) for trace in traces
    }
    assert untraced == {block["user"] for block in heap.get("ntdll_untraced", [])}
    by = {
        freed_block["user"]: [_masked(stack) for stack in freed_block["freed_by"]]
        for freed_block in heap["freed_blocks"]
    }
    assert all(stack in by[user] for user, stack in freed.items())
    # Elsewhere links of free lists lie over each freed block's pointer.
    assert bool(freed) == truth["name"].endswith("-lfh")
    assert sum(row["Bytes"] for row in groups if row["Status"] == "") == sum(
        block["size"] for block in traces
    )
    _check_owners([row for row in rows if row["Count"] is None], truth)
    _check_indices(groups, truth)


def _check_owners(owners: List[Row], truth: Dict[str, Any]) -> None:
    """Heaps, segments, and the containers of the low-fragmentation heap: who made them, and no other."""
    heap, entries = truth["heap"], {entry["index"]: entry for entry in truth["entries"]}
    containers = [row for row in owners if row["BlockKind"] == "lfh container"]
    assert sorted((row["Heap"], row["Block"], row["Size"], _stack(row)) for row in containers) == sorted(
        (container["heap"], container["user"], container["size"], _masked(container["frames"]))
        for container in heap["containers"]
    )
    assert {row["Block"]: row["Index"] for row in owners if row["BlockKind"] == "heap"} == {
        heap["heap"]: heap["AllocatorBackTraceIndex"] for heap in heap["heaps"]
    }
    assert {row["BlockKind"] for row in owners} <= {"heap", "heap segment", "lfh container"}
    assert not [row for row in owners if row["Status"]]
    for row in owners:
        if row["Index"] is not None:
            assert _stack(row) == _masked(entries[row["Index"]]["frames"])


def _check_indices(groups: List[Row], truth: Dict[str, Any]) -> None:
    """Virtual-alloc blocks have an index in the database, every block of XP has."""
    shown = {block["Block"]: block["Index"] for row in groups for block in _children(row, "Block")}
    for block in truth["heap"]["blocks"]:
        if "AllocatorBackTraceIndex" in block:
            assert shown[block["user"]] == block["AllocatorBackTraceIndex"]


def check_log(data: bytes, rows: List[Row], truth: Dict[str, Any]) -> None:
    """Compares a UMDH log with what is true of the heaps, and with the sums of the rows."""
    log = umdh.parse(data.decode().splitlines())
    assert "".join(umdh.write(log)).encode() == data
    allocations = [allocation for heap in log.heaps for allocation in heap.allocations]
    written = {
        allocation.address: (allocation.size, _masked(list(log.traces[allocation.trace])))
        for allocation in allocations
    }
    assert len(written) == len(allocations)
    traces = [*truth["heap"]["blocks"], *truth["heap"]["ntdll_blocks"]]
    assert written == {trace["user"]: (trace["size"], _masked(trace["frames"])) for trace in traces}
    shown = [row["Bytes"] for row in rows if row["Count"] is not None and row["Status"] == ""]
    assert sum(allocation.size for allocation in allocations) == sum(shown)


@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize(("name", "kernel"), SETS)
def test_every_block_is_as_the_calls_made_it(
    name: str, kernel: str, symbols: bool, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    real = real_sets.load(shared_dir / "real_std" / f"{name}.tar.xz")
    image = realtruth.image_of(real, kernel, symbols)
    opened = context.open_image(image, tmp_path)
    rows = grid.rendered(opened, HeapTraces, tmp_path, pid=[1000], blocks=True, dump=True)
    truth = dict(real.truth)
    check(rows, truth)
    file = only({row["File output"] for row in rows if row["File output"] is not None})
    check_log((tmp_path / file).read_bytes(), rows, truth)
