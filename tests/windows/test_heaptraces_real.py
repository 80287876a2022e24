# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.heaptraces` on heaps that Windows wrote, through the real command line."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Mapping, Tuple

import pytest
from volatility3.plugins.windows.heaptraces import HeapTraces

from tests.conftest import SHARED
from tests.forge import context, real_sets, vol
from tests.support import grid, realtruth
from tests.support.only import only
from winstacks.heaps.decode import umdh

COMMITTED = sorted((pathlib.Path(__file__).parents[1] / "data" / "real_std").glob("*-heap.tar.xz"))
REAL = [SHARED / "real_std" / f"{name}.tar.xz" for name in ("7601.24384-x64-heap", "19044.1766-x64-heap")]

Row = Dict[str, Any]


def _run(real: real_sets.RealSet, folder: pathlib.Path, *options: str, renderer: str = "json") -> vol.Result:
    folder.mkdir(exist_ok=True)
    image = realtruth.image_of(real, realtruth.kernels_of(real.name)[0], False)
    result = vol.run(
        image.save(folder / "image.dmp"),
        "windows.heaptraces",
        *options,
        symbols=image.install(folder / "symbols"),
        renderer=renderer,
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    return result


def _groups(rows: List[Row]) -> List[Row]:
    return [row for row in rows if row["Count"] is not None]


def _children(row: Row, column: str) -> List[Row]:
    return [child for child in row["__children"] if child[column] is not None]


def check(rows: List[Row], truth: Mapping[str, Any]) -> None:
    """Compares the rows of a run with --blocks with what is true of the heaps."""
    records = {record["va"]: record for record in truth["heap"]["heap_trace_records"]}
    found: Dict[int, Tuple[int, int, int]] = {}
    groups = _groups(rows)
    for row in groups:
        record = records[row["EntryAddress"]]
        frames = [realtruth.masked(frame) for frame in record["frames"]]
        assert [child["Address"] for child in _children(row, "Frame")] == frames
        assert [child["Frame"] for child in _children(row, "Frame")] == list(range(len(frames)))
        blocks = _children(row, "Block")
        assert row["Count"] == len(blocks)
        assert row["Bytes"] == sum(block["Size"] for block in blocks)
        assert {block["EntryAddress"] for block in blocks} == {row["EntryAddress"]}
        found.update(
            (block["Block"], (block["Heap"], block["Size"], block["EntryAddress"])) for block in blocks
        )
    for block in truth["heap"]["blocks"]:
        assert found.pop(block["user"]) == (block["heap"], block["size"], block["trace_record"])
    # The rest is the debug information of the 60 critical sections, which ntdll allocated.
    assert [size for _, size, _ in found.values()] == [0x30] * 60
    sizes = [row["Bytes"] for row in groups]
    assert sizes == sorted(sizes, reverse=True)
    _check_creators(rows, truth)
    assert not [row for row in rows if row["Status"]]


def _check_creators(rows: List[Row], truth: Mapping[str, Any]) -> None:
    entries = {entry["index"]: entry for entry in truth["entries"]}
    owners = [row for row in rows if row["Count"] is None]
    assert {row["Block"] for row in owners if row["BlockKind"] == "heap"} == {
        heap["heap"] for heap in truth["heap"]["heaps"]
    }
    for row in owners:
        entry = entries[row["Index"]]
        assert row["EntryAddress"] == entry["va"]
        frames = [realtruth.masked(frame) for frame in entry["frames"]]
        assert [child["Address"] for child in row["__children"]] == frames


@pytest.mark.shared
@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize("path", REAL, ids=realtruth.case_name)
def test_every_block_is_exact(path: pathlib.Path, symbols: bool, tmp_path: pathlib.Path) -> None:
    real = real_sets.load(path)
    image = realtruth.image_of(real, realtruth.kernels_of(real.name)[0], symbols)
    opened = context.open_image(image, tmp_path)
    check(grid.rendered(opened, HeapTraces, blocks=True), real.truth)


@pytest.mark.cli
@pytest.mark.parametrize("path", COMMITTED, ids=realtruth.case_name)
def test_the_committed_set_is_exact(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    real = real_sets.load(path)
    check(_run(real, tmp_path, "--blocks", "--pid", "1000").rows, real.truth)


@pytest.mark.cli
@pytest.mark.parametrize("path", COMMITTED, ids=realtruth.case_name)
def test_one_changed_pointer_is_noticed(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The check above must be able to fail."""
    real = real_sets.load(path)
    first, second = real.truth["heap"]["blocks"][:2]
    assert first["trace_record"] != second["trace_record"]
    pointer = second["trace_record"].to_bytes(8, "little")
    changed = real.patched(first["real_header"] + 0x10, pointer)
    with pytest.raises(AssertionError):
        check(_run(changed, tmp_path, "--blocks").rows, real.truth)


@pytest.mark.cli
@pytest.mark.parametrize("path", COMMITTED, ids=realtruth.case_name)
def test_the_dump_is_a_umdh_log_that_adds_up(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    real = real_sets.load(path)
    rows = _run(real, tmp_path, "--dump").rows
    name = only({row["File output"] for row in rows if row["File output"] is not None})
    assert name == "umdh.1000.x64.log"
    data = (tmp_path / name).read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n")
    log = umdh.parse(data.decode().splitlines())
    assert "".join(umdh.write(log)).encode() == data
    allocations = [allocation for heap in log.heaps for allocation in heap.allocations]
    assert sum(allocation.size for allocation in allocations) == sum(row["Bytes"] for row in _groups(rows))
    written = {
        allocation.address: (allocation.size, log.traces[allocation.trace]) for allocation in allocations
    }
    for block in real.truth["heap"]["blocks"]:
        assert written[block["user"]] == (block["size"], tuple(block["frames"]))
    assert {heap.heap for heap in log.heaps} == {heap["heap"] for heap in real.truth["heap"]["heaps"]}
    assert {module.base for module in log.modules} >= {real.base}


@pytest.mark.cli
@pytest.mark.parametrize("path", COMMITTED, ids=realtruth.case_name)
def test_growth_since_an_earlier_log(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Against its own log nothing grew; against one with a block less and another more, both show."""
    real = real_sets.load(path)
    _run(real, tmp_path / "a", "--dump")
    file = tmp_path / "a" / "umdh.1000.x64.log"
    same = _groups(_run(real, tmp_path / "b", "--baseline", str(file)).rows)
    assert {(row["CountGrowth"], row["BytesGrowth"]) for row in same} == {(0, 0)}
    log = umdh.parse(file.read_text().splitlines())
    heap = log.heaps[0]
    new = heap.allocations[0]
    gone = umdh.Allocation(0x70, 0x30, 0x1234560, 0xABC)
    earlier = umdh.UmdhLog(
        log.modules,
        (heap._replace(allocations=(*heap.allocations[1:], gone)), *log.heaps[1:]),
        {**log.traces, 0xABC: (real.base + 0x1010, 0x5550)},
    )
    file.write_bytes("".join(umdh.write(earlier)).encode())
    rows = _groups(_run(real, tmp_path / "c", "--baseline", str(file)).rows)
    grown = [row for row in rows if row["BytesGrowth"]]
    assert [(row["CountGrowth"], row["BytesGrowth"], row["Status"]) for row in grown] == [
        (1, new.size, ""),
        (-1, -0x70, "gone"),
    ]
    assert rows[0] == grown[0]
    assert [child["Address"] for child in grown[1]["__children"]] == [real.base + 0x1010, 0x5550]
