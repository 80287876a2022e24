# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The script that makes the tables: what it says is what is in the tree."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import kernel_tables, kernels
from tests.forge.kernel_names import VARIABLES


@pytest.mark.shared
@pytest.mark.parametrize("name", [*kernels.KERNELS])
def test_the_committed_tables_are_what_the_script_makes(name: str, shared_dir: pathlib.Path) -> None:
    table = kernel_tables.table(shared_dir / "isf" / "symbols", kernels.KERNELS[name])
    assert table.data == kernels.load(name).table.data


def test_symbols_are_synthetic_and_reproducible() -> None:
    seven, ten = kernels.KERNELS["win7-x64"], kernels.KERNELS["win10-x64"]
    names = ["NtClose", "ZwClose", "KeBugCheckEx", "NtGlobalFlag", "KdVersionBlock", "KiTrap0E", "Other"]
    placed = kernel_tables.synthetic_symbols(seven, names)
    assert placed == kernel_tables.synthetic_symbols(seven, reversed(names))
    assert set(placed) == {"NtClose", "ZwClose", "KeBugCheckEx", "NtGlobalFlag", "KdVersionBlock"}
    assert placed != kernel_tables.synthetic_symbols(ten, names)
    variables = {placed[name] for name in placed if name in VARIABLES}
    assert min(variables) > max(set(placed.values()) - variables)


@pytest.mark.shared
def test_nameless_structures_are_named_after_their_holders(shared_dir: pathlib.Path) -> None:
    table = kernel_tables.real_table(shared_dir / "isf" / "symbols", "win7-x64")
    assert table.place("_MMVAD", "u").name == "__unnamed_MMVAD_u"
    assert table.place("_CONTROL_AREA", "u2.e2").name == "__unnamed_CONTROL_AREA_u2_e2"
    types = {name for name in table.types if name.startswith(("__unnamed_", "__anonymous"))}
    assert all(not name[10:11].isdigit() for name in types)
