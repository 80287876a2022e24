# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The machines whose memory is read: pointer sizes, address forms, and the words for them.

Only this module decides which addresses are canonical. A layer's `address_mask` does not decide it: the mask
of a segmented layer ends at the highest address that the layer happens to have.

Source of the numbers: IMAGE_FILE_MACHINE_* of winnt.h.
"""

from __future__ import annotations

from enum import Enum
from typing import Tuple

_REFUSED = {0xA641: "ARM64EC", 0xA64E: "ARM64X", 0x1C4: "ARM", 0x200: "Itanium"}
"""Machines on which Windows also runs, and whose stacks and structures this package does not know."""


KERNEL_HALF = 1 << 63
"""The bit that is set in every kernel address of 64 bits."""


class UnsupportedMachineError(ValueError):
    """The memory belongs to a machine that is known but not supported, or to an unknown machine. `kind` is
    the word for the machine, or its number."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"This is the memory of a machine of type {kind}: only x64 (AMD64) and x86 (I386), and dumps of "
            "ARM64, can be read"
        )


class Machine(Enum):
    """A machine, or a mode of a machine: the 32-bit half of a WoW64 process is I386.

    Attributes:
        number: IMAGE_FILE_MACHINE_* value, as in PE headers
        arch: word for the machine in the column Arch
        kernel_start: lowest address at which the kernel's half begins (x86: without /3GB)
        shared_data: address of KI_USER_SHARED_DATA in ntddk.h, the same in every version
        address_bits: number of significant low bits of an address; the bits above repeat the highest of them.
            This holds for page tables of four levels, the only ones that Volatility reads. On ARM64 the
            halves have 47 bits each; the codes that authenticate pointers lie above them
        ip_register, sp_register: names of the registers that a walk begins with, in columns and register
            states
    """

    AMD64 = (0x8664, "x64", 8, 48, 0xFFFF800000000000, 0xFFFFF78000000000, "Rip", "Rsp")
    I386 = (0x14C, "x86", 4, 32, 0x80000000, 0xFFDF0000, "Rip", "Rsp")
    ARM64 = (0xAA64, "arm64", 8, 48, 0xFFFF800000000000, 0xFFFFF78000000000, "Pc", "Sp")

    def __init__(
        self,
        number: int,
        arch: str,
        pointer_size: int,
        address_bits: int,
        kernel_start: int,
        shared_data: int,
        ip_register: str,
        sp_register: str,
    ) -> None:
        self.number = number
        self.arch = arch
        self.pointer_size = pointer_size
        self.address_bits = address_bits
        self.kernel_start = kernel_start
        self.shared_data = shared_data
        self.ip_register = ip_register
        self.sp_register = sp_register
        self.address_mask = (1 << address_bits) - 1
        """The bits of an address that `masked` keeps: the form of Volatility's columns."""
        self._sign = 1 << (address_bits - 1)
        self._above = (1 << 8 * pointer_size) - (1 << address_bits)

    def canonical(self, address: int) -> int:
        """Returns the form of an address that Windows stores: sign-extended to the register's width.
        `address` is canonical, or masked as in Volatility's layers."""
        low = address & self.address_mask
        return low | self._above if low & self._sign else low

    def is_canonical(self, address: int) -> bool:
        """Returns whether the processor would accept a stored pointer."""
        return self.canonical(address) == address

    def masked(self, address: int) -> int:
        """Returns the form of an address that Volatility's columns show."""
        return address & self.address_mask


ARCHES = tuple(machine.arch for machine in Machine)
"""The words for machines: the values of the column Arch."""


def machine_of(number: int) -> Machine:
    """Returns the machine for a number from PE headers. Raises UnsupportedMachineError if the machine is not
    supported; its text is a sentence for users."""
    for machine in Machine:
        if machine.number == number:
            return machine
    raise UnsupportedMachineError(_REFUSED.get(number, f"{number:#x}"))


def machines_of(machine: Machine) -> Tuple[Machine, ...]:
    """Returns the machines whose programs a machine runs: x64 has WoW64 processes."""
    return (Machine.AMD64, Machine.I386) if machine is Machine.AMD64 else (machine,)
