# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The symbols of ISF tables as sorted arrays."""

from __future__ import annotations

import bisect
import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.framework import contexts
from volatility3.framework.symbols import intermed

from winstacks.names import pdbsymbols


class Table:
    """A symbol table of another kind than Volatility's own files."""

    symbols = ("B", "A", "AlsoA")

    def get_symbol(self, name: str) -> Any:
        return type("Symbol", (), {"address": {"A": 1, "AlsoA": 1, "B": 2}[name]})


def test_any_table_will_do() -> None:
    found = pdbsymbols.from_table(Table())
    assert (found.rvas, found.names, found.rva_of("AlsoA")) == ([1, 2], ["A", "B"], 1)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["ntkrnlmp.pdb", "ntkrnlpa.pdb", "wntdll.pdb"])
def test_a_real_table_by_either_way(shared_dir: pathlib.Path, name: str) -> None:
    path = min((shared_dir / "isf" / "symbols" / "windows" / name).glob("*.json.xz"))
    # To compare it with the schema would take ten times as long as all else.
    context = contexts.Context()
    table = intermed.IntermediateSymbolTable(context, "test", "table", path.as_uri(), validate=False)
    found = pdbsymbols.from_table(table)
    by_url = pdbsymbols.from_url(path.as_uri())
    assert by_url is not None
    assert (by_url.rvas, by_url.names) == (found.rvas, found.names)
    assert all(before < after for before, after in zip(found.rvas, found.rvas[1:]))
    addresses: Dict[int, List[str]] = {}
    for symbol in table.symbols:
        addresses.setdefault(table.get_symbol(symbol).address, []).append(symbol)
    assert found.rvas == sorted(addresses)
    for rva, symbol in zip(found.rvas, found.names):
        assert symbol in addresses[rva]
    nt_create_file = found.rva_of("NtCreateFile")
    assert nt_create_file is not None
    assert found.names[bisect.bisect_right(found.rvas, nt_create_file + 5) - 1] == "NtCreateFile"
