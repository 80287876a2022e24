# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The symbols of an ISF table as sorted arrays: the framework looks up exact addresses only."""

from __future__ import annotations

import json
import lzma
import zlib
from typing import Any, List, Mapping, NamedTuple, Optional

from volatility3.framework import exceptions, interfaces
from volatility3.framework.layers import resources

from .decode import rules

READ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    lzma.LZMAError,
    zlib.error,
    exceptions.VolatilityException,
)
"""What opening and decoding a damaged or vanished ISF file raises."""


class SymbolArrays(NamedTuple):
    """The symbols of a module, by RVA: each RVA once, with its best name."""

    rvas: List[int]
    names: List[str]
    by_name: Mapping[str, Any]

    def rva_of(self, name: str) -> Optional[int]:
        """Returns the RVA of a symbol by its exact name."""
        symbol = self.by_name.get(name)
        return None if symbol is None else int(symbol["address"])


def from_table(table: interfaces.symbols.SymbolTableInterface) -> SymbolArrays:
    """Indexes a symbol table that Volatility has loaded.

    The table's own JSON is read where it is at hand: an object per symbol costs more than loading the file.
    """
    symbols = getattr(getattr(table, "_delegate", None), "_json_object", {}).get("symbols")
    if symbols is None:
        symbols = {name: {"address": table.get_symbol(name).address} for name in table.symbols}
    return from_symbols(symbols)


def from_url(url: str) -> Optional[SymbolArrays]:
    """Indexes an ISF file (any form that Volatility opens) without its types; None if it cannot be read."""
    try:
        with resources.ResourceAccessor().open(url) as file:
            symbols = json.load(file)["symbols"]
        return from_symbols(symbols)
    except READ_ERRORS:
        return None


def from_symbols(symbols: Mapping[str, Any]) -> SymbolArrays:
    """Indexes the `symbols` of an ISF: name -> {"address": RVA, ...}."""
    return SymbolArrays(
        *rules.sort_labels((symbol["address"], name) for name, symbol in symbols.items()), symbols
    )
