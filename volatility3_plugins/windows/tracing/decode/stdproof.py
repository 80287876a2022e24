# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The proof that an address holds a Stack Trace Database, and the best guess when its header is damaged."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import stdentries
from .reading import Reader
from .stdheader import MAX_DATABASE, Header, contradictions, parse
from .stdlayout import StdLayout

KNOWN_BUCKET_COUNTS = (9551, 5569, 1567, 137)
"""Windows 7 to 11 (16 MB and more, less), 2003, XP."""
_SAMPLE = 16


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
    for layout in layouts:
        for header in parse(layout, address, bytes(data)):
            wrong = contradictions(header)
            if not wrong:
                matching, sampled = agreement(reader, header)
                if 2 * matching >= sampled:
                    return Proof(header, ())
                wrong = ("Buckets",)
            failed.append(wrong)
    return Proof(None, min(failed, key=len))


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
    if proof.header:
        return proof
    length = _header_length(layouts)
    memory = reader(address, length)
    whole = memory.read(address, length) is not None
    data = bytearray(length)
    for low, high in memory.covered(address, address + length):
        data[low - address : high - address] = memory.read(low, high - low) or b""
    best, best_rank = proof, (0, -3)
    for layout in layouts:
        for parsed in parse(layout, address, bytes(data)):
            for header in _guesses(parsed):
                failed = contradictions(header) + (() if whole else ("unreadable",))
                if header.bucket_count != parsed.bucket_count:
                    failed = ("NumberOfBuckets", *failed)
                matching, sampled = agreement(reader, header)
                rank = (matching if 2 * matching > sampled else 0, -len(failed))
                if rank > best_rank and 2 * matching >= sampled:
                    best, best_rank = Proof(header, failed or ("Buckets",)), rank
    return best


def agreement(reader: Reader, header: Header) -> Tuple[int, int]:
    """Samples the bucket heads.

    Returns:
        (heads that lead to an entry whose hash belongs in that bucket, heads that could be tried)
    """
    memory = reader(header.buckets, header.buckets_end - header.buckets)
    heads = [(bucket, head) for bucket, head in stdentries.bucket_heads(header, memory) if head]
    step = max(len(heads) // _SAMPLE, 1)
    verdicts = [_belongs(reader, header, bucket, head) for bucket, head in heads[::step][:_SAMPLE]]
    return verdicts.count(True), len(verdicts) - verdicts.count(None)


def _belongs(reader: Reader, header: Header, bucket: int, address: int) -> Optional[bool]:
    """Tells whether an address holds an entry that belongs in a bucket; None when it is not present."""
    codec = stdentries.codec(header.layout)
    if not header.buckets_end <= address < header.address + MAX_DATABASE:
        return False
    memory = reader(address, codec.sizes[-1])
    head = memory.read(address, codec.head_size)
    if head is None:
        return None
    depth = codec.scan.unpack_from(head)[2]
    if not 0 < depth <= codec.max_depth:
        return False
    frames = stdentries.pointers(memory, address + codec.head_size, depth, codec.pointer_size)
    return (sum(frames) & stdentries.HASH_MASK) % header.bucket_count == bucket if frames else None


def _guesses(header: Header) -> Iterator[Header]:
    """Yields a header with its own number of buckets, then with others that may be the true one."""
    layout = header.layout
    counts = [header.bucket_count]
    start = header.fields.get("LowerMemoryStart", 0) - header.address
    if 0 < start <= MAX_DATABASE:
        counts.append((start - layout.size) // header.bucket_stride)
    counts.extend(KNOWN_BUCKET_COUNTS)
    for count in dict.fromkeys(counts):
        guess = header._replace(bucket_count=count)
        if count > 0 and guess.buckets_end - header.address <= MAX_DATABASE:
            yield guess


def _header_length(layouts: Sequence[StdLayout]) -> int:
    return max(layout.buckets for layout in layouts)
