# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The processors of an image: their KPRCBs, what they run, their own stacks, their saved contexts."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces

from ..base import bulk, members
from ..base.peek import Peek

MAX_PROCESSORS = 2048
"""Windows 11 and Server 2022 run on at most 2048 logical processors."""

DPC = "dpc"
ISR = "isr"
IST = "ist"

_STACK_SIZE = 0x6000
"""KERNEL_STACK_SIZE of x64; nothing in the image says how large a processor's stack is."""
_STACK_SIZE_X86 = 0x3000


class ProcessorStack(NamedTuple):
    """A stack that belongs to a processor: `kind` is dpc, isr, or ist with its index; `base` its upper end.

    `limit` is the lowest address that it can have: what is below its real end may be anything.
    """

    kind: str
    base: int
    limit: int


class Processor(NamedTuple):
    """A processor; addresses are canonical, 0 where the image does not say.

    `context` is the CONTEXT in KPRCB.ProcessorState, which holds one only if its ContextFlags say so.
    """

    number: int
    kprcb: int
    current_thread: int
    idle_thread: int
    context: int
    stacks: Tuple[ProcessorStack, ...]


class Processors(interfaces.configuration.VersionableInterface):
    """Lists the processors of an image."""

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        super().__init__()
        kernel = context.modules[kernel_module_name]
        layer = context.layers[kernel.layer_name]
        self._context = context
        self._kernel = kernel
        self._wide = layer.bits_per_register == 64
        self._peek = Peek(context, kernel.layer_name, 8 if self._wide else 4)
        self._base = bulk.canonical(layer, kernel.offset)

    @classmethod
    def list_processors(
        cls, context: interfaces.context.ContextInterface, kernel_module_name: str
    ) -> Iterator[Processor]:
        """Yields the processors in the order of their numbers.

        Args:
            context: the context that holds the image
            kernel_module_name: the name of the kernel's module in the context
        """
        finder = cls(context, kernel_module_name)
        for number in range(finder._count()):
            kprcb = finder._global("KiProcessorBlock", number)
            if kprcb:
                yield finder._processor(number, kprcb)

    def _count(self) -> int:
        """Returns KeNumberProcessors, as far as it may be believed."""
        if not self._kernel.has_symbol("KeNumberProcessors"):
            return 1
        data = self._peek.read(self._base + self._kernel.get_symbol("KeNumberProcessors").address, 4)
        return min(max(int.from_bytes(data or b"", "little"), 1), MAX_PROCESSORS)

    def _global(self, name: str, index: int = 0) -> int:
        if not self._kernel.has_symbol(name):
            return 0
        address = self._base + self._kernel.get_symbol(name).address
        return self._peek.pointer(address + index * self._peek.pointer_size) or 0

    def _field(self, type_name: str, *paths: str) -> Optional[members.Field]:
        return members.find(self._context, self._kernel.symbol_table_name, type_name, *paths)

    def _pointer(self, address: int, type_name: str, *paths: str) -> int:
        """Returns a pointer of a structure at an address, 0 where there is none."""
        field = self._field(type_name, *paths)
        return 0 if field is None else self._peek.pointer(address + field.offset) or 0

    def _processor(self, number: int, kprcb: int) -> Processor:
        context = self._field("_KPRCB", "ProcessorState.ContextFrame")
        return Processor(
            number,
            kprcb,
            self._pointer(kprcb, "_KPRCB", "CurrentThread"),
            self._pointer(kprcb, "_KPRCB", "IdleThread"),
            kprcb + context.offset if context is not None else 0,
            tuple(self._stacks(kprcb)),
        )

    def _stacks(self, kprcb: int) -> Iterator[ProcessorStack]:
        size = _STACK_SIZE if self._wide else _STACK_SIZE_X86
        for kind, member in ((DPC, "DpcStack"), (ISR, "IsrStack")):
            base = self._pointer(kprcb, "_KPRCB", member)
            if base:
                yield ProcessorStack(kind, base, base - size)
        prcb = self._field("_KPCR", "Prcb")
        if not self._wide or prcb is None:
            return
        tss = self._pointer(kprcb - prcb.offset, "_KPCR", "TssBase")
        table = self._field("_KTSS64", "Ist")
        if not tss or table is None:
            return
        # Ist[0] is reserved.
        for index in range(1, table.size // 8):
            base = self._peek.pointer(tss + table.offset + 8 * index) or 0
            if base:
                yield ProcessorStack(f"{IST}{index}", base, base - size)
