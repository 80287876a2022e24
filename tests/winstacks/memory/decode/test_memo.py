# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Values that are made once."""

from __future__ import annotations

import gc
import re
import weakref
from typing import List, Pattern

import pytest

from winstacks.memory.decode.memo import Memo


def test_a_value_is_made_when_first_asked_for_and_kept() -> None:
    made: List[int] = []

    def double(key: int) -> int:
        made.append(key)
        return 2 * key

    memo = Memo(double)
    assert [memo[2], memo[3], memo[2]] == [4, 6, 4]
    assert made == [2, 3]


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


def test_a_pattern_is_compiled_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: List[str] = []
    compile_now = re.compile

    def noted(source: str, flags: int) -> Pattern[str]:
        compiled.append(source)
        return compile_now(source, flags)

    monkeypatch.setattr(re, "compile", noted)
    pattern = re.compile(r"a(.)", re.IGNORECASE)
    assert compiled == []
    found = pattern.fullmatch("AB")
    assert found is not None
    assert found.group(1) == "B"
    assert [pattern.search("xxaz") is not None, pattern.fullmatch("b")] == [True, None]
    assert pattern.fullmatch("ac") is not None
    assert compiled == ["a(.)", "a(.)"]


def test_a_wrong_pattern_is_refused() -> None:
    with pytest.raises(re.error):
        re.compile("(").match("")
