# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Shares of an image: the kinds of stacks one after the other, and of each kind a few processes.

These follow each other: all shares in their order have the rows of the whole image in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Callable, Optional

from winstacks.columns.words import HANDLE, HEAP, HEAPLOG, LOCK, OBJECT, STD, THREAD_KINDS
from winstacks.memory.image import Image
from winstacks.process import globalflag
from winstacks.process.decode import globalflags
from winstacks.process.processlist import ProcessList, process_member
from winstacks.process.spaces import AddressSpaces

from .job import Reading

_PARTS = 32
"""Shares of one kind, about: the last one that is read is what others may have to wait for."""
_TRACED = 64
"""What the databases and heaps of a process that keeps traces weigh, against 1 of another process."""
_MOST_COUNTED = 1 << 16
"""Threads of one process that are believed."""
_KERNEL = 0
LONG = 2.0
_Group = Optional[tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Share:
    """A part of what is to be read.

    Attributes:
        kinds: of stacks, of `words.KINDS`; all when empty
        traps: trap frames are to be read, and no stacks
        only: the processes as `AddressSpaces.list_spaces` takes them; None for all
        place: of the first of these among all processes, from 0 to 1; LONG for a share that takes long
    """

    kinds: tuple[str, ...] = ()
    traps: bool = False
    only: Optional[tuple[int, ...]] = None
    place: float = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the share as JSON has it."""
        return dataclasses.asdict(self)


WHOLE = (Share(), Share(traps=True))
"""Everything, in two shares."""


def share(said: dict[str, Any]) -> Share:
    """Returns a share from its JSON."""
    only = said["only"]
    return Share(tuple(said["kinds"]), said["traps"], None if only is None else tuple(only), said["place"])


def threads(image: Image) -> int:
    """Returns how many threads the processes of an image say that they have."""
    return sum(_threads(image, each.eprocess) for each in image.service(ProcessList).processes())


def plan(image: Image, reading: Reading) -> list[Share]:
    """Returns the shares of an image.

    What a scan adds to the threads of an image comes behind all of them, and is what none of them has: then
    these are one share. So are the events of handles, whose tables are compared with each other.

    Args:
        image: the image
        reading: how it is read
    """
    listed = [each.eprocess for each in image.service(ProcessList).processes()]
    counted = {each: float(_threads(image, each)) for each in listed}
    kept = _traced(image)
    by_threads = _groups(listed, lambda each: counted[each] + 0.1)
    by_traces = _groups(listed, lambda each: _TRACED if each in kept else 1)
    scan = reading.scan_threads or reading.processors
    by_traps = [None] if scan or reading.scan_stacks else by_threads
    return [
        *_of(THREAD_KINDS, [None] if scan else by_threads),
        *_of((STD, HEAPLOG), by_traces),
        *_of((HEAP,), by_traces),
        *_of((LOCK,), by_traces),
        Share((HANDLE,), place=LONG),
        Share((OBJECT,), place=LONG),
        *_of((), by_traps, traps=True),
    ]


def _of(kinds: tuple[str, ...], groups: Sequence[_Group], traps: bool = False) -> list[Share]:
    made, count, place = [], sum(len(each or ()) for each in groups), 0
    for each in groups:
        made.append(Share(kinds, traps, each, LONG if each is None else place / count))
        place += len(each or ())
    return made


def _groups(listed: Sequence[int], weight: Callable[[int], float]) -> list[_Group]:
    """Returns processes in groups of about one weight, in their order; the kernel is in the first group."""
    most = sum(map(weight, listed)) / _PARTS
    groups, held = [[_KERNEL]], 0.0
    for each in listed:
        if held and held + weight(each) > most:
            groups.append([])
            held = 0.0
        groups[-1].append(each)
        held += weight(each)
    return [tuple(each) for each in groups]


def _threads(image: Image, eprocess: int) -> int:
    return min(process_member(image, eprocess, "ActiveThreads") or 0, _MOST_COUNTED)


def _traced(image: Image) -> set[int]:
    """Returns the processes whose flags ask for a database of traces."""
    return {
        space.eprocess
        for space in AddressSpaces.list_spaces(image)
        if not space.kernel and (globalflag.read(image, space) or 0) & globalflags.MAKES_USER_DATABASE
    }
