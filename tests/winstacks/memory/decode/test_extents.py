# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Sparse memory against a dictionary of bytes."""

from __future__ import annotations

from typing import Dict, List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode.ranges import Extents

RUNS = st.lists(st.tuples(st.integers(0, 64), st.binary(max_size=12)), max_size=8)


def model(runs: List[Tuple[int, bytes]]) -> Dict[int, int]:
    """The same memory, byte by byte: the run that starts lower, or was given first, keeps a byte."""
    held: Dict[int, int] = {}
    for start, data in sorted(runs, key=lambda run: run[0]):
        for offset, value in enumerate(data):
            held.setdefault(start + offset, value)
    return held


@given(RUNS, st.integers(0, 80), st.integers(0, 20))
def test_reads_what_is_there_and_nothing_else(
    runs: List[Tuple[int, bytes]], address: int, length: int
) -> None:
    held = model(runs)
    extents = Extents(runs)
    expected = range(address, address + length)
    view = extents.read(address, length)
    if length and all(byte in held for byte in expected):
        assert view is not None
        assert bytes(view) == bytes(held[byte] for byte in expected)
    elif length:
        assert view is None
    assert extents.missing(address, address + length) == sum(byte not in held for byte in expected)
    covered = [byte for low, high in extents.covered(address, address + length) for byte in range(low, high)]
    assert covered == [byte for byte in expected if byte in held]


@given(RUNS)
def test_runs_are_sorted_disjoint_and_joined(runs: List[Tuple[int, bytes]]) -> None:
    joined = Extents(runs).runs
    for (start, data), (following, _) in zip(joined, joined[1:]):
        assert start + len(data) < following
    assert sum(len(data) for _, data in joined) == len(model(runs))


def test_a_negative_length_is_nothing() -> None:
    assert Extents([(0, b"abc")]).read(2, -1) is None


def test_run_at_a_hole_is_none() -> None:
    extents = Extents([(10, b"ab"), (20, b"cd")])
    assert extents.run_at(11) == (10, b"ab")
    assert extents.run_at(12) is None
    assert extents.run_at(9) is None
