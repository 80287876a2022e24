# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""RTL_PROCESS_LOCKS: byte positions, the way back, and hostile buffers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.locks.decode import criticalsection
from winstacks.locks.decode.criticalsection import LockRecord

# Geoff Chappell, RTL_PROCESS_LOCK_INFORMATION: offset and size of each member, and of the whole.
PLACES = {
    4: ((0, 4), (4, 2), (6, 2), (8, 4), (0xC, 4), (0x10, 4), (0x14, 4), (0x18, 4), (0x1C, 4), (0x20, 4)),
    8: (
        (0, 8),
        (8, 2),
        (0xA, 2),
        (0x10, 8),
        (0x18, 4),
        (0x1C, 4),
        (0x20, 4),
        (0x24, 4),
        (0x28, 4),
        (0x2C, 4),
    ),
}
SIZES = {4: (4, 0x24), 8: (8, 0x30)}

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
RECORDS = st.builds(LockRecord, U32, U16, U16, U32, I32, U32, U32, I32, U32, U32)


@pytest.mark.parametrize("size", [4, 8])
def test_every_member_lies_where_windows_puts_it(size: int) -> None:
    values = (0x01020304, 1, 0x1122, 0x0A0B0C0D, -2, 3, 4, 5, 6, 7)
    data = criticalsection.encode([LockRecord(*values)], size)
    header, whole = SIZES[size]
    assert len(data) == header + whole
    assert int.from_bytes(data[:4], "little") == 1
    read = [data[header + offset : header + offset + width] for offset, width in PLACES[size]]
    assert [int.from_bytes(part, "little", signed=n == 4) for n, part in enumerate(read)] == list(values)


@pytest.mark.parametrize("size", [4, 8])
@given(records=st.lists(RECORDS, max_size=5))
def test_encode_and_decode_are_inverse(size: int, records: list) -> None:
    assert criticalsection.decode(criticalsection.encode(records, size), size) == records


def test_what_does_not_fit_is_cut_as_windows_cuts_it() -> None:
    wide = LockRecord(0xFFFFF80312345678, 1, 0x12345, 1 << 40, (1 << 32) - 2, 0, 0, 0, 0, 0)
    record = criticalsection.decode(criticalsection.encode([wide], 4), 4)[0]
    assert record[:5] == (0x12345678, 1, 0x2345, 0, -2)


@pytest.mark.parametrize("size", [4, 8])
@given(data=st.binary(max_size=120))
def test_any_bytes_are_decoded_or_refused(size: int, data: bytes) -> None:
    try:
        records = criticalsection.decode(data, size)
    except criticalsection.TruncatedError:
        count = int.from_bytes(data[:4], "little")
        assert len(data) < SIZES[size][0] + count * SIZES[size][1]
    else:
        assert len(records) == int.from_bytes(data[:4], "little")
