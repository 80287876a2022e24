# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""NtGlobalFlag of the kernel and of processes."""

from __future__ import annotations

from typing import Optional

from ..memory.image import AddressSpace, Image
from .usertypes import peb_at

_SIZE = 4


def read(image: Image, space: AddressSpace) -> Optional[int]:
    """Returns the NtGlobalFlag of an address space, the kernel's variable or the member of a PEB; None if it
    cannot be read or the process has no PEB.

    A page of zeros stands for one that could not be copied: every PEB has the address of its image.
    """
    memory = image.memory(space)
    if space.kernel:
        place = image.require_symbol("NtGlobalFlag")
        flags = memory.number(place, _SIZE)
    elif space.peb and space.layer_name:
        place, flags = space.peb, peb_at(image, space).required("NtGlobalFlag")
    else:
        return None
    return None if not flags and memory.is_zero_page(place or 0) else flags


def is_lost(image: Image, space: AddressSpace) -> bool:
    """Returns whether an address space has an NtGlobalFlag that is not in the image."""
    if space.kernel:
        return image.require_symbol("NtGlobalFlag") is not None and read(image, space) is None
    return bool(space.peb and space.layer_name) and read(image, space) is None
