# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The base types of the symbol tables that the forge makes, as JSON."""

from __future__ import annotations

from typing import Any, Dict

Json = Dict[str, Any]

BASE_TYPES: dict[str, tuple[int, str, bool]] = {
    "char": (1, "char", True),
    "unsigned char": (1, "char", False),
    "wchar": (2, "int", False),
    "short": (2, "int", True),
    "unsigned short": (2, "int", False),
    "int": (4, "int", True),
    "unsigned int": (4, "int", False),
    "long": (4, "int", True),
    "unsigned long": (4, "int", False),
    "long long": (8, "int", True),
    "unsigned long long": (8, "int", False),
    "float": (4, "float", True),
    "double": (8, "float", True),
    "void": (0, "void", False),
}


def base_types(pointer_size: int) -> Json:
    """The `base_types` of an ISF whose pointers have `pointer_size` bytes (4 or 8)."""
    types: Json = {
        name: {"kind": kind, "size": size, "signed": signed, "endian": "little"}
        for name, (size, kind, signed) in BASE_TYPES.items()
    }
    types["pointer"] = {"kind": "int", "size": pointer_size, "signed": False, "endian": "little"}
    return types
