# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Kernel and automatic memory dumps with a bitmap are read as complete ones are."""

import struct

import pytest
from volatility3.framework import contexts
from volatility3.framework.layers import crash, physical

PAGE = 0x1000


def dump(dump_type):
    """Pages 1 and 2, and page 40: their bytes are their numbers."""
    header = bytearray(2 * PAGE)
    header[:8] = b"PAGEDU64"
    struct.pack_into("<I", header, 3992, dump_type)
    bits = bytearray(8)
    for number in (1, 2, 40):
        bits[number // 8] |= 1 << number % 8
    summary = struct.pack("<4s4s24xQQQ", b"SDMP", b"DUMP", 3 * PAGE, 3, 8 * len(bits)) + bits
    return bytes(header) + summary.ljust(PAGE, b"\0") + b"\1" * PAGE + b"\2" * PAGE + b"\x28" * PAGE


def layer(dump_type):
    context = contexts.Context()
    context.add_layer(physical.BufferDataLayer(context, "base", "base", dump(dump_type)))
    context.config["dump.base_layer"] = "base"
    return crash.WindowsCrashDump64Layer(context, "dump", "dump")


@pytest.mark.parametrize("dump_type", [5, 6, 7])
def test_pages_are_where_the_bitmap_says(dump_type):
    made = layer(dump_type)
    context = made.context
    context.add_layer(made)
    assert made.read(PAGE, 2 * PAGE) == b"\1" * PAGE + b"\2" * PAGE
    assert made.read(40 * PAGE, 4) == b"\x28" * 4
    assert not made.is_valid(0) and not made.is_valid(3 * PAGE)


@pytest.mark.parametrize("dump_type", [0, 2, 4, 8])
def test_other_types_are_refused(dump_type):
    with pytest.raises(crash.WindowsCrashDumpFormatException):
        layer(dump_type)
