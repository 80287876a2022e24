# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names of addresses that lie in no module and no file."""

from __future__ import annotations

import pytest

from winstacks.columns.words import NAMELESS
from winstacks.memory.decode.text import short_of, with_address
from winstacks.names import places
from winstacks.names.places import Name


def test_the_list_of_nameless_symbols_is_whole() -> None:
    """All fixed names of addresses are in it; <zero> and <fuzzy> are no addresses, and have no backing."""
    fixed = [name for name in vars(places).values() if isinstance(name, Name)]
    assert {name.symbol for name in fixed if name.backing} == NAMELESS
    assert {name.symbol for name in fixed if not name.backing} == {"<zero>", "<fuzzy>"}


@pytest.mark.parametrize(
    ("symbol", "address", "short"),
    [
        ("<private>", 0x1D2B00002C4, "<private> 0x1d2b00002c4"),
        ("<no-module>", 0xFFFFAB8009991088, "<no-module> 0xffffab8009991088"),
        ("<user>", 0, "<user> 0x0"),
        ("<private>", None, "<private>"),
        ("<zero>", 0, "<zero>"),
        ("<unloaded:a>+0x10", 0x10, "<unloaded:a>+0x10"),
        ("nt!NtClose+0x1d", 0x1D, "nt!NtClose+0x1d"),
    ],
)
def test_the_short_form_has_the_address(symbol: str, address: int, short: str) -> None:
    shown = with_address(symbol, address)
    assert (shown, short_of(shown)) == (symbol, short)
