# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The cells of a frame, the same for every plugin that lists the stacks of something."""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from . import memory
from .symbolizer import Name, SpaceNames

OVERWRITTEN = "overwritten"
UNREADABLE = "unreadable"

_UNREADABLE = renderers.UnreadableValue()
_UNPARSABLE = renderers.UnparsableValue()


class FrameCells(NamedTuple):
    """Address, Symbol, Source and Status of a frame, and its name (None: the frame is not there)."""

    cells: Tuple[object, object, object, str]
    name: Optional[Name]


_NOT_THERE = FrameCells((_UNREADABLE, _UNREADABLE, _UNREADABLE, UNREADABLE), None)
_LINKED_OVER = FrameCells((_UNPARSABLE, _UNPARSABLE, _UNPARSABLE, OVERWRITTEN), None)


def frame_cells(
    layer: interfaces.layers.DataLayerInterface,
    names: SpaceNames,
    frames: Iterable[Optional[int]],
    status: str = "",
) -> List[FrameCells]:
    """Returns the frames of a stack, innermost first.

    Args:
        layer: whose form of addresses the column has
        names: of the address space that the stack belongs to
        frames: return addresses, canonical; None: overwritten in a freed trace, else not present
        status: the trace's
    """
    missing = _LINKED_OVER if "freed" in status else _NOT_THERE
    found = []
    for address in frames:
        if address is None:
            found.append(missing)
            continue
        name = names.name(address)
        shown = format_hints.Hex(memory.masked(layer, address))
        found.append(FrameCells((shown, name.symbol, name.source, name.status), name))
    return found


def names_of(frames: Iterable[FrameCells]) -> List[Name]:
    """Returns the names of the frames that are there."""
    return [frame.name for frame in frames if frame.name is not None]
