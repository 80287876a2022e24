# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel stack of a thread: one segment, or several after a callback to user mode or a stack expansion.

At the top of each segment (at its InitialStack) a control block names the segment before it.
Source: _KSTACK_CONTROL (8 and later) and _KERNEL_STACK_CONTROL (before) of the public symbols.
"""

from __future__ import annotations

from typing import Iterator, Optional, Set, Tuple

from ..base.decode.record import Record
from ..base.decode.structure import Field
from ..base.image import Image
from .lister import Thread

MAX_SEGMENTS = 32
MAX_STACK = 1 << 18
"""Bytes: the largest kernel stacks of Windows have 0x24000 (x64, after expansion)."""

_CONTROLS = ("_KSTACK_CONTROL", "_KERNEL_STACK_CONTROL")
_MEMBERS = ("StackBase", "StackLimit", "InitialStack", "KernelStack")


class Segment(Record):
    """A part of a kernel stack (canonical addresses).

    `base` is its upper end, `limit` its lower end. Entries from user mode begin below `initial`. The memory
    below `kernel_stack` is not in use, unless the thread was running.
    """

    base: int
    limit: int
    initial: int
    kernel_stack: int


class KernelStacks:
    """Finds the segments of kernel stacks.

    Args:
        image: the image
        kernel_start: the first address of the kernel's half
    """

    def __init__(self, image: Image, kernel_start: int) -> None:
        self._start = kernel_start
        self._memory = image.memory(image.kernel)
        self._control: Tuple[Field, ...] = ()
        for control in filter(None, map(image.types.find, _CONTROLS)):
            fields = [control.find(f"Previous.{name}") for name in _MEMBERS]
            known = tuple(field for field in fields if field is not None)
            if not self._control and len(known) == len(_MEMBERS):
                self._control = known

    def segments(self, thread: Thread) -> Iterator[Segment]:
        """Yields the segments of a thread's kernel stack, the current one first."""
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
        """Returns the segment with these borders, or None if they are impossible."""
        if not self._start <= limit < base or base - limit > MAX_STACK or not limit < initial <= base:
            return None
        return Segment(base, limit, initial, kernel_stack)

    def _previous(self, segment: Segment) -> Optional[Segment]:
        values = []
        for field in self._control:
            inside = segment.initial + field.offset + field.size <= segment.base
            value = self._memory.member(segment.initial, field) if inside else None
            if value is None:
                return None
            values.append(value)
        return self._checked(*values) if values else None
