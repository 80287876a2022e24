# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One address space of an image: the kernel, a process, or the 32-bit half of a WoW64 process."""

from __future__ import annotations

from .decode.record import Record
from .decode.status import NOTHING, Status

KERNEL_PID = 0
KERNEL_PROCESS = "nt"

ARCHES = {8: "x64", 4: "x86"}
"""What the column Arch says, by pointer size."""


class AddressSpace(Record):
    """One bitness of one address space. Addresses are canonical.

    A WoW64 process is two of them over the same layer: the 64-bit one and the 32-bit one (`wow64`).

    Attributes:
        pid: 0 for the kernel
        process: the name of its image
        arch: `x64` or `x86`, as the column Arch has it
        layer_name: the layer through which it is read; empty if its page tables cannot be read
        pointer_size: 4 or 8
        wow64: the 32-bit half of a 64-bit process
        kernel: the kernel's own space
        eprocess: address of its _EPROCESS, 0 where none is known
        peb: address of the PEB of this half, 0 if it has none
        status: why the space cannot be read; empty if it can
    """

    pid: int
    process: str
    arch: str
    layer_name: str
    pointer_size: int
    wow64: bool = False
    kernel: bool = False
    eprocess: int = 0
    peb: int = 0
    status: Status = NOTHING
