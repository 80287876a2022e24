# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks behind the trace indices that locks, handles and objects keep."""

from __future__ import annotations

from typing import Collection, Dict, NamedTuple, Optional, Tuple

from ..base.decode.status import Status, Word, status
from ..base.space import AddressSpace
from .decode import status as stdstatus
from .decode.header import Header
from .finder import Databases
from .found import STD

_NARROW = 0xFFFF


class Creator(NamedTuple):
    """The stack that an index stands for; a frame that is overwritten or not present is None.

    `status` is empty for a live trace; else the trace's own words (`freed`: the index is stale, and what is
    left of the stack may be another's), or why there is none.
    """

    frames: Tuple[Optional[int], ...]
    status: Status


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
            return dict.fromkeys(wanted, Creator((), status(Word.NO_DATABASE)))
        opened = self._databases.open(found)
        if opened is None or found.header is None:
            return dict.fromkeys(wanted, Creator((), status(Word.DATABASE_UNREADABLE)))
        creators: Dict[int, Creator] = {}
        for trace in opened.traces(carve=True):
            if trace.trace_index is not None and trace.trace_index in wanted:
                creators.setdefault(trace.trace_index, Creator(trace.frames, stdstatus.of(trace.status)))
        if _ambiguous(found.header, narrow):
            doubt = status(Word.INDEX_AMBIGUOUS)
            creators = {
                index: Creator(frames, status(said, doubt)) for index, (frames, said) in creators.items()
            }
        missing = Creator((), status(Word.NO_SUCH_INDEX))
        return {index: creators.get(index, missing) for index in wanted}


def _ambiguous(header: Header, narrow: bool) -> bool:
    """Tells whether an index may stand for several traces: 16 bits do where there are more than they number.

    Before Vista entries number themselves so, too.
    """
    return header.back_traces > _NARROW and (narrow or not header.layout.entry.wide)
