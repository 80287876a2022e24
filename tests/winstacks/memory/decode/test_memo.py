# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Values that are made once."""

from __future__ import annotations

import gc
import sys
import weakref
from types import FrameType
from typing import List

import pytest

from winstacks.memory.decode.memo import Kept, Memo


def test_a_value_is_made_when_first_asked_for_and_kept() -> None:
    keys: List[int] = []

    def double(key: int) -> int:
        keys.append(key)
        return 2 * key

    memo = Memo(double)
    assert [memo[2], memo[3], memo[2]] == [4, 6, 4]
    assert keys == [2, 3]


class Squares:
    """Keeps squares, with a method of its own."""

    def __init__(self) -> None:
        self.known: Memo[int, int] = Memo(self.square)

    def square(self, key: int) -> int:
        return key * key


def test_an_object_with_a_memo_goes_at_once() -> None:
    squares = Squares()
    assert squares.known[3] == 9
    gone, known = weakref.ref(squares), squares.known
    gc.disable()
    try:
        del squares
        assert gone() is None
    finally:
        gc.enable()
    assert known[3] == 9
    with pytest.raises(ReferenceError, match="is gone"):
        known[4]


def test_a_value_costs_three_calls_once() -> None:
    squares, calls = Squares(), []

    def note(called: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls.append(called.f_code.co_name)

    sys.setprofile(note)
    try:
        assert squares.known[3] + squares.known[3] == 18
    finally:
        sys.setprofile(None)
    assert calls == ["__missing__", "square", "keep"]


def test_values_are_kept_up_to_their_common_size() -> None:
    kept: Kept[str, int] = Kept(10)
    for key, size in (("a", 5), ("b", 4), ("c", 1)):
        assert kept.keep(key, size, size) == size
    assert list(kept) == ["a", "b", "c"]
    kept.keep("d", 1)
    assert list(kept) == ["d"]


def test_a_value_larger_than_all_may_be_is_kept_alone() -> None:
    kept: Kept[str, int] = Kept(10)
    for key, size in (("a", 4), ("long", 100)):
        kept.keep(key, size, size)
    assert list(kept) == ["long"]
    kept.keep("a", 4, 4)
    assert list(kept) == ["a"]


def test_without_a_limit_nothing_is_forgotten() -> None:
    kept: Kept[int, int] = Kept(0)
    for key in range(1000):
        kept.keep(key, key)
    assert len(kept) == 1000
