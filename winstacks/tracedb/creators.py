# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks that the trace indices of locks and handles stand for."""

from __future__ import annotations

from typing import Collection, Dict, NamedTuple, Optional, Tuple

from ..memory.decode.status import Status, Word, status
from ..memory.image import AddressSpace
from .decode import status as stdstatus
from .decode.header import Header
from .finder import Databases
from .found import STD

_MAX_16_BITS = 0xFFFF


class Creator(NamedTuple):
    """The stack that an index stands for.

    Attributes:
        frames: canonical, innermost first; a frame that is overwritten or not in the image is None
        status: empty for a live trace. Otherwise it has the words of the trace (`freed`: the index is stale,
            and what is left of the stack may be another trace's), or says why there is no trace
        full: there are as many frames as Windows keeps: outer ones may be missing
    """

    frames: Tuple[Optional[int], ...]
    status: Status
    full: bool = False


class Creators:
    """Resolves trace indices.

    Args:
        databases: finds and opens the databases of the image
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def resolve(
        self, space: AddressSpace, indices: Collection[int], stored_in_16_bits: bool = False
    ) -> Dict[int, Creator]:
        """Returns the stacks of some indices. The index 0 means that there is no trace, and is left out.

        Args:
            space: the address space whose database has the traces
            indices: as the lock or handle stores them
            stored_in_16_bits: the structure that stores them has 16 bits for an index
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
                full = len(trace.frames) >= opened.max_depth
                creator = Creator(trace.frames, stdstatus.of(trace.status), full)
                creators.setdefault(trace.trace_index, creator)
        if _ambiguous(found.header, stored_in_16_bits):
            doubt = status(Word.INDEX_AMBIGUOUS)
            creators = {
                index: creator._replace(status=status(creator.status, doubt))
                for index, creator in creators.items()
            }
        missing = Creator((), status(Word.NO_SUCH_INDEX))
        return {index: creators.get(index, missing) for index in wanted}


def _ambiguous(header: Header, stored_in_16_bits: bool) -> bool:
    """Tells whether an index may stand for several traces of a database.

    That is so where the database has more traces than 16 bits can number, and the index was stored in 16
    bits. Before Vista the entries of the database, too, store their own index in 16 bits.
    """
    cut = stored_in_16_bits or not header.layout.entry.wide
    return cut and header.back_traces > _MAX_16_BITS
