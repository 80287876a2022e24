# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names of addresses in forged images: every form of the column `Symbol`, on x64, x86 and WoW64."""

from __future__ import annotations

import pathlib
from typing import Tuple

import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.support import namedimage
from tests.support.namedimage import GONE_DLL, MAPPED, NOWHERE, OVERLAPPED_DLL, PRIVATE, OpenedSample
from winstacks.columns.words import UNBACKED
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import NOTHING, Status, status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import AddressSpace, Image
from winstacks.names import places
from winstacks.names.ntdll import Ntdlls
from winstacks.names.symbolizer import Name, Symbolizer
from winstacks.process.spaces import AddressSpaces


@pytest.fixture(scope="module", params=["win10-x64", "win7-x64", "xp-x86", "win10-x86"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OpenedSample:
    sample = namedimage.build(request.param)
    opened = context.open_image(sample.kernel.image(), tmp_path_factory.mktemp("image"))
    return namedimage.wrap(sample, opened)


def module(symbol: str, source: str, row_status: Status = NOTHING) -> Name:
    return Name(symbol, source, row_status, "image")


def expect(image: OpenedSample, wide: Tuple[str, str], narrow: Tuple[str, str]) -> Name:
    return module(*(wide if image.sample.wide else narrow))


def test_an_export_names_what_the_function_table_says_it_starts(image: OpenedSample) -> None:
    base = image.sample.modules["driver"].base
    name = image.names(0).name
    assert name(base + 0x1020) == expect(image, ("tcpip!Send+0x20", "export"), ("tcpip!Send+0x20", "nearest"))
    assert name(base + 0x1140) == expect(image, ("tcpip+0x1140", "module"), ("tcpip!Send+0x140", "nearest"))
    assert name(base + 0x2010) == expect(
        image, ("tcpip!Send+0x1010", "export"), ("tcpip!Leaf+0xc10", "nearest")
    )
    assert name(base + 0x1310) == module("tcpip!Ordinal1+0x10", "nearest")
    assert name(base + 0x1410) == module("tcpip!Leaf+0x10", "nearest")
    assert name(base + 0x7010) == module("tcpip+0x7010", "module")


def test_a_name_more_than_a_page_below_looks_different(image: OpenedSample) -> None:
    base = image.sample.modules["driver"].base
    name = image.names(0).name
    assert name(base + 0x2410) == expect(image, ("tcpip+0x2410", "module"), ("tcpip!~Leaf+0x1010", "nearest"))
    far = name(base + 0x2400)
    assert far == expect(image, ("tcpip+0x2400", "module"), ("tcpip!Leaf+0x1000", "nearest"))


def test_a_return_address_belongs_to_what_is_before_it(image: OpenedSample) -> None:
    base = image.sample.modules["driver"].base
    name = image.names(0).name
    after, at = name(base + 0x1200), name(base + 0x1200, return_address=False)
    assert at == expect(image, ("tcpip!Receive", "export"), ("tcpip!Receive", "nearest"))
    assert after.symbol == ("tcpip+0x1200" if image.sample.wide else "tcpip!Send+0x200")
    end = image.sample.modules["driver"].size
    assert name(base + end).symbol == f"tcpip+{end:#x}"
    assert name(base + end, return_address=False).backing == "none"


def test_symbols_of_a_pdb_that_volatility_has(image: OpenedSample) -> None:
    sample = image.sample
    name = image.names(0).name
    assert name(sample.modules["isf"].base + 0x1060) == module("known!Inner+0x20", "pdb")
    assert name(sample.modules["isf"].base + 0x1120) == module("known!Hidden+0x20", "pdb")
    kernel = sample.kernel.symbol("PsLoadedModuleList")
    assert name(kernel, return_address=False) == module("nt!PsLoadedModuleList", "pdb")
    assert image.names(1000).name(sample.modules["kernel32"].base + 0x1060).source == "pdb"


def test_headers_that_are_paged_out(image: OpenedSample) -> None:
    base = image.sample.modules["paged"].base
    assert image.names(0).name(base + 0x1020) == module(
        "paged+0x1020", "module", status(StatusCode.HEADERS_UNREADABLE)
    )


def test_session_space_is_read_through_a_process_of_the_session(image: OpenedSample) -> None:
    base = image.sample.modules["session"].base
    for pid in (0, 1000, 2000):
        assert image.names(pid).name(base + 0x1020).symbol == "win32k!Send+0x20"


def test_hostile_module_names(image: OpenedSample) -> None:
    found = image.names(0).name(image.sample.modules["hostile"].base + 0x1020)
    assert found.symbol == "evil__31m__x_!Send+0x20"


def test_kernel_addresses_in_no_module(image: OpenedSample) -> None:
    """The headers name a driver that the list lacks; without them nothing does. Both are unbacked."""
    base = image.sample.modules["unlisted"].base
    for pid in (0, 1000):
        hidden = image.names(pid).name(base + 0x1020)
        assert (hidden.symbol, hidden.backing) == ("rootkit!Send+0x20", "none")
        assert hidden.status == status(StatusCode.IN_NO_MODULE_LIST)
        assert image.names(pid).name(base - 0x1000) == Name("<no-module>", "none", NOTHING, "none")
    assert "none" in UNBACKED


@pytest.mark.parametrize("offset", [0, 0xFFF, 0x1000])
def test_a_driver_that_the_list_lacks_begins_with_its_headers(offset: int, image: OpenedSample) -> None:
    """Whatever address is asked for first: each time by a symboliser that has found nothing before."""
    base = image.sample.modules["unlisted"].base
    found = Symbolizer(image.opened.image).for_space(image.space(0)).name(base + offset, False)
    assert found.symbol.startswith("rootkit")
    assert found.status == status(StatusCode.IN_NO_MODULE_LIST)


def test_unloaded_drivers(image: OpenedSample) -> None:
    sample = image.sample
    name = image.names(0).name
    assert name(sample.gone + 0x1234) == Name("<unloaded:gone>+0x1234", "unloaded", NOTHING, "unloaded")
    reused = name(sample.modules["reused"].base + 0x1020)
    assert (reused.symbol, reused.status) == (
        "reused!Send+0x20",
        status(StatusCode.OVERLAPS_AN_UNLOADED_MODULE),
    )
    assert name(sample.modules["reused"].base + 0x3020).status == NOTHING
    assert name(sample.modules["again"].base + 0x1020).status == NOTHING


def test_user_addresses_in_a_kernel_trace(image: OpenedSample) -> None:
    names = image.names(0)
    for address in (0x10000, PRIVATE, image.sample.modules["ntdll"].base):
        assert names.name(address) == Name("<user>", "none", NOTHING, "user")


def test_process_memory_that_is_no_module(image: OpenedSample) -> None:
    name = image.names(1000).name
    assert name(PRIVATE + 0x10) == Name("<private>", "none", NOTHING, "private")
    assert name(NOWHERE) == Name("<unmapped>", "none", NOTHING, "unmapped")
    assert name(MAPPED + 0x10) == Name("<mapped:data\\x3b1.bin>+0x10", "none", NOTHING, "mapped")
    hidden = image.sample.modules["hidden"].base
    assert name(hidden + 0x1020) == Name("<mapped:hidden.dll>+0x1020", "none", NOTHING, "mapped")


def test_unloaded_dlls_are_found_by_the_shape_of_ntdlls_ring(image: OpenedSample) -> None:
    name = image.names(1000).name
    assert name(GONE_DLL + 0x20) == Name("<unloaded:plugin>+0x20", "unloaded", NOTHING, "unloaded")
    assert name(OVERLAPPED_DLL + 0x20) == Name(
        "<private>", "none", status(StatusCode.OVERLAPS_AN_UNLOADED_MODULE), "private"
    )
    assert name(OVERLAPPED_DLL + 0x9000) == places.PRIVATE
    assert image.names(2000).name(GONE_DLL + 0x20).backing == "unloaded"


def test_loader_lists_and_vads_that_disagree(image: OpenedSample) -> None:
    name = image.names(1000).name
    expected = {
        "no-vad": ("no VAD", "unmapped"),
        "unlinked": ("partly unlinked", "image"),
        "hollow": ("VAD without file", "private"),
        "renamed": ("VAD of another file", "image"),
        "ntdll": ("", "image"),
    }
    for key, (faults, backing) in expected.items():
        for offset, label in ((0x1020, "!Send+0x20"), (0x11, "+0x11")):
            found = name(image.sample.modules[key].base + offset)
            assert found.symbol.endswith(label), key
            assert (text(found.status), found.backing) == (faults, backing), key


def test_zero_fuzzy_and_what_is_not_canonical(image: OpenedSample) -> None:
    for pid in (0, 1000):
        name = image.names(pid).name
        for return_address in (True, False):
            assert name(0, return_address) == Name("<zero>", "none", NOTHING, "")
            assert name(0xFFFFFFFF, return_address) == Name("<fuzzy>", "none", NOTHING, "")
            odd = Name("<unmapped>", "none", status(StatusCode.NOT_CANONICAL), "unmapped")
            for address in (1 << 47, 0x1234567890ABCDEF, 1 << 63, 0xFFFF7FFFFFFFFFFF):
                assert name(address, return_address) == odd


def test_both_halves_of_a_wow64_process(image: OpenedSample) -> None:
    if not image.sample.wide:
        return
    assert image.names(1000) is image.names(1000, wow64=True)
    name = image.names(1000, wow64=True).name
    modules = image.sample.modules
    assert name(modules["ntdll"].base + 0x1020) == module("ntdll!Send+0x20", "export")
    assert name(modules["ntdll32"].base + 0x1020) == module("ntdll!Send+0x20", "nearest")
    assert name(modules["ntdll32"].base + 0x1140) == module("ntdll!Send+0x140", "nearest")
    assert name(modules["kernel32-32"].base + 0x1060) == module("kernel32!Inner+0x20", "pdb")
    assert name(GONE_DLL + 0x100020).symbol == "<unloaded:plugin32>+0x20"
    found = image.names(1000).modules("NTDLL")
    assert {known.module.base for known in found} == {modules["ntdll"].base, modules["ntdll32"].base}


def test_an_image_has_one_index_for_all_processes(image: OpenedSample) -> None:
    address = image.sample.modules["ntdll"].base + 0x1020
    one, two = image.names(1000).module_at(address), image.names(2000).module_at(address)
    assert one is not None
    assert two is not None
    assert one.image is two.image
    assert one.module.file == "ntdll.dll"
    assert image.names(1000).module_at(PRIVATE) is None


def bare(image: OpenedSample, wow64: bool = False) -> Tuple[Image, AddressSpace]:
    """The process as bytes of which neither the kernel nor an _EPROCESS is known, but the PEB."""
    known = image.space(1000, wow64)
    machine = Machine.AMD64 if image.sample.wide else Machine.I386
    memory = Image.of_layer(image.opened.context, known.layer_name, machine)
    return memory, known._replace(pid=0, eprocess=0)


def test_a_process_of_which_only_the_peb_is_known(image: OpenedSample) -> None:
    memory, space = bare(image)
    names = Symbolizer(memory).for_space(space)
    modules = image.sample.modules
    assert names.name(modules["ntdll"].base + 0x1020) == image.names(1000).name(
        modules["ntdll"].base + 0x1020
    )
    assert names.name(modules["kernel32"].base + 0x1060).symbol == "KERNEL32!Inner+0x20"
    unlinked = names.name(modules["unlinked"].base + 0x1020)
    assert (unlinked.symbol, unlinked.status) == ("unlinked!Send+0x20", status(StatusCode.PARTLY_UNLINKED))
    assert names.name(GONE_DLL + 0x20) == Name("<unloaded:plugin>+0x20", "unloaded", NOTHING, "unloaded")
    for address in (PRIVATE, MAPPED, NOWHERE, modules["hidden"].base + 0x1020):
        assert names.name(address) == places.NO_REGION
    assert names.name(0) == Name("<zero>", "none", NOTHING, "")
    kernel = names.name(image.sample.kernel.symbol("PsLoadedModuleList"))
    assert kernel.backing == "none"
    found = names.module_at(modules["ntdll"].base)
    assert found is not None
    assert (found.module.name, found.module.status) == ("ntdll", NOTHING)
    assert [module.module.base for module in names.modules("ntdll")] == [modules["ntdll"].base]


def test_halves_of_which_only_the_peb_is_known_are_told_apart(image: OpenedSample) -> None:
    if not image.sample.wide:
        return
    memory, native = bare(image)
    narrow = bare(image, wow64=True)[1]
    symbolizer = Symbolizer(memory)
    assert symbolizer.for_space(native) is symbolizer.for_space(native) is not symbolizer.for_space(narrow)
    base = image.sample.modules["ntdll32"].base
    assert symbolizer.for_space(narrow).name(base + 0x1020) == module("ntdll!Send+0x20", "nearest")
    assert symbolizer.for_space(native).name(base + 0x1020) == places.NO_REGION


def test_the_ntdll_of_a_process_of_which_only_the_peb_is_known(image: OpenedSample) -> None:
    memory, space = bare(image)
    found = Ntdlls(memory, Symbolizer(memory).indexes).find_ntdll(space)
    assert found is not None
    assert (found.base, found.space) == (image.sample.modules["ntdll"].base, space)


def test_a_process_of_which_nothing_is_known(image: OpenedSample) -> None:
    memory, space = bare(image)
    symbolizer = Symbolizer(memory)
    names = symbolizer.for_space(space._replace(peb=0))
    assert names.name(image.sample.modules["ntdll"].base + 0x1020) == places.NO_REGION_UNLISTED
    assert Ntdlls(memory, symbolizer.indexes).find_ntdll(space._replace(peb=0)) is None
    assert symbolizer.for_space(memory.kernel).name(PRIVATE).backing == "user"


@pytest.mark.parametrize("kernel_name", ["win10-x64", "win10-x86"])
@pytest.mark.parametrize("evil_first", [True, False])
def test_exports_that_one_process_changed_rename_nothing_elsewhere(
    tmp_path: pathlib.Path, kernel_name: str, evil_first: bool
) -> None:
    known = kernels.load(kernel_name)
    kernel = Kernel(known.table, **known.options())
    clean = namedimage.spec(kernel.bits == 64)
    base = 0x60000000
    for pid in (1000, 2000, 3000, 4000):
        process = kernel.process(f"{pid}.exe", pid=pid)
        process.module(f"{pid}.exe", dll=False)
        changed = dict(clean, exports={**namedimage.EXPORTS, "Evil": 0x1000})
        del changed["exports"]["Send"]
        process.module("ntdll.dll", base, **(changed if pid == 2000 else clean))
    opened = context.open_image(kernel.image(), tmp_path)
    image = opened.image
    symbolizer = Symbolizer(image)
    spaces = {space.pid: space for space in AddressSpaces.list_spaces(image)}
    order = [2000, 1000, 3000, 4000] if evil_first else [1000, 2000, 3000, 4000]
    found = {pid: symbolizer.for_space(spaces[pid]).name(base + 0x1020) for pid in order}
    assert {pid: name.symbol for pid, name in found.items()} == {
        pid: "ntdll!Evil+0x20" if pid == 2000 else "ntdll!Send+0x20" for pid in order
    }
    items = {pid for pid, name in found.items() if name.status}
    assert {found[pid].status for pid in items} == {status(StatusCode.EXPORTS_DIFFER_FROM_THE_SECTION)}
    assert items == {2000}


def test_a_function_table_that_one_process_changed_is_its_own(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    base = 0x60000000
    for pid in (1000, 2000):
        process = kernel.process(f"{pid}.exe", pid=pid)
        process.module(f"{pid}.exe", dll=False)
        ntdll = process.module("ntdll.dll", base, **namedimage.spec(True))
        if pid == 1000:
            process.space.write_int(base + ntdll.pe.pdata_rva + 4, 0x1180, 4)
    opened = context.open_image(kernel.image(), tmp_path)
    image = opened.image
    symbolizer = Symbolizer(image)
    spaces = {space.pid: space for space in AddressSpaces.list_spaces(image)}
    for pid in (1000, 2000):
        assert symbolizer.for_space(spaces[pid]).name(base + 0x1020).symbol == "ntdll!Send+0x20"
    assert symbolizer.for_space(spaces[2000]).name(base + 0x1140) == module("ntdll+0x1140", "module")
    name = symbolizer.for_space(spaces[1000]).name(base + 0x1140)
    row_status = status(StatusCode.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION)
    assert (name.symbol, name.status) == ("ntdll+0x1140", row_status)
