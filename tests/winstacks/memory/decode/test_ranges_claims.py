# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Claims against a set of bytes."""

from __future__ import annotations

from typing import List, Set, Tuple

from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode.ranges import PAGE_SIZE, Claims

STARTS = st.one_of(st.integers(0, 40), st.integers(PAGE_SIZE - 20, PAGE_SIZE + 20))


@given(
    st.lists(st.tuples(STARTS, st.integers(0, 40) | st.integers(PAGE_SIZE, 2 * PAGE_SIZE + 9)), max_size=12)
)
def test_a_byte_is_given_once_and_no_free_one_is_kept_back(ranges: List[Tuple[int, int]]) -> None:
    claims = Claims()
    claimed_bytes: Set[int] = set()
    for start, length in ranges:
        end = claims.claim(start, start + length)
        given_now = set(range(start, end))
        assert not given_now & claimed_bytes
        assert end == start + length or end in claimed_bytes
        claimed_bytes |= given_now
