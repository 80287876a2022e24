# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks of the Object Manager's reference traces: the `_STACK_TABLE` that ObpStackTable points to."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from ..base.decode.reading import Chunks, Reader
from . import event
from .decode import objecttrace
from .decode.objecttrace import StackTable, StackTableLayout

SYMBOL = "ObpStackTable"


class Stack(NamedTuple):
    """The frames of a trace, innermost first; `status` says why there are none."""

    frames: Tuple[int, ...]
    status: str


class ObjectStacks:
    """Reads traces by number, each once.

    Args:
        reader: reads the kernel's memory
        address: of the table; 0 or None where there is none
        layout: of the table
    """

    def __init__(self, reader: Reader, address: Optional[int], layout: StackTableLayout) -> None:
        self._layout = layout
        self._chunks = Chunks(reader)
        self._table: Optional[StackTable] = None
        self._known: Dict[int, Stack] = {}
        data = self._chunks.read(address, layout.header_size) if address else None
        if data is not None:
            self._table = objecttrace.decode_stack_table(data, layout)

    def stack(self, number: int) -> Stack:
        """Returns a trace."""
        if number not in self._known:
            self._known[number] = self._read(number)
        return self._known[number]

    def _read(self, number: int) -> Stack:
        if self._table is None:
            return Stack((), event.NO_STACK_TABLE)
        address = objecttrace.locate_trace(self._table, number, self._layout)
        if address is None:
            return Stack((), event.NO_TRACE)
        data = self._chunks.read(address, self._layout.trace_size)
        if data is None:
            return Stack((), event.TRACE_UNREADABLE)
        return Stack(objecttrace.decode_trace(data, self._layout), "")
