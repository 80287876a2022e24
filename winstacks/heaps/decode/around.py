# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The block of a heap that holds an address, and the blocks beside it, as WinDbg's `!heap -p -a` finds them.

A caller has the bytes from `Block.user` on. An address in a header, or behind the caller's bytes, is in no
block: then the distances to the blocks beside it show which of them was overrun.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, StatusItem, status
from ...memory.decode.statuscodes import StatusCode
from .block import UNKNOWN_SIZE, Block, TraceGroup, TraceGroups


class _Placed(NamedTuple):
    """A block, and how it lies to the address."""

    block: Block
    status: Status


def around(groups: Iterable[TraceGroup], address: int, region: Optional[Tuple[int, int]]) -> List[TraceGroup]:
    """Returns the block that holds an address, then the blocks below and above it, each as its own group.

    A block may lie within another, such as a block of the low-fragmentation heap: the inner one holds the
    address. Returns at most three groups. Their status says how the block lies to the address. `region` is
    (start, end) of the memory region of the address, whose blocks count; all count if it is None.
    """
    low, high = region or (0, 1 << 64)
    blocks = [block for group in groups for block in group.blocks if low <= block.user < high]
    holders = [block for block in blocks if block.user <= address < block.user + max(block.size, 1)]
    holder = min(holders, key=lambda block: (max(block.size, 1), -block.user), default=None)
    outer = {id(block) for block in holders}
    rest = [block for block in blocks if id(block) not in outer]
    below = max((block for block in rest if block.user < address), key=lambda block: block.user, default=None)
    above = min((block for block in rest if block.user > address), key=lambda block: block.user, default=None)
    return list(_groups(_placed(address, holder, below, above)))


def _placed(
    address: int, holder: Optional[Block], below: Optional[Block], above: Optional[Block]
) -> Iterator[_Placed]:
    if holder is not None:
        yield _placed_as(holder, StatusCode.HOLDS_THE_ADDRESS, address - holder.user)
    if below is not None and below.size == UNKNOWN_SIZE:
        yield _placed_as(below, StatusCode.BEGINS_BELOW_THE_ADDRESS, address - below.user)
    elif below is not None:
        yield _placed_as(below, StatusCode.ENDS_BELOW_THE_ADDRESS, address - below.user - below.size)
    if above is not None:
        yield _placed_as(above, StatusCode.BEGINS_ABOVE_THE_ADDRESS, above.user - address)


def _placed_as(block: Block, word: StatusCode, distance: int) -> _Placed:
    return _Placed(block, status(StatusItem(word, distance)))


def _groups(placed: Iterable[_Placed]) -> Iterator[TraceGroup]:
    for block, place in placed:
        alone = TraceGroups(keep=True)
        alone.add(block._replace(status=status(place, block.status)))
        yield from alone.groups()
