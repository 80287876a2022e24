# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""PE headers and RSDS records as they lie in memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge.pe import TIMESTAMP, Pdb, guid_of
from tests.support.flatimage import Flat, flat, pe
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.decode import pe as peimage
from winstacks.names.decode.pe import CodeView, HeaderError, Headers


@pytest.mark.parametrize("bits, machine", [(64, peimage.MACHINE_AMD64), (32, peimage.MACHINE_I386)])
def test_headers(bits: int, machine: int) -> None:
    image = pe(bits, exports={"A": 0x1000})
    headers = peimage.read_headers(flat(image).read)
    assert (headers.machine, headers.timestamp, headers.size) == (machine, TIMESTAMP, image.size)
    assert [(section.name, section.start, section.end) for section in headers.sections] == [
        (".text", 0x1000, 0x5000),
        (".rdata", 0x5000, 0x7000),
        (".data", 0x7000, 0x8000),
    ]
    assert headers.directory(peimage.DIRECTORY_EXPORT)[1]
    assert headers.directory(peimage.DIRECTORY_EXCEPTION) == (0, 0)


def test_codeview_is_the_pdbs_file_name_whatever_the_path() -> None:
    guid = guid_of("x")
    image = pe(pdb=Pdb("d:\\build\\amd64\\wntdll.pdb", guid, 7))
    memory = flat(image)
    headers = peimage.read_headers(memory.read)
    assert peimage.read_codeview(memory.read, headers) == CodeView(guid, 7, "wntdll.pdb")
    assert peimage.read_codeview(flat(pe(pdb=False)).read, headers) is None


def test_paged_out_headers_are_told_from_invalid_ones() -> None:
    memory = flat(pe()).hide(0, 0x1000)
    with pytest.raises(HeaderError, match=StatusCode.HEADERS_UNREADABLE.value):
        peimage.read_headers(memory.read)
    with pytest.raises(HeaderError, match=StatusCode.HEADERS_INVALID.value):
        peimage.read_headers(Flat(b"X" + bytes(0xFFF)).read)
    # Tools write zeros for a page that they cannot read.
    with pytest.raises(HeaderError, match=StatusCode.HEADERS_UNREADABLE.value):
        peimage.read_headers(Flat(bytes(0x1000)).read)


@pytest.mark.parametrize(
    "offset, value",
    [
        (0, b"ZM"),
        (0x3C, struct.pack("<I", 0)),
        (0x3C, struct.pack("<I", 0xFFFFFFFF)),
        (0x80, b"NE\0\0"),
        (0x86, struct.pack("<H", 0xFFFF)),  # NumberOfSections
        (0x98, struct.pack("<H", 0x107)),  # Magic
        (0x98 + 0x38, struct.pack("<I", 0)),  # SizeOfImage
        (0x98 + 0x38, struct.pack("<I", 0xFFFFFFFF)),
    ],
)
def test_nonsense_in_the_headers(offset: int, value: bytes) -> None:
    image = bytearray(flat(pe()).read(0, 0x8000) or b"")
    image[offset : offset + len(value)] = value
    with pytest.raises(HeaderError):
        peimage.read_headers(Flat(bytes(image)).read)


def test_a_directory_beyond_the_image_counts_as_none() -> None:
    headers = Headers(peimage.MACHINE_AMD64, 0, 0x4000, (), ((0x5000, 8), (0x3FF0, 0x100), (0, 5)))
    assert [headers.directory(index) for index in range(4)] == [(0, 0), (0x3FF0, 0x10), (0, 0), (0, 0)]


@settings(deadline=None)
@given(
    bits=st.sampled_from([32, 64]),
    damage=st.lists(st.tuples(st.integers(0, 0x3FF), st.binary(min_size=1, max_size=8)), max_size=8),
    hidden=st.integers(0, 0x3FF),
)
def test_damaged_headers_never_do_more_than_fail(
    bits: int, damage: "list[tuple[int, bytes]]", hidden: int
) -> None:
    image = bytearray(flat(pe(bits, exports={"A": 0x1000})).read(0, 0x8000) or b"")
    for offset, value in damage:
        image[offset : offset + len(value)] = value
    memory = Flat(bytes(image)).hide(hidden, hidden + 1)
    try:
        headers = peimage.read_headers(memory.read)
    except HeaderError as error:
        assert error.code in (StatusCode.HEADERS_UNREADABLE, StatusCode.HEADERS_INVALID)
        return
    peimage.read_codeview(memory.read, headers)
    assert all(section.start < section.end <= headers.size for section in headers.sections)
    assert len(headers.sections) <= peimage.MAX_SECTIONS
