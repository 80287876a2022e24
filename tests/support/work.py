# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Counts work: the same number on every machine, however many other programs run on it."""

from __future__ import annotations

import cProfile
from typing import Any, Callable, List, NamedTuple, Tuple

import pytest
from volatility3.framework.layers import physical

PAGE = 0x1000


class Work(NamedTuple):
    """What a run does, or the most that it may do for each page of the image's file.

    Attributes:
        pages: pages of the file that are read, each as often as it is read
        calls: of functions, Python's own too, with each value that a generator yields: every node that is
            walked and every record that is made costs a few
        rows: that are printed
        kilobytes: by which the peak of resident memory grows: the records that are kept
    """

    pages: float
    calls: float
    rows: float
    kilobytes: float

    def exceeded(self, done: Work, size: int) -> List[str]:
        """Names what of the work on an image of so many pages is more than this for each page."""
        return [
            f"{name}: {count:.0f}, {count / size:.1f} a page, at most {most:g}"
            for name, count, most in zip(done._fields, done, self)
            if count > most * size
        ]


def calls(function: Callable[[], Any]) -> Tuple[Any, int]:
    """Calls a function; returns what it returns, and how many calls it takes."""
    profile = cProfile.Profile(subcalls=False)
    value = profile.runcall(function)
    return value, sum(getstat.callcount for getstat in profile.getstats())


def pages(function: Callable[[], Any]) -> Tuple[Any, int]:
    """Calls a function; returns what it returns, and how many pages of image files it reads."""
    count = 0
    read = physical.FileLayer.read

    def counted(layer: Any, offset: int, length: int, pad: bool = False) -> bytes:
        nonlocal count
        count += (offset + length - 1) // PAGE - offset // PAGE + 1
        return read(layer, offset, length, pad)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(physical.FileLayer, "read", counted)
        value = function()
    return value, count
