# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel stack of a thread: one segment, or several after a call to user mode or an expansion.

At the top of each segment (at its InitialStack) a control block names the segment before it.
Source: _KSTACK_CONTROL (8 and later) and _KERNEL_STACK_CONTROL (before) of the public symbols.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Set, Tuple

from volatility3.framework import interfaces

from ..base import members
from ..base.decode.field import Field
from ..base.peek import Peek
from .lister import Thread

MAX_SEGMENTS = 32
MAX_STACK = 1 << 18
"""Bytes: the largest kernel stacks of Windows have 0x24000 (x64, after expansion)."""

_CONTROLS = ("_KSTACK_CONTROL", "_KERNEL_STACK_CONTROL")
_MEMBERS = ("StackBase", "StackLimit", "InitialStack", "KernelStack")


class Segment(NamedTuple):
    """A part of a kernel stack (canonical addresses).

    `base` is its upper end and `limit` its lower; entries from user mode begin below `initial`. Below
    `kernel_stack` nothing is in use, unless the thread was running.
    """

    base: int
    limit: int
    initial: int
    kernel_stack: int


class KernelStacks:
    """Finds the segments of kernel stacks.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        kernel_start: the first address of the kernel's half
    """

    def __init__(
        self, context: interfaces.context.ContextInterface, kernel_module_name: str, kernel_start: int
    ) -> None:
        kernel = context.modules[kernel_module_name]
        self._start = kernel_start
        wide = context.layers[kernel.layer_name].bits_per_register == 64
        self._peek = Peek(context, kernel.layer_name, 8 if wide else 4)
        self._control: Tuple[Field, ...] = ()
        for control in _CONTROLS:
            found = [
                members.find(context, kernel.symbol_table_name, control, f"Previous.{name}")
                for name in _MEMBERS
            ]
            known = tuple(field for field in found if field is not None)
            if not self._control and len(known) == len(_MEMBERS):
                self._control = known

    def segments(self, thread: Thread) -> Iterator[Segment]:
        """Yields the segments of a thread's kernel stack, the current one first; none if it has no stack."""
        values = (thread.stack_base, thread.stack_limit, thread.initial_stack, thread.kernel_stack)
        if None in values:
            return
        current = self._checked(*(value or 0 for value in values))
        seen: Set[int] = set()
        while current is not None and current.base not in seen and len(seen) < MAX_SEGMENTS:
            yield current
            seen.add(current.base)
            current = self._previous(current)

    def _checked(self, base: int, limit: int, initial: int, kernel_stack: int) -> Optional[Segment]:
        """Returns a segment if these can be its borders."""
        if not self._start <= limit < base or base - limit > MAX_STACK or not limit < initial <= base:
            return None
        return Segment(base, limit, initial, kernel_stack)

    def _previous(self, segment: Segment) -> Optional[Segment]:
        values = []
        for field in self._control:
            address = segment.initial + field.offset
            data = self._peek.read(address, field.size) if address + field.size <= segment.base else None
            if data is None:
                return None
            values.append(int.from_bytes(data, "little"))
        return self._checked(*values) if values else None
