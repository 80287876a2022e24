# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The processors of an image: their KPRCBs, their threads, their own stacks, their saved contexts."""

from __future__ import annotations

import logging
from typing import Iterator, NamedTuple, Optional, Set, Tuple

from ..memory.decode.structure import Field
from ..memory.image import Image
from .processlist import MAX_PROCESSORS, PROCESSORS

vollog = logging.getLogger(__name__)


DPC = "dpc"
ISR = "isr"
IST = "ist"

_STACK_SIZES = {8: 0x6000, 4: 0x3000}
"""KERNEL_STACK_SIZE of the Windows driver kit, by pointer size. The image does not have the size of a
processor's stack."""


class ProcessorStack(NamedTuple):
    """A stack of a processor: `kind` is dpc, isr, or ist with its index; `base` is its upper end.

    `limit` is the lowest possible end of the stack. The real end may be higher: then other data lies between.
    """

    kind: str
    base: int
    limit: int


class Processor(NamedTuple):
    """A processor. Addresses are canonical; an address that the image lacks is 0.

    `context` is the CONTEXT in KPRCB.ProcessorState, which is valid only if its ContextFlags are set.
    """

    number: int
    kprcb: int
    current_thread: int
    idle_thread: int
    context: int
    stacks: Tuple[ProcessorStack, ...]


class Processors:
    """Lists the processors of an image."""

    def __init__(self, image: Image) -> None:
        super().__init__()
        self._image = image
        self._memory = image.memory(image.kernel)

    @classmethod
    def list_processors(cls, image: Image) -> Iterator[Processor]:
        """Yields the processors of an image in the order of their numbers; none without a kernel."""
        finder = cls(image)
        seen: Set[int] = set()
        repeated = 0
        for number in range(finder._count()):
            kprcb = finder._global(PROCESSORS, number)
            repeated += kprcb in seen
            if kprcb and kprcb not in seen:
                seen.add(kprcb)
                yield finder._processor(number, kprcb)
        if repeated:
            vollog.warning(f"{repeated} entries of KiProcessorBlock repeat the KPRCB of another processor")

    def _count(self) -> int:
        """Returns KeNumberProcessors, limited to what Windows supports."""
        address = self._image.require_symbol("KeNumberProcessors")
        count = None if address is None else self._memory.number(address, 4)
        return min(max(count or 0, 1), MAX_PROCESSORS)

    def _global(self, name: str, index: int = 0) -> int:
        address = self._image.require_symbol(name)
        if address is None:
            return 0
        return self._memory.pointer(address + index * self._memory.pointer_size) or 0

    def _field(self, type_name: str, *paths: str) -> Optional[Field]:
        structure = self._image.types.first_structure(type_name)
        return None if structure is None else structure.first_member(*paths)

    def _pointer(self, address: int, type_name: str, *paths: str) -> int:
        """Returns a pointer member of the structure at an address; 0 if it is missing."""
        field = self._field(type_name, *paths)
        return 0 if field is None else self._memory.pointer(address + field.offset) or 0

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
        width = self._memory.pointer_size
        size = _STACK_SIZES[width]
        for kind, member in ((DPC, "DpcStack"), (ISR, "IsrStack")):
            base = self._pointer(kprcb, "_KPRCB", member)
            if base:
                yield ProcessorStack(kind, base, base - size)
        # A 32-bit kernel has task gates and no table of interrupt stacks.
        prcb, table = self._field("_KPCR", "Prcb"), self._field("_KTSS64", "Ist")
        if prcb is None or table is None:
            return
        tss = self._pointer(kprcb - prcb.offset, "_KPCR", "TssBase")
        if not tss:
            return
        # Ist[0] is reserved.
        for index in range(1, table.size // width):
            base = self._memory.pointer(tss + table.offset + width * index) or 0
            if base:
                yield ProcessorStack(f"{IST}{index}", base, base - size)


def processors_of(image: Image) -> Tuple[Processor, ...]:
    """Returns the processors of an image, by their numbers, for `image.service(processors.of)`."""
    return tuple(Processors.list_processors(image))
