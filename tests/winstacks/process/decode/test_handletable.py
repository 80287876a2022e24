# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handle tables: entries of every form, and addresses that are packed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.plainstructures import structures
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.structure import Field
from winstacks.process.decode import handletable
from winstacks.process.decode.handletable import Entry, EntryDecoder


def entries(pointer_size: int, creators: bool = False, **members: Field) -> EntryDecoder:
    types = structures({"_HANDLE_TABLE_ENTRY": (2 * pointer_size, members)})
    return EntryDecoder(types, pointer_size, creators)


XP = entries(4, True, Object=Field(0, 4), CreatorBackTraceIndex=Field(6, 2))
SEVEN = entries(8, Object=Field(0, 8), CreatorBackTraceIndex=Field(10, 2))
EIGHT = entries(8, ObjectPointerBits=Field(0, 8, shift=23, mask=(1 << 41) - 1))
TEN = entries(8, ObjectPointerBits=Field(0, 8, shift=20, mask=(1 << 44) - 1))
TEN_X86 = entries(4, ObjectPointerBits=Field(0, 4, shift=3, mask=(1 << 29) - 1))

PAGE = 0x7000


def only(layout: EntryDecoder, number: int, data: bytes, base: int = 0) -> list:
    memory = Extents([(PAGE + number * layout.size, data)])
    return list(layout.page(memory, PAGE, base))


@given(st.integers(1, 511), st.integers(1, (1 << 28) - 1), st.integers(0, 7), st.integers(0, 0xFFFF))
def test_xp_entry_has_its_creator(number: int, header: int, flags: int, creator: int) -> None:
    address = 0x80000000 | header << 3
    data = struct.pack("<IHH", address | flags, 0x1234, creator)
    assert only(XP, number, data, 0x800) == [Entry(0x800 + 4 * number, address & 0xFFFFFFF8, creator)]


@given(st.integers(0, (1 << 43) - 1), st.integers(0, 0xFFFFF))
def test_windows_10_address_is_sign_extended(bits: int, low: int) -> None:
    address = 0xFFFF800000000000 | bits << 4
    data = struct.pack("<QQ", (address >> 4 & (1 << 44) - 1) << 20 | low, 0x1F0003)
    assert only(TEN, 2, data) == [Entry(8, address, 0)]


@given(st.integers(0, (1 << 40) - 1))
def test_windows_8_address_has_three_bits_less(bits: int) -> None:
    address = 0xFFFFF00000000000 | bits << 4
    data = struct.pack("<QQ", (address >> 4 & (1 << 41) - 1) << 23, 0)
    assert only(EIGHT, 1, data) == [Entry(4, address, 0)]


@given(st.integers(1, (1 << 29) - 1), st.integers(0, 7))
def test_windows_10_x86(bits: int, low: int) -> None:
    assert only(TEN_X86, 1, struct.pack("<II", bits << 3 | low, 0)) == [Entry(4, bits << 3, 0)]


@pytest.mark.parametrize("layout", [XP, SEVEN, EIGHT, TEN, TEN_X86])
def test_first_free_and_missing_entries_are_none(layout: EntryDecoder) -> None:
    full = b"\xff" * layout.size
    assert only(layout, 0, full) == []
    assert only(layout, 1, bytes(layout.size)) == []
    assert only(layout, 1, full[1:]) == []
    page = Extents([(PAGE, full * layout.per_page)])
    found = list(layout.page(page, PAGE, 0))
    assert [entry.handle for entry in found] == list(range(4, 4 * layout.per_page, 4))


def test_table_code_and_page_numbers() -> None:
    assert handletable.level_of(0xFFFF8000_12345001) == 1
    assert handletable.address_of(0xFFFF8000_12345001) == 0xFFFF8000_12345000
    assert SEVEN.page_base(2) == 2 * 256 * 4
    assert XP.page_base(2) == 2 * 512 * 4


@given(st.lists(st.integers(0, 0xFFFFFFFF)), st.binary(max_size=3))
def test_pointer_page(pointers: list, rest: bytes) -> None:
    data = struct.pack(f"<{len(pointers)}I", *pointers) + rest
    assert list(handletable.decode_pointers(data, 4)) == pointers
