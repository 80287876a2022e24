# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Who took and dropped references to the objects that the Object Manager traces."""

from __future__ import annotations

import functools
from typing import Iterator

from volatility3.framework import constants, interfaces

from ..base import bulk
from ..base.objectheaders import Objects
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from . import event, layouts
from . import stacks as objectstacks
from .event import ObjectEvent, nothing
from .refs import ObjectRefs
from .stacks import ObjectStacks

SYMBOL = "ObpObjectTable"


class ObjectTraces(interfaces.configuration.VersionableInterface):
    """Lists the reference traces of objects.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        kernel_space: the kernel's address space
    """

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        kernel_space: AddressSpace,
    ) -> None:
        super().__init__()
        self._kernel = context.modules[kernel_module_name]
        self._base = bulk.canonical(context.layers[self._kernel.layer_name], self._kernel.offset)
        self._pointer_size = kernel_space.pointer_size
        self._peek = Peek(context, kernel_space.layer_name, self._pointer_size)
        self._reader = functools.partial(bulk.read_extents, context, kernel_space.layer_name)
        self._objects = Objects(context, kernel_module_name)
        table = self._kernel.symbol_table_name
        self._layouts = layouts.load(context, table, self._pointer_size)
        # 17763 and later have this type; in build 28000 the traces of objects went over to it.
        self._may_be_later = context.symbol_space.has_type(f"{table}{constants.BANG}_RTL_STACKDB_CONTEXT")

    def list_events(self) -> Iterator[ObjectEvent]:
        """Yields the events, object by object, each object's as they happened; nothing if none is traced.

        Traces of another form than that of Vista SP1 to build 26100 are not guessed at: the status of one
        event names the form.
        """
        if not self._kernel.has_symbol(SYMBOL):
            yield nothing(self._other_form() if self._layouts is None else event.NO_SYMBOL)
            return
        table = self._peek.pointer(self._base + self._kernel.get_symbol(SYMBOL).address)
        if table is None:
            yield nothing(event.UNREADABLE)
        elif table and (self._layouts is None or not self._kernel.has_symbol(objectstacks.SYMBOL)):
            yield nothing(self._other_form())
        elif table and self._layouts is not None:
            address = self._peek.pointer(self._base + self._kernel.get_symbol(objectstacks.SYMBOL).address)
            stacks = ObjectStacks(self._reader, address, self._layouts.stacks)
            refs = ObjectRefs(self._reader, self._layouts.refs, self._pointer_size, self._objects, stacks)
            yield from refs.events(table)

    def _other_form(self) -> str:
        return event.LATER_FORM if self._may_be_later else event.EARLIER_FORM
