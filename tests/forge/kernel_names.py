# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the forged kernels' symbol tables hold, by name: `data/names.txt`."""

from __future__ import annotations

import pathlib
from typing import Dict, List

DATA = pathlib.Path(__file__).parent / "data"


def _sections(text: str) -> Dict[str, List[str]]:
    sections: Dict[str, List[str]] = {}
    words: List[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            words = sections.setdefault(line.strip("[]"), [])
        else:
            words += line.split("#")[0].split()
    return sections


_NAMES = _sections((DATA / "names.txt").read_text())

OUR_TYPES = _NAMES["our types"]
VOLATILITY_TYPES = _NAMES["volatility types"]
X64_TYPES = _NAMES["x64 types"]
FIXED_TYPES = _NAMES["fixed types"]
FUNCTIONS = _NAMES["functions"]
X64_FUNCTIONS = _NAMES["x64 functions"]
X86_FUNCTIONS = _NAMES["x86 functions"]
EXPORTED = _NAMES["exported"]

TRIMMED: Dict[str, List[str]] = {}
"""Structures and the members that they keep."""

for _word in _NAMES["trimmed types"]:
    _name, _, _members = _word.partition(":")
    TRIMMED[_name] = _members.split(",")

VARIABLES: Dict[str, int] = {}
"""Variables and their size in bytes."""

for _word in _NAMES["variables"]:
    _name, _, _size = _word.partition(":")
    VARIABLES[_name] = int(_size or "10", 16)
