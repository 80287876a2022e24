# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Walks the stacks of an image: which memory, which modules and which names a walk is given."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from volatility3.framework import interfaces

from ..base import bulk, pages
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from ..names.symbolizer import Symbolizer
from .decode.frames import Walk
from .decode.registers_x64 import Registers
from .decode.walk_x64 import Walker64
from .decode.walk_x86 import Walker32
from .modules import StackModules
from .starts import Range, Start

Traps = Optional[Mapping[int, Optional[Registers]]]
"""x64: addresses of machine frames and what was saved beside each; x86: addresses of trap frames."""


class StackWalkers:
    """Walks in the address space of one process at a time: threads come process by process.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        symbolizer: knows the modules of every address space
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
    ) -> None:
        self._context = context
        self._kernel_layer = context.modules[kernel_module_name].layer_name
        self._symbolizer = symbolizer
        self._wide_kernel = context.layers[self._kernel_layer].bits_per_register == 64
        self._modules: Optional[StackModules] = None
        self._peek: Optional[Peek] = None

    def walk(self, space: AddressSpace, start: Start, stacks: Sequence[Range], traps: Traps = None) -> Walk:
        """Walks from a register state.

        Args:
            space: the address space
            start: the innermost state
            stacks: limits of the stacks, empty if they are not known
            traps: trap frames that lie on the stacks (see `Traps`)
        """
        if start.wide is not None:
            return self._wide(space, traps).walk(start.wide, start.interrupted, stacks)
        assert start.narrow is not None
        return self._narrow(space, traps).walk(start.narrow, start.interrupted, stacks)

    def search(
        self, space: AddressSpace, sp: int, reason: str, stacks: Sequence[Range], traps: Traps = None
    ) -> Walk:
        """Walks a kernel stack from the first return address that a scan finds; else see `walk`."""
        walker = self._wide if space.pointer_size == 8 else self._narrow
        return walker(space, traps).search(sp, reason, stacks)

    def peek(self, space: AddressSpace) -> Peek:
        """Returns a reader of an address space (of the kernel's half only, if the user's has no tables)."""
        self._enter(space)
        assert self._peek is not None
        return self._peek

    def _wide(self, space: AddressSpace, traps: Traps) -> Walker64:
        known = {address: saved for address, saved in (traps or {}).items() if saved is not None}
        return Walker64(self._enter(space).find, self.peek(space).read, known, self._may_execute)

    def _narrow(self, space: AddressSpace, traps: Traps) -> Walker32:
        return Walker32(self._enter(space).find, self.peek(space).read, traps or {}, self._may_execute)

    def _may_execute(self, address: int) -> bool:
        """Tells whether an address of the current address space may be code; the tables know, if any do."""
        assert self._peek is not None
        layer = self._context.layers[self._peek.layer_name]
        if not bulk.is_canonical(layer, address):
            return False
        return pages.may_execute(self._context, layer, bulk.masked(layer, address))

    def _enter(self, space: AddressSpace) -> StackModules:
        """Makes an address space the current one; returns its modules."""
        layer_name = space.layer_name or self._kernel_layer
        if self._modules is None or self._peek is None or self._peek.layer_name != layer_name:
            self._peek = Peek(self._context, layer_name, 8 if self._wide_kernel else 4)
            self._modules = StackModules(self._context, layer_name, self._symbolizer.names(space))
        return self._modules
