# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames as the kernel's entries write them: what they store, over what the stack held before.

Written from the measurements, not from the decoder: with the registers and the poison of a real frame it
makes that frame byte for byte (test_trapframes). x64 has one map, x86 two (`X86_OLD` to 8.0, `X86_BLUE`).
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple

from tests.forge import trapframes64, trapframes86
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD, ZW, Entry, Registers, Writer

FRAME_SIZE = {X64: 0x190, X86_OLD: 0x8C, X86_BLUE: 0x8C}

Poison = Callable[[int, int], bytes]


class Forged(NamedTuple):
    """A frame, and what a reader must show: nothing but `expected` may be shown as sure."""

    data: bytes
    expected: Dict[str, int]


def stack_poison(address: int, length: int) -> bytes:
    """The poison of the measured x64 stacks: each quadword names its address."""
    low = address & ~7
    words = (
        (0xD15EA5ED << 32 | word & 0xFFFFFFFF).to_bytes(8, "little")
        for word in range(low, address + length, 8)
    )
    return b"".join(words)[address - low :][:length]


def stack_poison_86(address: int, length: int) -> bytes:
    """The poison of the measured x86 stacks."""
    low = address & ~3
    words = ((0xD15E << 16 | word & 0xFFFF).to_bytes(4, "little") for word in range(low, address + length, 4))
    return b"".join(words)[address - low :][:length]


def kernel_address(architecture: str, kind: str, stack_pointer: int) -> int:
    """Returns where a frame from kernel mode lies, below the interrupted stack pointer."""
    if architecture != X64:
        return stack_pointer - 0x74
    return stack_pointer - 0x198 if kind == ZW else (stack_pointer & ~0xF) - 0x190


def forge(architecture: str, entry: Entry, registers: Registers, address: int, poison: Poison) -> Forged:
    """Makes the frame that an entry leaves.

    Args:
        architecture: X64, X86_OLD or X86_BLUE
        entry: how the kernel was entered
        registers: every register at the entry, by lower-case name, as the reference data has them
        address: where the frame lies
        poison: what the stack held before, by (address, length)
    """
    size = FRAME_SIZE[architecture]
    if architecture == X64:
        writer = Writer(trapframes64.OFFSETS, poison(address, size))
        trapframes64.write(writer, entry, registers)
    else:
        writer = Writer(trapframes86.OFFSETS[architecture], poison(address, size))
        trapframes86.write(writer, entry, registers, architecture == X86_BLUE)
    return Forged(bytes(writer.data), writer.expected)
