# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Hash chains that need not be followed one by one: those in which each entry leads to an older one."""

from __future__ import annotations

from itertools import compress
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from .blocks import Blocks
from .entries import Heads


def starts(heads: Iterable[Heads]) -> Iterator[Tuple[int, int]]:
    """Yields (bucket, address of its first entry) of the buckets that have entries."""
    for run in heads:
        buckets = range(run.first, run.first + len(run.addresses))
        yield from zip(compress(buckets, run.addresses), filter(None, run.addresses))


def in_order(blocks: Blocks, heads: Sequence[Heads]) -> Optional[List[int]]:
    """Tells in which bucket's chain each entry is, in one pass through memory.

    Windows 6.0 and later put a new entry before the others of its chain, 5.x behind them; as long as no block
    was released and used again, a chain goes through memory in one direction.

    Args:
        blocks: the entries by address
        heads: what is present of the bucket heads

    Returns:
        By entry its bucket, or -1 if it is in no chain; None unless each head and each link of an entry in a
        chain leads to an entry of its own, all in one direction.
    """
    pending: Dict[int, int] = {address: bucket for bucket, address in starts(heads)}
    used = sum(len(run.addresses) - run.addresses.count(0) for run in heads)
    addresses, links = blocks.addresses, blocks.chains
    upwards = next((link > address for address, link in zip(addresses, links) if link), True)
    found: List[int] = []
    take = pending.pop
    for address, link in zip(addresses, links) if upwards else zip(reversed(addresses), reversed(links)):
        bucket = take(address, -1)
        found.append(bucket)
        if bucket >= 0:
            pending[link] = bucket
    if not upwards:
        found.reverse()
    pending.pop(0, None)
    reached = links if -1 not in found else compress(links, map((-1).__ne__, found))
    ends = sum(not link for link in reached)
    # A link that leads where another does, too, is one that the other took the place of.
    return found if not pending and ends == used else None
