# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structure layouts written by hand (`data/*.layout`) as the `user_types` of a symbol table.

    _OWNER_ENTRY 8          a structure and its size, in hexadecimal
      0 OwnerThread ulong   offset, member, type
      4 OwnerCount ulong:30@2
      4 TableSize           without a type: that of the 64-bit structure's member, brought to 32 bits

A type is one of `char uchar short ushort long ulong longlong ulonglong void`, a structure, `T*`,
`T[n]`, or `T:length@position` for a bit field. `#` starts a comment.
"""

from __future__ import annotations

import re
from typing import Any, Dict

Json = Dict[str, Any]

_BASE = {
    "char": "char",
    "uchar": "unsigned char",
    "short": "short",
    "ushort": "unsigned short",
    "long": "long",
    "ulong": "unsigned long",
    "longlong": "long long",
    "ulonglong": "unsigned long long",
    "void": "void",
}
_ARRAY = re.compile(r"(.+)\[(\d+)\]$")
_BITS = re.compile(r"(.+):(\d+)@(\d+)$")


def parse(text: str) -> Json:
    """The structures of a layout file; a member without a type has `{}` as its type.

    Raises ValueError on a line that is neither a structure nor a member.
    """
    types: Json = {}
    fields: Json = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if not line[0].isspace() and len(words) == 2:
            fields = {}
            types[words[0]] = {"kind": "struct", "size": int(words[1], 16), "fields": fields}
        elif line[0].isspace() and types and len(words) in (2, 3):
            what = _type(words[2]) if len(words) == 3 else {}
            fields[words[1]] = {"offset": int(words[0], 16), "type": what}
        else:
            raise ValueError(f"line {number}: {line!r}")
    return types


def _type(text: str) -> Json:
    if text.endswith("*"):
        return {"kind": "pointer", "subtype": _type(text[:-1])}
    array = _ARRAY.match(text)
    if array:
        return {"kind": "array", "count": int(array[2]), "subtype": _type(array[1])}
    bits = _BITS.match(text)
    if bits:
        length, position = int(bits[2]), int(bits[3])
        return {
            "kind": "bitfield",
            "bit_length": length,
            "bit_position": position,
            "type": _type(bits[1]),
        }
    if text in _BASE:
        return {"kind": "base", "name": _BASE[text]}
    if not text.startswith("_"):
        raise ValueError(f"unknown type {text!r}")
    return {"kind": "struct", "name": text}
