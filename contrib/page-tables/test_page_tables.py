# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pages that one page table maps share the way to it; what is found and what is said is as before."""

import struct

import pytest
from volatility3.framework import contexts, exceptions
from volatility3.framework.layers import intel, physical

PAGE = 0x1000
BASE = 0x10000000000


@pytest.fixture()
def layer():
    """512 pages from BASE, each second one present; then a large page; then nothing."""
    memory = bytearray(0x400000)

    def entry(table, index, value):
        struct.pack_into("<Q", memory, table + 8 * index, value)

    entry(0x1000, BASE >> 39 & 511, 0x2001)
    entry(0x2000, BASE >> 30 & 511, 0x3001)
    entry(0x3000, 0, 0x4001)
    entry(0x3000, 1, 0x200000 | 0x81)
    for number in range(0, 512, 2):
        entry(0x4000, number, 0x10000 + PAGE * (number // 2) | 1)
    context = contexts.Context()
    context.add_layer(physical.BufferDataLayer(context, "base", "base", bytes(memory)))
    context.config["made.memory_layer"] = "base"
    context.config["made.page_map_offset"] = 0x1000
    made = intel.WindowsIntel32e(context, "made", "made")
    context.add_layer(made)
    return made


def test_each_page_is_where_its_entry_says(layer):
    for number in range(0, 512, 2):
        (mapped,) = layer.mapping(BASE + PAGE * number, PAGE)
        assert mapped[2] == 0x10000 + PAGE * (number // 2)
    (large,) = layer.mapping(BASE + 0x200000, 0x200000)
    assert large[1:4] == (0x200000, 0x200000, 0x200000)


def test_a_fault_names_its_own_page_and_how_much_is_missing(layer):
    for address, bits in ((BASE + PAGE, 12), (BASE + 7 * PAGE, 12), (BASE + 0x400000, 21), (0, 39)):
        with pytest.raises(exceptions.PagedInvalidAddressException) as raised:
            layer.read(address, 1)
        assert raised.value.invalid_address == address
        assert raised.value.invalid_bits == bits


def test_the_way_to_a_table_is_walked_once(layer):
    layer._find_last_table.cache_clear()
    assert len(list(layer.mapping(BASE, 512 * PAGE, ignore_errors=True))) == 256
    assert layer._find_last_table.cache_info().misses == 1
