# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forge's PE images, read by pefile and by Volatility's own symbol plugin."""

from __future__ import annotations

import pathlib
from typing import Any

import pefile
import pytest
from volatility3.plugins.windows import pe_symbols

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.forge.module import Spec
from tests.forge.pe import Function, Pdb, Pe, Section, guid_of
from tests.support.only import only

EXPORTS: dict[str, int | str] = {"Beta": 0x1100, "Alpha": 0x1000, "Gone": "other.Gone"}


def parse(pe: Pe) -> pefile.PE:
    image = bytearray(pe.size)
    for rva, data in pe.pieces().items():
        assert not any(image[rva : rva + len(data)]), "pieces overlap"
        image[rva : rva + len(data)] = data
    for function in pe.functions:
        image[function.unwind] = 1  # the smallest UNWIND_INFO there is
    return pefile.PE(data=bytes(image))


@pytest.fixture(params=[64, 32])
def image(request: pytest.FixtureRequest) -> pefile.PE:
    functions = [Function(0x1100, 0x1180, 0x5800), Function(0x1000, 0x1020, 0x5810)]
    spec = Spec(
        exports=EXPORTS,
        ordinals={7: 0x1200, 2: 0x1210},
        functions=functions if request.param == 64 else (),
        pdb=Pdb("x.pdb", "00112233445566778899AABBCCDDEEFF", 5),
    )
    return parse(spec.pe("x.dll", request.param, 0x10000000))


def test_headers(image: pefile.PE) -> None:
    wide = image.FILE_HEADER.Machine == 0x8664
    assert image.OPTIONAL_HEADER.Magic == (0x20B if wide else 0x10B)
    assert image.OPTIONAL_HEADER.ImageBase == 0x10000000
    names = [section.Name.rstrip(b"\0").decode() for section in image.sections]
    assert names == [".text", ".rdata", ".data"] + ([".pdata"] if wide else [])
    assert all(section.PointerToRawData == section.VirtualAddress for section in image.sections)
    last = image.sections[-1]
    assert last.VirtualAddress + last.Misc_VirtualSize <= image.OPTIONAL_HEADER.SizeOfImage
    assert image.is_dll()


def test_exports(image: pefile.PE) -> None:
    seen = {
        symbol.ordinal: (symbol.name, symbol.address, symbol.forwarder)
        for symbol in image.DIRECTORY_ENTRY_EXPORT.symbols
    }
    assert seen[2] == (None, 0x1210, None)
    assert seen[7] == (None, 0x1200, None)
    assert seen[8] == (b"Alpha", 0x1000, None)
    assert seen[9] == (b"Beta", 0x1100, None)
    assert seen[10][0] == b"Gone" and seen[10][2] == b"other.Gone"
    assert image.DIRECTORY_ENTRY_EXPORT.name == b"x.dll"


def test_debug_record(image: pefile.PE) -> None:
    entry = only(image.DIRECTORY_ENTRY_DEBUG)
    assert entry.entry.PdbFileName.rstrip(b"\0") == b"x.pdb"
    assert entry.entry.Signature_String.upper() == "00112233445566778899AABBCCDDEEFF5"


def test_function_table_is_sorted(image: pefile.PE) -> None:
    if image.FILE_HEADER.Machine != 0x8664:
        assert not hasattr(image, "DIRECTORY_ENTRY_EXCEPTION")
        return
    table = [
        (entry.struct.BeginAddress, entry.struct.EndAddress) for entry in image.DIRECTORY_ENTRY_EXCEPTION
    ]
    assert table == [(0x1000, 0x1020), (0x1100, 0x1180)]


def test_given_sections_and_size() -> None:
    pe = Spec(sections=[Section("A", 0x1000, 0x10, 0xC0000040)], size=0x9000, meta_rva=0x400)
    parsed = parse(pe.pe("a.sys", 64, 0))
    assert parsed.OPTIONAL_HEADER.SizeOfImage == 0x9000
    assert [section.Name.rstrip(b"\0") for section in parsed.sections] == [b"A"]


@pytest.mark.parametrize("name", sorted(kernels.KERNELS))
def test_kernel_image(name: str) -> None:
    known = kernels.load(name)
    wide = known.table.pointer_size == 8
    functions = [Function(0x1000, 0x1010, 0x1800), Function(0x1010, 0x1030, 0x1800)] if wide else ()
    kernel = Kernel(known.table, **known.options(), functions=functions, contents={0x1800: b"\1\0\0\0"})
    image = bytearray(kernel.modules[0].size)
    for rva in range(0, len(image), 0x1000):
        if kernel.space.holds(kernel.base + rva):
            image[rva : rva + 0x1000] = kernel.space.read(kernel.base + rva, 0x1000)
    parsed = pefile.PE(data=bytes(image))
    exports = {symbol.name.decode(): symbol.address for symbol in parsed.DIRECTORY_ENTRY_EXPORT.symbols}
    assert exports == {export: known.table.symbol(export) for export in known.exports}
    assert parsed.DIRECTORY_ENTRY_DEBUG[0].entry.PdbFileName.rstrip(b"\0").decode() == known.table.pdb
    assert len(getattr(parsed, "DIRECTORY_ENTRY_EXCEPTION", [])) == len(functions)
    ends = [section.VirtualAddress + section.Misc_VirtualSize for section in parsed.sections]
    starts = [*[section.VirtualAddress for section in parsed.sections][1:], len(image)]
    assert all(end <= start for end, start in zip(ends, starts)), "sections overlap"
    assert all(kernel.space.holds(kernel.symbol(name)) for name in ("NtGlobalFlag", "PsActiveProcessHead"))


def test_guid_depends_on_the_symbols() -> None:
    def guid(**options: object) -> str:
        pdb = Spec(**options).pe("a.dll", 64, 0).pdb  # type: ignore[arg-type]
        assert pdb is not None
        return pdb.guid

    assert guid() == guid() != guid(symbols={"A": 1}) != guid(symbols={"A": 2})
    assert Spec(pdb=False).pe("a.dll", 64, 0).pdb is None
    assert len(guid_of("x")) == 32


@pytest.mark.parametrize("name", ["win10-x64", "win7-x86"])
def test_volatility_resolves_exports_and_symbols(name: str, tmp_path: pathlib.Path) -> None:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    driver = kernel.module("driver.sys", exports={"Send": 0x1040}, pdb=False)
    process = kernel.process("app.exe", pid=1000, session=1)
    ntdll = process.module(
        "ntdll.dll", exports={"NtClose": 0x1100}, symbols={"LdrpInner": 0x1234, "NtClose": 0x1100}
    )
    opened = context.open_image(kernel.image(), tmp_path)
    symbols = pe_symbols.PESymbols
    mask = opened.layer.address_mask

    def resolve(module: str, symbol: str, collect: Any) -> list[tuple[str, int]]:
        expected = {module: {"names": [symbol]}}
        found, _ = symbols.find_symbols(
            opened.context, "tests", expected, collect(opened.context, opened.kernel, expected)
        )
        return [(str(name), int(address)) for name, address in found[module]]

    assert resolve("driver.sys", "Send", symbols.get_kernel_modules) == [("Send", driver.at("Send") & mask)]
    for symbol in ("LdrpInner", "NtClose"):
        found = resolve("ntdll.dll", symbol, symbols.get_process_modules)
        assert found == [(symbol, ntdll.at(symbol))]


def test_paged_out_headers() -> None:
    kernel = Kernel(kernels.load("win10-x64").table)
    driver = kernel.module("driver.sys", headers=False)
    assert not kernel.space.holds(driver.base)
    assert kernel.space.holds(driver.base + driver.pe.meta_rva)
    whole = kernel.module("whole.sys", resident=True)
    assert all(kernel.space.holds(whole.base + rva) for rva in range(0, whole.size, 0x1000))


def test_module_addresses() -> None:
    kernel = Kernel(kernels.load("win10-x64").table)
    module = kernel.module("a.sys", exports=EXPORTS, symbols={"Inner": 0x1500})
    assert module.at("Alpha") == module.at(0x1000) == module.base + 0x1000
    assert module.at("Inner") == module.base + 0x1500
    with pytest.raises(KeyError, match=r"other\.Gone"):
        module.at("Gone")
    other = kernel.module("b.sys")
    assert other.base >= module.base + module.size
