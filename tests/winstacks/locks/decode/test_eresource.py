# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`_ERESOURCE`: owners in the lock itself and in its table, and the union that may hold an address."""

from __future__ import annotations

import struct
from typing import Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bare import MACHINES
from winstacks.locks.decode import eresource
from winstacks.locks.decode.eresource import Owner, ResourceLayout
from winstacks.memory.decode.structure import Field, MissingMemberError, Structure, Structures


def structures(owner_size: int, owner: Dict[str, Field], size: int, members: Dict[str, Field]) -> Structures:
    """Structures that are given by hand: offsets from public symbols."""
    tables = {
        "_OWNER_ENTRY": Structure("_OWNER_ENTRY", owner_size, owner.get),
        "_ERESOURCE": Structure("_ERESOURCE", size, members.get),
    }
    return Structures(tables.get)


WINDOWS_10_TYPES = structures(
    0x10,
    {
        "OwnerThread": Field(0, 8),
        "OwnerCount": Field(8, 4, shift=3, mask=(1 << 29) - 1),
        "TableSize": Field(8, 4),
    },
    0x68,
    {
        "SystemResourcesList": Field(0, 16),
        "OwnerTable": Field(0x10, 8),
        "ActiveCount": Field(0x18, 2, signed=True),
        "Flag": Field(0x1A, 2),
        "OwnerEntry": Field(0x30, 0x10),
        "ActiveEntries": Field(0x40, 4),
        "ContentionCount": Field(0x44, 4),
        "NumberOfSharedWaiters": Field(0x48, 4),
        "NumberOfExclusiveWaiters": Field(0x4C, 4),
        "CreatorBackTraceIndex": Field(0x58, 8),
    },
)
XP_TYPES = structures(
    8,
    {"OwnerThread": Field(0, 4), "OwnerCount": Field(4, 4, signed=True), "TableSize": Field(4, 4)},
    0x38,
    {
        "SystemResourcesList": Field(0, 8),
        "OwnerTable": Field(8, 4),
        "ActiveCount": Field(0xC, 2, signed=True),
        "Flag": Field(0xE, 2),
        "OwnerThreads": Field(0x18, 0x10),
        "ContentionCount": Field(0x28, 4),
        "NumberOfSharedWaiters": Field(0x2C, 2),
        "NumberOfExclusiveWaiters": Field(0x2E, 2),
        "CreatorBackTraceIndex": Field(0x30, 4),
    },
)

WINDOWS_10 = ResourceLayout(WINDOWS_10_TYPES, 8)
XP = ResourceLayout(XP_TYPES, 4)

U32 = st.integers(0, 0xFFFFFFFF)


def windows_10(
    table: int, flag: int, owner: Tuple[int, int], counts: Tuple[int, int, int, int], index: int
) -> bytes:
    """The bytes of an `_ERESOURCE` of 10.0.19041 x64."""
    head = struct.pack("<QQQhHIQQ", 0x11, 0x22, table, 7, flag, 0, 0x33, 0x44)
    return head + struct.pack("<QQ4IQQQ", owner[0], owner[1] << 3 | 7, *counts, 0x55, index, 0x66)


@given(
    st.booleans(),
    st.tuples(U32, st.integers(0, (1 << 29) - 1)),
    st.tuples(U32, U32, U32, U32),
    st.integers(0),
)
def test_windows_10(
    exclusive: bool, owner: Tuple[int, int], counts: Tuple[int, int, int, int], index: int
) -> None:
    index &= (1 << 64) - 1
    data = windows_10(0x1234, 0x80 if exclusive else 0x7F, owner, counts, index)
    resource = eresource.decode_resource(data, WINDOWS_10)
    assert resource.active == counts[0]
    assert resource.embedded == ((Owner(*owner, exclusive),) if owner[0] else ())
    assert resource.owner_table == 0x1234
    assert resource[3:6] == counts[1:]
    assert resource.creator_back_trace_index == index
    assert resource.owned_exclusive == exclusive


def test_xp_has_two_owners_within_and_short_counts() -> None:
    data = struct.pack(
        "<IIIhHIIIiIiIHHII", 1, 2, 0x9000, -3, 0x80, 4, 5, 0xA000, 1, 0xB003, 2, 6, 7, 8, 0x123, 0
    )
    resource = eresource.decode_resource(data, XP)
    assert resource == (
        -3,
        (Owner(0xA000, 1, True), Owner(0xB003, 2, False)),
        0x9000,
        6,
        7,
        8,
        0x123,
        True,
    )


OWNERS = st.lists(st.tuples(U32, st.integers(0, (1 << 29) - 1)), max_size=6)


@given(OWNERS, st.integers(0, 15))
def test_the_table_begins_with_its_size(owners: List[Tuple[int, int]], cut: int) -> None:
    table = struct.pack("<QQ", 0, len(owners) + 1)
    table += b"".join(struct.pack("<QQ", thread, number << 3) for thread, number in owners)
    layout = WINDOWS_10.owner
    assert layout is not None
    assert eresource.table_size(table, layout) == len(owners) + 1
    expected = [Owner(thread, number, False) for thread, number in owners if thread]
    assert eresource.decode_owner_table(table, layout) == expected
    assert eresource.decode_owner_table(table + bytes(cut), layout) == expected


@pytest.mark.parametrize(
    ("value", "size", "address"),
    [
        (0, 8, False),
        (0xFFFFFF, 8, False),
        (0x7FFFFFFF, 4, False),
        (0x80000000, 4, True),
        (0x80000000, 8, False),
        (0xFFFFF80312345678, 8, True),
        (0xFFFF800000000000, 8, True),
    ],
)
def test_an_address_is_an_address(value: int, size: int, address: bool) -> None:
    assert eresource.is_address(value, MACHINES[size]) == address


@given(st.binary(max_size=0x67))
def test_short_data_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ends before"):
        eresource.decode_resource(data, WINDOWS_10)


def test_a_table_without_resources_is_refused() -> None:
    with pytest.raises(MissingMemberError, match="_ERESOURCE"):
        ResourceLayout(Structures(lambda _: None), 8)


def test_fast_owners_are_read_where_the_symbols_describe_them_all() -> None:
    def with_fast(entry: Dict[str, Field]) -> ResourceLayout:
        tables = {
            "_FAST_ERESOURCE_INTERNAL": Structure("f", 0x68, {"OwnerEntryListHead": Field(0x30, 16)}.get),
            "_FAST_OWNER_ENTRY_INTERNAL": Structure("e", 0x40, entry.get),
        }
        known = Structures(lambda name: tables.get(name) or WINDOWS_10_TYPES.first_structure(name))
        return ResourceLayout(known, 8)

    names = ("ListEntry", "ThreadAddress", "CallerExclusive", "IsWaiting")
    whole = {name: Field(8 * place, 8) for place, name in enumerate(names)}
    layout = with_fast(whole)
    assert layout.fast_owners == 0x30
    assert layout.fast_owner is not None and layout.fast_owner.thread == whole["ThreadAddress"]
    assert with_fast({"ListEntry": Field(0, 16)}).fast_owner is None
    assert (WINDOWS_10.fast_owners, WINDOWS_10.fast_owner) == (None, None)
