# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The collector is paused while it is said to be, and runs afterwards as it did before."""

from __future__ import annotations

import gc
from typing import Iterator

import pytest
from volatility3.plugins.windows.stacktraces.rows import collector


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    gc.enable()


def test_it_is_paused_and_runs_again() -> None:
    with collector.paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_runs_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="of the rows"), collector.paused():
        raise ValueError("of the rows")
    assert gc.isenabled()


def test_it_runs_again_when_nobody_wants_more_rows() -> None:
    def rows() -> Iterator[int]:
        with collector.paused():
            yield from range(10)

    listed = rows()
    assert next(listed) == 0
    assert not gc.isenabled()
    del listed
    assert gc.isenabled()


def test_who_paused_it_before_starts_it_again() -> None:
    gc.disable()
    with collector.paused():
        pass
    assert not gc.isenabled()
