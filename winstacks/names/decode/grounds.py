# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The names of functions in which threads begin: the outermost frame of a whole stack is in one of these."""

from __future__ import annotations

from typing import Optional

from .rules import undecorated

GROUND = (
    "RtlUserThreadStart", "LdrInitializeThunk", "RtlUserFiberStart",
    "BaseThreadStart", "BaseProcessStart", "BaseFiberStart", "BaseThreadStartThunk", "BaseProcessStartThunk",
)  # fmt: skip
"""Functions in which user-mode stacks end: in ntdll since Vista, in kernel32 before."""

ENTRIES = ("Ki", "Kx")
"""Prefixes of the kernel functions in which kernel stacks end: KiStartSystemThread, KiIdleLoop, and the
entries from user mode, such as KiSystemCall64 and KiPageFault."""

GROUND_MODULES = ("ntdll", "kernel32")
"""Modules with the functions in GROUND: other modules could copy their names."""

KERNEL_MODULES = ("nt",)
"""Modules with the functions of ENTRIES."""

_THUNK = "BaseThreadInitThunk"
"""The function of kernel32 that RtlUserThreadStart calls."""

_KERNEL_STARTS = ("PspSystemThreadStartup", "PspUserThreadStartup")
"""The functions that KiStartSystemThread and KiStartUserThread call."""


def is_ground(function: Optional[str], kernel: bool) -> bool:
    """Returns whether stacks end in a function of this name; 32-bit names are decorated."""
    plain = undecorated(function)
    return plain.startswith(ENTRIES) if kernel else plain in GROUND


def is_first(module: str, function: str, kernel: bool) -> bool:
    """Returns whether only functions of Windows that begin a thread are outside a frame in this function."""
    plain = undecorated(function)
    if module.lower() not in (KERNEL_MODULES if kernel else GROUND_MODULES):
        return False
    if kernel:
        return plain in _KERNEL_STARTS or plain.startswith(("KiStart", "KiThreadStartup"))
    return plain in GROUND or plain == _THUNK
