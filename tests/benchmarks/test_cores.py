# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Figures that the benchmark of --workers computes from the seconds of processes."""

from __future__ import annotations

from benchmarks.cores import Parts


def test_the_first_process_limits_what_more_processors_gain() -> None:
    parts = Parts(clock=7, before=1, after=2, workers=8, memory=100)
    assert parts.processor == 11
    assert parts.simulated(1) == 11
    assert parts.simulated(2) == 6
    assert parts.simulated(8) == parts.simulated(100) == 3
