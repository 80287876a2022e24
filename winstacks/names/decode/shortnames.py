# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
r"""Short names of files (8.3), by which a program may be started: `PROGRA~1\FOOBAR~1.EXE`.

NTFS and FAT make them of the long name: without spaces and without dots but the last one, with `_` for some
characters, six characters and a number, or after some files of one begin two characters, four hexadecimal
digits of a checksum and a number (described: Microsoft, "Naming Files, Paths, and Namespaces", and
RtlGenerate8dot3Name in ReactOS).
"""

from __future__ import annotations

import re

_SHORT = re.compile(r"([^~. ]{1,6})~([1-9][0-9]{0,5})(?:\.([^~. ]{1,3}))?")
_BASE, _EXTENSION = 8, 3
_CHECKSUM = re.compile(r"[0-9A-F]{4}")
_REPLACED = str.maketrans("+,;=[]", "______")


def is_short_name_of(short: str, long: str) -> bool:
    """Returns whether a file name has the form of the short name that a file with a long name has. `short`
    and `long` are names without folders."""
    found = _SHORT.fullmatch(short.upper())
    plain = long.upper().replace(" ", "").lstrip(".").translate(_REPLACED)
    stem, dot, extension = plain.rpartition(".")
    base = (stem if dot else plain).replace(".", "")
    if found is None or (found[3] or "") != (extension[:_EXTENSION] if dot else ""):
        return False
    begin, number = found[1], found[2]
    if len(begin) + 1 + len(number) > _BASE:
        return False
    # A begin is cut only where no more of it has room.
    whole = base == begin or len(begin) + 1 + len(number) == _BASE
    with_checksum = base.startswith(begin[:-4]) and len(begin) in (5, 6) and _CHECKSUM.fullmatch(begin[-4:])
    return bool(base.startswith(begin) and whole) or bool(with_checksum)
