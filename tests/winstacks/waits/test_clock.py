# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The time when a wait began, in an image whose pages were copied one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Optional

import pytest

from winstacks.waits.clock import WaitClock

TICK = 156_250
SECOND = 10_000_000
NOW = 0x01DA_0000_0000_0000
SHARED, SYSTEM_TIME, TICKS, LOW_TICKS, INCREMENT = 0x1000, 0x1014, 0x1320, 0x1000, 0x2000


def since(ticks: int, began: Optional[int], quad: bool = True) -> Optional[int]:
    """Returns what the clock of an image says, whose tick count was `ticks` at NOW.

    Args:
        quad: whether the kernel has 64 bits of the tick count; XP has 32, and a multiplier behind them
    """
    numbers = {
        TICKS: ticks,
        LOW_TICKS: ticks & 0xFFFFFFFF | 0xFA00000 << 32,
        SYSTEM_TIME: NOW,
        INCREMENT: TICK,
    }
    places = {"SystemTime.LowPart": SYSTEM_TIME, "TickCountLow": LOW_TICKS}
    if quad:
        places["TickCountQuad"] = TICKS

    def number(address: Optional[int], size: int) -> Optional[int]:
        return None if address is None else numbers[address] & (1 << 8 * size) - 1

    def place(*paths: str) -> Optional[int]:
        return next((places[path] for path in paths if path in places), None)

    memory = SimpleNamespace(number=number, member=lambda ethread, field: began)
    structure = SimpleNamespace(first_member=lambda *paths: None)
    image: Any = SimpleNamespace(
        kernel=None,
        memory=lambda space: memory,
        types=SimpleNamespace(find=lambda name: structure),
        at=lambda name, address: SimpleNamespace(place=place),
        machine=SimpleNamespace(shared_data=SHARED),
        symbol=lambda name: INCREMENT,
    )
    thread: Any = SimpleNamespace(ethread=0x5000)
    return WaitClock(image).since(thread)


@pytest.mark.parametrize("quad", [True, False])
@pytest.mark.parametrize("ago", [0, 1, 64, 99_000])
def test_a_wait_of_before(ago: int, quad: bool) -> None:
    assert since(100_000, 100_000 - ago, quad) == NOW - ago * TICK


@pytest.mark.parametrize("quad", [True, False])
@pytest.mark.parametrize("seconds", [1, 90, 3600])
def test_a_wait_that_began_after_the_clock_was_copied(seconds: int, quad: bool) -> None:
    """It did not begin two years before the machine was booted, when the tick count had that value."""
    assert since(100_000, 100_000 + seconds * SECOND // TICK, quad) == NOW + seconds * SECOND


def test_a_count_that_no_acquisition_explains_tells_no_time() -> None:
    assert since(100_000, 0xFFFFFFF0) is None
    assert since(100_000, 100_000 + 3601 * SECOND // TICK) is None


def test_only_the_low_half_of_the_tick_count_is_kept() -> None:
    assert since((1 << 32) + 10, 0xFFFFFFFB) == NOW - 15 * TICK


def test_without_a_tick_count_no_time_is_known() -> None:
    assert since(0, 1) is None
    assert since(100_000, None) is None
