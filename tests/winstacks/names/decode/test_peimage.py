# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""PE files as the loader maps them: what `pefile` maps of programs that Microsoft's linker made."""

from __future__ import annotations

import functools
import importlib.metadata
import pathlib
import re
import struct
from typing import Dict, Iterator, List, Optional, Tuple

import pefile
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.deep import rounds
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.names.decode import loaderwrites, relocations
from winstacks.names.decode.pe import MEM_WRITE, Headers, Section
from winstacks.names.decode.peimage import FilePage, PeFileError, PeImage

_LISTED = [file for name in ("pip", "setuptools") for file in importlib.metadata.files(name) or ()]
PROGRAMS = sorted(
    pathlib.Path(str(path.locate())) for path in _LISTED if path.suffix == ".exe" and "arm" not in path.name
)
"""Programs of x86 and x64 that come with Python's own tools, with relocations, imports, PDBs."""

NAMES = [f"{path.parent.name}-{path.stem}" for path in PROGRAMS]
MOVED = 0x10000 * 77


@functools.lru_cache(maxsize=None)
def content(path: pathlib.Path) -> bytes:
    return path.read_bytes()


def opened(data: bytes) -> PeImage:
    return PeImage(lambda offset, length: data[offset : offset + length], len(data))


def pages(file: PeImage, base: int) -> Iterator[Tuple[int, FilePage]]:
    for rva in range(0, file.headers.size, PAGE_SIZE):
        page = file.page(rva, base)
        if page is not None:
            yield rva, page


def test_there_are_programs_to_compare() -> None:
    assert {opened(content(path)).headers.machine for path in PROGRAMS} == {0x14C, 0x8664}


@pytest.mark.parametrize("path", PROGRAMS, ids=NAMES)
def test_pages_of_a_moved_program_are_as_pefile_maps_them(path: pathlib.Path) -> None:
    compare_pages(path, MOVED)


@pytest.mark.parametrize("path", PROGRAMS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("moved", (0, -MOVED))
def test_pages_are_as_pefile_maps_them(path: pathlib.Path, moved: int) -> None:
    compare_pages(path, moved)


def compare_pages(path: pathlib.Path, moved: int) -> None:
    data = content(path)
    file, theirs = opened(data), pefile.PE(data=data)
    base = file.image_base + moved
    mapped = theirs.get_memory_mapped_image(ImageBase=base).ljust(file.headers.size, b"\0")
    compared = 0
    for rva, page in pages(file, base):
        for low, high in page.compared:
            assert page.data[low:high] == mapped[rva + low : rva + high].ljust(high - low, b"\0")
            compared += high - low
    assert compared > PAGE_SIZE


@pytest.mark.parametrize("path", PROGRAMS, ids=NAMES)
def test_headers_pdb_and_checksum_are_as_pefile_reads_them(path: pathlib.Path) -> None:
    data = content(path)
    file, theirs = opened(data), pefile.PE(data=data)
    assert file.headers.timestamp == theirs.FILE_HEADER.TimeDateStamp
    assert file.headers.size == theirs.OPTIONAL_HEADER.SizeOfImage
    assert file.image_base == theirs.OPTIONAL_HEADER.ImageBase
    assert file.check_sum == theirs.OPTIONAL_HEADER.CheckSum
    assert file.content_sum() == theirs.generate_checksum()
    records = [record.entry for record in getattr(theirs, "DIRECTORY_ENTRY_DEBUG", ()) if record.entry]
    pdbs = [record for record in records if hasattr(record, "PdbFileName")]
    assert (file.code_view is not None) == bool(pdbs)
    if file.code_view is not None:
        assert file.code_view.age == pdbs[0].Age
        assert file.code_view.guid.startswith(f"{pdbs[0].Signature_Data1:08X}")


@pytest.mark.parametrize("path", PROGRAMS, ids=NAMES)
def test_what_memory_has_otherwise_is_left_out(path: pathlib.Path) -> None:
    data = content(path)
    file, theirs = opened(data), pefile.PE(data=data)
    known = {rva + at for rva, page in pages(file, file.image_base) for low, high in page.known
             for at in range(low, high)}  # fmt: skip
    base = theirs.OPTIONAL_HEADER.ImageBase
    tables = [
        function.address - base for entry in theirs.DIRECTORY_ENTRY_IMPORT for function in entry.imports
    ]
    assert tables and not known & set(tables)
    for section in theirs.sections:
        inside = known & set(range(section.VirtualAddress, section.VirtualAddress + section.Misc_VirtualSize))
        assert bool(inside) != bool(section.Characteristics & (MEM_WRITE | 0x02000000))
    config = getattr(theirs, "DIRECTORY_ENTRY_LOAD_CONFIG", None)
    for name in ("GuardCFCheckFunctionPointer", "GuardCFDispatchFunctionPointer", "SecurityCookie"):
        pointer = getattr(config.struct, name, 0) if config is not None else 0
        assert not pointer or pointer - base not in known


@pytest.mark.parametrize("path", PROGRAMS[:1], ids=NAMES[:1])
def test_a_file_that_is_cut_short_is_refused(path: pathlib.Path) -> None:
    data = content(path)
    theirs = pefile.PE(data=data)
    end = max(section.PointerToRawData + section.SizeOfRawData for section in theirs.sections)
    opened(data[:end])
    for size in (0, 1, 0x3F, 0x40, 0x80, 0x200, 0x1000, end // 2, end - 1):
        with pytest.raises(PeFileError, match=r"truncated|headers"):
            opened(data[:size])


@pytest.mark.parametrize("path", PROGRAMS[:1], ids=NAMES[:1])
def test_relocations_that_break_off_refuse_the_file(path: pathlib.Path) -> None:
    data = bytearray(content(path))
    theirs = pefile.PE(data=bytes(data))
    rva = theirs.OPTIONAL_HEADER.DATA_DIRECTORY[relocations.DIRECTORY_RELOCATIONS].VirtualAddress
    struct.pack_into("<I", data, theirs.get_offset_from_rva(rva) + 4, 3)
    with pytest.raises(PeFileError, match="relocations"):
        opened(bytes(data))


_changes = st.lists(st.tuples(st.integers(0, 0x5FF), st.integers(0, 255)), min_size=1, max_size=12)


@settings(max_examples=rounds(150), deadline=None)
@given(changes=_changes, number=st.integers(0, len(PROGRAMS) - 1), size=st.none() | st.integers(0, 1 << 18))
def test_a_damaged_file_is_refused_or_mapped(
    changes: List[Tuple[int, int]], number: int, size: Optional[int]
) -> None:
    data = bytearray(content(PROGRAMS[number])[:size])
    for offset, value in changes:
        if offset < len(data):
            data[offset] = value
    reads: List[int] = []

    def read(offset: int, length: int) -> bytes:
        reads.append(length)
        return bytes(data[offset : offset + length])

    try:
        file = PeImage(read, len(data))
    except PeFileError as error:
        assert str(error)
    else:
        for rva in range(0, min(file.headers.size, 1 << 18), PAGE_SIZE):
            page = file.page(rva, 0x12340000)
            assert page is None or len(page.data) == PAGE_SIZE
    assert sum(reads) <= 1 << 25


@pytest.mark.parametrize(("width", "form"), ((4, "DIRECTORY"), (8, "DIRECTORY64")))
def test_members_of_the_load_configuration_lie_where_pefile_has_them(width: int, form: str) -> None:
    known = pefile.Structure(getattr(pefile.PE, f"__IMAGE_LOAD_CONFIG_{form}_format__")).__field_offsets__
    pointers = [name for name in known if re.search("FunctionPointer$|^GuardCF.*Pointer$|^CastGuard", name)]
    assert loaderwrites._POINTERS[width] == tuple(sorted(known[name] for name in pointers))
    assert loaderwrites._COOKIE[width] == known["SecurityCookie"]
    places = ("DynamicValueRelocTableOffset", "DynamicValueRelocTableSection")
    assert loaderwrites._DYNAMIC[width] == tuple(known[name] for name in places)


_HEADERS = Headers(0x8664, 1, 0x10000, (), ())


def _written(parts: Dict[int, bytes], directories: Dict[int, Tuple[int, int]]) -> loaderwrites.LoaderWrites:
    memory = bytearray(0x10000)
    for rva, data in parts.items():
        memory[rva : rva + len(data)] = data
    listed = tuple(directories.get(number, (0, 0)) for number in range(16))
    section = Section(0x8000, 0x9000, ".reloc", 0)
    # An empty section comes first: it counts where sections are numbered.
    headers = _HEADERS._replace(
        directories=listed, sections=(section,), section_starts=(0x7000, section.start)
    )
    return loaderwrites.find_writes(
        lambda rva, length: bytes(memory[rva : rva + length]), headers, 0x140000000
    )


def _dynamic(symbol: int, entries: bytes, version: int = 1) -> Dict[int, bytes]:
    """A load configuration, and a table of dynamic relocations with one block of the page 3000h."""
    block = struct.pack("<II", 0x3000, 8 + len(entries)) + entries
    table = struct.pack("<QI", symbol, len(block)) + block
    config = bytearray(struct.pack("<I", 0x140).ljust(0x140, b"\0"))
    struct.pack_into("<IH", config, 224, 0x100, 2)
    return {0x1000: bytes(config), 0x8100: struct.pack("<II", version, len(table)) + table}


@pytest.mark.parametrize(
    ("symbol", "entries"),
    (
        (3, struct.pack("<I", 0x123 | 1 << 12 | 7 << 13)),
        (4, struct.pack("<H", 0x123 | 1 << 12)),
        (5, struct.pack("<H", 0x123 | 2 << 12)),
        (0xFFFFF68000000000, struct.pack("<H", 0x123 | 10 << 12)),
    ),
)
def test_sites_of_code_that_windows_replaces_are_left_out(symbol: int, entries: bytes) -> None:
    found = _written(_dynamic(symbol, entries), {10: (0x1000, 0x140)})
    assert found.whole
    assert [low for low, high in found.ranges if low <= 0x3123 < high] == [0x3123]


@pytest.mark.parametrize(("symbol", "version"), ((7, 1), (6, 1), (3, 2)))
def test_kinds_that_are_not_known_leave_the_list_incomplete(symbol: int, version: int) -> None:
    parts = _dynamic(symbol, struct.pack("<I", 0), version)
    assert not _written(parts, {10: (0x1000, 0x140)}).whole


def test_imports_without_end_leave_the_list_incomplete() -> None:
    descriptor = struct.pack("<5I", 0, 0, 0, 0x10, 0x20)
    assert not _written({0x1000: descriptor * 0x700, 0x20: b"\1" * 0xFE0}, {1: (0x1000, 20)}).whole
