# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names of addresses in ROM areas: option ROMs run there without a module, on clean machines, too."""

from __future__ import annotations

import pathlib
from typing import List

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.support.only import rows_of
from winstacks.columns.words import UNBACKED
from winstacks.memory.decode.status import NOTHING, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.symbolizer import Name, Symbolizer

PAGES = {"xp-x86": 0x800BF000, "win10-x86": 0x800BF000, "win10-x64": 0xFFFFF780AAABF000}
"""Where the kernel maps BFFFFh and what follows, physical addresses, in 2 MB that have no other pages."""

NO_MODULE = Name("<no-module>", "none", NOTHING, "none")
ROM = Name("<rom>", "none", NOTHING, "none")


def forged(name: str) -> Kernel:
    known = kernels.load(name)
    return Kernel(known.table, **known.options())


def named(kernel: Kernel, folder: pathlib.Path, *addresses: int) -> List[Name]:
    image = context.open_image(kernel.image(), folder).image
    names = Symbolizer(image).for_space(image.kernel)
    return [names.name(address, return_address=False) for address in addresses]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", PAGES)
def test_a_kernel_address_that_is_mapped_to_a_rom_area(
    name: str, there: bool, tmp_path: pathlib.Path
) -> None:
    """Tools that make images leave these pages out as a rule: the page tables tell, whatever is there."""
    kernel, page = forged(name), PAGES[name]
    for frame in (0xBF, 0xC0, 0xCA, 0xFF, 0x100):
        if there and frame != 0x100:
            kernel.phys.allocate_at(frame)
        kernel.space.tables.map(page + 0x1000 * (frame - 0xBF), frame)
    start = page - 0xBF000
    below, first, used, last, above, unmapped = rows_of(
        6,
        named(
            kernel,
            tmp_path,
            *(start + number for number in (0xBFFFF, 0xC0000, 0xCA21D, 0xFFFFF, 0x100000, 0xD0000)),
        ),
    )
    assert [first, used, last] == [ROM] * 3
    assert [below, above, unmapped] == [NO_MODULE] * 3
    assert ROM.backing in UNBACKED


def test_a_large_page_that_holds_a_rom_area(tmp_path: pathlib.Path) -> None:
    kernel = forged("win10-x64")
    start = PAGES["win10-x64"] - 0xBF000 + 0x200000
    kernel.space.tables.map(start, 0, State.LARGE)
    assert named(kernel, tmp_path, start + 0xBFFFF, start + 0xCA21D, start + 0x100000) == [
        NO_MODULE,
        ROM,
        NO_MODULE,
    ]


def test_a_broken_list_of_modules_takes_nothing_from_it(tmp_path: pathlib.Path) -> None:
    kernel, page = forged("xp-x86"), PAGES["xp-x86"]
    kernel.module("tcpip.sys")
    kernel.space.tables.map(page + 0xB000, 0xCA)
    image = kernel.image()
    kernel.space.write_int(kernel.symbol("PsLoadedModuleList"), 0, 4)
    names = Symbolizer(context.open_image(image, tmp_path).image)
    found = names.for_space(names.image.kernel).name(page + 0xB21D)
    assert found == ROM
    damaged = names.for_space(names.image.kernel).name(page + 0x100000)
    assert damaged == NO_MODULE._replace(status=status(StatusCode.MODULE_LIST_INCOMPLETE))
