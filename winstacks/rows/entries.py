# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Entries, and one renderer that makes their rows: a command names cells by their columns, and no more.

    ShownEntry(space, status, {"Handle": 4, "Event": "open"})

The types of columns give the cells their form: addresses as Volatility's columns show them, numbers, texts.
None is an absent value.
"""

from __future__ import annotations

import itertools
import operator
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, text
from ..memory.image import AddressSpace
from ..process.objectheaders import ObjectInfo
from ..stacklist.frames import NamedFrame
from ..stacks.decode.frames import Frame
from .frames import FramePrinter, folded, unbacked
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, Cells, Grid, Row

SPACE = ("PID", "Process", "Arch")
"""The columns of the address space, which every entry has."""


OBJECT = ("Object", "ObjectType", "ObjectName")


class ShownEntry(NamedTuple):
    """One thing that a command shows, or a gap.

    Attributes:
        cells: cells by column; the columns of the space and of the stack come by themselves
        below: rows between the row of the entry and the rows of its frames
    """

    space: AddressSpace
    status: Status = NOTHING
    cells: Mapping[str, object] = {}
    below: Iterable[Row] = ()


class EntryRows:
    """Makes the rows of entries. `key_of` is the function that returns the cells of a row that the rows of
    frames have as well.

    Args:
        key: columns that the rows of frames have as well, besides PID, Process and Arch
        unreadable: columns in which None is a value that cannot be read; elsewhere it does not exist
        fold: whether the row of an entry holds its frames in the column Stack instead of frame rows
    """

    def __init__(
        self, grid: Grid, printer: FramePrinter, key: Sequence[str], unreadable: Collection[str], fold: bool
    ) -> None:
        self._grid, self._printer = grid, printer
        self._unreadable, self._fold = unreadable, fold
        self._makers: Memo[Tuple[str, ...], Callable[..., Cells]] = Memo(self._maker)
        # The cells of the space of the last entry: most entries have the space of the one before.
        self._space: Optional[AddressSpace] = None
        self._shown: Cells = ()
        self._stacks = tuple(name for name in ("Unbacked", "Stack") if name in grid.names)
        key = (*SPACE, *key)
        self.key_of: Callable[[Cells], Any] = operator.itemgetter(*map(grid.names.index, key))
        self._frames = grid.frames_maker(*key) if self._stacks else _no_frames

    def cells(
        self, entry: ShownEntry, frames: Collection[NamedFrame] = (), stack: object = NOT_APPLICABLE
    ) -> Cells:
        """Returns the row of an entry alone; `stack` is its column Stack."""
        space = entry.space
        if space is not self._space:
            self._space, self._shown = space, (space.pid, space.known_name, space.arch)
        return self._makers[tuple(entry.cells)](
            *self._shown,
            *entry.cells.values(),
            text(entry.status),
            *((unbacked(frames), stack) if self._stacks else ()),
        )

    def rows(
        self, entry: ShownEntry, frames: Sequence[NamedFrame] = (), walked: Sequence[Frame] = ()
    ) -> Iterator[Row]:
        """Returns the row of an entry, the rows below it, and the rows of its frames, innermost first.
        `walked` are the frames as a walk found them; empty for recorded ones."""
        row, printer = self.folded(entry, frames), self._printer
        cells = map(printer.walked, frames, walked) if walked else map(printer.__getitem__, frames)
        below = () if self._fold else cells
        return itertools.chain(((0, row),), entry.below, self._frames(*self.key_of(row), below))

    def folded(self, entry: ShownEntry, frames: Collection[NamedFrame]) -> Cells:
        """Returns the row of an entry alone, with --fold its frames in the column Stack."""
        return self.cells(entry, frames, folded(frames, self._fold, self._printer.mask))

    def _maker(self, columns: Tuple[str, ...]) -> Callable[..., Cells]:
        names = (*SPACE, *columns, "Status", *self._stacks)
        return self._grid.value_maker(names, self._unreadable, self._printer.mask)


def object_cells(thing: Optional[ObjectInfo]) -> Dict[str, object]:
    """Returns the cells of an object, by the columns of OBJECT; None: there is none."""
    if thing is None:
        return dict.fromkeys(OBJECT)
    return {"Object": thing.body or NOT_AVAILABLE, "ObjectType": thing.type, "ObjectName": thing.name}


def _no_frames(*cells: object) -> Iterator[Row]:
    """Returns the rows of frames in a table without frames."""
    return iter(())
