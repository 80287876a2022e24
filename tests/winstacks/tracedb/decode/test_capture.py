# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""RtlCaptureStackBackTrace, offline, against what Windows' own function returned."""

from __future__ import annotations

import pathlib
from typing import List

import pytest

from tests.forge import real_sets
from tests.support import stddata
from winstacks.tracedb.decode.capture import back_trace_hash, capture


def seen(path: pathlib.Path, stack: List[int]) -> List[int]:
    """What the system's own walker made of the stack that its caller had.

    That of 5.2 x64 misses the innermost caller, and takes the 0 at the base of the stack for a last one.
    """
    return [*stack[1:], 0] if path.name.startswith("3790.3959-x64") else stack


@pytest.mark.shared
@pytest.mark.parametrize("path", [case for case in stddata.real_cases() if case.marks])
def test_measured_captures(path: pathlib.Path) -> None:
    calls = real_sets.load(path).truth.get("capture")
    if not calls:
        pytest.skip("no calls were made on this database")
    for call in calls:
        stack = seen(path, call["stack"])
        new_capture = capture(stack, call["FramesToSkip"], call["FramesToCapture"])
        assert new_capture.frames == tuple(call["BackTrace"])
        assert new_capture.hash == call["Hash"]
        assert len(new_capture.frames) == call["ret"]


def test_nothing_left_to_capture() -> None:
    assert capture([1, 2], 2, 5) == ((), None)
    assert capture([1, 2], 0, 0) == ((), None)


def test_hash_wraps_and_takes_low_halves() -> None:
    assert back_trace_hash([0xFFFFF800FFFFFFFF, 0x7FF600000002]) == 1
