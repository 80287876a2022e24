# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code addresses of ARM64, with or without the code that authenticates them.

Windows has halves of 47 bits and no tags (T0SZ = T1SZ = 17, TBI0 = TBI1 = 0 in the TCR_EL1 of a crash of
22000). So an authentication code is in bits 63 to 56 and 54 to 47, and bit 55 decides the half.
"""

from .unwind_arm64 import INSTRUCTION

_HALF = 1 << 55
_LOW = (1 << 47) - 1
_HIGH = (1 << 64) - 1 - _LOW


def strip(value: int) -> int:
    """Returns a code address without the code that authenticates it: the identity on plain addresses."""
    return value | _HIGH if value & _HALF else value & _LOW


def may_be_kernel_code(value: int) -> bool:
    """Returns whether a value may be a code address of the kernel's half."""
    return bool(value & _HALF) and value % INSTRUCTION == 0
