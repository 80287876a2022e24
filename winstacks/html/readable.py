# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decorated names of C++ functions as debuggers show them: their qualified name.

    undecorate("node!?GetId@Sampler@v8@@QEAAXXZ+0x5")       # node!v8::Sampler::GetId+0x5

The package `demangle` reads them, if it is installed (the extra `names`). Grids and tables keep the names of
the module, so that they are equal with and without it.
"""

from __future__ import annotations

import functools
import importlib
import re
from types import ModuleType
from typing import Optional

_MOST_KEPT = 1 << 14
_LONGEST = 4096
"""The longest decorated name: Microsoft's compiler makes no longer ones."""
_DECORATED = re.compile(r"(?<=!)~?(?P<name>\?[^ +]+)")
"""A decorated name in Symbol, behind the name of the module."""


@functools.lru_cache(maxsize=1)
def _reader() -> Optional[ModuleType]:
    try:
        return importlib.import_module("demangle")
    except ImportError:
        return None


@functools.lru_cache(maxsize=_MOST_KEPT)
def undecorate(symbol: str) -> str:
    """Returns a symbol with the qualified name of its function; unchanged if the name cannot be read."""
    reader, found = _reader(), _DECORATED.search(symbol)
    if reader is None or found is None or len(found["name"]) > _LONGEST:
        return symbol
    try:
        parts = reader.signature(found["name"], language="msvc")
    except reader.DemanglingError:
        return symbol
    if not parts.is_function or not parts.qualified_name:
        return symbol
    start, end = found.span("name")
    return f"{symbol[:start]}{parts.qualified_name}{symbol[end:]}"
