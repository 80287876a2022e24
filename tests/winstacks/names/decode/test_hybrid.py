# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The code maps of hybrid images: a real one, and damaged ones."""

from __future__ import annotations

import pathlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.armtruth import binaries, reader, tool
from tests.support.deep import rounds
from winstacks.names.decode.hybrid import ARM64, ARM64EC, X64, read_code_map
from winstacks.names.decode.pe import Headers, read_headers

BASE = 0x180000000
CONFIG, METADATA, RANGES = 0x100, 0x300, 0x400
HEADERS = Headers(0x8664, 0, 0x1000, (), ((0, 0),) * 10 + ((CONFIG, 0x140),))


def image(pointer: int = BASE + METADATA, table: int = RANGES, count: int = 2) -> bytes:
    """An image whose load configuration leads to a code map of two ranges."""
    data = bytearray(0x1000)
    struct.pack_into("<Q", data, CONFIG + 200, pointer)
    struct.pack_into("<III", data, METADATA, 2, table, count)
    struct.pack_into("<4I", data, RANGES, 0x2000 | X64, 0x100, 0x1000 | ARM64EC, 0x80)
    return bytes(data)


@pytest.mark.shared
def test_real_hybrid_image_has_three_kinds_of_code(shared_dir: pathlib.Path) -> None:
    mapped = tool(shared_dir, "armimg").Img(str(binaries(shared_dir)["vcruntime140.dll"]))
    read = reader(bytes(mapped.bytes))
    found = read_code_map(read, read_headers(read), mapped.base)
    assert found is not None
    expected = mapped.chpe()["map"]
    assert [(start, kind, end - start) for start, end, kind in zip(*found)] == expected
    assert {kind for _, kind, _ in expected} == {ARM64, ARM64EC, X64}
    start, kind, length = expected[1]
    assert [found.kind(rva) for rva in (start, start + length - 1)] == [kind, kind]
    assert found.kind(0) is None
    other = tool(shared_dir, "armimg").Img(str(binaries(shared_dir)["OpenConsole.exe"]))
    read = reader(bytes(other.bytes))
    assert read_code_map(read, read_headers(read), other.base) is None


def test_ranges_are_sorted_and_have_kinds() -> None:
    found = read_code_map(reader(image()), HEADERS, BASE)
    assert found is not None
    assert [found.kind(rva) for rva in (0x1000, 0x107F, 0x1080, 0x2000, 0x20FF, 0x2100)] == [
        *(ARM64EC, ARM64EC, None),
        *(X64, X64, None),
    ]


@pytest.mark.parametrize(
    "data",
    [
        image(pointer=0),
        image(pointer=BASE - 8),
        image(pointer=BASE + 0x1000),
        image(pointer=BASE + 0xFFC),
        image(table=0x2000),
        image(count=0),
        image(count=1 << 31),
        b"",
    ],
)
def test_damaged_metadata_is_no_code_map(data: bytes) -> None:
    assert read_code_map(reader(data), HEADERS, BASE) is None


@settings(max_examples=rounds(500))
@given(st.binary(min_size=0x400, max_size=0x400), st.integers(0, (1 << 32) - 1))
def test_any_bytes_are_a_code_map_or_none(data: bytes, rva: int) -> None:
    found = read_code_map(reader(data + bytes(0xC00)), HEADERS, BASE)
    assert found is None or found.kind(rva) in (None, 0, 1, 2, 3)
