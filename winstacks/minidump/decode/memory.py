# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory of a minidump: the file offset of an address, and the kind of each region.

Source: "minidumpapiset.h" (MINIDUMP_MEMORY_DESCRIPTOR, MINIDUMP_MEMORY_DESCRIPTOR64, MINIDUMP_MEMORY_INFO).
"""

from __future__ import annotations

import bisect
from functools import partial
from itertools import accumulate
from typing import Annotated, Iterable, List, Optional, Sequence, Tuple

from ...memory.decode.declared import ADDRESS, ULONG, ULONGLONG, Declared, plain_address
from ...memory.decode.ranges import flatten
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, StatusItem, contradicted, naming, status
from ...memory.decode.statuscodes import StatusCode
from .dumpfile import STREAMS, Minidump, overlapping
from .lists import elements, read_counted_list, read_headed_list, read_list_header

_MEMORY_LIST, _MEMORY64_LIST, _MEMORY_INFO_LIST = 5, 9, 16

MAX_RANGES = 0x100000
"""Greatest number of ranges and regions that are read: a process of 60 GB has some ten thousand."""

MAX_ADDRESS = 1 << 64

_STEP = 64
"""Bytes that count for a comparison of fewer bytes."""
MAX_COMPARED = 1 << 26
"""Greatest number of bytes that are compared of ranges that share addresses; of further ones no bytes are."""
MAX_STEPS = 4 * MAX_RANGES
"""Greatest number of comparisons of ranges that share bytes of the file; further ones count as faults."""


class MemoryRange(NamedTuple):
    """Bytes of the process in the file: MINIDUMP_MEMORY_DESCRIPTOR, or MINIDUMP_MEMORY_DESCRIPTOR64, which
    names no offset."""

    start: ADDRESS
    offset: Annotated[int, "ULONG @0xc/-"]
    length: Annotated[int, "ULONG_PTR @0x8"]


class Memory64List(NamedTuple):
    """MINIDUMP_MEMORY64_LIST: the bytes of all its ranges follow each other from BaseRva on."""

    NumberOfMemoryRanges: ULONGLONG
    BaseRva: ULONGLONG


class MemoryInfoList(NamedTuple):
    """MINIDUMP_MEMORY_INFO_LIST."""

    SizeOfHeader: ULONG
    SizeOfEntry: ULONG
    NumberOfEntries: ULONGLONG


class MemoryInfo(NamedTuple):
    """MINIDUMP_MEMORY_INFO: a region in the form of VirtualQuery."""

    BaseAddress: ADDRESS
    AllocationBase: ADDRESS
    AllocationProtect: ULONG
    RegionSize: Annotated[int, "ULONGLONG @0x18"]
    State: ULONG
    Protect: ULONG
    Type: ULONG


_RANGE, _RANGE64 = Declared(MemoryRange, wide=False), Declared(MemoryRange)
MEMORY64_LIST = Declared(Memory64List)
MEMORY_INFO_LIST, MEMORY_INFO = Declared(MemoryInfoList), Declared(MemoryInfo, size=48)


def memory_ranges(dump: Minidump, stacks: Iterable[MemoryRange] = ()) -> Tuple[List[MemoryRange], Status]:
    """Returns the memory ranges in the file, sorted by address and disjoint, and the status of the lists.

    If ranges share addresses, the first counts, with Memory64ListStream before MemoryListStream. The same
    rule holds for ranges that share bytes of the file, which a small file could use to claim to be a large
    process. Ranges that give shared bytes the same addresses are listed twice, and that is no fault. Bytes
    beyond the end of the file are left out and counted. `stacks` are the stacks that the threads name,
    because a writer may leave them out of the lists; if a list has the same range, the list's range counts
    without a warning.
    """
    listed, faults = _memory64_list(dump)
    found, said_small = read_counted_list(dump, _MEMORY_LIST, _RANGE, MAX_RANGES, "NumberOfMemoryRanges")
    listed, beyond, outside = _cut(dump, [*listed, *found])
    apart, by_file = disjoint(listed, by_file=True)
    if by_file:
        by_file = _with_two_addresses(listed, apart)
    found, by_address = disjoint(apart, by_file=False)
    if by_address:
        by_address = _contradictions(dump, apart, found)
    stacks = list(stacks)
    unlisted = _unlisted(stacks, listed, found)
    # A stack without an RVA lies in the lists, if the file has it at all.
    beneath, beyond_stacks, outside_stacks = _cut(dump, [stack for stack in stacks if stack.offset])
    found = with_ranges(dump, found, beneath)
    beyond, outside, overlaps = beyond + beyond_stacks, outside or outside_stacks, by_file + by_address
    return found, status(
        faults,
        said_small,
        StatusItem(StatusCode.BEYOND_THE_FILE, beyond) if beyond else None,
        StatusItem(StatusCode.RANGES_OVERLAP, overlaps) if overlaps else None,
        naming(StatusCode.HEADER, "DataSize") if outside else None,
        contradicted("Stack") if 0 < unlisted < len(stacks) else None,
    )


def range_at(ranges: Sequence[MemoryRange], address: int) -> Optional[MemoryRange]:
    """Returns the range that holds an address, of ranges that are sorted and disjoint; None without one."""
    place = bisect.bisect_right(ranges, (address, MAX_ADDRESS, MAX_ADDRESS)) - 1
    around = ranges[place] if place >= 0 else None
    return around if around is not None and address < around.start + around.length else None


def with_ranges(dump: Minidump, known: List[MemoryRange], more: Iterable[MemoryRange]) -> List[MemoryRange]:
    """Returns ranges, sorted and disjoint, with the parts of `more` that share nothing with them. `dump` is
    the file, which limits the ranges."""
    found, _, _ = _cut(dump, more)
    if not found:
        return known
    apart, _ = disjoint([*known, *found], by_file=True)
    return disjoint(apart, by_file=False)[0]


def _contradictions(dump: Minidump, ranges: Sequence[MemoryRange], known: Sequence[MemoryRange]) -> int:
    """Returns the number of ranges that have other bytes than `known` for an address.

    Writers list some memory twice with the same bytes: code that ran on a stack is in the stack and in the
    range around Ip (measured: Breakpad).

    Args:
        ranges: ranges that may share addresses, but share no bytes of the file
        known: the same addresses, sorted and disjoint
    """
    starts = [piece.start for piece in known]
    budget, count = MAX_COMPARED, 0
    for given in ranges:
        place = max(bisect.bisect_right(starts, given.start) - 1, 0)
        differs = False
        while place < len(known) and known[place].start < given.start + given.length and not differs:
            piece = known[place]
            low = max(given.start, piece.start)
            length = min(given.start + given.length, piece.start + piece.length) - low
            mine, theirs = given.offset + low - given.start, piece.offset + low - piece.start
            budget -= max(length, _STEP)
            differs = budget < 0
            if length > 0 and mine != theirs and not differs:
                differs = dump.available(mine, length) != dump.available(theirs, length)
            place += 1
        count += differs
    return count


def _with_two_addresses(ranges: Sequence[MemoryRange], known: Iterable[MemoryRange]) -> int:
    """Returns the number of ranges whose bytes of the file have other addresses in `known`.

    Args:
        ranges: ranges that may share bytes of the file
        known: the same bytes, disjoint by file offset
    """
    pieces = sorted(known, key=lambda piece: piece.offset)
    offsets = [piece.offset for piece in pieces]
    steps, count = MAX_STEPS, 0
    for given in ranges:
        place, end = max(bisect.bisect_right(offsets, given.offset) - 1, 0), given.offset + given.length
        differs = False
        while place < len(pieces) and offsets[place] < end and not differs:
            piece = pieces[place]
            shares = piece.offset + piece.length > given.offset
            differs = shares and piece.start - piece.offset != given.start - given.offset
            steps -= 1
            differs = differs or steps < 0
            place += 1
        count += differs
    return count


def _unlisted(stacks: List[MemoryRange], listed: List[MemoryRange], known: List[MemoryRange]) -> int:
    """Returns the number of stacks in no range: a writer lists the stacks of all threads, or of none."""
    exact, starts = set(listed), [known_range.start for known_range in known]
    count = 0
    for stack in stacks:
        place = bisect.bisect_right(starts, stack.start) - 1
        around = known[place] if place >= 0 else MemoryRange(0, 0, 0)
        within = stack.start + stack.length <= around.start + around.length
        same = not stack.offset or around.offset + stack.start - around.start == stack.offset
        count += bool(stack.length) and not (
            stack in exact or (within and (same or around.length > stack.length))
        )
    return count


def memory_info_list(dump: Minidump) -> Tuple[List[MemoryInfo], Status]:
    """Returns the regions of MemoryInfoListStream in its order, and the status of the stream."""
    regions, faults = read_headed_list(
        dump, _MEMORY_INFO_LIST, MEMORY_INFO_LIST, MEMORY_INFO, MAX_RANGES, "NumberOfEntries"
    )
    ranges = [(region.BaseAddress, region.BaseAddress + region.RegionSize) for region in regions]
    overlaps = len(overlapping(ranges))
    # The writer calls VirtualQuery from the first address to the last: a region ends where the next begins.
    apart = any(before[1] < after[0] for before, after in zip(ranges, ranges[1:]))
    return regions, status(
        faults,
        StatusItem(StatusCode.RANGES_OVERLAP, overlaps) if overlaps else None,
        contradicted("RegionSize") if apart else None,
    )


def _memory64_list(dump: Minidump) -> Tuple[List[MemoryRange], Status]:
    header, rva, end, stream = read_list_header(dump, _MEMORY64_LIST, MEMORY64_LIST)
    if header is None:
        return [], stream
    count, base = header
    first, member = rva + MEMORY64_LIST.size, "NumberOfMemoryRanges"
    # There may be many: no structures are made of them but the ranges.
    found, faults = elements(
        dump, first, end, count, _RANGE64.size, _RANGE64, MAX_RANGES, member, lambda rows: rows
    )
    lengths = [length for _, length in found]
    placed = zip((plain_address(start) for start, _ in found), accumulate(lengths, initial=base), lengths)
    ranges = list(map(partial(tuple.__new__, MemoryRange), placed))
    # "Sequential at the end of the dump": nothing follows the last range, and the streams come first. A
    # stream of a user may be a part of the memory.
    ends = not ranges or ranges[-1].offset + ranges[-1].length >= dump.size
    apart = all(
        other.Location.Rva + other.Location.DataSize <= ranges[0].offset
        for other in dump.streams
        if ranges and other.StreamType in STREAMS
    )
    return ranges, status(
        stream,
        faults,
        None if ends and apart else contradicted("BaseRva", "DataSize"),
    )


def _cut(dump: Minidump, ranges: Iterable[MemoryRange]) -> Tuple[List[MemoryRange], int, bool]:
    """Cuts ranges to the file and to the address space. Returns the remaining ranges; the number of bytes
    beyond the end of the file; whether a range passes the last address."""
    kept, beyond, outside = [], 0, False
    for memory_range in ranges:
        missing = min(dump.beyond(memory_range.offset, memory_range.length), memory_range.length)
        beyond += missing
        length = min(memory_range.length - missing, MAX_ADDRESS - memory_range.start)
        outside = outside or length < memory_range.length - missing
        if length > 0:
            kept.append(memory_range._replace(length=length))
    return kept, beyond, outside


def disjoint(ranges: List[MemoryRange], by_file: bool) -> Tuple[List[MemoryRange], int]:
    """Removes the parts that ranges share with earlier ranges, by address or by file offset. Returns the
    remaining ranges (by file offset: in the given order; by address: sorted), and the number that
    overlapped."""
    spans = [
        (memory_range.offset if by_file else memory_range.start, place)
        for place, memory_range in enumerate(ranges)
    ]
    ends = [(low, low + ranges[place].length) for low, place in spans]
    overlaps = len(overlapping(ends))
    if not overlaps:
        return (ranges if by_file else sorted(ranges)), 0
    pieces = []
    for low, high, place in flatten([(low, high, place) for place, (low, high) in enumerate(ends)]):
        skipped = low - spans[place][0]
        start, offset, _ = ranges[place]
        pieces.append((place, MemoryRange(start + skipped, offset + skipped, high - low)))
    if by_file:
        pieces.sort()
    return [piece for _, piece in pieces], overlaps
