# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What an image's kernel says about its trap frames: layouts, address ranges, what its entries save."""

from __future__ import annotations

import re
from typing import FrozenSet, Optional

from volatility3.framework import constants, interfaces

from ..base import bulk, members
from ..base.peek import Peek
from ..base.spaces import KERNEL_PID, AddressSpaces
from ..names.symbolizer import Symbolizer
from .decode.members import Facts, Layout
from .decode.scan import Bounds

_KUSER_X86 = 0xFFDF0000
_FUNCTION = re.compile(r"nt!(\w+)(?:\+0x[0-9a-f]+)?$")
_PDB = "pdb"
_EXCEPTION_FRAME = "_KEXCEPTION_FRAME"


class TrapKernel:
    """The kernel of an image, as far as its trap frames go.

    `space` is its address space, `layout` its _KTRAP_FRAME, `exception` its _KEXCEPTION_FRAME (x64 only),
    `bounds` the ranges that the acceptance tests need, `facts` what holds for all its frames.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        symbolizer: names for return addresses into the kernel's entry code
        ist_tops: upper ends of the processors' interrupt stacks (canonical)
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
        ist_tops: FrozenSet[int] = frozenset(),
    ) -> None:
        kernel = context.modules[kernel_module_name]
        layer = context.layers[kernel.layer_name]
        self._context = context
        self._kernel = kernel
        self.wide = layer.bits_per_register == 64
        self.arch = "x64" if self.wide else "x86"
        self.pointer_size = 8 if self.wide else 4
        self._base = bulk.canonical(layer, kernel.offset)
        self.space = next(AddressSpaces.list_spaces(context, kernel_module_name, [KERNEL_PID]))
        self._names = symbolizer.names(self.space)
        self.layout = self._layout("_KTRAP_FRAME")
        known = context.symbol_space.has_type(kernel.symbol_table_name + constants.BANG + _EXCEPTION_FRAME)
        self.exception = self._layout(_EXCEPTION_FRAME) if known and self.wide else None
        linkage = self._symbol("KiServiceLinkage")
        module = self._names.module_at(self._base)
        self.bounds = Bounds(
            symbolizer.halves.user_end,
            symbolizer.halves.kernel_start,
            (self._base, module.module.end if module is not None else self._base),
            linkage,
            ist_tops,
        )
        self.facts = Facts(
            service_linkage=linkage,
            # In the kernels with the speculation mitigations of 2018.
            saves_arguments=bool(self._symbol("KiSystemCall64Shadow")),
            system_call_return=0 if self.wide else self._system_call_return(),
            # int 2C became the assertion's in 5.2, which also began to clear Dr7.
            clears_dr7=bool(self._symbol("KiRaiseAssertion")),
        )

    def function(self, address: Optional[int]) -> str:
        """Returns the kernel's function that a return address lies in, empty if the symbols do not say."""
        if not address:
            return ""
        name = self._names.name(address)
        found = _FUNCTION.match(name.symbol) if name.source == _PDB else None
        return found.group(1) if found else ""

    def facts_of(self, handler: str, dispatcher: str = "", debug_active: int = 0) -> Facts:
        """Returns the facts of one frame."""
        return self.facts._replace(handler=handler, dispatcher=dispatcher, debug_active=debug_active)

    def _symbol(self, name: str) -> int:
        if not self._kernel.has_symbol(name):
            return 0
        return self._base + int(self._kernel.get_symbol(name).address)

    def _system_call_return(self) -> int:
        """Returns KUSER_SHARED_DATA.SystemCallReturn, where sysenter's frames return to."""
        table = self._kernel.symbol_table_name
        field = members.find(self._context, table, "_KUSER_SHARED_DATA", "SystemCallReturn")
        layer_name = self._kernel.layer_name
        data = Peek(self._context, layer_name, 4).read(_KUSER_X86 + field.offset, 4) if field else None
        return int.from_bytes(data or b"", "little")

    def _layout(self, type_name: str) -> Layout:
        """Returns a structure with all its members as this image's symbol table has them.

        Raises:
            exceptions.SymbolError: when the table does not have it
        """
        table = self._kernel.symbol_table_name
        template = self._context.symbol_space.get_type(table + constants.BANG + type_name)
        found = {name: members.need(self._context, table, type_name, name) for name in template.vol.members}
        return Layout(self.arch, int(template.size), found)
