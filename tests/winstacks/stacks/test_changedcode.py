# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Functions of loaded modules that other code was written over: their unwind data leads to a guess."""

from __future__ import annotations

import lzma
import pathlib
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest
from volatility3.plugins.minidump import callstacks
from volatility3.plugins.windows import callstacks as callstacks_of_images

from tests.conftest import SHARED
from tests.forge import context, modulefile, sample
from tests.forge.phys import PAGE
from tests.support.callstackimages import MAIN
from tests.support.findingimages import TID, X64, FindingImage
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of
from winstacks.minidump.decode.dumpfile import Minidump
from winstacks.minidump.decode.memory import memory_ranges
from winstacks.names.decode.pe import MEM_WRITE
from winstacks.names.imagereader import ImageReader
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces
from winstacks.stacks.changedcode import ChangedCode

PACKED = SHARED / "runtimes" / "rwx.dmp.xz"
MAIN_THREAD = 572
SLEEP, RETURNS = "kernelbase!Sleep+0x2c", 0x2C

OTHER = bytes.fromhex("48 89 5c 24 08 57 48 81 ec 90 00 00 00")
"""mov [rsp+8], rbx; push rdi; sub rsp, 90h"""
DETOURS = [
    "e9 00 10 00 00",
    "eb 10",
    "ff 25 00 00 00 00",
    "ff 25 00 00 00 00 88 77 66 55 f7 7f 00 00",
    "cc",
    "48 b8 00 00 00 00 00 7f 00 00 ff e0",
    "49 bb 00 00 00 00 00 7f 00 00 41 ff e3",
    "68 00 00 00 00 c3",
    "68 00 00 00 00 c7 44 24 04 00 7f 00 00 c3",
]
SECTION_FLAGS = 36
"""The offset of Characteristics in a section's header."""
DIFFERS = "code and unwind data differ"

Frame = Tuple[str, bool]


def sure_frames(rows: List[Tuple[int, Dict[str, Any]]], tid: int) -> List[Frame]:
    return [
        (row["Symbol"], "unsure" not in row["Status"]) for depth, row in rows if depth and row["TID"] == tid
    ]


def written(data: bytes, address: int, code: bytes) -> bytes:
    """Returns a dump with other bytes at an address."""
    dump = Minidump(lambda offset, length: data[offset : offset + length], len(data))
    place = only(
        found.offset + address - found.start
        for found in memory_ranges(dump)[0]
        if found.start <= address < found.start + found.length
    )
    return data[:place] + code + data[place + len(code) :]


@pytest.fixture(scope="module")
def dump() -> bytes:
    return lzma.decompress(PACKED.read_bytes())


class Filed(NamedTuple):
    """A dump, and the files of its modules."""

    dump: bytes
    files: pathlib.Path


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Filed:
    folder = tmp_path_factory.mktemp("files")
    kernel = sample.build()
    opened = context.open_image(kernel.image(), folder)
    modulefile.save(kernel.user_modules(), folder / "files")
    return Filed(dump_of(opened, 4312), folder / "files")


@pytest.mark.shared
@pytest.mark.skipif(not PACKED.exists(), reason=f"{PACKED} is not there")
class TestARealProgram:
    """A program under Wine, whose main thread sleeps."""

    def rows(self, data: bytes, folder: pathlib.Path) -> List[Tuple[int, Dict[str, Any]]]:
        path = folder / "rwx.dmp"
        path.write_bytes(data)
        return OpenedDump(path).rows(callstacks.CallStacks)

    def sleep(self, data: bytes, folder: pathlib.Path) -> Tuple[int, List[Frame]]:
        """Returns where Sleep begins, and the frames behind it."""
        rows = self.rows(data, folder)
        address = next(row["Address"] for depth, row in rows if depth and row["Symbol"] == SLEEP)
        frames = sure_frames(rows, MAIN_THREAD)
        assert frames[:2] == [("ntdll!NtDelayExecution+0x14", True), (SLEEP, True)]
        return address - RETURNS, frames[2:]

    def test_who_called_code_that_its_unwind_data_does_not_describe(
        self, dump: bytes, tmp_path: pathlib.Path
    ) -> None:
        begin, behind = self.sleep(dump, tmp_path)
        assert len(behind) == 5
        assert all(sure for _, sure in behind)
        changed, guessed = self.sleep(written(dump, begin, OTHER), tmp_path)
        assert changed == begin
        assert guessed
        assert not any(sure for _, sure in guessed)
        rows = self.rows(written(dump, begin, OTHER), tmp_path)
        stack = next(row for depth, row in rows if not depth and row["TID"] == MAIN_THREAD)
        assert DIFFERS in stack["Status"]

    @pytest.mark.parametrize("detour", DETOURS)
    def test_a_hook_at_the_entry_replaces_nothing_behind_it(
        self, dump: bytes, detour: str, tmp_path: pathlib.Path
    ) -> None:
        begin, behind = self.sleep(dump, tmp_path)
        assert self.sleep(written(dump, begin, bytes.fromhex(detour)), tmp_path) == (begin, behind)


STORE_AT = 0x7FE00001200
"""The place where open_store begins."""


@pytest.mark.parametrize(
    ("offset", "code", "sure"),
    [
        (0x18, "41 ff d3", False),
        (0x18, "cc", True),
        (0, "e9 00 00 10 00", True),
        (0, "e9 00 00 10 00 90 90 41 ff d3", True),
        (0x15, "e9 00 00 10 00", False),
    ],
)
def test_a_function_is_compared_with_its_file(
    filed: Filed, offset: int, code: str, sure: bool, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "updater.dmp"
    path.write_bytes(written(filed.dump, STORE_AT + offset, bytes.fromhex(code)))
    for binaries, expected in ([], True), ([str(filed.files)], sure):
        rows = OpenedDump(path).rows(callstacks.CallStacks, binaries=binaries)
        frames = sure_frames(rows, 4316)
        assert frames[1] == ("updater!open_store+0x22", True)
        assert frames[2:] == [
            ("updater!load_settings+0x47", expected),
            ("updater!main+0x31", expected),
            ("KERNEL32!BaseThreadInitThunk+0x14", expected),
            ("ntdll!RtlUserThreadStart+0x21", expected),
        ]


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("name", X64)
def test_a_function_is_compared_with_the_section(name: str, is_clean: bool, tmp_path: pathlib.Path) -> None:
    """Of an image of memory the page of the process is dirty, or clean if Windows wrote it to the page file
    and read it again; the section has the file's bytes."""
    forged = FindingImage(name)
    forged.beside("other.exe", 2000)
    whole = callers(forged, tmp_path)
    assert len(whole) == 2
    assert all(sure for _, sure in whole)
    app = forged.stacks.modules["app"]
    app.write(MAIN.rva + 0x30, b"\xcd\x2e" * 4)
    if is_clean:
        entry = app.space.tables.entry(app.base + MAIN.rva)
        assert entry is not None
        app.space.tables.map(app.base + MAIN.rva, entry >> 12 & (1 << 36) - 1, shared=True)
    assert callers(forged, tmp_path) == [(symbol, number == 0) for number, (symbol, _) in enumerate(whole)]


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("name", X64)
def test_a_packed_program_writes_its_own_code(name: str, is_own: bool, tmp_path: pathlib.Path) -> None:
    """Its headers say so; headers that the process has changed say nothing."""
    forged = FindingImage(name)
    forged.beside("other.exe", 2000)
    whole = callers(forged, tmp_path)
    app = forged.stacks.modules["app"]
    place = app.base + app.space.read(app.base, PAGE).index(b".text\0\0\0") + SECTION_FLAGS
    flags = app.space.read_int(place, 4) | MEM_WRITE
    write = app.space.write if is_own else app.space.write_file
    write(place, flags.to_bytes(4, "little"))
    app.write(MAIN.rva + 0x30, b"\xcd\x2e" * 4)
    assert callers(forged, tmp_path) == [
        (symbol, number == 0 or not is_own) for number, (symbol, _) in enumerate(whole)
    ]


def callers(forged: FindingImage, folder: pathlib.Path) -> List[Frame]:
    """Returns the frames of the thread from the program's own on."""
    opened = context.open_image(forged.image(), folder)
    frames = sure_frames(context.printed(opened.construct(callstacks_of_images.CallStacks)), TID)
    return frames[next(place for place, (symbol, _) in enumerate(frames) if symbol.startswith("stacks")) :]


def test_a_module_is_opened_once_for_all_its_return_addresses(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a real machine has hundreds of them: a reader for each reads the same pages again."""
    opened = context.open_image(sample.build().image(), tmp_path)
    space = only(space for space in AddressSpaces.list_spaces(opened.image) if space.pid == 4312)
    names = Symbolizer(opened.image).for_space(space)
    changed = ChangedCode(opened.image, space, names)
    known_module = names.module_at(STORE_AT)
    assert known_module is not None
    made: List[int] = []
    make = ImageReader.__init__

    def counted(reader: ImageReader, *args: Any, **options: Any) -> None:
        made.append(1)
        make(reader, *args, **options)

    monkeypatch.setattr(ImageReader, "__init__", counted)
    assert not any(changed.replaced(STORE_AT + offset) for offset in range(0x28))
    assert len(made) == 1
