# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `minidump.info`, which are made of entries."""

from __future__ import annotations

from typing import Iterable, Iterator, Optional

from ..columns.dictionary import names
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, text
from .grid import Grid, Row

GRID = Grid.for_plugin("info")


class DumpEntry(NamedTuple):
    """A row of `minidump.info`: its cells, which do not exist where they are None. `level` is 0 for a stream,
    1 for a member or an entry of its list, 2 for a member of an entry."""

    level: int
    name: Optional[str]
    value: Optional[str]
    status: Status = NOTHING
    address: object = None
    tid: Optional[int] = None
    part: Optional[str] = None
    frame: Optional[int] = None
    symbol: object = None
    source: object = None
    backing: object = None
    how: Optional[str] = None


_CELLS = GRID.value_maker(
    names("PID, Process, Member, Value, Status, Address, TID, Part, Frame, Symbol, Source, Backing, How"),
    ("PID", "Process"),
    -1,
)
"""Makes a row; addresses of members are shown as the dump has them."""


def rows(pid: Optional[int], process: Optional[str], entries: Iterable[DumpEntry]) -> Iterator[Row]:
    """Yields the rows of entries; process and ID are None if they are unknown."""
    for level, name, value, faults, *others in entries:
        yield level, _CELLS(pid, process, name, value, text(faults), *others)
