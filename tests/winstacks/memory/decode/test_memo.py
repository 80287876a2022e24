# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Values that are made once."""

from __future__ import annotations

import gc
import weakref
from typing import Callable, List, Tuple

import pytest

from winstacks.memory.decode.memo import KeptLists, Memo


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


def _lists(made: List[str], key: str, length: int) -> Callable[[], Tuple[List[int], bool]]:
    """A function that makes a list, and notes its key."""

    def make() -> Tuple[List[int], bool]:
        made.append(key)
        return list(range(length)), length > 1

    return make


def test_lists_are_kept_up_to_their_common_length() -> None:
    made: List[str] = []
    kept: KeptLists[str, int] = KeptLists(10)
    for key, length in (("a", 4), ("b", 3), ("a", 4), ("b", 3)):
        assert kept.get(key, _lists(made, key, length)) == (list(range(length)), True)
    assert made == ["a", "b"]
    # With this one there are 5 + 4 + 2 elements, where a list counts as one itself: the oldest goes.
    assert kept.get("c", _lists(made, "c", 1)) == ([0], False)
    assert kept.get("b", _lists(made, "b", 3)) == ([0, 1, 2], True)
    assert made == ["a", "b", "c"]
    kept.get("a", _lists(made, "a", 4))
    assert made == ["a", "b", "c", "a"]


def test_a_list_longer_than_all_may_be_is_kept_alone() -> None:
    made: List[str] = []
    kept: KeptLists[str, int] = KeptLists(10)
    for key, length in (("a", 4), ("long", 100), ("long", 100), ("a", 4)):
        kept.get(key, _lists(made, key, length))
    assert made == ["a", "long", "a"]
