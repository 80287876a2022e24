# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""VMware snapshots: a raw image (`.vmem`) and the metadata beside it that say where its parts lie.

The format is as Volatility's `layers/vmware.py` reads it.
"""

from __future__ import annotations

import pathlib
import struct

from .phys import PAGE

_MAGIC = b"\xd2\xbe\xd2\xbe"
_TAGS_AT = 12 + 80


def write_metadata(memory: pathlib.Path) -> pathlib.Path:
    """Writes the `.vmss` file of a `.vmem` file whose memory is in one piece; returns its path."""
    pages = -(-memory.stat().st_size // PAGE)
    tags = _tag(b"regionsCount", 1)
    for name, value in ((b"regionPPN", 0), (b"regionPageNum", 0), (b"regionSize", pages)):
        tags += _tag(name, value, 0)
    head = struct.pack("<4sII", _MAGIC, 8, 1) + struct.pack("<64sQQ", b"memory", _TAGS_AT, 0)
    path = memory.with_suffix(".vmss")
    path.write_bytes(head + tags + b"\0\0")
    return path


def _tag(name: bytes, value: int, *indices: int) -> bytes:
    head = bytes((len(indices) << 6 | 4, len(name))) + name
    return head + b"".join(struct.pack("<I", number) for number in (*indices, value))
