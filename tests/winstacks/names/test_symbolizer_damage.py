# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names where the image is damaged: lists, trees and tables that are paged out, broken or untrue."""

from __future__ import annotations

import pathlib
import struct
from typing import Dict, List, Optional, Tuple

import pytest

from tests.forge import context, kernels
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.process import Process
from tests.forge.unloaded import UnloadedDll, unload_trace
from tests.forge.vad import Vad
from tests.support.namedimage import GONE_DLL, NOWHERE, PRIVATE, spec
from tests.support.only import only
from winstacks.memory.decode.status import NOTHING, StatusItem, status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names import kernelmodules, places
from winstacks.names import symbolizer as symbolizer_module
from winstacks.names.kernelmodules import KernelModules
from winstacks.names.symbolizer import AddressNamer, Symbolizer
from winstacks.process.spaces import AddressSpaces
from winstacks.tracedb.finder import Databases


@pytest.fixture(params=["win10-x64", "xp-x86"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    known = kernels.load(request.param)
    return Kernel(known.table, **known.options())


def wide(kernel: Kernel) -> bool:
    return kernel.bits == 64


def app(kernel: Kernel, **options: object) -> "tuple[Process, Module]":
    process = kernel.process("app.exe", pid=1000)
    process.module("app.exe", dll=False)
    return process, process.module("ntdll.dll", **spec(wide(kernel), **options))


def names(image: Image, folder: pathlib.Path, pid: int) -> AddressNamer:
    opened = context.open_image(image, folder)
    memory = opened.image
    return Symbolizer(memory).for_space(next(AddressSpaces.list_spaces(memory, [pid])))


def unname_file(kernel: Kernel, process: Process, start: int) -> None:
    """Makes the section at an address one that the page file backs."""
    node = next(vad.node for vad in process.vads if vad.start == start)
    assert node is not None
    area = node["ControlArea"] if node.has("ControlArea") else node["Subsection"]
    if not node.has("ControlArea"):
        area = kernel.obj("_SUBSECTION", area)["ControlArea"]
    kernel.obj("_CONTROL_AREA", area)["FilePointer"] = 0


def test_an_unreadable_loader_list_leaves_what_the_vads_know(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, ntdll = app(kernel)
    process.region(PRIVATE, size=0x1000)
    image = kernel.image()
    assert process.peb is not None
    process.space.set_state(process.peb.address, 1, State.PAGEFILE)
    found = names(image, tmp_path, 1000)
    name = found.name(ntdll.base + 0x1020)
    assert (name.symbol, text(name.status)) == ("ntdll!Send+0x20", "no loader list")
    assert found.name(PRIVATE + 1) == places.PRIVATE


def test_a_loader_list_that_breaks_off_is_followed_from_its_end(
    kernel: Kernel, tmp_path: pathlib.Path
) -> None:
    process, ntdll = app(kernel)
    last = process.module("last.dll", **spec(wide(kernel)))
    process.module("hidden.dll", listed=False, **spec(wide(kernel)))
    image = kernel.image()
    assert ntdll.entry is not None
    process.space.write_int(ntdll.entry.at("InLoadOrderLinks"), 0xDEAD0000)
    found = names(image, tmp_path, 1000)
    for module in (ntdll, last):
        assert found.name(module.base + 0x1020).status == NOTHING
    assert found.name(process.modules[-1].base + 0x1020).status == status(StatusCode.NO_LOADER_LIST)


def test_a_loader_list_that_bites_its_tail(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, ntdll = app(kernel)
    image = kernel.image()
    assert ntdll.entry is not None
    for links in ("InLoadOrderLinks", "InMemoryOrderLinks"):
        process.space.write_int(ntdll.entry.at(links), ntdll.entry.at(links))
    assert names(image, tmp_path, 1000).name(ntdll.base + 0x1020).symbol == "ntdll!Send+0x20"


def test_vads_that_are_paged_out_make_unmapped_unsure(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, _ = app(kernel)
    image = kernel.image()
    node = process.vads[-1].node
    assert node is not None
    tree = [vad.node.address for vad in process.vads if vad.node is not None]
    assert len(tree) > 2
    kernel.space.write_int(node.address - (0xC if wide(kernel) else 4), 0x6C697645, 4)  # its pool tag
    assert names(image, tmp_path, 1000).name(NOWHERE) == places.VADS_INCOMPLETE


def test_a_vad_tree_with_a_cycle(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, ntdll = app(kernel)
    image = kernel.image()
    nodes = [vad.node for vad in process.vads if vad.node is not None]
    for node in nodes:
        for names_of in (("Core.VadNode.Left", "VadNode.Left", "LeftChild"),):
            node.first(names_of, nodes[0].address)
    assert names(image, tmp_path, 1000).name(ntdll.base + 0x1020).symbol == "ntdll!Send+0x20"


def test_a_process_that_has_exited(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    kernel.process("dead.exe", pid=1000, exited=True)
    found = names(kernel.image(), tmp_path, 1000)
    assert found.name(PRIVATE).backing == "unmapped"
    assert found.name(kernel.base + 0x1000).symbol.startswith("nt")


def test_a_process_without_page_tables(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, ntdll = app(kernel)
    process.region(PRIVATE, size=0x1000)
    opened = context.open_image(kernel.image(), tmp_path)
    memory = opened.image
    symbolizer = Symbolizer(memory)
    space = next(AddressSpaces.list_spaces(memory, [1000]))
    blind = space._replace(layer_name="", status=status(StatusCode.PAGE_TABLES_UNREADABLE))
    spans, _ = symbolizer._map.process([blind])
    at = {start: place.name(start + 0x20, start + 0x1F) for start, _, place in spans}
    assert at[ntdll.base].symbol == "ntdll+0x20"
    assert text(at[ntdll.base].status) == "no loader list, page tables unreadable"
    assert at[PRIVATE] == places.PRIVATE


BY_HEADERS = ("tcpip!Send+0x20", status(StatusCode.MODULE_LIST_INCOMPLETE, StatusCode.IN_NO_MODULE_LIST))
"""Symbol and status of a driver that a broken list lost."""


def test_the_kernel_is_nt_even_if_its_list_is_gone(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    driver = kernel.module("tcpip.sys", **spec(wide(kernel)))
    image = kernel.image()
    head = kernel.symbol("PsLoadedModuleList")
    kernel.space.write_int(head, 0)
    kernel.space.write_int(head + kernel.bits // 8, 0)
    found = names(image, tmp_path, 0)
    name = found.name(head, return_address=False)
    assert (name.symbol, text(name.status)) == ("nt!PsLoadedModuleList", "not in the module list")
    assert found.name(driver.base + 0x1020)[::2] == BY_HEADERS
    assert found.name(driver.base - 0x1000) == places.LIST_INCOMPLETE


def test_parts_of_a_module_that_are_paged_out(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    exports = {f"Function{number:03}": 0x1000 + 0x10 * number for number in range(200)}
    options = {**spec(wide(kernel), exports=exports, rdata=0x4000)}
    lost = kernel.module("lost.sys", **options, exports_rva=0x6000)
    partly = kernel.module("partly.sys", **options)
    kernel.space.set_state(lost.base + 0x6000, 0x2000, State.PAGEFILE)
    kernel.space.set_state(partly.base + 0x6000, 0x1000, State.PAGEFILE)
    found = names(kernel.image(), tmp_path, 0)
    assert found.name(lost.base + 0x1024) == places.Name(
        "lost+0x1024", "module", status(StatusCode.EXPORTS_UNREADABLE), "image"
    )
    assert found.name(partly.base + 0x1004).status == status(StatusCode.EXPORTS_INCOMPLETE)


def test_without_its_function_table_an_x64_export_is_only_nearest(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    driver = kernel.module("tcpip.sys", **spec(True))
    rva = driver.pe.pdata_rva
    kernel.space.set_state(driver.base + rva, 0x1000, State.PAGEFILE)
    name = names(kernel.image(), tmp_path, 0).name(driver.base + 0x1120)
    row_status = status(StatusCode.FUNCTION_TABLE_UNREADABLE)
    assert name == places.Name("tcpip!Send+0x120", "nearest", row_status, "image")


def test_unload_events_by_symbols(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    old = kernel.bits == 32
    process = kernel.process("app.exe", pid=1000)
    dlls = [UnloadedDll(f"lib{number}.dll", GONE_DLL + number * 0x10000, 0x4000) for number in range(3)]
    more = [UnloadedDll(f"lib{number}.dll", GONE_DLL + number * 0x10000, 0x4000) for number in range(30)]
    ring = bytearray(unload_trace(dlls, kernel.bits, old=old))
    struct.pack_into("<I", ring, len(ring) // 16, 1)  # a damaged second element: no shape to find
    symbols = {"RtlpUnloadEventTrace": 0x7340}
    contents = {0x7340: bytes(ring)}
    if not old:
        process.region(PRIVATE, unload_trace(more, kernel.bits, slots=64))
        symbols["RtlpUnloadEventTraceEx"] = 0x7100
        contents[0x7100] = struct.pack("<Q", PRIVATE)
    process.module("app.exe", dll=False)
    process.module("ntdll.dll", symbols=symbols, contents=contents)
    found = names(kernel.image(), tmp_path, 1000)
    assert found.name(GONE_DLL + 0x20).symbol == "<unloaded:lib0>+0x20"
    assert found.name(GONE_DLL + 0x20020).symbol == "<unloaded:lib2>+0x20"
    assert found.name(GONE_DLL + 0x1D0020).backing == ("unmapped" if old else "unloaded")


def test_unloaded_drivers_that_cannot_be_believed(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    base = 0xFFFFF80360000000 if wide(kernel) else 0x8F000000
    kernel.unloaded("user.sys", 0x10000, 0x20000)
    kernel.unloaded("endless.sys", base, (1 << kernel.bits) - 1)
    kernel.unloaded("backward.sys", base + 0x10000, base)
    kernel.unloaded("good.sys", base + 0x20000, base + 0x30000)
    found = names(kernel.image(), tmp_path, 0)
    assert found.name(0x10010).backing == "user"
    assert found.name(base + 0x5000).backing == "none"
    assert found.name(base + 0x20010).symbol == "<unloaded:good>+0x10"


def test_with_3gb_the_kernel_has_less(tmp_path: pathlib.Path) -> None:
    known = kernels.load("xp-x86")
    kernel = Kernel(known.table, **dict(known.options(), highest_user=0xBFFEFFFF))
    if "MmSystemRangeStart" not in known.table.symbols:
        pytest.skip("this kernel's table does not have the symbol")
    found = names(kernel.image(), tmp_path, 0)
    assert found.name(0xB0000000).backing == "user"
    assert found.name(0xC8000000).backing == "none"


@pytest.mark.parametrize(
    ("symbol", "value"),
    [
        ("MmSystemRangeStart", 0x7FFFFFFF),
        ("MmSystemRangeStart", 0x80000001),
        ("MmSystemRangeStart", 0xFFFFF000),
        ("MmHighestUserAddress", 0),
    ],
)
def test_where_the_kernel_begins_has_two_sources(
    symbol: str, value: int, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = kernels.load("xp-x86")
    kernel = Kernel(known.table, **known.options())
    kernel.set(symbol, value, 4)
    found = names(kernel.image(), tmp_path, 0)
    assert found.name(0x7FFD0000).backing == "user"
    assert found.name(kernel.base + 0x1000).backing == "image"
    assert f"contradicted: MmSystemRangeStart {value if 'Start' in symbol else 0x80000000:#x}" in caplog.text


def test_modules_of_a_list_are_read_through_the_layer_that_maps_them(
    kernel: Kernel, tmp_path: pathlib.Path
) -> None:
    driver = kernel.module("tcpip.sys", **spec(wide(kernel)))
    win32k = kernel.module("win32k.sys", session=kernel.session(1), **spec(wide(kernel)))
    kernel.process("csrss.exe", pid=500, session=1)
    opened = context.open_image(kernel.image(), tmp_path)
    modules = KernelModules(opened.image)
    listed, whole = modules.list_modules(1 << 31)
    assert whole
    layers = {module.base: modules.layer_of(module) for module in listed}
    assert layers[driver.base] == opened.layer.name
    assert layers[win32k.base] != opened.layer.name


def test_modules_that_overlap_say_so(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, ntdll = app(kernel)
    process.module("evil.dll", ntdll.base + 0x1000, vad=False, **spec(wide(kernel)))
    driver = kernel.module("tcpip.sys", **spec(wide(kernel)))
    kernel.module("evil.sys", driver.base + 0x2000, **spec(wide(kernel)))
    found = names(kernel.image(), tmp_path, 1000)
    for address in (ntdll.base + 0x20, driver.base + 0x20):
        assert found.name(address).status == status(StatusCode.OVERLAPS_ANOTHER_MODULE)


def test_only_the_names_of_the_last_processes_are_kept(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbolizer_module, "MAX_KEPT", 200)
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    for number in range(60):
        kernel.process("app.exe", pid=1000 + 4 * number)
    opened = context.open_image(kernel.image(), tmp_path)
    memory = opened.image
    symbolizer = Symbolizer(memory)
    spaces = list(AddressSpaces.list_spaces(memory))
    first = symbolizer.for_space(spaces[0])
    for space in spaces:
        symbolizer.for_space(space).name(0x1000)
        assert symbolizer.for_space(space) is symbolizer.for_space(space)
    assert 1 < len(symbolizer._names) < 60
    *before, _ = map(len, symbolizer._names.values())
    assert sum(before) <= 200
    assert symbolizer.for_space(spaces[0]) is first


def test_a_vad_that_is_paged_out(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, ntdll = app(kernel)
    image = kernel.image()
    nodes = [vad.node for vad in process.vads if vad.node is not None]
    unreadable = kernel.space.reserve(0x1000)
    for node in nodes[1:]:
        node.first(("Core.VadNode.Left", "VadNode.Left", "LeftChild"), unreadable + 0x20)
    found = names(image, tmp_path, 1000)
    assert found.name(ntdll.base + 0x1020).symbol == "ntdll!Send+0x20"
    assert found.name(NOWHERE) == places.VADS_INCOMPLETE


def test_a_process_whose_vad_root_is_gone(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    """It has a PEB, so it has VADs: its root is contradicted, and none of its modules is accused of it."""
    process, ntdll = app(kernel)
    image = kernel.image()
    roots = ("VadRoot.Root", "VadRoot.BalancedRoot.RightChild", "VadRoot")
    process.eprocess.first(roots, 0)
    opened = context.open_image(image, tmp_path)
    space = next(AddressSpaces.list_spaces(opened.image, [1000]))
    assert space.remark == status(StatusItem(StatusCode.CONTRADICTED, members=("VadRoot",)))
    found = Symbolizer(opened.image).for_space(space)
    source = "export" if wide(kernel) else "nearest"
    assert found.name(ntdll.base + 0x1020) == places.Name("ntdll!Send+0x20", source, NOTHING, "image")
    assert found.name(NOWHERE) == places.VADS_INCOMPLETE


def test_a_kernel_without_a_record_of_unloaded_drivers(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64").variant("silent", drop=["MmUnloadedDrivers"])
    kernel = Kernel(known.table, **known.options())
    assert names(kernel.image(), tmp_path, 0).name(0xFFFFF80360001234) == places.NO_MODULE


def test_a_mapped_file_whose_name_is_paged_out(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, _ = app(kernel)
    process.region(PRIVATE, size=0x1000, file="\\a.bin")
    image = kernel.image()
    kernel.file("\\a.bin")["FileName.Buffer"] = kernel.space.reserve(0x1000)
    assert names(image, tmp_path, 1000).name(PRIVATE + 8) == places.Name(
        "<mapped:unknown>+0x8", "none", status(StatusCode.FILE_NAME_UNREADABLE), "mapped"
    )


def test_a_section_that_no_file_backs_is_private(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, _ = app(kernel)
    process.region(PRIVATE, size=0x1000, file="\\a.bin")
    image = kernel.image()
    unname_file(kernel, process, PRIVATE)
    assert names(image, tmp_path, 1000).name(PRIVATE + 8) == places.PRIVATE


def test_a_listed_module_reaches_no_further_than_its_vad(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    process, ntdll = app(kernel)
    behind = ntdll.base + ntdll.size
    process.region(behind, size=0x1000)
    image = kernel.image()
    assert ntdll.entry is not None
    ntdll.entry["SizeOfImage"] = ntdll.size + 0x1000
    found = names(image, tmp_path, 1000)
    assert found.name(behind + 0x10) == places.PRIVATE
    assert found.name(ntdll.base + 0x1020).symbol == "ntdll!Send+0x20"


@pytest.mark.parametrize("image_vad", [True, False])
def test_a_module_that_its_vad_cuts_says_so(kernel: Kernel, tmp_path: pathlib.Path, image_vad: bool) -> None:
    """Whatever kind of VAD it is: here one of the image, and one of other memory that begins before it."""
    process, ntdll = app(kernel)
    if not image_vad:
        process.vads = [vad for vad in process.vads if vad.start != ntdll.base]
        process.vads.append(Vad(ntdll.base - 0x10000, ntdll.size + 0x10000))
    image = kernel.image()
    assert ntdll.entry is not None
    ntdll.entry["SizeOfImage"] = ntdll.size + 0x1000
    name = names(image, tmp_path, 1000).name(ntdll.base + 0x1020)
    assert name.symbol == "ntdll!Send+0x20"
    assert "contradicted: SizeOfImage" in text(name.status)


@pytest.mark.parametrize(
    ("image_vad", "expected"),
    [(False, ("VAD without file", "private")), (True, ("image without file name", "image"))],
)
def test_a_section_that_no_file_backs_is_private_even_if_it_is_listed(
    kernel: Kernel, tmp_path: pathlib.Path, image_vad: bool, expected: Tuple[str, str]
) -> None:
    """Only files have images: there the name was lost, or taken away for all processes at once."""
    process, ntdll = app(kernel)
    next(vad for vad in process.vads if vad.start == ntdll.base).image = image_vad
    image = kernel.image()
    unname_file(kernel, process, ntdll.base)
    name = names(image, tmp_path, 1000).name(ntdll.base + 0x1020)
    assert (name.symbol, text(name.status), name.backing) == ("ntdll!Send+0x20", *expected)


@pytest.mark.parametrize("change", [{"SizeOfImage": 0x80000001}, {"DllBase": 0xFFFF8000}])
def test_a_loader_entry_that_no_module_can_have(
    kernel: Kernel, tmp_path: pathlib.Path, change: Dict[str, int]
) -> None:
    process, ntdll = app(kernel)
    odd = process.module("odd.dll", **spec(wide(kernel)))
    image = kernel.image()
    assert odd.entry is not None
    for member, value in change.items():
        odd.entry[member] = value | (0x7FFF << 32 if wide(kernel) and member == "DllBase" else 0)
    found = names(image, tmp_path, 1000)
    name = found.name(odd.base + 0x1020)
    assert (name.symbol, text(name.status)) == ("odd!Send+0x20", "no loader list")
    assert found.name(ntdll.base + 0x1020).status == NOTHING


@pytest.mark.parametrize("change", [{"SizeOfImage": 0x80000001}, {"DllBase": 0x10000}])
def test_an_entry_of_the_kernels_list_that_no_module_can_have(
    kernel: Kernel, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, change: Dict[str, int]
) -> None:
    driver = kernel.module("tcpip.sys", **spec(wide(kernel)))
    image = kernel.image()
    assert driver.entry is not None
    for member, value in change.items():
        driver.entry[member] = value
    found = names(image, tmp_path, 0)
    assert found.name(driver.base + 0x1020)[::2] == BY_HEADERS
    assert found.name(driver.base - 0x1000) == places.LIST_INCOMPLETE
    assert "The kernel's list of modules is broken" in caplog.text


@pytest.mark.parametrize("limit", [100, kernelmodules.MAX_PROBES])
def test_entry_points_outside_their_modules_cost_no_more_than_is_allowed(
    limit: int, kernel: Kernel, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor more than the image has pages, however small it is."""
    drivers = [kernel.module(f"driver{number}.sys", **spec(wide(kernel))) for number in range(4)]
    image = kernel.image()
    for driver in drivers:
        assert driver.entry is not None
        driver.entry["SizeOfImage"] = 0x7FFFF000
        driver.entry["EntryPoint"] = driver.base - 0x1000
    probes: List[int] = []
    size_at = KernelModules._size_at

    def counted(self: KernelModules, base: int) -> Optional[int]:
        probes.append(base)
        return size_at(self, base)

    monkeypatch.setattr(kernelmodules, "MAX_PROBES", limit)
    monkeypatch.setattr(KernelModules, "_size_at", counted)
    found = names(image, tmp_path, 0)
    assert text(found.name(drivers[0].base + 0x1020).status)
    most = min(limit, only(tmp_path.iterdir()).stat().st_size // 0x1000)
    assert most <= len(probes) < most + 100


@pytest.mark.parametrize("missing", ["_MMVAD_SHORT", "_CONTROL_AREA", "_EPROCESS.VadRoot"])
def test_a_kernel_table_without_vads(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    _, ntdll = app(kernel)
    opened = context.open_image(kernel.image(), tmp_path)
    user_types = context.table_of(opened)["user_types"]
    type_name, _, member = missing.partition(".")
    if member:
        del user_types[type_name]["fields"][member]
    else:
        del user_types[type_name]
    opened.context.symbol_space.clear_symbol_cache()
    opened.context.symbol_space._resolved.clear()  # what an image before it has made of the whole table
    memory = opened.image
    space = only(AddressSpaces.list_spaces(memory, [1000]))
    symbolizer = Symbolizer(memory)
    finder = Databases(memory, symbolizer.indexes)
    found = symbolizer.for_space(space)
    assert found.name(ntdll.base + 0x1020) == places.Name("ntdll!Send+0x20", "export", NOTHING, "image")
    assert found.name(NOWHERE) == places.VADS_INCOMPLETE
    assert not list(finder.find_databases(space))
    told = [line for line in caplog.messages if line.startswith("Missing from the kernel's symbols")]
    assert len(told) == 1 and all(name in told[0] for name in missing.split("."))
