# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The function of a frame."""

from __future__ import annotations

from typing import List, Optional, Tuple

from ...memory.image import AddressSpace
from ...names.symbolizer import KnownModule
from ..facts import CheckFacts
from ..finding import FramePlace
from .jumps import ENTRY

_AROUND = 0x40
"""Bytes before and after a frame that are compared if its function is unknown."""
_FARTHEST = 0x1000
"""The most bytes of a longer function that are compared before and after the frame, in addition to its
entry."""


def function_at(
    space: AddressSpace, place: FramePlace, facts: CheckFacts
) -> Tuple[Optional[int], List[Tuple[int, int]]]:
    """Returns the entry of a frame's function, None if unknown, and the address ranges to compare."""
    at = place.at
    known_module = facts.namer(space).module_at(at)
    around = (at - _AROUND, at + _AROUND)
    if known_module is None:
        return None, [around]
    base, index = known_module.module.base, known_module.image
    piece = None if index.functions is None else index.functions.find_entry(at - base)
    if piece is not None and index.functions is not None:
        first = index.functions.primary(piece) or piece
        entry = base + first.begin
        start, end = base + piece.begin, base + piece.end
    else:
        labelled = labelled_entry(known_module, at, _FARTHEST)
        if labelled is None:
            return None, [around]
        entry = start = labelled
        end = max(at + 1, entry + ENTRY)
    body = (max(start, at - _FARTHEST), min(end, at + _FARTHEST))
    return entry, [body] if body[0] == entry else [body, (entry, entry + ENTRY)]


def labelled_entry(known_module: KnownModule, at: int, most: int) -> Optional[int]:
    """Returns the address of the label that names an address, None if it is `most` bytes before or more."""
    label = known_module.label_at(at)
    before = at - known_module.module.base - label[0] if label else most
    return at - before if 0 <= before < most else None
