# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures whose members a test lists itself, in place of a symbol table."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from winstacks.memory.decode.structure import Field, Structure, Structures

Members = Mapping[str, Field]


def structures(types: Mapping[str, Tuple[int, Members]]) -> Structures:
    """Structures by name: (bytes, members by path)."""

    def make(name: str) -> Optional[Structure]:
        if name not in types:
            return None
        size, members = types[name]
        return Structure(name, size, members.get, tuple(members))

    return Structures(make)
