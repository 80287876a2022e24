# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The functions in which threads begin: the outermost frame of a whole stack is in one of these."""

from __future__ import annotations

from typing import Optional

from ..columns.words import KERNEL
from ..names.decode.rules import undecorated
from ..stacklist.stack import StackRecord

GROUND = (
    *("RtlUserThreadStart", "LdrInitializeThunk", "RtlUserFiberStart"),
    *(
        "BaseThreadStart",
        "BaseProcessStart",
        "BaseFiberStart",
        "BaseThreadStartThunk",
        "BaseProcessStartThunk",
    ),
)
"""Functions in which user-mode stacks end: in ntdll since Vista, in kernel32 before."""

ENTRIES = ("Ki", "Kx")
"""Prefixes of the kernel functions in which kernel stacks end: KiStartSystemThread, KiIdleLoop, and the
entries from user mode, such as KiSystemCall64 and KiPageFault."""

GROUND_MODULES = ("ntdll", "kernel32")
"""Modules with the functions in GROUND."""
_KERNEL_MODULES = ("nt",)


def ends_in_ground(stack: StackRecord) -> bool:
    """Returns whether the outermost frame of a stack is in a function in which threads begin."""
    return (
        bool(stack.frames)
        and in_ground_module(stack)
        and _is_ground(stack.frames[-1].details.function, stack.kind)
    )


def _is_ground(function: Optional[str], kind: str) -> bool:
    """Returns whether stacks of a kind end in a function of this name; 32-bit names are decorated."""
    plain = undecorated(function)
    return plain.startswith(ENTRIES) if kind == KERNEL else plain in GROUND


def in_ground_module(stack: StackRecord) -> bool:
    """Returns whether a stack ends in a module with such functions: other modules could copy their names."""
    module = (stack.frames[-1].details.module or "").lower()
    return module in (_KERNEL_MODULES if stack.kind == KERNEL else GROUND_MODULES)
