# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Resolves the trace indices of locks and handles to stacks."""

from __future__ import annotations

from typing import Collection, Dict, List, Optional, Set

from ..columns.words import STD
from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.image import AddressSpace
from .decode.header import Header
from .decode.recorded import RecordedStack
from .finder import Databases
from .model import Database

MAX_DATABASES = 8
"""The most databases of a space in which an index is looked up; a space has one, unless it forged others."""

_MAX_16_BITS = 0xFFFF
_DOUBTS = words_that(Means.DATABASE_DOUBTFUL)
"""Status words of a database that may not be the one that the indices refer to."""


class CreatorTraces:
    """Resolves trace indices."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def resolve(
        self, space: AddressSpace, indices: Collection[int], stored_in_16_bits: bool = False
    ) -> Dict[int, RecordedStack]:
        """Returns the stacks of some indices in the first database; see `resolve_by_database`."""
        return self.resolve_by_database(space, indices, stored_in_16_bits)[0]

    def resolve_by_database(
        self, space: AddressSpace, indices: Collection[int], stored_in_16_bits: bool = False
    ) -> List[Dict[int, RecordedStack]]:
        """Returns for each database of a space the stacks of some indices. There is one database, unless the
        process has forged others.

        The index 0 means that there is no trace, and is left out. At most MAX_DATABASES databases are read.
        Without a database the list has one element, in which each index has a stack with the status `no
        database`. `stored_in_16_bits` says whether the structure stores an index in 16 bits.
        """
        requested = set(indices) - {0}
        if not requested:
            return [{}]
        databases = self._databases.find_databases(space, STD)
        return [
            self._resolve_in_database(database, requested, stored_in_16_bits)
            for database in databases[:MAX_DATABASES] or (None,)
        ]

    def _resolve_in_database(
        self, database: Optional[Database], requested: Set[int], stored_in_16_bits: bool
    ) -> Dict[int, RecordedStack]:
        """Returns a stack for each requested index: from a database, or a placeholder that says why not."""
        opened = None if database is None else self._databases.open_database(database)
        if database is None or database.header is None or opened is None:
            why = StatusCode.NO_DATABASE if database is None else StatusCode.DATABASE_UNREADABLE
            return {index: RecordedStack(STD, 0, index, (), status(why)) for index in requested}
        stacks: Dict[int, RecordedStack] = {}
        # A doubt about the database applies to every stack from it.
        doubt = status(
            StatusCode.INDEX_AMBIGUOUS if _ambiguous(database.header, stored_in_16_bits) else None,
            *(item for item in database.status if item.code in _DOUBTS),
        )
        for trace in opened.traces(carve=True):
            if trace.trace_index in requested:
                stack = trace.recorded(opened.max_depth)
                stacks.setdefault(stack.trace_index, stack._replace(status=status(stack.status, doubt)))
        # One status object for all missing indices: for handles, all 65,535 possible indices are requested.
        missing = no_such_index(0, doubt).status
        return {index: stacks.get(index) or RecordedStack(STD, 0, index, (), missing) for index in requested}


def no_such_index(index: int, doubt: Status = NOTHING) -> RecordedStack:
    """Returns the placeholder for the stack of an index that no trace has."""
    return RecordedStack(STD, 0, index, (), status(StatusCode.NO_SUCH_INDEX, doubt))


def _ambiguous(header: Header, stored_in_16_bits: bool) -> bool:
    """Returns whether an index may stand for several traces of a database.

    It may if the database has more traces than 16 bits can number and the index was stored in 16 bits. Before
    Vista the entries of the database, too, store their own index in 16 bits.
    """
    truncated = stored_in_16_bits or not header.layout.entry.wide
    return truncated and header.back_traces > _MAX_16_BITS
