# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Python's collector of reference cycles, which gets in the way of long listings."""

from __future__ import annotations

import contextlib
import gc
from typing import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Keeps the collector from running, and lets it run again at the end if it did before.

    Volatility's grids keep every row. The collector goes through all of them again and again and finds
    nothing, for rows have no cycles: of a hundred thousand rows that takes a quarter of the time. What has no
    cycles is freed as ever. Use it only around what makes many rows and no cycles.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
