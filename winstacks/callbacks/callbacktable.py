# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The functions that the kernel calls in a process by KeUserModeCallback: `PEB.KernelCallbackTable`.

User32 sets the member to a table of its own functions (public symbols have the member; described: T. Mandt,
"Kernel Attacks through User-Mode Callbacks", 2011). Those functions are on stacks anyway. An entry that leads
elsewhere than most was written, in the table or in a copy of it. No symbols have the length of the table: it
ends at the first value that leads to no executable memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterator, List, Optional

from ..memory.decode.ranges import span_at
from ..memory.decode.status import status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import integers
from ..memory.image import AddressSpace, Image
from ..process.regions import Region
from ..process.usertypes import peb_at
from ..process.vads import regions
from .callback import KERNEL_CALLBACK, Callback

_MOST = 512
"""The most entries that are read."""


def of_table(image: Image, space: AddressSpace) -> Iterator[Callback]:
    """Yields the entries of a process's table that lead elsewhere than most; a row if it cannot be read."""
    memory = image.memory(space)
    table = peb_at(image, space)["KernelCallbackTable"]
    if not table or not space.layer_name:
        return
    size = memory.pointer_size
    known, whole = image.service(regions).list_regions(space)
    targets: List[Region] = []
    entries: List[int] = []
    data = memory.load(table, _MOST * size)
    for number in range(_MOST):
        value = data.read(table + number * size, size)
        address = None if value is None else integers(bytes(value), size)[0]
        region = None if not address else span_at(known, address)
        if address is None or region is None or not region.executable:
            break
        entries.append(address)
        targets.append(region)
    if not entries and whole and data.read(table, size) is None:
        yield Callback(KERNEL_CALLBACK, table, (), status(StatusCode.UNREADABLE))
    usual = _usual(targets)
    for number, address in enumerate(entries):
        if targets[number] != usual:
            yield Callback(KERNEL_CALLBACK, table + number * size, (address,))


def _usual(targets: List[Region]) -> Optional[Region]:
    """Returns the image to which most entries lead; None if that is none."""
    most = [region for region, _ in Counter(targets).most_common(1)]
    return most[0] if most and most[0].image else None
