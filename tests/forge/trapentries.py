# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How the kernel can be entered, and the bytes of a frame while an entry stores them."""

from __future__ import annotations

from typing import Dict, NamedTuple

X64 = "x64"
X86_OLD = "x86"
X86_BLUE = "x86-blue"

Registers = Dict[str, int]

DEBUG_REGISTERS = ("Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7")
# The kinds of entry that can be forged.
SYSCALL = "syscall"
ZW = "zw"
EXCEPTION = "exception"  # of a vector without an error code
FAULT = "fault"  # with one
PAGE_FAULT = "page fault"
DEVICE = "device interrupt"
SOFTWARE = "software interrupt"  # APC, DPC, IPI, clock of 5.2
NMI = "nmi"
SYSENTER = "sysenter"
INT2E = "int2e"
NEW = "new"  # no entry: the kernel writes the first frame of a thread from its CONTEXT

KINDS_64 = (SYSCALL, ZW, EXCEPTION, FAULT, PAGE_FAULT, DEVICE, SOFTWARE, NMI)
KINDS_86 = (SYSENTER, INT2E, ZW, EXCEPTION, FAULT, DEVICE, NMI)
KERNEL_ONLY = (ZW,)
USER_ONLY = (SYSCALL, SYSENTER, INT2E)


class Entry(NamedTuple):
    """How the kernel was entered.

    mode: user64, user32, kernel, user, v86; debug: the thread's debug registers are in use;
    mitigated: the kernel has the speculation mitigations of 2018 (system calls store their arguments);
    previous: KTHREAD.TrapFrame before; previous_mode: KTHREAD.PreviousMode before;
    clears_dr7: an x86 kernel of 5.2 or later.
    """

    kind: str
    mode: str
    debug: bool = False
    mitigated: bool = False
    previous: int = 0
    previous_mode: int = 1
    clears_dr7: bool = True
    linkage: int = 0


def table(text: str) -> Dict[str, int]:
    """Reads `name offset` pairs, offsets in hexadecimal."""
    words = text.split()
    return {name: int(offset, 16) for name, offset in zip(words[::2], words[1::2])}


class Writer:
    """The bytes of one frame as they are stored."""

    def __init__(self, offsets: Dict[str, int], data: bytes) -> None:
        self._offsets = offsets
        self.data = bytearray(data)
        self.expected: Dict[str, int] = {}

    def save(self, registers: Registers, size: int, *members: str) -> None:
        """Stores registers in the members of their names."""
        for member in members:
            self.put(member, registers[member.lower()], size, member)

    def put(self, member: str, value: int, size: int, column: str = "") -> None:
        """Stores a value; a reader must show it in the column named."""
        offset = self._offsets[member]
        self.data[offset : offset + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        if column:
            self.expected[column] = value
