# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The damages that are done to each structure of forged databases, and the most traces that each may lose.

A trace is found when it comes out with its own frames. Live traces with a number ("numbered") and without
("unnumbered", 6.1) are looked for in the ordinary listing; what does not even come out when carving, released
traces included, is "gone". Every damage is done to every layout.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Tuple

from tests.forge.std import Block, Entry, Std
from tests.forge.std_damage import PAGE, Damaged
from tests.forge.std_layouts import ALL

COUNT = 400
ONES = 0xFFFFFFFFFFFFFFFF


class Loss(NamedTuple):
    numbered: int = 0
    unnumbered: int = 0
    gone: int = 0


Damage = Callable[[Damaged], None]
Limit = Callable[[Damaged], Loss]


def make(name: str, arch: str, kernel: bool) -> Std:
    """A database of 440 traces, a third without a number where that exists, some released."""
    std = Std(name, arch, kernel=kernel, reserve=0x80000 if kernel else 0x200000)
    traces = [
        [0x10000000 + 0x1000 * number + 4 * place for place in range(number * 7 % 32 + 1)]
        for number in range(COUNT)
    ]
    for number, trace in enumerate(traces):
        std.log(trace, number=number % 3 != 0)
        if number % 10 == 0:
            # Another trace of the same hash.
            std.log([*trace[1:], trace[0]] if len(trace) > 1 else [1, trace[0] - 1], number=number % 20 != 0)
    if not std.layout.old:
        for trace in traces[::50]:
            std.release(trace)
    return std


STDS = {case: make(*case) for case in ALL}
ENTRIES = {case: std.entries() for case, std in STDS.items()}


def victim(damaged: Damaged) -> Entry:
    """A numbered trace in the middle, deep enough to be cut."""
    entries = ENTRIES[damaged.std.layout.name, damaged.std.arch, damaged.std.layout.kernel]
    return next(entry for entry in entries[COUNT // 3 :] if entry.depth > 8)


def touching(std: Std, low: int, high: int) -> int:
    """How many blocks lie in a range, if only in part."""
    size = std.layout.block_size
    return sum(block.va < high and low < block.va + size(block.capacity) for block in std.blocks)


def cut_off(damaged: Damaged, low: int, high: int) -> List[Block]:
    """The entries whose chain begins in a range, or goes on behind an entry that does."""
    found: List[Block] = []
    for bucket, chain in damaged.std.chains.items():
        lost = low <= damaged.head(bucket) < high
        for block in chain:
            found += [block] if lost else []
            lost = lost or low <= block.va < high or low <= block.va + damaged.std.layout.head - 1 < high
    return found


# Pages that are not there


def _pages(where: Callable[[Damaged], Tuple[int, int]]) -> Damage:
    def damage(damaged: Damaged) -> None:
        low, high = where(damaged)
        damaged.drop(low, high - low)

    return damage


def header_page(damaged: Damaged) -> Tuple[int, int]:
    return damaged.std.base, damaged.std.base + PAGE


def bucket_page(damaged: Damaged) -> Tuple[int, int]:
    last = (damaged.std.first_entry - 1) // PAGE * PAGE
    return last, last + PAGE


def entry_page(damaged: Damaged) -> Tuple[int, int]:
    page = victim(damaged).va // PAGE * PAGE
    return page, page + PAGE


def last_slots(damaged: Damaged) -> Tuple[int, int]:
    return damaged.std.upper // PAGE * PAGE, damaged.std.upper // PAGE * PAGE + PAGE


def first_slots(damaged: Damaged) -> Tuple[int, int]:
    return damaged.std.end - PAGE, damaged.std.end


def all_slots(damaged: Damaged) -> Tuple[int, int]:
    return damaged.std.upper, damaged.std.end


def rest(damaged: Damaged) -> Tuple[int, int]:
    return victim(damaged).va // PAGE * PAGE, damaged.std.end


def _of_pages(where: Callable[[Damaged], Tuple[int, int]]) -> Limit:
    """Entries that lie there are lost; to the listing also those without number whose chain is cut off."""

    def limit(damaged: Damaged) -> Loss:
        low, high = where(damaged)
        there = touching(damaged.std, low, high)
        behind = sum(not block.index for block in cut_off(damaged, low, high))
        return Loss(there, there + behind, there)

    return limit


def _of_truncation(damaged: Damaged) -> Loss:
    """Without index array, all whose chain is cut off are lost to the listing."""
    low, high = rest(damaged)
    there, behind = touching(damaged.std, low, high), cut_off(damaged, low, high)
    unnumbered = sum(not block.index for block in behind)
    return Loss(there + len(behind) - unnumbered, there + unnumbered, there)


# Wild values

POINTERS: Dict[str, Callable[[Damaged], int]] = {
    "outside": lambda damaged: damaged.std.base - 0x10000,
    "misaligned": lambda damaged: victim(damaged).va + 1,
    "into an entry": lambda damaged: victim(damaged).va + 2 * damaged.std.layout.unit,
    "into another chain": lambda damaged: victim(damaged).va,
    "into unused memory": lambda damaged: damaged.std.upper - 0x10000,
    "all ones": lambda damaged: ONES,
    "null": lambda damaged: 0,
}


def _chain(value: Callable[[Damaged], int]) -> Damage:
    return lambda damaged: damaged.pointer(damaged.chain(damaged.longest_chain())[0], value(damaged))


def _head(value: Callable[[Damaged], int]) -> Damage:
    return lambda damaged: damaged.pointer(damaged.head(damaged.longest_chain()), value(damaged))


def _slots(value: Callable[[Damaged], int]) -> Damage:
    def damage(damaged: Damaged) -> None:
        for index in (1, 77, 200, len(damaged.std.slots)):
            damaged.pointer(damaged.slot(index), value(damaged))

    return damage


def _cycle(damaged: Damaged) -> None:
    chain = damaged.chain(damaged.longest_chain())
    damaged.pointer(chain[-1], chain[0])


def _self_pointer(damaged: Damaged) -> None:
    chain = damaged.chain(damaged.longest_chain())
    damaged.pointer(chain[0], chain[0])


def _of_chain(damaged: Damaged) -> Loss:
    """Unnumbered traces behind a broken link come out as orphans."""
    chain = damaged.std.chains[damaged.longest_chain()]
    return Loss(0, sum(not block.index for block in chain), 0)


def entry_of(change: Callable[[Damaged, Entry], None]) -> Damage:
    return lambda damaged: change(damaged, victim(damaged))


def depth_of(value: int) -> Damage:
    return lambda damaged: damaged.depth(victim(damaged), value)


def _block_depth(value: int) -> Damage:
    def damage(damaged: Damaged) -> None:
        if not damaged.std.layout.old:
            damaged.block_depth(victim(damaged), value)

    return damage


def nothing(damaged: Damaged) -> Loss:
    return Loss()


def one(damaged: Damaged) -> Loss:
    return Loss(1, 0, 1)


VALUES: Dict[str, Callable[[Std], int]] = {
    "0": lambda std: 0,
    "all ones": lambda std: ONES,
    "2^31": lambda std: 1 << 31,
    "the database": lambda std: std.base,
    "amid the entries": lambda std: std.lower - 8 * PAGE,
    "beyond the end": lambda std: std.end + PAGE,
    "odd": lambda std: std.base + 3 * PAGE + 1,
}
FIELDS = (
    "CommitBase",
    "CurrentLowerCommitLimit",
    "CurrentUpperCommitLimit",
    "NextFreeLowerMemory",
    "NextFreeUpperMemory",
    "NumberOfEntriesLookedUp",
    "NumberOfEntriesAdded",
    "EntryIndexArray",
    "NumberOfBuckets",
    "LowerMemoryStart",
    "PreCommitted",
    "NumberOfEntriesAllocated",
)


def _field(name: str, value: Callable[[Std], int]) -> Damage:
    def damage(damaged: Damaged) -> None:
        if name in damaged.std.layout.fields:
            damaged.field(name, value(damaged.std))

    return damage


def _of_field(name: str, value: str) -> Limit:
    if (name, value) == ("NextFreeLowerMemory", "amid the entries"):
        # Nothing leads to a released trace without number beyond a watermark that is too low.
        return lambda damaged: Loss(0, 0, len(damaged.std.freed()))
    return nothing


TABLE: Dict[str, Tuple[Damage, Limit]] = {
    **{
        f"{name} not present": (_pages(where), _of_pages(where))
        for name, where in (
            ("page of the header", header_page),
            ("page of bucket heads", bucket_page),
            ("page of entries", entry_page),
            ("page of the first index slots", first_slots),
            ("page of the last index slots", last_slots),
            ("all index slots", all_slots),
        )
    },
    "truncated amid the entries": (_pages(rest), _of_truncation),
    "chain: cycle": (_cycle, _of_chain),
    "chain: points to itself": (_self_pointer, _of_chain),
    **{f"chain: {name}": (_chain(value), _of_chain) for name, value in POINTERS.items()},
    **{f"bucket head: {name}": (_head(value), _of_chain) for name, value in POINTERS.items()},
    **{f"index slots: {name}": (_slots(value), nothing) for name, value in POINTERS.items()},
    **{f"Depth = {depth}": (depth_of(depth), nothing) for depth in (0, 33, 40, 0xFFFF)},
    "Depth too high": (depth_of(32), nothing),
    "Depth too low": (depth_of(1), one),
    "Index wrong": (entry_of(lambda damaged, entry: damaged.stored_index(entry, 0xFFFF)), nothing),
    "Index = 0": (entry_of(lambda damaged, entry: damaged.stored_index(entry, 0)), nothing),
    "TraceCount = 2^n - 1": (entry_of(lambda damaged, entry: damaged.count(entry, ONES)), nothing),
    "TraceCount = 0": (entry_of(lambda damaged, entry: damaged.count(entry, 0)), nothing),
    **{f"BlockDepth = {value}": (_block_depth(value), nothing) for value in (0, 1, 30, 31)},
    **{
        f"{name} = {value}": (_field(name, VALUES[value]), _of_field(name, value))
        for name in FIELDS
        for value in VALUES
    },
}
