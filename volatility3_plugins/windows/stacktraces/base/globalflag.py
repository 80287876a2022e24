# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""NtGlobalFlag of the kernel and of processes."""

from __future__ import annotations

from typing import Optional

from volatility3.framework import interfaces

from . import bulk
from .peek import Peek
from .spaces import AddressSpace

PEB_OFFSETS = {8: 0xBC, 4: 0x68}
"""PEB.NtGlobalFlag by pointer size: the same from XP to 11 (public symbols)."""

_SIZE = 4


def read(
    context: interfaces.context.ContextInterface, kernel_module_name: str, space: AddressSpace
) -> Optional[int]:
    """Returns the NtGlobalFlag of an address space (the exported kernel variable, or the PEB's member).

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        space: the kernel or one half of a process

    Returns:
        The flags; None when they cannot be read, or there is no PEB.
    """
    if space.kernel:
        kernel = context.modules[kernel_module_name]
        if not kernel.has_symbol("NtGlobalFlag"):
            return None
        base = bulk.canonical(context.layers[kernel.layer_name], kernel.offset)
        address = base + kernel.get_symbol("NtGlobalFlag").address
    elif space.peb and space.layer_name:
        address = space.peb + PEB_OFFSETS[space.pointer_size]
    else:
        return None
    data = Peek(context, space.layer_name, space.pointer_size).read(address, _SIZE)
    return None if data is None else int.from_bytes(data, "little")
