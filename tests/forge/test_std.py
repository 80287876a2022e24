# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The database writer by itself, byte by byte against what Windows code wrote for the same traces.

Not determined by a set's truth, and left out: the lock and XP's lock routines; of released traces the first
frame, the stale chain link and how often they were logged; of sets whose blocks were used again,
the order within hash chains.
"""

from __future__ import annotations

import pathlib
import struct
from typing import Dict, List, Tuple

import pytest

from tests.forge import real_sets
from tests.forge.heaplog import HeapLog
from tests.forge.real_sets import RealSet
from tests.forge.std import Std
from tests.forge.std_layouts import ALL, layout
from tests.support import stddata
from tests.support.only import rows_of

NAMES = {"2600": "5.1", "3790": "5.2"}
USED_AGAIN = ("7601.24384-x64-big", "16299.15-x86-heap")
"""Sets in which blocks of released traces were used again: which trace had them before is not to be known."""


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
    regions = std.regions()
    assert sorted(regions) == sorted(written)
    for va, data in written.items():
        if va == std.base:
            assert without_lock(std, regions[va]) == without_lock(std, data)
        else:
            assert regions[va] == data


def _logged(real: RealSet) -> int:
    return sum(int(entry["count"]) for entry in real.truth["entries"])


@pytest.mark.parametrize(
    "path",
    [case for case in stddata.real_cases() if not any(name in str(case.values[0]) for name in USED_AGAIN)],
)
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
    regions, stale = std.regions(), sorted(released)
    for region in real.regions:
        if region.what == "database":
            size = real.pointer_size
            expected = _blanked(region.va, region.data, stale, size)
            assert _blanked(region.va, regions[region.va], stale, size) == expected


def _frames_of_released(real: RealSet, va: int) -> List[int]:
    """What is left of a released trace's frames, with a stand-in for the one that is overwritten."""
    size, frames = real.pointer_size, real.truth["frames_offset"]
    data = _memory(real, va, frames + 32 * size)
    depth = struct.unpack_from("<H", data, frames - 2)[0]
    return [va, *struct.unpack_from(f"<{depth - 1}{_code(real)}", data, frames + size)]


def _code(real: RealSet) -> str:
    return "Q" if real.pointer_size == 8 else "I"


def _order_of_release(real: RealSet) -> List[int]:
    """Addresses of the released entries such that each free list comes out in its order (last on top)."""
    order: List[int] = []
    size, code, frames = real.pointer_size, _code(real), real.truth["frames_offset"]
    lists = real.truth["database"] + real.truth["header_offsets"]["FreeLists"]
    for number in range(32):
        # x64: the second word of the head leads to the first entry, with flags; x86: the first word.
        words = struct.unpack(f"<2{code}", _memory(real, lists + 2 * size * number, 2 * size))
        found, place = [], words[1] & ~0xF if size == 8 else words[0]
        while place:
            found.append(place - frames)
            place = struct.unpack(f"<{code}", _memory(real, place, size))[0]
        order += reversed(found)
    return order


def _blanked(start: int, memory: bytes, words: List[int], size: int) -> bytes:
    """Memory without the chain links that stay in released entries."""
    blank = bytearray(memory)
    for word in words:
        if 0 <= word - start < len(memory):
            blank[word - start : word - start + size] = bytes(size)
    return bytes(blank)


def _memory(real: RealSet, va: int, length: int) -> bytes:
    for region in real.regions:
        if region.va <= va < region.va + len(region.data):
            return region.data[va - region.va : va - region.va + length]
    raise AssertionError(f"no region holds {va:x}")


@pytest.mark.shared
@pytest.mark.parametrize("name", USED_AGAIN)
def test_blocks_and_index_array_where_blocks_were_used_again(name: str, shared_dir: pathlib.Path) -> None:
    real = real_sets.load(shared_dir / "real_std" / f"{name}.tar.xz")
    std = writer_for(real)
    for entry in sorted(real.truth["entries"] + real.truth["freed"], key=lambda entry: entry["va"]):
        block_depth = struct.unpack("<H", _memory(real, entry["va"] + real.pointer_size, 2))[0] >> 11
        std.log([entry["va"] + number for number in range(block_depth + 1)], number=False)
    blocks = {block.va: block for block in std.blocks}
    numbered = sorted((entry["index"], entry["va"]) for entry in real.truth["entries"] + real.truth["freed"])
    for _, va in numbered:
        std.number(blocks[va].frames)
    regions = std.regions()
    upper = max(regions)
    written = next(region.data for region in real.regions if region.va == upper)
    assert regions[upper] == written
    assert std.header()["NextFreeLowerMemory"] == real.truth["header"]["NextFreeLowerMemory"]
    assert std.header()["NumberOfEntriesAllocated"] == real.truth["header"]["NumberOfEntriesAllocated"]


@pytest.mark.parametrize("path", stddata.heap_cases())
def test_heap_trace_log(path: pathlib.Path) -> None:
    real = real_sets.load(path)
    size, code = real.pointer_size, _code(real)
    address = stddata.log_address(real)
    if real.truth["generation"] == "5":
        assert address is None
        return
    assert address is not None
    written = _memory(real, address, 2 * size + 802 * size)
    log = HeapLog(real.truth["arch"], address, lookaside=struct.unpack_from(f"<{code}", written)[0])
    for va, frames in _records(real, address):
        assert log.log(frames, va=va) == va
    object_data = log.object_bytes()[: len(written)]
    assert object_data[: 2 * size] == written[: 2 * size]
    heads = slice(2, None, 2)
    assert struct.unpack(f"<804{code}", object_data)[heads] == struct.unpack(f"<804{code}", written)[heads]
    for record in log.records():
        data = log.record_bytes(record)
        assert data == _memory(real, record.va, len(data))


def _records(real: RealSet, address: int) -> List[Tuple[int, List[int]]]:
    """(address, frames) of a log's records in an order in which they may have come: from the truth, or as the
    decoder has them where the truth is silent."""
    records = real.truth["heap"].get("heap_trace_records")
    if records is not None:
        # They were allocated from ever higher addresses.
        return sorted((trace["va"], trace["frames"]) for trace in records)
    # The last one stands at the head of its chain.
    read = [
        (trace.address, [frame or 0 for frame in trace.frames])
        for trace in stddata.open_log(real, address).traces()
    ]
    return read[::-1]


@pytest.mark.parametrize("name, arch, kernel", ALL)
class TestWriter:
    def test_repeats_count_and_permutations_share_a_bucket(self, name: str, arch: str, kernel: bool) -> None:
        std = Std(name, arch, kernel=kernel)
        first = std.log([0x401000, 0x402000])
        assert std.log([0x401000, 0x402000]) == first == 1
        assert std.log([0x402000, 0x401000]) == 2
        one, two = rows_of(2, std.entries())
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
