# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Values that are made once."""

from __future__ import annotations

from typing import List

from volatility3.plugins.windows.stacktraces.base.decode.memo import Memo


def test_a_value_is_made_when_first_asked_for_and_kept() -> None:
    made: List[int] = []

    def double(key: int) -> int:
        made.append(key)
        return 2 * key

    memo = Memo(double)
    assert [memo[2], memo[3], memo[2]] == [4, 6, 4]
    assert made == [2, 3]
