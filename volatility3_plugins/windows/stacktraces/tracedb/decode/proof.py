# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The proof that an address holds a Stack Trace Database, and the best guess when its header is damaged."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ...base.decode.reading import Reader
from .header import MAX_DATABASE, Header, contradictions, parse
from .layout import StdLayout
from .sample import agreement, block_count, numbered_slots

_USUAL_COUNTS = {"5.1": (137,), "5.2": (1567,), "6.1": (9551, 5569)}
"""Numbers of buckets: XP; 2003; 7 to 11 with 16 MB and more, with less. Vista's is not known."""
_MEGABYTE = 0x100000
_FEW = 3


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
        layouts: those of the bitness in question, later generations first

    Returns:
        The proof; its header is None unless every test is passed.
    """
    length = _header_length(layouts)
    data = reader(address, length).read(address, length)
    if data is None:
        return Proof(None, ("unreadable",))
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
        layouts: those of the bitness in question, later generations first

    Returns:
        A proof as `prove` gives it, else the layout and the number of buckets under which the entries that
        the buckets lead to agree best with them, with the names of what does not hold.
    """
    proof = prove(reader, address, layouts)
    if proof.header is None:
        proof = _guess(reader, address, layouts) or proof
    return _with_index_end(reader, proof)


def _guess(reader: Reader, address: int, layouts: Sequence[StdLayout]) -> Optional[Proof]:
    length = _header_length(layouts)
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
        return ("unreadable",)
    replaced = ("NumberOfBuckets",) if guess.bucket_count != parsed.bucket_count else ()
    return (*replaced, *contradictions(guess))


def _best_by_chains(reader: Reader, guesses: Sequence[_Guess]) -> Optional[_Guess]:
    """Returns the guess under which most bucket heads lead to entries that belong there."""
    best, best_rank = None, (0, -_FEW)
    for header, failed in guesses:
        matching, sampled = agreement(reader, header)
        if not matching and "unreadable" in failed:
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


def _header_length(layouts: Sequence[StdLayout]) -> int:
    return max(layout.buckets for layout in layouts)
