# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Files of --binaries: where they are looked for, which of them is a module's, what memory gets of them."""

from __future__ import annotations

import os
import pathlib
import struct
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, cast

import pytest

from tests.forge import context, kernels, modulefile
from tests.forge.code import Routine, module_options
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.paging import State
from tests.support.only import only, rows_of
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import has_status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import Image
from winstacks.names.decode.peimage import PeImage
from winstacks.names.filefolders import FileFolder, last_component
from winstacks.names.imagereader import ImageReader
from winstacks.names.modulefiles import GivenFiles, ModuleClaims, ModuleFiles, module_files
from winstacks.names.places import Name
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces

BASE = 0x60000000
CODE, TABLES = 0x1000, 0x6000
FUNCTIONS = [Routine(CODE + 0x100 * number, size=0x80, alloc=0x28) for number in range(40)]
EXPORTS = {f"Function{number:03}": CODE + 0x100 * number for number in range(40)}
AT = BASE + CODE + 0x424
"""In Function004."""

KERNELS = ("win10-x64", "win7-x86")
STAMP = 0x5F5E1000


def build(name: str = "win10-x64", **options: Any) -> Kernel:
    """A kernel with a process that has a module with code, names and unwind data."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    library_options: Dict[str, Any] = {"exports": EXPORTS, "rdata": 0x4000, "exports_rva": TABLES}
    if name.endswith("x64"):
        library_options.update(module_options(FUNCTIONS, TABLES + 0x2000, 64))
    library_options["contents"] = {**library_options.get("contents", {}), CODE: bytes(range(256)) * 40}
    for pid in (1000, 2000):
        process = kernel.process(f"{pid}.exe", pid=pid)
        process.module(f"{pid}.exe", dll=False)
        process.module("library.dll", BASE, **{**library_options, **options})
    return kernel


def library(kernel: Kernel, number: int = 0) -> Module:
    process = kernel.processes[-2 + number]
    return next(module for module in process.modules if module.name == "library.dll")


def lose(kernel: Kernel, *rvas: int) -> None:
    """Takes pages of the library out of the memory of all processes."""
    kernel.image()
    section = library(kernel).section
    for process in kernel.processes[-2:]:
        for rva in rvas:
            if process.space.holds(BASE + rva):
                process.space.set_state(BASE + rva, 0x1000, State.MISSING)
    for rva in rvas if section is not None else ():
        if section is not None and rva in section.frames:
            section.set_state(rva, 0x1000, State.MISSING)


def name_of(
    kernel: Kernel, folder: pathlib.Path, files: Optional[pathlib.Path], at: int = AT, pid: int = 1000
) -> Name:
    """How a process names an address."""
    folder.mkdir(exist_ok=True)
    opened = context.open_image(kernel.image(), folder)
    if files is not None:
        opened.image.providing(module_files)(GivenFiles([str(files)]))
    space = next(space for space in AddressSpaces.list_spaces(opened.image) if space.pid == pid)
    return Symbolizer(opened.image).for_space(space).name(at)


def messages(caplog: pytest.LogCaptureFixture) -> List[str]:
    return [record.message for record in caplog.records if "library.dll" in record.message]


# Where a file is.


@pytest.mark.parametrize(
    ("name", "last"),
    (
        ("NTDLL.dll", "ntdll.dll"),
        ("\\SystemRoot\\system32\\ntdll.dll", "ntdll.dll"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\secret.dll", "secret.dll"),
        *(
            (name, "")
            for name in ("", ".", "..", "a/..", "c:ntdll.dll", "a.dll:stream", "a\0.dll", "*", "a|b")
        ),
        ("\\\\host\\share\\a.dll", "a.dll"),
        ("x" * 300, ""),
    ),
)
def test_only_the_last_component_of_a_name_counts(name: str, last: str) -> None:
    assert last_component(name) == last


@pytest.mark.parametrize(
    "place",
    (
        "library.dll",
        "Library.DLL",
        "library.dll/5F5E10006000/library.dll",
        "library.dll/5f5e10006000/LIBRARY.dll",
        "li/library.dll/5F5E10006000/library.dll",
    ),
)
def test_plain_folders_and_symbol_servers(place: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path.joinpath(*place.split("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    (tmp_path / "other.dll").write_bytes(b"")
    found = list(FileFolder(str(tmp_path)).candidates(["C:\\Windows\\library.dll"], [(STAMP, 0x6000)]))
    assert [(file.path, file.wrong) for file in found] == [(str(path), "")]


@pytest.mark.parametrize(
    ("build", "size"), (("5F5E10001080", 0x2000), ("5F5E10001080", 0x1080), ("5F5E10002000", 0x1080))
)
def test_a_build_folder_has_the_exact_size_and_a_list_may_have_it_rounded(
    build: str, size: int, tmp_path: pathlib.Path
) -> None:
    for folder in (build, "5F5E10003080", "5F5E10011080", "notes"):
        path = tmp_path / "driver.sys" / folder / "driver.sys"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
    match = only(FileFolder(str(tmp_path)).candidates(["driver.sys"], [(STAMP, size)]))
    assert match.path == str(tmp_path / "driver.sys" / build / "driver.sys")


@pytest.mark.parametrize("name", ("../outside.dll", "..\\outside.dll", "sub/../../outside.dll"))
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "outside.dll").write_bytes(b"")
    assert not list(FileFolder(str(folder)).candidates([name], [(1, 0x1000)]))


@pytest.mark.parametrize(
    "place", ("library.dll", "library.dll/5F5E10006000", "library.dll/5F5E10006000/library.dll")
)
def test_links_are_named_and_not_followed(place: str, tmp_path: pathlib.Path) -> None:
    folder, outside = tmp_path / "files", tmp_path / "outside"
    path = folder.joinpath(*place.split("/"))
    for element in (folder, outside, path.parent):
        element.mkdir(parents=True, exist_ok=True)
    (outside / "library.dll").write_bytes(b"")
    path.symlink_to(outside if path.name != "library.dll" else outside / "library.dll")
    found = list(FileFolder(str(folder)).candidates(["library.dll"], [(STAMP, 0x6000)]))
    assert [(file.path, "link" in file.wrong) for file in found] == [(str(path), True)]


def test_what_is_no_file_is_not_opened(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "library.dll")
    files = GivenFiles([str(tmp_path)])
    assert files.find_file(ModuleClaims(("library.dll",), ((STAMP, 0x6000),))) is None
    assert "is not a regular file" in messages(caplog)[0]


def test_a_file_that_changes_gives_nothing_more(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "library.dll"
    path.write_bytes(b"before")
    candidate = only(FileFolder(str(tmp_path)).candidates(["library.dll"], []))
    assert (candidate.open_file(), candidate.read(0, 9)) == (6, b"before")
    path.write_bytes(b"after it")
    assert candidate.read(0, 9) == b""


# What memory gets.


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lost", ((0,), (TABLES,), (0, CODE, TABLES, TABLES + 0x1000, 0x8000)), ids=str)
def test_a_file_gives_the_names_that_memory_lacks(name: str, lost: List[int], tmp_path: pathlib.Path) -> None:
    kernel = build(name)
    files = modulefile.save([library(kernel)], tmp_path / "files")
    lose(kernel, *lost)
    before, after = name_of(kernel, tmp_path / "a", None), name_of(kernel, tmp_path / "b", files)
    assert before.symbol == "library+0x1424"
    assert after.symbol == "library!Function004+0x24"
    assert text(after.status) == "from the file"


def test_a_file_adds_nothing_behind_the_end_of_the_image() -> None:
    """The list may say that a module is smaller than its file: what lies behind is not of the module."""

    class Reader(ImageReader):
        def _in_memory(self, rva: int, length: int) -> Extents:
            length = max(min(length, self.size - rva), 0)
            return Extents([(rva, bytes(length))] if length else [])

    module = modulefile.content(library(build()))
    file = PeImage(lambda offset, length: module[offset : offset + length], len(module))
    image = cast(Image, SimpleNamespace(pointer_size=8))
    reader = Reader(image, "", BASE, 0x1800, file=file)
    assert not reader.adds(0x1400, 0x1000)
    assert not reader.adds(0x1900, 0x10)


def test_nothing_is_said_where_memory_has_all(tmp_path: pathlib.Path) -> None:
    kernel = build()
    files = modulefile.save([library(kernel)], tmp_path / "files")
    without, with_files = name_of(kernel, tmp_path / "a", None), name_of(kernel, tmp_path / "b", files)
    assert without == with_files


def test_without_the_option_no_file_is_looked_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = build()
    lose(kernel, 0, TABLES)
    opened = context.open_image(kernel.image(), tmp_path)
    monkeypatch.setattr(FileFolder, "__init__", None)
    names = Symbolizer(opened.image).for_space(next(iter(AddressSpaces.list_spaces(opened.image, [1000]))))
    assert names.name(AT).symbol == "library+0x1424"


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    ("rva", "data", "message"),
    (
        (CODE + 0x430, b"\x12\x34", "page"),
        (TABLES + 0x2C, b"\x10\x20\0\0", "exports"),
        (0x80 + 8, struct.pack("<I", STAMP + 1), "headers"),
    ),
    ids=("code", "exports", "headers"),
)
@pytest.mark.parametrize("shared", (True, False), ids=("shared", "own"))
def test_what_memory_has_otherwise_is_said(
    name: str, rva: int, data: bytes, message: str, shared: bool, tmp_path: pathlib.Path
) -> None:
    kernel = build(name)
    files = modulefile.save([library(kernel)], tmp_path / "files")
    kernel.image()
    if shared:
        kernel.processes[-2].space.write_file(BASE + rva, data)
    else:
        kernel.processes[-2].space.write(BASE + rva, data)
    own = name_of(kernel, tmp_path / "a", files)
    other = name_of(kernel, tmp_path / "b", files, pid=2000)
    assert f"differs from the file: {message}" in text(own.status)
    assert ("differs" in text(other.status)) == shared


# Which file is not a module's.


def _content(kernel: Kernel, place: int = 0, data: bytes = b"") -> bytes:
    new_data = bytearray(modulefile.content(library(kernel)))
    new_data[place : place + len(data)] = data
    return bytes(new_data)


def test_a_file_of_another_build_is_refused_by_name(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = build()
    other = build(timestamp=STAMP + 1, pdb=False)
    path = tmp_path / "library.dll"
    path.write_bytes(_content(other))
    lose(kernel, CODE, TABLES)
    assert name_of(kernel, tmp_path / "a", tmp_path).symbol == "library+0x1424"
    refused, lacking = rows_of(2, messages(caplog))
    assert str(path) in refused
    assert "is of another build (TimeDateStamp 5F5E1001 SizeOfImage" in refused
    assert lacking.startswith("The file of a module would help, it is in none of the folders of --binaries")
    assert "library.dll TimeDateStamp 5F5E1000 SizeOfImage" in lacking


@pytest.mark.parametrize("pdb", (True, False))
def test_a_file_that_lies_about_its_stamp_is_refused_by_name(
    pdb: bool, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = build(pdb=pdb)
    other = build(pdb=False, contents={CODE: bytes(range(255, -1, -1)) * 64})
    (tmp_path / "library.dll").write_bytes(_content(other))
    lose(kernel, TABLES)
    assert name_of(kernel, tmp_path / "a", tmp_path).symbol == "library+0x1424"
    assert ("has no RSDS record" if pdb else "pages of the image differ") in messages(caplog)[0]


def test_a_file_whose_checksum_is_not_that_of_its_content_is_refused(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = build()
    (tmp_path / "library.dll").write_bytes(_content(kernel, 0x80 + 24 + 0x40, struct.pack("<I", 0x1234)))
    lose(kernel, TABLES)
    assert name_of(kernel, tmp_path / "a", tmp_path).symbol == "library+0x1424"
    assert "CheckSum is 0x1234" in messages(caplog)[0]


def test_a_file_that_is_cut_short_is_refused_by_name(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = build()
    (tmp_path / "library.dll").write_bytes(_content(kernel)[:0x6800])
    lose(kernel, TABLES)
    assert name_of(kernel, tmp_path / "a", tmp_path).symbol == "library+0x1424"
    assert "is truncated" in messages(caplog)[0]


def test_a_link_is_refused_by_name(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    kernel = build()
    (tmp_path / "outside").write_bytes(_content(kernel))
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "library.dll").symlink_to(tmp_path / "outside")
    lose(kernel, TABLES)
    assert name_of(kernel, tmp_path / "a", folder).symbol == "library+0x1424"
    assert "is a link" in messages(caplog)[0]


def test_one_process_that_lies_about_its_build_changes_no_other(tmp_path: pathlib.Path) -> None:
    """The loader's entry of one process names another build, for which there is a file, too."""
    kernel = build(pdb=False)
    lying = build(pdb=False, timestamp=STAMP + 1, exports={"Wrong": CODE + 0x400})
    modulefile.save([library(kernel), library(lying)], tmp_path / "files")
    entry = library(kernel).entry
    lose(kernel, 0, TABLES)
    assert entry is not None
    entry.put(TimeDateStamp=STAMP + 1)
    found = {pid: name_of(kernel, tmp_path / str(pid), tmp_path / "files", pid=pid) for pid in (1000, 2000)}
    assert found[2000].symbol == "library!Function004+0x24"
    assert "Wrong" not in found[1000].symbol or has_status(found[1000].status, StatusCode.FROM_FILE)


def test_warnings_are_bounded_and_each_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    files = ModuleFiles(True)
    for number in range(100):
        for _ in range(2):
            files.lacks(ModuleClaims((f"library.dll{number}",), ((number, 0x1000),)))
    levels = [record.levelname for record in caplog.records]
    assert (levels.count("WARNING"), levels.count("INFO")) == (32, 68)
