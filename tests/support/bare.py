# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images without a kernel, and our symbol tables loaded into such an image."""

from __future__ import annotations

import functools
from typing import List

from volatility3.framework import contexts
from volatility3.framework.layers import physical

from winstacks.memory import tables
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.structure import Structures
from winstacks.memory.image import Image
from winstacks.names.decode.unloadevents import EventLayout

MACHINES = {machine.pointer_size: machine for machine in (Machine.AMD64, Machine.I386)}


def image(pointer_size: int = 8, data: bytes = b"") -> Image:
    """An image over bytes that begin at address 0, in a context of its own."""
    context = contexts.Context()
    context.add_layer(physical.BufferDataLayer(context, "tests.bare", "bare", data))
    return Image.of_layer(context, "bare", MACHINES[pointer_size], "tests")


@functools.lru_cache(maxsize=None)
def ours(name: str) -> Structures:
    """The structures of one of our tables."""
    return image().our_types(name)


@functools.lru_cache(maxsize=None)
def event_layouts(pointer_size: int) -> List[EventLayout]:
    """The layouts of ntdll's unload events, the newest first."""
    arch = MACHINES[pointer_size].arch
    names = [f"unload-{version}-{arch}" for version in tables.generations("unload", arch)]
    return [EventLayout(ours(name)["_RTL_UNLOAD_EVENT_TRACE"]) for name in names]
