# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the version of a module: VS_FIXEDFILEINFO of its resource VS_VERSION_INFO.

Source: Microsoft, "PE Format" (the resource directory), "VS_VERSIONINFO", "VS_FIXEDFILEINFO" (verrsrc.h).
"""

from __future__ import annotations

import struct
from typing import Optional

from .pe import DIRECTORY_RESOURCE, Headers
from .unwindinfo import ReadRva

RT_VERSION = 16
SIGNATURE = 0xFEEF04BD
"""VS_FFI_SIGNATURE."""
SIZE = 52
"""Bytes of a VS_FIXEDFILEINFO."""

MAX_ENTRIES = 0x100
"""Maximum number of entries of a resource directory that are read: Windows has some twenty types."""
_SUBDIRECTORY = 0x80000000
"""The bit of an entry's target that marks a directory."""
_DIRECTORY = struct.Struct("<12xHH")
_ENTRY = struct.Struct("<II")
_DATA = struct.Struct("<II8x")
_VALUE = 0x28
"""Offset of Value in VS_VERSIONINFO: behind three words and the key VS_VERSION_INFO, aligned to 4 bytes."""


def read_fixed_file_info(read: ReadRva, headers: Headers) -> Optional[bytes]:
    """Returns the 52 bytes of VS_FIXEDFILEINFO, None if there are none or they cannot be read."""
    base, size = headers.directory(DIRECTORY_RESOURCE)
    # A directory of types leads to a directory of names, and this to languages: the first of each is read.
    target: Optional[int] = _SUBDIRECTORY if size else None
    for number in (RT_VERSION, None, None):
        if target is None or not target & _SUBDIRECTORY:
            return None
        target = _entry(read, base + (target & ~_SUBDIRECTORY), number)
    data_entry = None if target is None or target & _SUBDIRECTORY else read(base + target, _DATA.size)
    if data_entry is None:
        return None
    rva, length = _DATA.unpack(data_entry)
    data = read(rva + _VALUE, SIZE) if length >= _VALUE + SIZE else None
    info = bytes(data or b"")
    return info if info[:4] == struct.pack("<I", SIGNATURE) else None


def _entry(read: ReadRva, rva: int, entry_id: Optional[int]) -> Optional[int]:
    """Returns the target of an entry of a resource directory, None if it is unreadable or missing. `entry_id`
    is the ID of the entry; None for the first entry."""
    head = read(rva, _DIRECTORY.size)
    if head is None:
        return None
    named, numbered = _DIRECTORY.unpack(head)
    for number in range(min(named + numbered, MAX_ENTRIES)):
        row = read(rva + _DIRECTORY.size + number * _ENTRY.size, _ENTRY.size)
        if row is None:
            return None
        name, target = _ENTRY.unpack(row)
        if entry_id is None or name == entry_id:
            return int(target)
    return None
