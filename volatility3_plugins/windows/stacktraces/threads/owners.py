# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The processes whose threads are listed: each with both halves of its address space."""

from __future__ import annotations

from typing import Collection, Iterator, NamedTuple, Optional

from volatility3.framework import interfaces

from ..base.spaces import AddressSpace, AddressSpaces


class Process(NamedTuple):
    """A process: its native space, and its 32-bit half if it is a WoW64 process."""

    space: AddressSpace
    wow64: Optional[AddressSpace]


def processes(
    context: interfaces.context.ContextInterface,
    kernel_module_name: str,
    pids: Optional[Collection[int]] = None,
    offset: Optional[int] = None,
) -> Iterator[Process]:
    """Yields processes; the arguments are those of `AddressSpaces.list_spaces`."""
    native: Optional[AddressSpace] = None
    for space in AddressSpaces.list_spaces(context, kernel_module_name, pids, offset):
        # The 32-bit half follows its native one.
        if native is not None:
            yield Process(native, space if space.wow64 else None)
        native = None if space.kernel or space.wow64 else space
    if native is not None:
        yield Process(native, None)
