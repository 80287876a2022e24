# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks behind the trace indices that locks, handles and objects keep."""

from __future__ import annotations

from typing import Collection, Dict, NamedTuple, Optional, Tuple

from ..base.spaces import AddressSpace
from .decode.header import Header
from .finder import Databases
from .found import STD

NO_DATABASE = "no database"
DAMAGED = "database unreadable"
NO_SUCH_INDEX = "no such index"
AMBIGUOUS = "index ambiguous"
"""More traces than 16 bits can number: the index may stand for a trace 65,536 later."""

_NARROW = 0xFFFF


class Creator(NamedTuple):
    """The stack that an index stands for; a frame that is overwritten or not present is None.

    `status` is empty for a live trace; else the trace's own words (`freed`: the index is stale, and what is
    left of the stack may be another's), or why there is none.
    """

    frames: Tuple[Optional[int], ...]
    status: str


class Creators:
    """Resolves trace indices.

    Args:
        databases: finds and opens the databases of the image
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def resolve(
        self, space: AddressSpace, indices: Collection[int], narrow: bool = False
    ) -> Dict[int, Creator]:
        """Returns the stacks of some indices; 0 stands for none and is left out.

        Args:
            space: in whose database they are
            indices: as stored
            narrow: they were stored in 16 bits
        """
        wanted = set(indices) - {0}
        if not wanted:
            return {}
        found = next((each for each in self._databases.find(space) if each.kind == STD), None)
        if found is None:
            return dict.fromkeys(wanted, Creator((), NO_DATABASE))
        opened = self._databases.open(found)
        if opened is None or found.header is None:
            return dict.fromkeys(wanted, Creator((), DAMAGED))
        creators: Dict[int, Creator] = {}
        for trace in opened.traces(carve=True):
            if trace.trace_index is not None and trace.trace_index in wanted:
                creators.setdefault(trace.trace_index, Creator(trace.frames, trace.status))
        if _ambiguous(found.header, narrow):
            creators = {index: _doubtful(creator) for index, creator in creators.items()}
        return {index: creators.get(index, Creator((), NO_SUCH_INDEX)) for index in wanted}


def _ambiguous(header: Header, narrow: bool) -> bool:
    """Tells whether an index may stand for several traces. Before Vista entries number themselves so too."""
    wide = any(member.name == "IndexHigh" for member in header.layout.entry.members)
    return header.back_traces > _NARROW and (narrow or not wide)


def _doubtful(creator: Creator) -> Creator:
    return creator._replace(status=", ".join(filter(None, (creator.status, AMBIGUOUS))))
