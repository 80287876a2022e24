# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads share commits, and each is answered."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from typing import Any

import pytest

from stackfleet.lake import LakeError
from stackfleet.together import Together
from tests.support.fleetrun import PATIENCE, wait


def test_a_thread_whose_commit_ended_by_another_error_is_told() -> None:
    """One of the two threads writes for both, and has the error itself."""
    together = Together(2, LakeError)
    written = []

    def write(things: Sequence[Any]) -> None:
        written.append(things)
        raise MemoryError

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with together._lock:
            added = [pool.submit(together.add, thing, write) for thing in "ab"]
            wait(lambda: len(together._waiting) == 2)
        errors = sorted(str(type(one.exception(PATIENCE)).__name__) for one in added)
    assert errors == ["LakeError", "MemoryError"]
    assert [sorted(things) for things in written] == [["a", "b"]]
    with pytest.raises(MemoryError):
        together.add("c", write)
