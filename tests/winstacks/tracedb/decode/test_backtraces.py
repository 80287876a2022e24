# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""RTL_PROCESS_BACKTRACES as bytes."""

from __future__ import annotations

import struct
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import stddata
from winstacks.tracedb.decode import backtraces
from winstacks.tracedb.decode.backtraces import BacktraceRecord, Buffer, MalformedBuffer

ARCHS = {"x64": 8, "x86": 4}


def test_bytes_are_where_windows_puts_them() -> None:
    frames = struct.pack("<2Q", 0x7FFB31D70001, 0x7FF600000002)
    data = b"".join(
        backtraces.encode(
            Buffer(0x17FD000, 0x1800000, 7, 1),
            [BacktraceRecord(3, 0x12345, 2, frames)],
            stddata.layouts_of("x64").backtraces(),
        )
    )
    assert len(data) == 0x18 + 0x110
    assert struct.unpack_from("<QQII", data) == (0x17FD000, 0x1800000, 7, 1)
    assert struct.unpack_from("<QIHH", data, 0x18) == (0, 3, 0x2345, 2)
    assert data[0x28:] == frames + bytes(30 * 8)


def test_many_records_come_in_pieces() -> None:
    records = (BacktraceRecord(1, number + 1, 0, b"") for number in range(5000))
    pieces = list(backtraces.encode(Buffer(0, 0, 0, 5000), records, stddata.layouts_of("x86").backtraces()))
    assert sum(map(len, pieces)) == 0x10 + 5000 * 0x8C
    assert max(map(len, pieces)) < 0x80000


@given(arch=st.sampled_from(sorted(ARCHS)), data=st.data())
def test_decode_is_the_inverse_of_encode(arch: str, data: st.DataObject) -> None:
    layout, size = stddata.layouts_of(arch).backtraces(), ARCHS[arch]
    word, number = st.integers(0, (1 << 8 * size) - 1), st.integers(0, 0xFFFFFFFF)
    records: List[BacktraceRecord] = []
    for depth in data.draw(st.lists(st.integers(0, 32), max_size=5)):
        frames = data.draw(st.binary(min_size=depth * size, max_size=depth * size))
        records.append(BacktraceRecord(data.draw(number), data.draw(st.integers(0, 0xFFFF)), depth, frames))
    buffer = Buffer(data.draw(word), data.draw(word), data.draw(number), len(records))
    encoded = b"".join(backtraces.encode(buffer, records, layout))
    assert backtraces.decode(encoded, layout) == (buffer, records)


def test_frames() -> None:
    assert BacktraceRecord(1, 1, 2, struct.pack("<2I", 5, 6)).frames() == (5, 6)
    assert BacktraceRecord(1, 1, 0, b"").frames() == ()


@pytest.mark.parametrize("arch", sorted(ARCHS))
@pytest.mark.parametrize("cut", [0, 1, 0x17, 0x100])
def test_cut_buffers_are_refused(arch: str, cut: int) -> None:
    layout = stddata.layouts_of(arch).backtraces()
    frames = bytes(4 * ARCHS[arch])
    data = b"".join(backtraces.encode(Buffer(0, 0, 0, 2), [BacktraceRecord(1, 1, 4, frames)] * 2, layout))
    with pytest.raises(MalformedBuffer):
        backtraces.decode(data[:cut], layout)


def test_a_depth_beyond_the_record_is_refused() -> None:
    layout = stddata.layouts_of("x64").backtraces()
    data = bytearray(b"".join(backtraces.encode(Buffer(0, 0, 0, 1), [BacktraceRecord(1, 1, 0, b"")], layout)))
    struct.pack_into("<H", data, 0x18 + 0xE, 33)
    with pytest.raises(MalformedBuffer):
        backtraces.decode(bytes(data), layout)


@given(st.binary(max_size=600), st.sampled_from(sorted(ARCHS)))
def test_any_bytes(data: bytes, arch: str) -> None:
    try:
        backtraces.decode(data, stddata.layouts_of(arch).backtraces())
    except MalformedBuffer:
        return
