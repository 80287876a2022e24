# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Surroundings of code of no file: its caller, what it called, its bytes, its region, other such regions."""

from __future__ import annotations

import collections
import functools
import math
from typing import Dict, Iterator, List, Set, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.text import ShortText, counted, short_of
from ...memory.image import AddressSpace, Image
from ...process.regions import Region
from ...process.spaces import AddressSpaces
from ...process.vads import regions
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import FramePlace, find_place

_BYTES = 8
_MOST = 1 << 16
"""The most bytes of a region whose entropy is computed."""
_HEADER = b"MZ"
_NAMED = 3


class _Shape(NamedTuple):
    """The size and the protection that regions of one kind have in common."""

    size: int
    protection: str


def with_surroundings(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> ShortText:
    """Returns the memory at a frame in words, and what is around it; the short form has the memory alone."""
    space = stack.acting or stack.space
    memory = facts.memory(space, place.address)
    words = [*_neighbours(stack, place), *_code(space, place, facts), *_region(space, place.at, facts)]
    start = None if stack.thread is None else stack.thread.win32_start_address
    if start:
        words.append(f"its thread began at {facts.namer(space).name(start, return_address=False).symbol}")
    return ShortText("; ".join((memory, *words)), short_of(memory))


def with_region(space: AddressSpace, at: int, facts: CheckFacts) -> ShortText:
    """Returns the memory at an address in words, and its region; the short form has the memory alone."""
    memory = facts.memory(space, at)
    return ShortText("; ".join((memory, *_region(space, at, facts))), short_of(memory))


def _neighbours(stack: StackRecord, place: FramePlace) -> Iterator[str]:
    outer = find_place(stack, place.number + 1)
    if outer is not None:
        yield f"called by {outer.frame.shown}"
    inner = find_place(stack, place.number - 1) if place.number else None
    if inner is not None:
        yield f"called {inner.frame.shown}"


def _code(space: AddressSpace, place: FramePlace, facts: CheckFacts) -> Iterator[str]:
    """Yields the bytes before the frame's address; those behind it are in the text of the memory."""
    before = facts.image.memory(space).read(place.address - _BYTES, _BYTES)
    if before is not None:
        yield f"behind the bytes {before.hex(' ')}"


def _region(space: AddressSpace, at: int, facts: CheckFacts) -> Iterator[str]:
    vad = facts.vad(space, at)
    if vad is None:
        return
    yield facts.find_once(__name__, space, vad.start, functools.partial(_described, space, vad, facts))


def _described(space: AddressSpace, vad: Region, facts: CheckFacts) -> str:
    """Returns a region in words: its size, its private bytes, what of it is in the image, entropy, header."""
    size = vad.end - vad.start
    runs = facts.image.memory(space).load(vad.start, min(size, _MOST)).runs
    data = b"".join(bytes(part) for _, part in runs)
    private = "" if vad.private is None else f"{vad.private:#x} private, "
    text = (
        f"region of {size:#x} bytes, {private}{len(data):#x} of the first {min(size, _MOST):#x} in the image"
    )
    if data:
        text += f", entropy {_entropy(data):.1f}"
    if facts.image.memory(space).read(vad.start, len(_HEADER)) == _HEADER:
        text += ", begins with MZ"
    return f"{text}; {_others(space, vad, facts)}"


def _entropy(data: bytes) -> float:
    """Returns the entropy of bytes in bits for each byte: 8 for random ones."""
    shares = [count / len(data) for count in collections.Counter(data).values()]
    return abs(sum(share * math.log2(share) for share in shares))


def _others(space: AddressSpace, vad: Region, facts: CheckFacts) -> str:
    """Returns which other processes have a region of the same size and protection that is no image."""
    having = facts.image.service(_shapes).get(_shape(vad), set())
    others = [name for layer, name in having if layer != space.layer_name]
    if not others:
        return "no other process has such a region"
    names = sorted(set(others))
    named = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"{counted(len(others), 'other process', 'other processes')} with such a region: {named}"


def _shape(vad: Region) -> _Shape:
    return _Shape(vad.end - vad.start, vad.protection_name)


def _shapes(image: Image) -> Dict[_Shape, Set[Tuple[str, str]]]:
    """Returns the processes with executable regions of no image, by the shape of these."""
    shapes: Dict[_Shape, Set[Tuple[str, str]]] = {}
    for space in AddressSpaces.list_spaces(image):
        if space.kernel or space.wow64 or not space.layer_name:
            continue
        listed: List[Region] = image.service(regions).list_regions(space)[0]
        for vad in listed:
            if not vad.image and vad.executable:
                shapes.setdefault(_shape(vad), set()).add((space.layer_name, space.known_name or ""))
    return shapes
