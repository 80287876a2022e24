# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Timer tables: the pointer of a timer to its DPC, and the form of a table that symbols do not describe."""

from __future__ import annotations

from typing import Iterable, Optional

from ...memory.decode.links import ReadLinks
from ...memory.decode.records import NamedTuple

_BITS = 64
_MASK = (1 << _BITS) - 1


def decoded_dpc(stored: int, timer: int, never: int, always: int) -> int:
    """Returns the address of a timer's DPC, 0 if it has none.

    x64 kernels store it encoded since 7 (described: Volatility, `windows.timers`).

    Args:
        stored: KTIMER.Dpc
        timer: canonical address of the KTIMER
        never, always: the values of KiWaitNever and KiWaitAlways
    """
    value, shift = stored ^ never, never & 0xFF & _BITS - 1
    value = (value << shift | value >> _BITS - shift) & _MASK
    value ^= timer & _MASK
    return int.from_bytes(value.to_bytes(8, "little"), "big") ^ always


class TimerTable(NamedTuple):
    """The place of the heads of a timer table: `length` of them, `stride` bytes apart."""

    start: int
    stride: int
    length: int

    @property
    def heads(self) -> range:
        """The addresses of the heads."""
        return range(self.start, self.start + self.stride * self.length, self.stride)


def likeliest(tables: Iterable[TimerTable], read_links: ReadLinks) -> Optional[TimerTable]:
    """Returns the table in which the most heads are heads of lists; None if few are in any.

    A head belongs to a list if the node behind it points back. In a wrong form most places are no heads, so
    each of these counts against the form. `tables` are one table in several forms.
    """
    best, most = None, 0
    for table in tables:
        good = sum(_is_head(head, read_links) for head in table.heads)
        if 2 * good - table.length > most:
            best, most = table, 2 * good - table.length
    return best


def _is_head(place: int, read_links: ReadLinks) -> bool:
    links = read_links(place)
    if links is None:
        return False
    following = links if links[0] == place else read_links(links[0])
    return following is not None and following[1] == place
