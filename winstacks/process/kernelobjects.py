# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's structures of processes and threads: all rooms take `_EPROCESS` and `_ETHREAD` from here."""

from __future__ import annotations

from typing import Optional

from ..memory.decode.memory import Memory
from ..memory.decode.structure import Structure
from ..memory.decode.view import View
from ..memory.image import Image

PROCESS, THREAD = "_EPROCESS", "_ETHREAD"

PROCESS_OBJECT, THREAD_OBJECT = 3, 6
"""ProcessObject and ThreadObject of the public enumeration _KOBJECTS."""

_LOCK_BIT = 0x80
"""Since 8 this bit of _DISPATCHER_HEADER.Type is the dispatcher's lock."""

IMAGE_FILE_NAME = "ImageFileName"

PROCESS_OF_THREAD = ("Tcb.Process", "ThreadsProcess", "Tcb.ApcState.Process")
"""Members of an _ETHREAD that point to its process; the first existing one is used."""

VAD_ROOT = ("VadRoot.Root", "VadRoot.BalancedRoot.RightChild", "VadRoot.BalancedRoot", "VadRoot")
"""Members of an _EPROCESS that hold the root of its VADs; the first existing one is used."""

WOW64_PROCESS = ("WoW64Process", "Wow64Process")
"""Members of a 64-bit kernel's _EPROCESS that lead to its 32-bit half."""


def process_type(image: Image) -> Structure:
    """Returns `_EPROCESS`; without members if the kernel's symbols lack it."""
    return image.types.find(PROCESS)


def thread_type(image: Image) -> Structure:
    """Returns `_ETHREAD`; without members if the kernel's symbols lack it."""
    return image.types.find(THREAD)


def process_at(image: Image, eprocess: int) -> View:
    """Returns the `_EPROCESS` at an address; 0 if none is known."""
    return image.at(PROCESS, eprocess)


def thread_at(image: Image, ethread: int) -> View:
    """Returns the `_ETHREAD` at an address; 0 if none is known."""
    return image.at(THREAD, ethread)


def is_type(value: Optional[int], kind: int) -> bool:
    """Returns whether _DISPATCHER_HEADER.Type is PROCESS_OBJECT or THREAD_OBJECT; None: it was not read."""
    return value is not None and value & ~_LOCK_BIT == kind


def may_lie_at(image: Image, address: int) -> bool:
    """Returns whether a structure of the kernel may lie at an address, as far as the address shows."""
    machine = image.machine
    in_kernel = machine.kernel_start <= address and machine.is_canonical(address)
    return in_kernel and not address % image.pointer_size


def is_absent(memory: Memory, link: int) -> bool:
    """Returns whether a node of a list is not in the image.

    Programs that copy memory write zeros for pages that they cannot read; no node of a list has zeros.
    """
    links = memory.links(link)
    return links is None or (links == (0, 0) and memory.is_zero_page(link))
