# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The names of the global flags."""

from __future__ import annotations

import pytest

from winstacks.process.decode import globalflags


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (0, ""),
        (0x1000, "ust"),
        (0x3000, "ust kst"),
        (0x02000100, "vrf hpa"),
        (0x1200, "0x200 ust"),
        (0x80000001, "soe dpd"),
    ],
)
def test_flags_have_the_names_that_gflags_gives_them(flags: int, text: str) -> None:
    assert globalflags.abbreviate(flags) == text


def test_every_bit_is_named_once() -> None:
    assert len(set(globalflags.ABBREVIATIONS.values())) == len(globalflags.ABBREVIATIONS) == 31
    assert sum(globalflags.ABBREVIATIONS) == 0xFFFFFFFF ^ 0x200
