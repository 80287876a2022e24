# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The database writer by itself, byte by byte against what Windows code wrote for the same traces.

Not determined by a set's truth, and left out: the lock and XP's lock routines; of released traces the first
frame, the stale chain link and how often they were logged; of the `-big` set, whose blocks were used again,
the order within hash chains.
"""

from __future__ import annotations

import pathlib
import struct
from typing import Dict, List

import pytest

from tests.forge import real_sets
from tests.forge.heaplog import HeapLog
from tests.forge.real_sets import RealSet
from tests.forge.std import Std
from tests.forge.std_layouts import ALL, layout
from tests.support import stddata

NAMES = {"2600": "5.1", "3790": "5.2"}


def writer_for(real: RealSet) -> Std:
    truth = real.truth
    return Std(
        NAMES.get(real.name.split(".")[0], "6.1"),
        truth["arch"],
        truth["database"],
        kernel=truth["kind"] == "kernel",
        reserve=truth["header"]["EntryIndexArray"] - truth["database"],
        seven=real.name.startswith("7601"),
        lock=truth["header"].get("Lock", 0),
    )


def without_lock(std: Std, memory: bytes) -> bytes:
    """A database's first region less what lies before its first ordinary member."""
    return memory[min(std.layout.fields[name][0] for name in ("PreCommitted", "CommitBase")) :]


@pytest.mark.parametrize("path", stddata.real_cases())
def test_writes_what_windows_wrote(path: pathlib.Path) -> None:
    real = real_sets.load(path)
    if real.truth.get("freed"):
        pytest.skip("released traces: compared apart")
    std = writer_for(real)
    for entry in real.truth["entries"]:
        for _ in range(entry["count"]):
            std.log(entry["frames"])
        if entry["count"] == 0x7FF and not std.seven:
            # How often the one saturated trace was logged is in the number of look-ups only.
            for _ in range(real.truth["header"]["NumberOfEntriesLookedUp"] - _logged(real)):
                std.log(entry["frames"])
    written = {region.va: region.data for region in real.regions if region.what == "database"}
    made = std.regions()
    assert sorted(made) == sorted(written)
    for va, data in written.items():
        if va == std.base:
            assert without_lock(std, made[va]) == without_lock(std, data)
        else:
            assert made[va] == data


def _logged(real: RealSet) -> int:
    return sum(int(entry["count"]) for entry in real.truth["entries"])


@pytest.mark.parametrize("path", [case for case in stddata.real_cases() if "-big" not in str(case.values[0])])
def test_writes_what_windows_wrote_of_released_traces(path: pathlib.Path) -> None:
    real = real_sets.load(path)
    if not real.truth.get("freed"):
        pytest.skip("nothing was released")
    std = writer_for(real)
    released: Dict[int, List[int]] = {}
    numbered: Dict[int, List[int]] = {}
    for entry in sorted(real.truth["entries"] + real.truth["freed"], key=lambda entry: entry["va"]):
        frames = entry.get("frames") or _frames_of_released(real, entry["va"])
        for _ in range(entry.get("count", 1)):
            std.log(frames, number=False)
        numbered[entry["index"]] = frames
        if "frames" not in entry:
            released[entry["va"]] = frames
    for index in sorted(set(numbered) - {0}):
        assert std.number(numbered[index]) == index
    for va in _order_of_release(real):
        std.release(released[va])
    std.lookups = real.truth["header"]["NumberOfEntriesLookedUp"]
    made, stale = std.regions(), sorted(released)
    for region in real.regions:
        if region.what == "database":
            assert _blanked(region.va, made[region.va], stale) == _blanked(region.va, region.data, stale)


def _frames_of_released(real: RealSet, va: int) -> List[int]:
    """What is left of a released trace's frames, with a stand-in for the one that is overwritten."""
    data = _memory(real, va, 16 + 32 * 8)
    depth = struct.unpack_from("<H", data, 14)[0]
    return [va, *struct.unpack_from(f"<{depth - 1}Q", data, 24)]


def _order_of_release(real: RealSet) -> List[int]:
    """Addresses of the released entries such that each free list comes out in its order (last on top)."""
    order: List[int] = []
    for number in range(32):
        word = struct.unpack("<QQ", _memory(real, real.truth["database"] + 0xD0 + 16 * number, 16))[1]
        found, place = [], word & ~0xF
        while place:
            found.append(place - 16)
            place = struct.unpack("<Q", _memory(real, place, 8))[0]
        order += reversed(found)
    return order


def _blanked(start: int, memory: bytes, words: List[int]) -> bytes:
    """Memory without the chain links that stay in released entries."""
    blank = bytearray(memory)
    for word in words:
        if 0 <= word - start < len(memory):
            blank[word - start : word - start + 8] = bytes(8)
    return bytes(blank)


def _memory(real: RealSet, va: int, length: int) -> bytes:
    for region in real.regions:
        if region.va <= va < region.va + len(region.data):
            return region.data[va - region.va : va - region.va + length]
    raise AssertionError(f"no region holds {va:x}")


@pytest.mark.shared
def test_blocks_and_index_array_where_blocks_were_used_again(shared_dir: pathlib.Path) -> None:
    real = real_sets.load(shared_dir / "real_std" / "7601.24384-x64-big.tar.xz")
    std = writer_for(real)
    for entry in sorted(real.truth["entries"] + real.truth["freed"], key=lambda entry: entry["va"]):
        block_depth = struct.unpack_from("<H", _memory(real, entry["va"], 16), 8)[0] >> 11
        std.log([entry["va"] + number for number in range(block_depth + 1)], number=False)
    made = {block.va: block for block in std.blocks}
    numbered = sorted((entry["index"], entry["va"]) for entry in real.truth["entries"] + real.truth["freed"])
    for _, va in numbered:
        std.number(made[va].frames)
    regions = std.regions()
    upper = max(regions)
    written = next(region.data for region in real.regions if region.va == upper)
    assert regions[upper] == written
    assert std.header()["NextFreeLowerMemory"] == real.truth["header"]["NextFreeLowerMemory"]
    assert std.header()["NumberOfEntriesAllocated"] == real.truth["header"]["NumberOfEntriesAllocated"]


@pytest.mark.parametrize("path", stddata.real_cases("-heap"))
def test_heap_trace_log(path: pathlib.Path) -> None:
    real = real_sets.load(path)
    heap = real.truth["heap"]
    address = heap["heap_stack_trace_log"]
    written = _memory(real, address, 0x1920)
    log = HeapLog("x64", address, lookaside=struct.unpack_from("<Q", written)[0])
    # Records were allocated from ever higher addresses and pushed at the head of their chain.
    for record in sorted(heap["heap_trace_records"], key=lambda record: record["va"]):
        assert log.log(record["frames"], va=record["va"]) == record["va"]
    made = log.object_bytes()
    assert made[:16] == written[:16]
    heads = slice(0, None, 2)
    assert struct.unpack("<802Q", made[16:])[heads] == struct.unpack("<802Q", written[16:])[heads]
    for each in log.records():
        assert log.record_bytes(each) == _memory(real, each.va, 16 + 8 * each.depth)


@pytest.mark.parametrize("name, arch, kernel", ALL)
class TestWriter:
    def test_repeats_count_and_permutations_share_a_bucket(self, name: str, arch: str, kernel: bool) -> None:
        std = Std(name, arch, kernel=kernel)
        first = std.log([0x401000, 0x402000])
        assert std.log([0x401000, 0x402000]) == first == 1
        assert std.log([0x402000, 0x401000]) == 2
        one, two = std.entries()
        assert (one.count, two.count, std.lookups) == (2, 1, 3)
        assert one.bucket == two.bucket and one.hash == two.hash == 0x803000
        order = [block.index for block in std.chains[one.bucket]]
        assert order == ([1, 2] if std.layout.old else [2, 1])

    def test_fills_up(self, name: str, arch: str, kernel: bool) -> None:
        std = Std(name, arch, kernel=kernel, reserve=0x40000)
        numbers = [std.log([0x400000 + 4 * number] * 32) for number in range(3000)]
        assert 0 in numbers and numbers.index(0) > 100
        assert std.lower <= std.upper
        full = std.header().get("NumberOfAllocationFailures")
        assert full is None or full == numbers.count(0)


def test_stride_of_kernel_buckets() -> None:
    assert [layout("6.1", arch, kernel).stride for arch in ("x64", "x86") for kernel in (False, True)] == [
        0x10,
        0x18,
        8,
        0xC,
    ]


def test_released_blocks_are_used_again_with_their_number() -> None:
    std = Std("6.1", "x64")
    for number in range(1, 5):
        assert std.log([0x1000 * number, 0x2000]) == number
    va = std.address_of([0x2000, 0x2000])
    std.release([0x2000, 0x2000])
    assert [freed.va for freed in std.freed()] == [va]
    assert std.log([0x9000]) == 2
    assert std.address_of([0x9000]) == va
    assert std.header()["NumberOfEntriesAllocated"] == 4
