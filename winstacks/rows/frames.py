# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What all plugins that list stacks share: which stacks are wanted, and the cells of their frames."""

from __future__ import annotations

import fnmatch
import functools
import re
from operator import attrgetter
from typing import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Pattern,
    Set,
    Tuple,
    Union,
)

from ..flat.decode.schema import STACK_SEPARATOR
from ..flat.frames import FlatFrame
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.status import Word, says, text
from ..memory.image import AddressSpace
from ..names.decode.rules import MODULE, NONE
from ..names.symbolizer import UNBACKED, Name, SpaceNames, Symbolizer
from ..tracedb.decode.judge import Trace
from .columns import Hex
from .grid import NOT_APPLICABLE, UNPARSABLE, UNREADABLE

_SYMBOLS = 1 << 16
"""How many symbols are remembered with the answer whether --find matches them: stacks share most frames."""

MAX_SPACES = 16
"""Address spaces whose addresses are kept as cells: neighbouring stacks come from few processes."""


class FrameCells(NamedTuple):
    """What is shown of a frame.

    Attributes:
        cells: Address, Symbol, Source, Backing and Status
        name: None where the frame cannot be read
        unbacked: whether --unbacked looks for it, and Unbacked counts it
    """

    cells: Tuple[object, object, object, object, str]
    name: Optional[Name]
    unbacked: bool


AnyFrame = Union[FrameCells, FlatFrame]
"""A frame that has a name, and of which is known whether it is unbacked."""

_NOT_THERE = FrameCells((UNREADABLE,) * 4 + (Word.UNREADABLE.value,), None, False)
_LINKED_OVER = FrameCells((UNPARSABLE,) * 4 + (Word.OVERWRITTEN.value,), None, False)
_is_unbacked = attrgetter("unbacked")

_NAMELESS = (
    *(Word.HEADERS_UNREADABLE, Word.EXPORTS_UNREADABLE, Word.EXPORTS_INCOMPLETE, Word.PAGE_TABLES_UNREADABLE),
    *(Word.VADS_INCOMPLETE, Word.MODULE_LIST_INCOMPLETE, Word.FILE_NAME_UNREADABLE),
)
"""Status of an address that might have another name if more of the image could be read."""


def _judge_unbacked(frame: AnyFrame) -> Optional[bool]:
    return None if frame.name is None else frame.unbacked


class Selection:
    """The options `--find` and `--unbacked`, which every plugin that shows stacks has.

    Args:
        find: a glob for `Symbol` (case does not matter); None or empty selects all
        unbacked: only stacks with a frame that no image, no mapped file and no other address space backs

    Attributes:
        find: as given, empty for none
        wider: the glob that is tried besides: with any module where `find` names none, else empty
        widened: whether a Symbol matched only that
        doubtful: how many stacks were not taken although a frame may be what was asked for: it cannot be read
            or, for `--find`, the names of its module cannot
    """

    def __init__(self, find: Optional[str] = None, unbacked: bool = False) -> None:
        self.find = find or ""
        self.wider = f"*!{find}" if find and "!" not in find else ""
        self.widened = False
        self._pattern = _compiled(find) if find else None
        self._wider = _compiled(self.wider) if self.wider else None
        self._unbacked = unbacked
        self.doubtful = 0
        self._matches = functools.lru_cache(maxsize=_SYMBOLS)(self._match)

    @property
    def everything(self) -> bool:
        """Whether all stacks are wanted, so that no frame must be named to decide."""
        return self._pattern is None and not self._unbacked

    def takes(self, frames: Iterable[AnyFrame]) -> bool:
        """Tells whether a stack is wanted, by its frames; one that cannot be judged is counted, not taken."""
        if self.everything:
            return True
        frames = list(frames)
        return self._decide([list(map(judge, frames)) for judge in self._judges()])

    def by_address(
        self, frame: Callable[[Optional[int]], FrameCells]
    ) -> Callable[[Iterable[Optional[int]]], bool]:
        """Returns a function that tells whether a stack is wanted, by its addresses (None: unreadable).

        Args:
            frame: returns what is shown of an address
        """
        judges = [_by_address(frame, judge) for judge in self._judges()]

        def takes(frames: Iterable[Optional[int]]) -> bool:
            frames = tuple(frames)
            return self._decide([list(map(judge, frames)) for judge in judges])

        def takes_by_one(frames: Iterable[Optional[int]]) -> bool:
            verdicts = set(map(judges[0], frames))
            self.doubtful += None in verdicts and True not in verdicts
            return True in verdicts

        return takes_by_one if len(judges) == 1 else takes

    def pass_over(self) -> None:
        """Counts something that has no frame to be judged by."""
        self.doubtful += 1

    def _judges(self) -> Iterator[Callable[[AnyFrame], Optional[bool]]]:
        if self._pattern is not None:
            yield self._finds
        if self._unbacked:
            yield _judge_unbacked

    def _decide(self, verdicts: List[List[Optional[bool]]]) -> bool:
        """Tells whether a stack is wanted, by the verdicts on its frames for each option."""
        missed = [each for each in verdicts if True not in each]
        if missed and all(None in each for each in missed):
            self.doubtful += 1
        return not missed

    def _finds(self, frame: AnyFrame) -> Optional[bool]:
        name = frame.name
        if name is None:
            return None
        nameless = name.source in (MODULE, NONE) and says(name.status, *_NAMELESS)
        return self._matches(name.symbol) or (None if nameless else False)

    def _match(self, symbol: str) -> bool:
        if self._pattern is None or self._pattern.match(symbol) is not None:
            return True
        wider = self._wider is not None and self._wider.match(symbol) is not None
        self.widened = self.widened or wider
        return wider


class StackCells:
    """Makes the cells of the stacks of one address space. Each address is named and judged once.

    Args:
        machine: the machine whose form of addresses the column Address shows
        names: the names of the address space to which the stacks belong
    """

    def __init__(self, machine: Machine, names: SpaceNames) -> None:
        self._mask = machine.address_mask
        self._names = names
        self._frames = Memo(self._frame)
        self._exact: Memo[int, FrameCells] = Memo(self._interrupted)
        self._symbols: Memo[Optional[int], str] = Memo(self._in_stack)
        self._unbacked: Set[Optional[int]] = set()

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

    def frame(self, address: int, return_address: bool = True) -> FrameCells:
        """Returns one frame.

        Args:
            address: canonical
            return_address: False for the address of an instruction that was interrupted
        """
        return (self._frames if return_address else self._exact)[address]

    def folded(self, frames: Iterable[Optional[int]], freed: bool = False) -> str:
        """Returns a stack in one string, innermost first."""
        if freed:
            return STACK_SEPARATOR.join(map(_in_stack, self.of(frames, freed)))
        return STACK_SEPARATOR.join(map(self._symbols.__getitem__, frames))

    def unbacked(self, frames: Collection[Optional[int]]) -> object:
        """Returns the cell of Unbacked of a stack whose frames have been returned or folded before."""
        if not frames:
            return NOT_APPLICABLE
        unbacked = self._unbacked
        if not unbacked or unbacked.isdisjoint(frames):
            return 0
        return sum(address in unbacked for address in frames)

    def selected(self, selection: Selection, traces: Iterable[Trace]) -> Iterator[Trace]:
        """Yields the traces that a selection takes, by the names of their readable frames."""
        takes = selection.by_address(self._frames.__getitem__)
        for trace in traces:
            if takes(trace.frames):
                yield trace

    def _interrupted(self, address: int) -> FrameCells:
        return self._cells(address, False)

    def _in_stack(self, address: Optional[int]) -> str:
        return _in_stack(self._frames[address])

    def _frame(self, address: Optional[int]) -> FrameCells:
        if address is None:
            return _NOT_THERE
        cells = self._cells(address, True)
        if cells.unbacked:
            self._unbacked.add(address)
        return cells

    def _cells(self, address: int, return_address: bool) -> FrameCells:
        name = self._names.name(address, return_address)
        where, backing = Hex(address & self._mask), name.backing or NOT_APPLICABLE
        cells = (where, name.symbol, name.source, backing, text(name.status))
        return FrameCells(cells, name, name.backing in UNBACKED)


class SpaceStacks:
    """Makes the cells of stacks of any address space; those of the last few spaces are kept.

    Args:
        symbolizer: names addresses
    """

    def __init__(self, symbolizer: Symbolizer) -> None:
        self._symbolizer = symbolizer
        self._kept = functools.lru_cache(maxsize=MAX_SPACES)(self._made)

    def of(self, space: AddressSpace) -> StackCells:
        """Returns what makes the cells of a space; both halves of a WoW64 process have the same."""
        return self._kept(self._symbolizer.names(space))

    def _made(self, names: SpaceNames) -> StackCells:
        return StackCells(self._symbolizer.image.machine, names)


def unbacked(frames: Collection[FrameCells]) -> object:
    """Returns the cell of Unbacked of a stack."""
    return sum(map(_is_unbacked, frames)) if frames else NOT_APPLICABLE


def _compiled(glob: str) -> Pattern[str]:
    return re.compile(fnmatch.translate(glob), re.IGNORECASE)


def folded(frames: Collection[FrameCells], fold: bool) -> object:
    """Returns the cell of Stack: the frames in one string, innermost first, where --fold asks for it."""
    return STACK_SEPARATOR.join(map(_in_stack, frames)) if fold and frames else NOT_APPLICABLE


def _in_stack(frame: FrameCells) -> str:
    return f"<{frame.cells[-1]}>" if frame.name is None else frame.name.symbol


def _by_address(
    frame: Callable[[Optional[int]], FrameCells], judge: Callable[[AnyFrame], Optional[bool]]
) -> Callable[[Optional[int]], Optional[bool]]:
    """Returns a function that judges what is shown of an address, each once."""
    verdicts: Memo[Optional[int], Optional[bool]] = Memo(lambda address: judge(frame(address)))
    return verdicts.__getitem__
