# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The PEB's list of heaps."""

from __future__ import annotations

from typing import Sequence, Union

from .process import Process
from .wow64 import Wow64

# Offsets in the PEB, by pointer size: ProcessHeap, NumberOfHeaps, ProcessHeaps (public symbols).
_PEB = {8: (0x30, 0xE8, 0xF0), 4: (0x18, 0x88, 0x90)}


def put(process: Process, half: Union[Process, Wow64], pointer: int, heaps: Sequence[int], at: int) -> None:
    """Lists heaps in a PEB, the default heap first.

    Args:
        process: whose memory it is
        half: whose PEB it is: the process itself or its 32-bit half
        pointer: bytes of a pointer
        heaps: addresses
        at: where the array may lie
    """
    peb = half.peb
    assert peb is not None
    default, count, array = _PEB[pointer]
    process.region(at, size=0x1000)
    for number, heap in enumerate(heaps):
        process.space.write_int(at + number * pointer, heap, pointer)
    process.space.write_int(peb.address + default, heaps[0], pointer)
    process.space.write_int(peb.address + count, len(heaps), 4)
    process.space.write_int(peb.address + array, at, pointer)
