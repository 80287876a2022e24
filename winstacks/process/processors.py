# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The processors of an image: their KPRCBs, their threads, their own stacks, their saved contexts."""

from __future__ import annotations

import logging
from typing import Iterator, Set, Tuple

from ..memory.decode.records import NamedTuple
from ..memory.decode.view import View
from ..memory.image import Image

vollog = logging.getLogger(__name__)

MAX_PROCESSORS = 2048
"""Windows 11 and Server 2022 run on at most 2048 logical processors."""

PROCESSORS = "KiProcessorBlock"

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

    `context` is the CONTEXT to which KPRCB.Context points, or else that in KPRCB.ProcessorState. It is valid
    only if its ContextFlags are set. Measured: on x64 (19041) the first lies elsewhere and the second is
    empty; on ARM64 (22000) they are the same.
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
        self._image = image
        self._memory = image.memory(image.kernel)

    @classmethod
    def list_processors(cls, image: Image) -> Iterator[Processor]:
        """Yields the processors of an image in the order of their numbers; none without a kernel."""
        finder = cls(image)
        seen: Set[int] = set()
        repeated = unknown = 0
        memory, block = finder._memory, image.require_symbol(PROCESSORS)
        for number in range(0 if block is None else finder._count()):
            kprcb = memory.pointer((block or 0) + number * memory.pointer_size) or 0
            unknown += not kprcb
            repeated += kprcb in seen
            if kprcb and kprcb not in seen:
                seen.add(kprcb)
                yield finder._processor(number, kprcb)
        if repeated:
            vollog.warning(f"entries of KiProcessorBlock repeat the KPRCB of another processor: {repeated}")
        if unknown:
            vollog.warning(
                f"entries of KiProcessorBlock without a KPRCB: {unknown}. The running thread, the timers and "
                "the DPCs of a processor are unknown without it"
            )

    def _count(self) -> int:
        """Returns KeNumberProcessors, limited to what Windows supports; 1 if it is not in the image."""
        place = self._image.require_symbol("KeNumberProcessors")
        count = self._memory.number(place, 4)
        if place is not None and count is None:
            vollog.warning("KeNumberProcessors is not in the image: processors but the first are unknown")
        return min(max(count or 0, 1), MAX_PROCESSORS)

    def _processor(self, number: int, kprcb: int) -> Processor:
        block = self._image.at("_KPRCB", kprcb)
        return Processor(
            number,
            kprcb,
            block["CurrentThread"] or 0,
            block["IdleThread"] or 0,
            block["Context"] or block.place("ProcessorState.ContextFrame") or 0,
            tuple(self._stacks(block)),
        )

    def _stacks(self, kprcb: View) -> Iterator[ProcessorStack]:
        width = self._memory.pointer_size
        size = _STACK_SIZES[width]
        for kind, member in ((DPC, "DpcStack"), (ISR, "IsrStack")):
            base = kprcb[member]
            if base:
                yield ProcessorStack(kind, base, base - size)
        # A 32-bit kernel has task gates and no table of interrupt stacks.
        types = self._image.types
        prcb, table = types.find("_KPCR").first_member("Prcb"), types.find("_KTSS64").first_member("Ist")
        if prcb is None or table is None or not kprcb.address:
            return
        tss = self._image.at("_KPCR", kprcb.address - prcb.offset)["TssBase"]
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
