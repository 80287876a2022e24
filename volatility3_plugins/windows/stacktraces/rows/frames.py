# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What all plugins that list stacks share: which stacks are wanted, and the cells of their frames."""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import Callable, Iterable, Iterator, List, Optional, Tuple

from volatility3.framework import interfaces

from ..base.decode.memo import Memo
from ..base.decode.record import Record
from ..base.decode.status import Word, text
from ..names.symbolizer import UNBACKED, Name, SpaceNames
from ..tracedb.decode.judge import Trace
from .grid import UNPARSABLE, UNREADABLE, Hex

_SYMBOLS = 1 << 16
"""How many symbols are remembered with the answer whether --find matches them: stacks share most frames."""


class FrameCells(Record):
    """Address, Symbol, Source and Status of a frame, and its name (None: the frame cannot be read)."""

    cells: Tuple[object, object, object, str]
    name: Optional[Name]


_NOT_THERE = FrameCells((UNREADABLE, UNREADABLE, UNREADABLE, Word.UNREADABLE.value), None)
_LINKED_OVER = FrameCells((UNPARSABLE, UNPARSABLE, UNPARSABLE, Word.OVERWRITTEN.value), None)


class Selection:
    """The options `--find` and `--unbacked`, which every plugin that shows stacks has.

    Args:
        find: a glob for `Symbol` (case does not matter); None or empty selects all
        unbacked: only stacks with a frame in private or unmapped memory or in no module
    """

    def __init__(self, find: Optional[str] = None, unbacked: bool = False) -> None:
        self._pattern = re.compile(fnmatch.translate(find), re.IGNORECASE) if find else None
        self._unbacked = unbacked
        self._finds = functools.lru_cache(maxsize=_SYMBOLS)(self._matches)

    @property
    def everything(self) -> bool:
        """Whether all stacks are wanted, so that no frame must be named to decide."""
        return self._pattern is None and not self._unbacked

    def takes(self, names: Iterable[Name]) -> bool:
        """Tells whether a stack is wanted, by the names of its frames."""
        found, unbacked = self._pattern is None, not self._unbacked
        for name in names:
            found = found or self._finds(name.symbol)
            unbacked = unbacked or name.backing in UNBACKED
            if found and unbacked:
                return True
        return found and unbacked

    def takes_frames(self, frames: Iterable[FrameCells]) -> bool:
        """Tells whether a stack is wanted, by its frames; frames that cannot be read do not count."""
        return self.everything or self.takes(frame.name for frame in frames if frame.name is not None)

    def by_address(self, name: Callable[[int], Name]) -> Callable[[Iterable[Optional[int]]], bool]:
        """Returns a function that tells whether a stack is wanted, by its addresses (None: unreadable).

        Args:
            name: names an address; it is called once for each address
        """
        wanted = []
        if self._pattern is not None:
            wanted.append(_judge(lambda address: self._matches(name(address).symbol)))
        if self._unbacked:
            wanted.append(_judge(lambda address: name(address).backing in UNBACKED))

        def takes(frames: Iterable[Optional[int]]) -> bool:
            return all(True in map(judge, frames) for judge in wanted)

        return takes

    def _matches(self, symbol: str) -> bool:
        return self._pattern is None or self._pattern.match(symbol) is not None


class StackCells:
    """Makes the cells of the stacks of one address space, once for each address.

    Args:
        layer: the layer whose form of addresses the column Address shows
        names: the names of the address space to which the stacks belong
    """

    def __init__(self, layer: interfaces.layers.DataLayerInterface, names: SpaceNames) -> None:
        self._mask = layer.address_mask
        self._names = names
        self._frames = Memo(self._frame)
        self._symbols = Memo(self._symbol)

    def of(self, frames: Iterable[Optional[int]], freed: bool = False) -> List[FrameCells]:
        """Returns the frames of a stack, innermost first.

        Args:
            frames: return addresses, canonical; None: overwritten in a freed trace, else unreadable
            freed: whether the trace is freed
        """
        found = map(self._frames.__getitem__, frames)
        if freed:
            return [_LINKED_OVER if frame.name is None else frame for frame in found]
        return list(found)

    def folded(self, frames: Iterable[Optional[int]], freed: bool = False) -> str:
        """Returns a stack in one string, innermost first."""
        if freed:
            return "; ".join(map(_in_stack, self.of(frames, freed)))
        return "; ".join(map(self._symbols.__getitem__, frames))

    def selected(self, selection: Selection, traces: Iterable[Trace]) -> Iterator[Trace]:
        """Yields the traces that a selection takes, by the names of their readable frames."""
        takes = selection.by_address(self._names.name)
        return (trace for trace in traces if takes(trace.frames))

    def _frame(self, address: Optional[int]) -> FrameCells:
        if address is None:
            return _NOT_THERE
        name = self._names.name(address)
        return FrameCells((Hex(address & self._mask), name.symbol, name.source, text(name.status)), name)

    def _symbol(self, address: Optional[int]) -> str:
        return _in_stack(_NOT_THERE) if address is None else self._names.name(address).symbol


def _in_stack(frame: FrameCells) -> str:
    return f"<{frame.cells[3]}>" if frame.name is None else frame.name.symbol


def _judge(verdict: Callable[[int], bool]) -> Callable[[Optional[int]], bool]:
    """Returns a function that remembers the verdict on each address; for an unreadable frame it is no."""
    verdicts: Memo[Optional[int], bool] = Memo(lambda address: address is not None and verdict(address))
    return verdicts.__getitem__
