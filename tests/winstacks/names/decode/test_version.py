# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Versions of programs that GCC's tools made, read as pefile reads them; and damaged ones."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Optional

import pefile
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.only import only
from winstacks.names.decode import pe, version

GCC, WINDRES = shutil.which("x86_64-w64-mingw32-gcc"), shutil.which("x86_64-w64-mingw32-windres")
_RESOURCE = """\
1 VERSIONINFO
FILEVERSION 10,0,19041,1202
PRODUCTVERSION 7,8,9,10
BEGIN
  BLOCK "StringFileInfo" BEGIN BLOCK "040904B0" BEGIN VALUE "FileDescription", "made" END END
END
2 ICON "none.ico"
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if GCC is None or WINDRES is None:
        pytest.skip("there is no mingw GCC here")
    folder = tmp_path_factory.mktemp("version")
    (folder / "made.rc").write_text(_RESOURCE.replace('2 ICON "none.ico"\n', "2 RCDATA BEGIN 1 END\n"))
    (folder / "made.c").write_text("int made(void) { return 1; }\n")
    subprocess.run([WINDRES, "made.rc", "made.o"], cwd=folder, check=True)
    command = [GCC, "-shared", "-nostdlib", "-o", "made.dll", "made.c", "made.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "made.dll"


class Mapped:
    """A module as the loader lays it out."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, rva: int, length: int) -> Optional[bytes]:
        found = self.data[rva : rva + length] if rva >= 0 else b""
        return found if len(found) == length else None


def test_as_pefile_reads_it(library: pathlib.Path) -> None:
    theirs = pefile.PE(str(library))
    mapped = Mapped(bytes(theirs.get_memory_mapped_image()))
    headers = pe.read_headers(mapped.read)
    found = version.read_fixed_file_info(mapped.read, headers)
    info = only(theirs.VS_FIXEDFILEINFO)
    assert found == info.__pack__()
    assert (info.FileVersionMS, info.FileVersionLS) == (10 << 16, 19041 << 16 | 1202)
    assert pe.read_checksum(mapped.read) == theirs.OPTIONAL_HEADER.CheckSum


def test_pages_that_are_missing(library: pathlib.Path) -> None:
    """Without any one of its parts there is no version, and no error."""
    whole = Mapped(bytes(pefile.PE(str(library)).get_memory_mapped_image()))
    headers = pe.read_headers(whole.read)
    start, size = headers.directory(pe.DIRECTORY_RESOURCE)
    for place in range(start, start + size, 16):

        def read(rva: int, length: int, place: int = place) -> Optional[bytes]:
            return None if rva <= place < rva + length else whole.read(rva, length)

        found = version.read_fixed_file_info(read, headers)
        assert found is None or found == version.read_fixed_file_info(whole.read, headers)


@given(st.data())
def test_damage(library: pathlib.Path, data: st.DataObject) -> None:
    changed = bytearray(pefile.PE(str(library)).get_memory_mapped_image())
    headers = pe.read_headers(Mapped(bytes(changed)).read)
    start, size = headers.directory(pe.DIRECTORY_RESOURCE)
    for place in data.draw(st.lists(st.integers(start, start + size - 1), max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    found = version.read_fixed_file_info(Mapped(bytes(changed)).read, headers)
    assert found is None or len(found) == version.SIZE


def test_a_module_without_resources() -> None:
    headers = pe.Headers(pe.MACHINE_AMD64, 0, 0x1000, (), ((0, 0),) * 16)
    assert version.read_fixed_file_info(lambda rva, length: None, headers) is None
