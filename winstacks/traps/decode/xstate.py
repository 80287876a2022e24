# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""State components of an XSAVE area in the compacted form, such as CET_U with the pointer to a shadow stack.

Each component follows those before it, at a multiple of 64 bytes if it must be aligned. Source: Intel 64 and
IA-32 Architectures Software Developer's Manual, volume 1, "Managing state using the XSAVE feature set".
A CONTEXT with the bit CONTEXT_XSTATE is followed by a CONTEXT_EX, which leads to the header of the area
(winnt.h; measured: a dump of 10.0.22000).
"""

from __future__ import annotations

import struct
from typing import Iterator, Optional, Sequence

from ...memory.decode.records import NamedTuple

LEGACY, _HEADER = 0x200, 0x40
_COMPACTED = 1 << 63
CET_U, CET_U_SIZE = 11, 16
"""Number of the component with IA32_U_CET and IA32_PL3_SSP, and its size in bytes."""
SH_STK_EN = 1
"""Bit of IA32_U_CET: the processor uses a shadow stack in user mode."""

_CONTEXT, _FLAGS_AT, _XSTATE = 0x4D0, 0x30, 0x100040
_CONTEXT_EX = struct.Struct("<iIiIiI")
_USUAL = (0x200, 0x40, 0x100, 0x40, 0x40, 0x40, 0x200, 0x400, 0x80, 8, 8, CET_U_SIZE)
"""Sizes of the components 0 to 11 in all processors that have them."""


class ComponentSizes(NamedTuple):
    """The sizes of the processor's state components, from 0 on; `aligned` has a bit for each component."""

    sizes: Sequence[int]
    aligned: int


def component(header: bytes, number: int, known: ComponentSizes) -> Optional[int]:
    """Returns the offset of a state component in an area that XSAVES wrote, None if it is not there. `header`
    has the first 16 bytes of the header: XSTATE_BV and XCOMP_BV."""
    saved, packed = struct.unpack("<QQ", header)
    if not (packed & _COMPACTED and saved & packed & 1 << number and known.sizes[number]):
        return None
    offset = LEGACY + _HEADER
    for lower in range(2, number):
        if packed & 1 << lower:
            offset = _aligned(offset, lower, known) + known.sizes[lower]
    return _aligned(offset, number, known)


def _aligned(offset: int, number: int, known: ComponentSizes) -> int:
    return offset + -offset % 64 if known.aligned & 1 << number else offset


def shadow_pointers(data: bytes) -> Iterator[int]:
    """Yields what IA32_PL3_SSP may be by the bytes of an x64 CONTEXT and of the area behind it.

    The dump does not say which components are aligned: each of the two answers is tried. Nothing is yielded
    without the area, without CET_U in it, or if the thread used no shadow stack.
    """
    flags = int.from_bytes(data[_FLAGS_AT : _FLAGS_AT + 4], "little")
    if flags & _XSTATE != _XSTATE or len(data) < _CONTEXT + _CONTEXT_EX.size:
        return
    *_, offset, length = _CONTEXT_EX.unpack_from(data, _CONTEXT)
    area = data[max(_CONTEXT + offset, 0) :][:length]
    if len(area) < _HEADER:
        return
    places = (component(area[:16], CET_U, ComponentSizes(_USUAL, aligned)) for aligned in (0, -1))
    for place in dict.fromkeys(place for place in places if place is not None):
        state = area[place - LEGACY :][:CET_U_SIZE]
        if len(state) == CET_U_SIZE:
            enabled, pointer = struct.unpack("<QQ", state)
            if enabled & SH_STK_EN and pointer and not pointer % 8:
                yield pointer
