# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Values that are made once."""

from __future__ import annotations

import gc
import weakref
from typing import List

import pytest

from winstacks.memory.decode.memo import Memo


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
