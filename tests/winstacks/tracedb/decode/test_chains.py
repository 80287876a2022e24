# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Chains that go through memory in one direction, and those that do not."""

from __future__ import annotations

from typing import List, Optional, Tuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from winstacks.tracedb.decode.blocks import Blocks, Heads, first_entries
from winstacks.tracedb.decode.linked import in_order

Found = Optional[List[int]]


def followed(addresses: List[int], links: List[int], heads: Tuple[int, ...]) -> Found:
    """Chain after chain; None where one leads elsewhere or to what another has."""
    by_address = {address: entry for entry, address in enumerate(addresses)}
    found = [-1] * len(addresses)
    for bucket, address in enumerate(heads):
        while address:
            entry = by_address.get(address)
            if entry is None or found[entry] >= 0:
                return None
            found[entry] = bucket
            address = links[entry]
    return found


def judged(addresses: List[int], links: List[int], heads: Tuple[int, ...]) -> Found:
    return in_order(Blocks(addresses, links, [1] * len(addresses)), [Heads(0, heads)])


@pytest.mark.parametrize("newest_first", [True, False])
@given(st.lists(st.integers(0, 4), max_size=40), st.sets(st.integers(0, 39)))
def test_one_direction_is_enough(newest_first: bool, buckets: List[int], unchained: set) -> None:
    """What Windows writes as long as it uses no block again; some of the blocks are in no chain."""
    addresses = [0x100 + 0x10 * number for number in range(len(buckets))]
    links, heads = [0] * len(buckets), [0] * 5
    numbers = [number for number in range(len(buckets)) if number not in unchained]
    for number in numbers if newest_first else reversed(numbers):
        links[number], heads[buckets[number]] = heads[buckets[number]], addresses[number]
    expected = [-1 if number in unchained else bucket for number, bucket in enumerate(buckets)]
    assert judged(addresses, links, tuple(heads)) == expected


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6), st.lists(st.integers(0, 7), min_size=1, max_size=4)
)
@example([0, 1], [2, 2])
@example([1], [1])
@example([3, 3, 0], [1, 2])
def test_it_never_says_other_than_following_does(links: List[int], heads: List[int]) -> None:
    """Links that meet, lead back, to themselves or to nothing."""
    addresses = list(range(1, len(links) + 1))
    found = judged(addresses, links, tuple(heads))
    assert found is None or found == followed(addresses, links, tuple(heads))


def test_heads_keep_their_numbers() -> None:
    assert list(first_entries([Heads(0, (0, 5, 0)), Heads(7, (6, 0))])) == [(1, 5), (7, 6)]
