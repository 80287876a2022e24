# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Real databases in forged images: Volatility reads every byte of them where Windows had it."""

from __future__ import annotations

import pathlib
from typing import Any, Optional

import pytest
from volatility3.framework import exceptions
from volatility3.framework.symbols.windows.pdbutil import PDBUtility
from volatility3.plugins.windows import dlllist, pslist, vadinfo

from tests.forge import context, kernels, real_sets
from tests.forge.kernel import Kernel
from tests.forge.real_sets import RealSet

PLACES = (
    ("2600.5512-x86", "xp-x86"),
    ("2600.5512-x86", "win7-x64"),
    ("3790.3959-x64", "2003-x64"),
    ("7601.24384-x64", "win7-x64"),
    ("7601.24384-x64-big", "win7-x64"),
    ("7601.24384-x64-heap", "win7-x64"),
    ("7601.24384-x64-lazy", "win7-x64"),
    ("9600.16384-x64", "win10-x64"),
    ("16299.15-x86", "win10-x86"),
    ("16299.15-x86", "win10-x64"),
    ("19044.1766-x64", "win10-x64"),
    ("19044.1766-x64-heap", "win10-x64"),
    ("22000.778-x64", "win11-x64"),
)
# What the forge itself says in a process: its own loader data, thread and stack.
OWN = ("peb", "teb")


class Embedded:
    """A set in an image, opened."""

    def __init__(self, real: RealSet, table: str, directory: pathlib.Path, symbols: bool) -> None:
        known = kernels.load(table)
        self.kernel = Kernel(known.table, **{**known.options(), **real.kernel_options()})
        self.process = real_sets.process(self.kernel, real, symbols=symbols)
        self.opened = context.open_image(self.kernel.image(), directory)
        found = pslist.PsList.list_processes(self.opened.context, self.opened.kernel)
        self.eprocess = next(process for process in found if process.UniqueProcessId == 1000)
        self.layer = self.opened.context.layers[self.eprocess.add_process_layer()]

    def symbol(self, real: RealSet) -> Optional[int]:
        """RVA of the pointer by ntdll's symbol table, None where Volatility has none."""
        module = real.truth["module"]
        try:
            table = PDBUtility.symbol_table_from_pdb(
                self.opened.context,
                "tests",
                self.layer.name,
                module["pdb"]["database"],
                real.base,
                module["size"],
            )
        except exceptions.VolatilityException:
            return None
        found: Any = self.opened.context.symbol_space.get_symbol(f"{table}!{real.pointer_name}")
        return int(found.address)


def load(shared_dir: pathlib.Path, name: str) -> RealSet:
    return real_sets.load(shared_dir / "real_std" / f"{name}.tar.xz")


@pytest.mark.shared
@pytest.mark.parametrize(("name", "table"), PLACES)
def test_set_in_a_process(shared_dir: pathlib.Path, tmp_path: pathlib.Path, name: str, table: str) -> None:
    real = load(shared_dir, name)
    embedded = Embedded(real, table, tmp_path, symbols=True)
    truth, layer = real.truth, embedded.layer
    for region in real.regions:
        if region.what not in OWN:
            assert layer.read(region.va, len(region.data)) == region.data, hex(region.va)
    pointer = layer.read(real.base + truth["pointer_rva"], real.pointer_size)
    assert int.from_bytes(pointer, "little") == truth["database"]
    flags = layer.read(truth["peb"] + truth["nt_global_flag_offset"], 4)
    assert int.from_bytes(flags, "little") & 0x1000
    rows = [row for _, row in embedded.opened.rows(dlllist.DllList, pid=[1000])]
    assert (truth["module"]["name"], real.base) in [(row["Name"], int(row["Base"])) for row in rows]
    assert embedded.symbol(real) == truth["pointer_rva"]
    assert embedded.kernel.highest_user > truth["module"]["base"] + truth["module"]["size"]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["7601.24384-x64-heap", "16299.15-x86"])
def test_set_without_its_module(shared_dir: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
    real = load(shared_dir, name).without_module()
    assert {region.what for region in real.regions} <= {"database", "private", "peb", "teb"}
    embedded = Embedded(real, "win7-x64", tmp_path, symbols=False)
    pointer = embedded.layer.read(real.base + real.truth["pointer_rva"], real.pointer_size)
    assert int.from_bytes(pointer, "little") == real.truth["database"]
    assert embedded.symbol(real) is None


@pytest.mark.shared
@pytest.mark.parametrize("name", ["7601.24384-x64-heap", "19044.1766-x64-heap"])
def test_heaps_of_a_set(shared_dir: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
    real = load(shared_dir, name)
    embedded = Embedded(real, "win10-x64", tmp_path, symbols=False)
    peb = embedded.eprocess.get_peb()
    expected = [heap["heap"] for heap in real.truth["heap"]["heaps"]]
    assert peb.NumberOfHeaps == len(expected)
    array = embedded.layer.read(int(peb.ProcessHeaps), 8 * len(expected))
    assert [int.from_bytes(array[at : at + 8], "little") for at in range(0, len(array), 8)] == expected
    spans = [
        (int(row["Start VPN"]), int(row["End VPN"]))
        for _, row in embedded.opened.rows(vadinfo.VadInfo, pid=[1000])
    ]
    for address in [real.truth["database"], real.truth["header"]["EntryIndexArray"] - 8, *expected]:
        assert sum(start <= address <= end for start, end in spans) == 1


@pytest.mark.shared
@pytest.mark.parametrize("table", ["xp-x86", "real"])
def test_set_in_a_kernel(shared_dir: pathlib.Path, tmp_path: pathlib.Path, table: str) -> None:
    real = load(shared_dir, "2600.5512-x86-kernel")
    path = shared_dir / "isf/symbols/windows/ntkrnlpa.pdb/30B5FB31AE7E4ACAABA750AA241FF331-1.json.xz"
    known = kernels.real(path) if table == "real" else kernels.load(table)
    kernel = real_sets.kernel_of(real, known.table, **known.options())
    opened = context.open_image(kernel.image(), tmp_path)
    assert opened.context.modules[opened.kernel].offset == real.base
    for region in real.regions:
        assert opened.layer.read(region.va, len(region.data)) == region.data
    symbol = opened.context.modules[opened.kernel].get_symbol(real.pointer_name)
    pointer = opened.layer.read(real.base + symbol.address, 4)
    assert int.from_bytes(pointer, "little") == real.truth["database"]
    names = {row["ImageFileName"] for _, row in opened.rows(pslist.PsList)}
    assert names == {"System"}


@pytest.mark.shared
def test_patched_set_differs_in_these_bytes_only(shared_dir: pathlib.Path) -> None:
    real = load(shared_dir, "7601.24384-x64-lazy")
    entry = real.truth["entries"][0]["va"]
    changed = real.patched(entry, b"\xff\xfe")
    differences = [
        region.va + at
        for region, old in zip(changed.regions, real.regions)
        for at in range(len(old.data))
        if region.data[at] != old.data[at]
    ]
    assert set(differences) <= {entry, entry + 1} and differences
    assert changed.truth is real.truth
