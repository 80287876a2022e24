# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The heap's trace log: real ones, forged ones, damaged ones."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import real_sets
from tests.forge.heaplog import HeapLog as ForgedLog
from tests.forge.heaplog import Record
from tests.support import stddata
from tests.support.deep import rounds
from winstacks.memory.decode import status as words_of
from winstacks.tracedb.decode import heaplog
from winstacks.tracedb.decode.status import text

ARCHS = ("x64", "x86")


def opened(forged: ForgedLog, arch: str, regions: Dict[int, bytes]) -> heaplog.HeapLog:
    layout = stddata.layouts_of(arch).heaplogs
    return heaplog.HeapLog(stddata.reader_of(regions.items()), forged.address, layout[0])


def shown(log: heaplog.HeapLog) -> List[Tuple[Any, ...]]:
    rows = [(trace.address, trace.hash, trace.bucket, trace.depth, trace.frames) for trace in log.traces()]
    return sorted(rows)


def expected(records: List[Record]) -> List[Tuple[Any, ...]]:
    return sorted((record.va, record.hash, record.bucket, record.depth, record.frames) for record in records)


def forged(arch: str, count: int = 900) -> ForgedLog:
    log = ForgedLog(arch)
    for number in range(count):
        log.log([0x77001000 + 16 * (number * 7919 % 4001 + depth) for depth in range(number % 32 + 1)])
    return log


def _frames_in_the_log(real: real_sets.RealSet) -> List[Tuple[int, ...]]:
    """The stacks of which a set's log must have a record: of blocks that name it, as the calls were."""
    heap = real.truth["heap"]
    # Where the trace lies in the block itself, the log has none of it: the second heap of that set.
    inline = heap["heaps"][1]["heap"] if real.name.endswith("-inline") else None
    blocks = [*heap["blocks"], *heap.get("ntdll_blocks", []), *heap.get("containers", [])]
    return [tuple(block["frames"]) for block in blocks if block["heap"] != inline]


@pytest.mark.parametrize("path", stddata.heap_cases())
class TestRealLog:
    def test_records(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        heap, address = real.truth["heap"], stddata.log_address(real)
        if address is None:
            assert real.truth["generation"] == "5"
            return
        log = stddata.open_log(real, address)
        if "heap_trace_records" in heap:
            names = ("va", "hash", "bucket", "depth")
            assert shown(log) == sorted(
                (*(trace[name] for name in names), tuple(trace["frames"]))
                for trace in heap["heap_trace_records"]
            )
        else:
            frames = [row[-1] for row in shown(log)]
            assert len(frames) == len(set(frames))
            assert set(_frames_in_the_log(real)) <= set(frames)
            # The log keeps what is gone, too: whose it was the truth does not tell, but it was code.
            places = [*real.truth["modules"], real.truth["module"]]
            ranges = [range(place["base"], place["base"] + place["size"]) for place in places]
            for frame in {frame for row in frames for frame in row}:
                assert any(frame in module_range for module_range in ranges)
        assert log.trace_count == len(shown(log)) == log.figures().chained
        assert log.status == () and {trace.status for trace in log.traces()} == {0}

    def test_proof(self, path: pathlib.Path) -> None:
        real = real_sets.load(path)
        reader, layout = stddata.reader_of_set(real), stddata.layouts_of(real.truth["arch"]).heaplogs
        address = stddata.log_address(real)
        if address is None:
            assert real.truth["generation"] == "5"
            return
        assert heaplog.prove(reader, address, layout)
        # One pointer further on, the chains seem to begin with the record that each bucket found last.
        size = real.pointer_size
        shifts = (-4 * size, -2 * size, -size, size, 2 * size, 3 * size, 4 * size, 8 * size)
        assert not any(heaplog.prove(reader, address + shift, layout) for shift in shifts)


@pytest.mark.shared
@pytest.mark.parametrize("path", [case for case in stddata.real_cases() if case.marks])
def test_search_finds_it_and_nothing_else(path: pathlib.Path) -> None:
    real = real_sets.load(path)
    found, heap = stddata.found_logs(real), real.truth.get("heap", {})
    if "heap_stack_trace_log" in heap:
        assert found == [heap["heap_stack_trace_log"]]
    else:
        # The truth has no address: a process with heaps of 7 and later has one log, any other none.
        assert len(found) == (bool(heap) and real.truth["generation"] == "7")


@pytest.mark.parametrize("arch", ARCHS)
class TestForgedLog:
    def test_comes_back(self, arch: str) -> None:
        log = forged(arch)
        read = opened(log, arch, log.regions())
        assert shown(read) == expected(log.records())
        assert read.trace_count == len(log.records())
        assert heaplog.prove(
            stddata.reader_of(log.regions().items()), log.address, stddata.layouts_of(arch).heaplogs
        )

    def test_empty_log_proves_nothing(self, arch: str) -> None:
        log = ForgedLog(arch)
        layout = stddata.layouts_of(arch).heaplogs
        assert not heaplog.prove(stddata.reader_of(log.regions().items()), log.address, layout)
        assert not heaplog.prove(stddata.reader_of([(log.address, bytes(0x2000))]), log.address, layout)

    def test_chain_cycle_loses_the_rest_of_one_chain(self, arch: str) -> None:
        log = forged(arch)
        chained = [record for record in log.records() if record.next]
        victim = chained[0]
        rest = [record for record in log.records() if record.bucket == victim.bucket]
        after = rest[rest.index(victim) + 1 :]
        regions = _patched(log.regions(), victim.va, struct.pack("<I", victim.va & 0xFFFFFFFF))
        read = opened(log, arch, regions)
        assert shown(read) == expected([record for record in log.records() if record not in after])
        assert words_of.text(read.status) == "bucket"

    def test_missing_page_of_records_is_counted(self, arch: str) -> None:
        log = forged(arch)
        regions = log.regions()
        page = sorted(regions)[5]
        del regions[page]
        read = opened(log, arch, regions)
        assert read.figures().unreadable > 0
        assert words_of.has_status(read.status, words_of.StatusCode.UNREADABLE)
        whole = {row[0]: row for row in expected(log.records())}
        for trace in read.traces():
            if not trace.status:
                row = (trace.address, trace.hash, trace.bucket, trace.depth, trace.frames)
                assert row == whole[trace.address]
        # A chain ends where its next record is not present; no record of another chain is lost.
        assert len(list(read.traces())) > len(whole) // 2

    @pytest.mark.parametrize("depth", [0, 40])
    def test_wrong_depth_and_wrong_hash_are_said(self, arch: str, depth: int) -> None:
        log = forged(arch)
        pointer = log.pointer
        wrong, hashed = log.records()[10], log.records()[200]
        regions = _patched(log.regions(), wrong.va + pointer + 4, struct.pack("<I", depth))
        regions = _patched(regions, hashed.va + pointer, struct.pack("<I", hashed.hash ^ 1))
        status = {trace.address: text(trace.status) for trace in opened(log, arch, regions).traces()}
        assert status.pop(wrong.va) == "depth"
        assert status.pop(hashed.va) == "bucket"
        assert len(status) == len(log.records()) - 2 and set(status.values()) == {""}


def _patched(regions: Dict[int, bytes], va: int, data: bytes) -> Dict[int, bytes]:
    page = va & ~0xFFF
    memory = bytearray(regions[page])
    memory[va - page : va - page + len(data)] = data
    return {**regions, page: bytes(memory)}


@settings(max_examples=rounds(150), deadline=None)
@given(
    arch=st.sampled_from(ARCHS),
    changes=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 0x3FF), st.binary(min_size=1, max_size=8)), max_size=20
    ),
    dropped=st.sets(st.integers(0, 30), max_size=5),
)
def test_mutations_never_raise(arch: str, changes: List[Tuple[int, int, bytes]], dropped: "set[int]") -> None:
    log = forged(arch, 200)
    regions = log.regions()
    pages = sorted(regions)
    for page, offset, data in changes:
        regions = _patched(regions, pages[page % len(pages)] + 4 * offset, data[: 0x1000 - 4 * offset])
    for page in dropped:
        regions.pop(pages[page % len(pages)], None)
    read = opened(log, arch, regions)
    assert read.figures().chained == len(list(read.traces())) <= 2 * len(log.records())
    assert words_of.text(read.status).isprintable()


@settings(max_examples=rounds(60), deadline=None, derandomize=True)
@given(
    arch=st.sampled_from(ARCHS),
    traces=st.lists(st.lists(st.integers(1, 0xFFFFFFFF), min_size=1, max_size=40), max_size=60),
    lost=st.sets(st.integers(2, 8), max_size=2),
)
def test_what_is_logged_comes_back(arch: str, traces: List[List[int]], lost: "set[int]") -> None:
    """Whole; and with pages lost, every record of which each one before it in its chain has its link."""
    log = ForgedLog(arch)
    for trace in traces:
        log.log(trace)
    regions = log.regions()
    assert shown(opened(log, arch, regions)) == expected(log.records())
    for page in sorted(regions)[2:]:
        if page // 0x1000 % 9 in lost:
            del regions[page]
    whole = {record.va: record for record in log.records()}
    reached = []
    for chain in {record.bucket: None for record in log.records()}:
        for record in (record for record in log.records() if record.bucket == chain):
            reached += [record] if _present(regions, record.va, len(log.record_bytes(record))) else []
            if not _present(regions, record.va, log.pointer):
                break
    found = [trace for trace in opened(log, arch, regions).traces() if not trace.status]
    assert {entry.address for entry in found} == {trace.va for trace in reached}
    assert all(trace.frames == whole[trace.address].frames for trace in found)


def _present(regions: Dict[int, bytes], start: int, length: int) -> bool:
    return all(page in regions for page in range(start & ~0xFFF, start + length, 0x1000))
