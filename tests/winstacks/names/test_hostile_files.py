# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What files of --binaries can make the readers do: counted in bytes of the files and in relocations."""

from __future__ import annotations

import pathlib
import struct
from typing import List, Tuple

import pytest

from winstacks.names import filefolders, modulefiles
from winstacks.names.decode import relocations
from winstacks.names.decode.peimage import PeFileError, PeImage
from winstacks.names.modulefiles import GivenFiles, ModuleClaims

PAGE = 0x1000
STAMP = 0x5EE7D1E5
TEXT, RELOC = 0x1000, 0x2000
OPTIONAL = 0x80 + 24


def pe_file(blocks: List[Tuple[int, bytes]], check_sum: int = 0) -> bytes:
    """A 64-bit DLL with a page of code and blocks of relocations: the RVA of each, and its entries."""
    reloc = b"".join(struct.pack("<II", rva, 8 + len(entries)) + entries for rva, entries in blocks)
    room = len(reloc) + -len(reloc) % PAGE
    head = bytearray(PAGE)
    head[:2], head[0x80:0x84] = b"MZ", b"PE\0\0"
    struct.pack_into("<I", head, 0x3C, 0x80)
    struct.pack_into("<HHIIIHH", head, 0x84, 0x8664, 2, STAMP, 0, 0, 240, 0x2022)
    struct.pack_into("<H", head, OPTIONAL, 0x20B)
    struct.pack_into("<QII", head, OPTIONAL + 24, 0x180000000, 0x1000, 0x200)
    struct.pack_into("<III", head, OPTIONAL + 56, RELOC + room, 0x1000, check_sum)
    struct.pack_into("<I", head, OPTIONAL + 108, 16)
    struct.pack_into("<II", head, OPTIONAL + 112 + 8 * 5, RELOC, len(reloc))
    for number, (name, size, rva) in enumerate(((b".text", PAGE, TEXT), (b".reloc", room, RELOC))):
        flags = 0x60000020 if number == 0 else 0x42000040
        fields = (name, size, rva, size, rva, 0, 0, 0, 0, flags)
        struct.pack_into("<8sIIIIIIHHI", head, OPTIONAL + 240 + 40 * number, *fields)
    return bytes(head) + bytes(PAGE) + reloc.ljust(room, b"\0")


def mapped(data: bytes) -> PeImage:
    return PeImage(lambda offset, length: data[offset : offset + length], len(data))


def entries(count: int) -> bytes:
    return struct.pack("<H", 0xA008) * count


def test_a_page_has_as_many_relocations_as_fit_into_it() -> None:
    file = mapped(pe_file([(TEXT, entries(1020))] * 2))
    page = file.page(TEXT, 0x180000000 + 0x10000)
    assert page is not None
    assert page.data[8:16] == struct.pack("<Q", 0x10000)
    for blocks in ([(TEXT, entries(2100))], [(TEXT, entries(1020))] * 3):
        with pytest.raises(PeFileError, match="relocations"):
            mapped(pe_file(blocks))


def test_relocations_of_an_image_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocations, "MAX_BYTES", 4 * PAGE)
    blocks = [(PAGE * number, entries(2000)) for number in range(1, 8)]
    data = pe_file(blocks[:4])
    assert mapped(data).page(TEXT, 0x180000000) is not None
    with pytest.raises(PeFileError, match="relocations"):
        mapped(pe_file(blocks))


def test_a_number_on_two_pages_is_relocated() -> None:
    data = bytearray(pe_file([(TEXT, struct.pack("<H", 0xAFFC))]))
    file = mapped(bytes(data))
    page = file.page(TEXT, 0x180000000 + 0x1234)
    assert page is not None
    assert page.data[-4:] == struct.pack("<I", 0x1234)


def claims(size: int) -> ModuleClaims:
    return ModuleClaims(("library.dll",), ((STAMP, size),))


def test_only_some_spellings_of_a_name_are_opened(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = pe_file([], check_sum=12345)
    for number in range(16):
        name = "".join(c.upper() if number >> place & 1 else c for place, c in enumerate("libr")) + "ary.dll"
        (tmp_path / name).write_bytes(data)
    files = GivenFiles([str(tmp_path)])
    assert files.find_file(claims(0x2000)) is None
    assert (
        len([record for record in caplog.records if "CheckSum" in record.message])
        == filefolders.MAX_SPELLINGS
    )
    assert len([record for record in caplog.records if "differ in case only" in record.message]) == 12


def test_the_sums_of_all_files_are_limited(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pe_file([], check_sum=12345)
    summed: List[int] = []
    content_sum = PeImage.content_sum
    monkeypatch.setattr(modulefiles, "MAX_SUMMED", 2 * len(data))

    def counted(file: PeImage) -> int:
        summed.append(file.file_size)
        return content_sum(file)

    monkeypatch.setattr(PeImage, "content_sum", counted)
    for folder in "abc":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "library.dll").write_bytes(data)
    files = GivenFiles([str(tmp_path / folder) for folder in "abc"])
    assert files.find_file(claims(0x2000)) is None
    assert files.find_file(claims(0x2000)) is None
    assert summed == [len(data)] * 2
    assert f"the files before it have {2 * len(data)} bytes" in caplog.text


def test_the_sum_of_another_build_is_not_computed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library.dll").write_bytes(pe_file([], check_sum=12345))
    monkeypatch.setattr(PeImage, "content_sum", lambda self: pytest.fail("the file was summed"))
    assert GivenFiles([str(tmp_path)]).find_file(claims(0x9000)) is None
