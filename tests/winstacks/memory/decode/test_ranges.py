# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Overlapping ranges made disjoint."""

from __future__ import annotations

from typing import List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode.ranges import combine, flatten

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def _owner(spans: List[Tuple[int, int]], address: int) -> int:
    return next((rank for rank, (start, end) in enumerate(spans) if start <= address < end), -1)


@given(SPANS)
def test_the_first_given_stays(spans: List[Tuple[int, int]]) -> None:
    flat = flatten([(start, end, rank) for rank, (start, end) in enumerate(spans)])
    assert all(start < end for start, end, _ in flat)
    assert all(before[1] <= after[0] for before, after in zip(flat, flat[1:]))
    for address in range(-1, 32):
        found = [rank for start, end, rank in flat if start <= address < end]
        assert found == [rank for rank in [_owner(spans, address)] if rank >= 0]


@given(SPANS, SPANS)
def test_combine_says_what_both_have(one: List[Tuple[int, int]], two: List[Tuple[int, int]]) -> None:
    first = flatten([(start, end, f"a{rank}") for rank, (start, end) in enumerate(one)])
    second = flatten([(start, end, f"b{rank}") for rank, (start, end) in enumerate(two)])
    pieces = list(combine(first, second))
    for address in range(32):
        ours = next((value for start, end, value in first if start <= address < end), None)
        theirs = next((value for start, end, value in second if start <= address < end), None)
        found = [(a, b) for start, end, a, b in pieces if start <= address < end]
        assert found == ([(ours, theirs)] if ours or theirs else [])
