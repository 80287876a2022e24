# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The heap's trace log where ntdll puts it, found without symbols: by its pointer, and without any."""

from __future__ import annotations

import pathlib
from typing import List, Optional, Tuple

import pytest

from tests.forge import context, real_sets
from tests.forge.heaplog import HeapLog
from tests.support import realtruth, stddata
from tests.support.heapimage import PID, HeapImage
from tests.support.only import only
from winstacks.columns.words import BY_SEARCH, HEAPLOG, STD
from winstacks.memory.image import AddressSpace, Image
from winstacks.names.moduleindex import ModuleIndexes
from winstacks.names.ntdll import Ntdll, Ntdlls
from winstacks.names.pdbsymbols import PdbSymbols
from winstacks.process.spaces import AddressSpaces
from winstacks.tracedb.finder import Databases

PLACES = {"x86": 0x1CE002C, "x64": 0x1CE0070}
"""Where 16299 (x86), 7601 and 19044 (x64) have it in its range of private memory."""


def logs(image: Image) -> List[Tuple[str, int, str]]:
    """Bitness, address and how it was found, of each log of the process."""
    finder = Databases(image, ModuleIndexes(image, PdbSymbols(image)))
    found = [
        database
        for space in AddressSpaces.list_spaces(image, [PID])
        for database in finder.find_databases(space)
    ]
    return [(entry.space.arch, entry.address, entry.located_by) for entry in found if entry.kind == HEAPLOG]


@pytest.mark.parametrize("pointer", [True, False], ids=["pointer", "no pointer"])
@pytest.mark.parametrize(
    ("kernel", "wow64"), [("win10-x86", False), ("win10-x64", True), ("win10-x64", False)]
)
def test_a_log_is_found(kernel: str, wow64: bool, pointer: bool, tmp_path: pathlib.Path) -> None:
    image = HeapImage(kernel, wow64)
    image.log = HeapLog(image.arch, PLACES[image.arch], zone=0x1D00040, lookaside=0x1CC0020)
    image.record(1)
    image.used["log"] = pointer
    if not pointer:
        image.put(image.log.regions().items())
    opened = context.open_image(image.image(), tmp_path).image
    assert logs(opened) == [(image.arch, PLACES[image.arch], BY_SEARCH)]


@pytest.mark.shared
@pytest.mark.parametrize("kernel", ["win10-x86", "win10-x64"])
def test_the_log_of_a_real_32_bit_ntdll_is_found(
    kernel: str, shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    real = real_sets.load(shared_dir / "real_std" / "16299.15-x86-heap.tar.xz")
    opened = context.open_image(realtruth.image_of(real, kernel, False), tmp_path).image
    assert logs(opened) == [("x86", stddata.log_address(real), BY_SEARCH)]


def test_a_space_is_searched_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = HeapImage("win10-x64", False)
    image.log = HeapLog(image.arch, PLACES[image.arch], zone=0x1D00040, lookaside=0x1CC0020)
    image.record(1)
    searched: List[int] = []
    find = Ntdlls.find_ntdll

    def counted(ntdlls: Ntdlls, space: AddressSpace) -> Optional[Ntdll]:
        searched.append(space.eprocess)
        return find(ntdlls, space)

    monkeypatch.setattr(Ntdlls, "find_ntdll", counted)
    opened = context.open_image(image.image(), tmp_path).image
    finder = Databases(opened, ModuleIndexes(opened, PdbSymbols(opened)))
    space = only(AddressSpaces.list_spaces(opened, [PID]))
    for _ in range(2):
        assert only(finder.find_databases(space, HEAPLOG)).kind == HEAPLOG
        assert not finder.find_databases(space, STD)
        assert finder.search(space, carve=True).databases == finder.find_databases(space)
    assert searched == [space.eprocess]
