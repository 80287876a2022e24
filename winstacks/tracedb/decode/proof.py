# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The proof that an address holds a Stack Trace Database, and the best guess when its header is damaged.

The content of a database decides between layouts: with the right layout the members of the header agree with
each other and with the entries. Of several layouts that agree equally well, the one with the most members is
taken.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple

from ...memory.decode.memory import Reader
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import unsigned
from . import blocks
from .blocks import BlockWalk
from .header import MAX_DATABASE, Header, contradictions, parse
from .layout import StdLayout

_USUAL_COUNTS = {"5.1": (137,), "5.2": (1567,), "6.1": (9551, 5569)}
"""Usual numbers of buckets (hash chains), by layout: 137 in XP, 1567 in 2003; since 7, 9551 in a database of
16 MB or more and 5569 in a smaller one. Vista's number is not known. These numbers are tried if the header's
NumberOfBuckets is damaged. Source: listings of ntdll and ntoskrnl."""
_MEGABYTE = 0x100000
_FEW = 3
_SAMPLE = 16
_SLOTS = 64
_FIRST_BLOCKS = 0x10000

UNREADABLE = "unreadable"
"""The only element of `Proof.failed` if a part of the header is not in the image."""


class Proof(NamedTuple):
    """The result of a test whether an address holds a database.

    Attributes:
        header: header of the database; None if the address holds none, or one that is too damaged to read
        failed: names of the members that contradict the rest, or `unreadable` if a part of the header is
            not in the image; empty for a database that proves itself
    """

    header: Optional[Header]
    failed: Tuple[str, ...]


def prove(reader: Reader, address: int, layouts: Sequence[StdLayout]) -> Proof:
    """Tests whether an address holds a database whose header has no fault. If the address holds something
    else, the test is cheap. Returns the result; its header is None unless every test is passed. `layouts` are
    layouts for the bitness of the address space, in any order."""
    layouts, length = _ordered(layouts)
    data = reader(address, length).read(address, length)
    if data is None:
        return Proof(None, (UNREADABLE,))
    failed: List[Tuple[str, ...]] = []
    best, most = None, -1
    for layout in layouts:
        for header in parse(layout, address, bytes(data)):
            wrong = contradictions(header)
            matching, sampled = (0, 0) if wrong else sample_agreement(reader, header)
            if sampled and 2 * matching <= sampled:
                wrong = ("Buckets",)
            if wrong:
                failed.append(wrong)
            elif matching > most:
                best, most = header, matching
    return Proof(best, () if best else min(failed, key=len))


def recover(reader: Reader, address: int, layouts: Sequence[StdLayout]) -> Proof:
    """Returns the most likely header at an address that is known to hold a database, as a symbol points
    there: the result of `prove` if it has a header. Otherwise the header with the layout and the number of
    buckets for which most buckets lead to entries that belong there, and the names of the members that
    contradict it."""
    proof = prove(reader, address, layouts)
    if proof.header is None:
        proof = _guess(reader, address, layouts) or proof
    return _with_index_end(reader, proof)


def _guess(reader: Reader, address: int, layouts: Sequence[StdLayout]) -> Optional[Proof]:
    """Returns the best guess of a damaged header, None if no guess agrees with the memory behind it."""
    layouts, length = _ordered(layouts)
    memory = reader(address, length)
    complete = memory.read(address, length) is not None
    data = bytearray(length)
    for low, high in memory.covered(address, address + length):
        data[low - address : high - address] = memory.read(low, high - low) or b""
    guesses = [
        (guess, _failed_members(guess, parsed, complete))
        for layout in layouts
        for parsed in parse(layout, address, bytes(data))
        for guess in _guesses(parsed)
    ]
    best = _best_by_chains(reader, guesses) or _best_by_blocks(reader, guesses)
    return Proof(best[0], best[1] or ("Buckets",)) if best else None


_Guess = Tuple[Header, Tuple[str, ...]]
"""A possible header, and the names of the members that contradict it."""


def _failed_members(guess: Header, parsed: Header, complete: bool) -> Tuple[str, ...]:
    """Returns the names of the members that contradict a guess."""
    if not complete:
        return (UNREADABLE,)
    replaced = ("NumberOfBuckets",) if guess.bucket_count != parsed.bucket_count else ()
    return (*replaced, *contradictions(guess))


def _best_by_chains(reader: Reader, guesses: Sequence[_Guess]) -> Optional[_Guess]:
    """Returns the guess with which most bucket heads lead to entries that belong there; or None."""
    best, best_rank = None, (0, -_FEW)
    for header, failed in guesses:
        matching, sampled = sample_agreement(reader, header)
        if not matching and UNREADABLE in failed:
            continue
        rank = (matching, -len(failed))
        if (2 * matching > sampled or not sampled) and rank > best_rank:
            best, best_rank = (header, failed), rank
    return best


def _best_by_blocks(reader: Reader, guesses: Sequence[_Guess]) -> Optional[_Guess]:
    """Returns the guess with which most blocks are plausible, None unless more than _FEW are."""
    best, most = None, _FEW
    for guess in guesses:
        count = block_count(reader, guess[0])
        if count > most:
            best, most = guess, count
    return best


def _with_index_end(reader: Reader, proof: Proof) -> Proof:
    """Returns the proof with the true end of the index array, if EntryIndexArray does not point to that end.

    The array ends where the reserved memory ends. Windows reserves whole megabytes, or half of one.
    """
    header = proof.header
    if header is None or numbered_slots(reader, header, header.index_end):
        return proof
    sizes = (_MEGABYTE // 2, *range(_MEGABYTE, MAX_DATABASE + 1, _MEGABYTE))
    right, end = max(
        (numbered_slots(reader, header, header.address + size), header.address + size) for size in sizes
    )
    if not right:
        return proof
    failed = tuple(dict.fromkeys((*proof.failed, "EntryIndexArray")))
    return Proof(header._replace(index_end=end), failed)


def _guesses(header: Header) -> Iterator[Header]:
    """Yields a header with its stored number of buckets, then with other numbers that may be the true one."""
    layout = header.layout
    counts = [header.bucket_count]
    start = header.fields.get("LowerMemoryStart", 0) - header.address
    if 0 < start <= MAX_DATABASE:
        counts.append((start - layout.size) // header.bucket_stride)
    all_usual = [count for usual in _USUAL_COUNTS.values() for count in usual]
    counts.extend(_USUAL_COUNTS.get(layout.name, all_usual))
    for count in dict.fromkeys(counts):
        guess = header._replace(bucket_count=count)
        if count > 0 and guess.buckets_end - header.address <= MAX_DATABASE:
            yield guess


def _ordered(layouts: Sequence[StdLayout]) -> Tuple[List[StdLayout], int]:
    """Returns layouts in the order in which they are tried, and the most bytes of a header that one needs.

    The layout with the most members comes first: a database of XP also agrees with the layout of 2003, which
    is XP's without its lock. Of layouts with equally many members the newest comes first.
    """
    order = sorted(layouts, key=lambda layout: layout.rank, reverse=True)
    return order, max(layout.buckets for layout in layouts)


def sample_agreement(reader: Reader, header: Header) -> Tuple[int, int]:
    """Checks a sample of the bucket heads, and the first block, which counts like one more head. Returns
    (number of right heads, number of heads read). A head is right if it leads to an entry whose hash belongs
    in that bucket; the first block is right if it has a possible Depth."""
    memory = reader(header.buckets, header.buckets_end - header.buckets)
    heads = list(blocks.first_entries(blocks.bucket_heads(header, memory)))
    step = max(len(heads) // _SAMPLE, 1)
    verdicts = [_entry_belongs(reader, header, bucket, head) for bucket, head in heads[::step][:_SAMPLE]]
    verdicts.append(_first_block_fits(reader, header))
    return verdicts.count(True), len(verdicts) - verdicts.count(None)


def _first_block_fits(reader: Reader, header: Header) -> Optional[bool]:
    """Returns whether the memory at the place of the first entry has a possible Depth.

    None if the database is empty, or if the place is unknown (6.0) or not in the image.
    """
    layout, first = header.layout.entry, header.first_entry
    place_known = header.layout.has_start or not layout.shift
    if not place_known or not header.fields["NextFreeLowerMemory"] > first:
        return None
    head = reader(first, layout.head_size).read(first, layout.head_size)
    return 0 < layout.scan(head, 0)[2] <= layout.max_depth if head is not None else None


def _entry_belongs(reader: Reader, header: Header, bucket: int, address: int) -> Optional[bool]:
    """Returns whether an address holds an entry whose hash belongs in a bucket; None if not in the image."""
    layout = header.layout.entry
    if not header.buckets_end <= address < header.address + MAX_DATABASE:
        return False
    memory = reader(address, layout.sizes[-1])
    head = memory.read(address, layout.head_size)
    if head is None:
        return None
    if not 0 < layout.scan(head, 0)[2] <= layout.max_depth:
        return False
    entry = blocks.read_entry(layout, memory.read, address)
    return header.bucket_of(entry.frames) == bucket if entry else None


def block_count(reader: Reader, header: Header) -> int:
    """Returns the number of valid blocks in the 64 KB from the supposed first entry on."""
    first, end = header.first_entry, header.first_entry + _FIRST_BLOCKS
    memory = reader(first, end - first)
    walk = BlockWalk(header.layout.entry, memory, first, end, tuple)
    return len(walk.walk().addresses)


def numbered_slots(reader: Reader, header: Header, end: int) -> int:
    """Returns how many of the first 64 slots of an index array lead to their entry, if it ends at `end`."""
    layout = header.layout.entry
    size = layout.pointer_size
    memory = reader(end - _SLOTS * size, _SLOTS * size)
    right = 0
    for index in range(1, _SLOTS + 1):
        address = unsigned(memory.read(end - index * size, size)) or 0
        if header.first_entry <= address < end:
            head = reader(address, layout.head_size).read(address, layout.head_size)
            right += head is not None and layout.is_index(layout.stored_index(head), index)
    return right
