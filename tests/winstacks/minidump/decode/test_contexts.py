# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""CPU and size of a CONTEXT, from its own bytes."""

from __future__ import annotations

import struct
from typing import Tuple

import pytest

from winstacks.minidump.decode.contexts import machine_of_context, sizes_agree

AMD64, ARM64, I386 = 0x8664, 0xAA64, 0x14C


def context(size: int, flags: int, offset: int = 0) -> Tuple[int, bytes]:
    data = bytearray(size)
    struct.pack_into("<I", data, offset, flags)
    return size, bytes(data)


WIDE, NARROW, ARM = context(1232, 0x10001F, 0x30), context(716, 0x1007F), context(912, 0x400007)
WIDE_XSTATE, NARROW_XSTATE = context(1663, 0x10005F, 0x30), context(1147, 0x1007F)
UNKNOWN = context(368, 0x40000006)
LEADS_BACK = 1376, WIDE[1] + struct.pack("<iI", -1232, 1312) + bytes(136)
"""XSTATE that only CONTEXT_EX tells."""


@pytest.mark.parametrize(
    ("given", "machine"),
    [
        (WIDE, AMD64),
        (WIDE_XSTATE, AMD64),
        (NARROW, I386),
        (NARROW_XSTATE, I386),
        (ARM, ARM64),
        (UNKNOWN, None),
    ],
)
def test_the_cpu(given: Tuple[int, bytes], machine: int) -> None:
    assert machine_of_context(given[1]) == machine
    assert machine_of_context(given[1][:300]) is None


@pytest.mark.parametrize(
    "together",
    [
        [],
        [WIDE, WIDE],
        [WIDE, WIDE_XSTATE, context(3263, 0x10005F, 0x30)],
        [NARROW_XSTATE, NARROW],
        [WIDE_XSTATE],
        [WIDE_XSTATE, LEADS_BACK, WIDE],
        [UNKNOWN, UNKNOWN],
    ],
)
def test_sizes_of_real_dumps_agree(together: object) -> None:
    assert sizes_agree(together)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "together",
    [
        [WIDE, NARROW],
        [WIDE, context(1240, 0x10001F, 0x30)],
        [context(1240, 0x10001F, 0x30)],
        [UNKNOWN, WIDE],
        [WIDE, context(1224, 0x10001F, 0x30)],
    ],
)
def test_sizes_that_no_writer_gives_disagree(together: object) -> None:
    assert not sizes_agree(together)  # type: ignore[arg-type]
