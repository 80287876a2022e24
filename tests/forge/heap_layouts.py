# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where the members of forged heaps lie.

Written down once more, from the public symbols of each Windows, so that a wrong one in the project's own
tables is found.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional


class Layout(NamedTuple):
    """Offsets of one generation, None where it lacks the member; `segment_` ones are in _HEAP_SEGMENT."""

    pointer: int
    unit: int
    heap_size: int
    signature: int
    flags: int
    encode_mask: Optional[int]
    encoding: Optional[int]
    interceptor: Optional[int]
    virtual: int
    segments: int
    creator: int
    segment_size: int
    segment_signature: int
    segment_links: Optional[int]
    segment_heap: int
    segment_base: int
    segment_pages: int
    segment_first: int
    segment_last: int
    segment_creator: int
    segment_ranges: int


_X64 = Layout(
    8, 16, 0x298, 0x98, 0x70, 0x7C, 0x80, 0x90, 0x110, 0x120, 0x130,
    0x70, 0x10, 0x18, 0x28, 0x30, 0x38, 0x40, 0x48, 0x58, 0x60,
)  # fmt: skip
_X86 = Layout(
    4, 8, 0x248, 0x60, 0x40, 0x4C, 0x50, 0x58, 0x9C, 0xA4, 0xAC,
    0x40, 0x8, 0x10, 0x18, 0x1C, 0x20, 0x24, 0x28, 0x34, 0x38,
)  # fmt: skip

LAYOUTS: Dict[str, Layout] = {
    "6.2-x64": _X64,
    "6.2-x86": _X86,
    # Vista and 7 have PointerKey before Interceptor, so what follows lies a pointer higher.
    "6.0-x64": _X64._replace(
        heap_size=0x208, signature=0xA0, interceptor=0x98, virtual=0x118, segments=0x128, creator=0x138
    ),
    "6.0-x86": _X86._replace(
        heap_size=0x138, signature=0x64, interceptor=0x5C, virtual=0xA0, segments=0xA8, creator=0xB0
    ),
    "5.1-x86": Layout(
        4, 8, 0x588, 0x8, 0xC, None, None, None, 0x50, 0x58, 0x16A,
        0x3C, 0x8, None, 0x10, 0x18, 0x1C, 0x20, 0x24, 0x34, 0x30,
    ),
    "5.2-x64": Layout(
        8, 16, 0xAE8, 0x10, 0x14, None, None, None, 0x90, 0xA0, 0x2B2,
        0x68, 0x10, None, 0x18, 0x28, 0x30, 0x38, 0x40, 0x58, 0x50,
    ),
}  # fmt: skip
