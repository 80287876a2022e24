# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The proof that an address holds a Stack Trace Database, and the best guess when its header is damaged.

Which of several layouts a database has is told by what it holds: whether the members that a layout has agree
with each other and with the entries. Of layouts that agree alike the one with most members counts.
"""

from __future__ import annotations

import functools
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ...base.decode.memory import Reader
from . import entries
from .blocks import BlockWalk
from .header import MAX_DATABASE, Header, contradictions, parse
from .layout import StdLayout

_USUAL_COUNTS = {"5.1": (137,), "5.2": (1567,), "6.1": (9551, 5569)}
"""Numbers of buckets: XP; 2003; 7 to 11 with 16 MB and more, with less. Vista's is not known."""
_MEGABYTE = 0x100000
_FEW = 3
_SAMPLE = 16
_SLOTS = 64
_FIRST_BLOCKS = 0x10000

UNREADABLE = "unreadable"
"""What stands for the names of members that fail when not all of the header is present."""


class Proof(NamedTuple):
    """What an address turned out to hold.

    Attributes:
        header: None when it is no database, or nothing can be made of it
        failed: names of the members that contradict the rest (`unreadable`: the header is not all
            present); empty for a database that proves itself
    """

    header: Optional[Header]
    failed: Tuple[str, ...]


def prove(reader: Reader, address: int, layouts: Sequence[StdLayout]) -> Proof:
    """Tells whether an address holds a database without fault in its header. Cheap when it does not.

    Args:
        reader: reads memory
        address: canonical
        layouts: those of the bitness in question, in any order

    Returns:
        The proof; its header is None unless every test is passed.
    """
    layouts, length = _ordered(tuple(layouts))
    data = reader(address, length).read(address, length)
    if data is None:
        return Proof(None, (UNREADABLE,))
    failed: List[Tuple[str, ...]] = []
    best, most = None, -1
    for layout in layouts:
        for header in parse(layout, address, bytes(data)):
            wrong = contradictions(header)
            matching, sampled = (0, 0) if wrong else agreement(reader, header)
            if sampled and 2 * matching <= sampled:
                wrong = ("Buckets",)
            if wrong:
                failed.append(wrong)
            elif matching > most:
                best, most = header, matching
    return Proof(best, () if best else min(failed, key=len))


def recover(reader: Reader, address: int, layouts: Sequence[StdLayout]) -> Proof:
    """Makes the most of an address that is known to hold a database (a symbol says so).

    Args:
        reader: reads memory
        address: canonical
        layouts: those of the bitness in question, in any order

    Returns:
        A proof as `prove` gives it, else the layout and the number of buckets under which the entries that
        the buckets lead to agree best with them, with the names of what does not hold.
    """
    proof = prove(reader, address, layouts)
    if proof.header is None:
        proof = _guess(reader, address, layouts) or proof
    return _with_index_end(reader, proof)


def _guess(reader: Reader, address: int, layouts: Sequence[StdLayout]) -> Optional[Proof]:
    layouts, length = _ordered(tuple(layouts))
    memory = reader(address, length)
    whole = memory.read(address, length) is not None
    data = bytearray(length)
    for low, high in memory.covered(address, address + length):
        data[low - address : high - address] = memory.read(low, high - low) or b""
    guesses = [
        (guess, _failed(guess, parsed, whole))
        for layout in layouts
        for parsed in parse(layout, address, bytes(data))
        for guess in _guesses(parsed)
    ]
    found = _best_by_chains(reader, guesses) or _best_by_blocks(reader, guesses)
    return Proof(found[0], found[1] or ("Buckets",)) if found else None


_Guess = Tuple[Header, Tuple[str, ...]]


def _failed(guess: Header, parsed: Header, whole: bool) -> Tuple[str, ...]:
    if not whole:
        return (UNREADABLE,)
    replaced = ("NumberOfBuckets",) if guess.bucket_count != parsed.bucket_count else ()
    return (*replaced, *contradictions(guess))


def _best_by_chains(reader: Reader, guesses: Sequence[_Guess]) -> Optional[_Guess]:
    """Returns the guess under which most bucket heads lead to entries that belong there."""
    best, best_rank = None, (0, -_FEW)
    for header, failed in guesses:
        matching, sampled = agreement(reader, header)
        if not matching and UNREADABLE in failed:
            continue
        rank = (matching, -len(failed))
        if (2 * matching > sampled or not sampled) and rank > best_rank:
            best, best_rank = (header, failed), rank
    return best


def _best_by_blocks(reader: Reader, guesses: Sequence[_Guess]) -> Optional[_Guess]:
    """Returns the guess under which most blocks make sense, if several do."""
    best, most = None, _FEW
    for guess in guesses:
        found = block_count(reader, guess[0])
        if found > most:
            best, most = guess, found
    return best


def _with_index_end(reader: Reader, proof: Proof) -> Proof:
    """Finds the end of the index array when no slot is where EntryIndexArray says.

    What is reserved are megabytes, or half of one in a kernel.
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
    """Yields a header with its own number of buckets, then with others that may be the true one."""
    layout = header.layout
    counts = [header.bucket_count]
    start = header.fields.get("LowerMemoryStart", 0) - header.address
    if 0 < start <= MAX_DATABASE:
        counts.append((start - layout.size) // header.bucket_stride)
    every = [count for usual in _USUAL_COUNTS.values() for count in usual]
    counts.extend(_USUAL_COUNTS.get(layout.name, every))
    for count in dict.fromkeys(counts):
        guess = header._replace(bucket_count=count)
        if count > 0 and guess.buckets_end - header.address <= MAX_DATABASE:
            yield guess


@functools.lru_cache(maxsize=16)
def _ordered(layouts: Tuple[StdLayout, ...]) -> Tuple[Tuple[StdLayout, ...], int]:
    """Returns layouts, those with most members first, and how many bytes it takes to try them.

    XP's structure is that of 2003 with a lock of its own: what proves XP's proves that of 2003, too.
    """
    told = sorted(layouts, key=lambda layout: layout.name, reverse=True)
    told.sort(key=lambda layout: len(layout.names), reverse=True)
    return tuple(told), max(layout.buckets for layout in layouts)


def agreement(reader: Reader, header: Header) -> Tuple[int, int]:
    """Samples the bucket heads, and the first block.

    Returns:
        (heads that lead to an entry whose hash belongs in that bucket, heads that could be tried); the first
        block counts as one of either
    """
    memory = reader(header.buckets, header.buckets_end - header.buckets)
    heads = list(entries.starts(entries.bucket_heads(header, memory)))
    step = max(len(heads) // _SAMPLE, 1)
    verdicts = [_belongs(reader, header, bucket, head) for bucket, head in heads[::step][:_SAMPLE]]
    verdicts.append(_begins(reader, header))
    return verdicts.count(True), len(verdicts) - verdicts.count(None)


def _begins(reader: Reader, header: Header) -> Optional[bool]:
    """Tells whether a block is where the first one must be; None if there is none or its place is unknown."""
    layout, first = header.layout.entry, header.first_entry
    known = header.layout.has_start or not layout.shift
    if not known or not header.fields["NextFreeLowerMemory"] > first:
        return None
    head = reader(first, layout.head_size).read(first, layout.head_size)
    return 0 < layout.scan(head, 0)[2] <= layout.max_depth if head is not None else None


def _belongs(reader: Reader, header: Header, bucket: int, address: int) -> Optional[bool]:
    """Tells whether an address holds an entry that belongs in a bucket; None when it is not present."""
    layout = header.layout.entry
    if not header.buckets_end <= address < header.address + MAX_DATABASE:
        return False
    memory = reader(address, layout.sizes[-1])
    head = memory.read(address, layout.head_size)
    if head is None:
        return None
    if not 0 < layout.scan(head, 0)[2] <= layout.max_depth:
        return False
    entry = entries.read_entry(layout, memory.read, address)
    return header.bucket_of(entry.frames) == bucket if entry else None


def block_count(reader: Reader, header: Header) -> int:
    """Returns how many blocks make sense in the first 64 KB of where the entries would be."""
    first, end = header.first_entry, header.first_entry + _FIRST_BLOCKS
    memory = reader(first, end - first)
    walk = BlockWalk(header.layout.entry, memory, first, end, tuple)
    return len(walk.walk().addresses)


def numbered_slots(reader: Reader, header: Header, end: int) -> int:
    """Returns how many of the first index slots, if the array ended there, lead to their entry."""
    layout = header.layout.entry
    size = layout.pointer_size
    memory = reader(end - _SLOTS * size, _SLOTS * size)
    right = 0
    for index in range(1, _SLOTS + 1):
        slot = memory.read(end - index * size, size)
        address = int.from_bytes(slot, "little") if slot is not None else 0
        if header.first_entry <= address < end:
            head = reader(address, layout.head_size).read(address, layout.head_size)
            right += head is not None and layout.is_index(layout.stored_index(head), index)
    return right
