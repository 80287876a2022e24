# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The code at an address as pages show it: unknown is None, and never 0."""

from __future__ import annotations

import logging
import pathlib
from array import array
from typing import Callable, NamedTuple, Optional

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.process import Process
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.memory.decode.ranges import span_at
from winstacks.memory.image import AddressSpace
from winstacks.process import presentcode
from winstacks.process.presentcode import PresentCode
from winstacks.process.regions import Region
from winstacks.process.sections import UNREAD, ImageSections
from winstacks.process.spaces import AddressSpaces
from winstacks.process.vads import regions

BASE, CODE, PRIVATE = 0x60000000, 0x1000, 0x7000000
EXECUTE_READWRITE = 6
TEXT = bytes(range(1, 65))


class Forged(NamedTuple):
    """A process with a DLL whose pages are the section's, and with private memory of three pages."""

    kernel: Kernel
    process: Process
    dll: Module

    def read(self, folder: pathlib.Path) -> Read:
        folder.mkdir(exist_ok=True)
        opened = context.open_image(self.kernel.image(), folder)
        space = next(item for item in AddressSpaces.list_spaces(opened.image) if item.pid == 1000)
        listed = opened.image.service(regions).list_regions(space)[0]
        return Read(opened.image.service(PresentCode), space, lambda address: span_at(listed, address))


class Read(NamedTuple):
    """The forged process, as it is read."""

    pages: PresentCode
    space: AddressSpace
    region: Callable[[int], Optional[Region]]

    def private(self, address: int) -> Optional[int]:
        return self.pages.private_bytes(self.space, self.region(address))

    def protection(self, address: int) -> Optional[str]:
        return self.pages.protection(self.space, self.region(address), address)


def forge(name: str = "win10-x64") -> Forged:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("app.exe", pid=1000)
    process.module("app.exe", dll=False)
    dll = process.module("ntdll.dll", BASE, exports={"Function": CODE}, contents={CODE: TEXT})
    process.region(PRIVATE, TEXT, size=3 * PAGE_SIZE, protection=EXECUTE_READWRITE)
    return Forged(kernel, process, dll)


def test_only_pages_of_the_process_count(tmp_path: pathlib.Path) -> None:
    before = forge().read(tmp_path / "before").private(BASE)
    assert before is not None
    changed = forge()
    changed.process.space.write(BASE + CODE, b"\xcc")
    assert changed.read(tmp_path / "after").private(BASE) == before + PAGE_SIZE


def test_pages_of_private_memory_count_if_they_were_touched(tmp_path: pathlib.Path) -> None:
    forged = forge()
    forged.process.space.set_state(PRIVATE + PAGE_SIZE, PAGE_SIZE, State.ABSENT)
    assert forged.read(tmp_path).private(PRIVATE) == 2 * PAGE_SIZE


def test_a_page_whose_section_has_none_in_memory_is_the_processes(tmp_path: pathlib.Path) -> None:
    before = forge().read(tmp_path / "before").private(BASE)
    assert before is not None
    forged = forge()
    assert forged.dll.section is not None
    forged.dll.section.set_state(CODE, PAGE_SIZE, State.PAGEFILE)
    assert forged.read(tmp_path / "after").private(BASE) == before + PAGE_SIZE


def test_without_the_entries_of_the_section_the_number_is_unknown(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageSections, "targets", lambda self, key: array("Q", [UNREAD]) * key[1])
    read = forge().read(tmp_path)
    assert read.private(BASE) is None and read.private(PRIVATE) == 3 * PAGE_SIZE


def test_pages_that_were_combined_with_equal_ones_make_the_number_unknown(tmp_path: pathlib.Path) -> None:
    forged = forge()
    forged.process.space.set_state(PRIVATE, PAGE_SIZE, State.PROTOTYPE)
    assert forged.read(tmp_path).private(PRIVATE) is None


def test_pages_without_a_bit_that_forbids_execution_are_unknown(tmp_path: pathlib.Path) -> None:
    read = forge("xp-x86").read(tmp_path)
    assert read.pages._image.machine.pointer_size == 4
    wide = read.private(PRIVATE) is not None
    assert wide == (read.protection(PRIVATE) is not None)


def test_who_has_no_region_has_no_number(tmp_path: pathlib.Path) -> None:
    read = forge().read(tmp_path)
    assert read.pages.private_bytes(read.space, None) is None
    assert read.protection(0x1000) is None


def test_protection_is_that_of_the_page_now(tmp_path: pathlib.Path) -> None:
    forged = forge()
    forged.process.space.set_state(PRIVATE + PAGE_SIZE, PAGE_SIZE, State.PAGEFILE)
    read = forged.read(tmp_path)
    assert read.protection(PRIVATE) == "PAGE_EXECUTE_READWRITE"
    assert read.protection(PRIVATE + PAGE_SIZE) is None
    assert read.protection(BASE + CODE) == "PAGE_EXECUTE_READ"
    region = read.region(BASE + CODE)
    assert region is not None and region.protection_name == "PAGE_EXECUTE_WRITECOPY"


def test_bytes_end_where_memory_ends(tmp_path: pathlib.Path) -> None:
    read = forge().read(tmp_path)
    assert read.pages.around(read.space, PRIVATE + 32) == (TEXT[:32].hex(), TEXT[32:].hex())
    assert read.pages.around(read.space, PRIVATE + 4) == (TEXT[:4].hex(), TEXT[4:36].hex())
    assert read.pages.around(read.space, PRIVATE) == (None, TEXT[:32].hex())
    assert read.pages.around(read.space, PRIVATE + 3 * PAGE_SIZE - 4) == (bytes(32).hex(), bytes(4).hex())
    assert read.pages.around(read.space, PRIVATE + 3 * PAGE_SIZE) == (bytes(32).hex(), None)
    assert read.pages.around(read.space._replace(layer_name=""), PRIVATE) == (None, None)


def test_there_is_an_end_to_the_pages_that_are_counted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hostile image maps the same few page tables everywhere."""
    read = forge().read(tmp_path)
    monkeypatch.setattr(presentcode, "MOST_PAGES", 0)
    with caplog.at_level(logging.WARNING):
        assert read.private(PRIVATE) == 3 * PAGE_SIZE
        assert read.private(BASE) is None and read.private(BASE) is None
    assert len([record for record in caplog.records if "Too many pages" in record.getMessage()]) == 1
    assert read.private(PRIVATE) == 3 * PAGE_SIZE
