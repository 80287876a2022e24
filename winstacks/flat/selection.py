# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The options `--find` and `--unbacked`: which stacks are wanted, by the names of their frames."""

from __future__ import annotations

import fnmatch
import re
from typing import Callable, Iterable, List, Optional, Pattern, Set, Tuple

from ..columns.words import MODULE, NONE
from ..memory.decode.memo import Memo
from ..memory.decode.status import Word, says
from .frames import MAX_FRAMES, NamedFrame

_NAMELESS = (
    *(Word.HEADERS_UNREADABLE, Word.EXPORTS_UNREADABLE, Word.EXPORTS_INCOMPLETE, Word.PAGE_TABLES_UNREADABLE),
    *(Word.VADS_INCOMPLETE, Word.MODULE_LIST_INCOMPLETE, Word.FILE_NAME_UNREADABLE),
)
"""Status of an address that might have another name if more of the image could be read."""


class Selection:
    """The options `--find` and `--unbacked`, which every plugin that shows stacks has.

    Args:
        find: a glob for `Symbol` (case does not matter); None or empty selects all
        unbacked: only stacks with a frame that no image, no mapped file and no other address space backs

    Attributes:
        find: as given, empty for none
        wider: the glob that is tried besides: with any module where `find` names none, else empty
        widened: whether a Symbol matched only that
        everything: whether all stacks are wanted, so that no frame must be named to decide
        doubtful: how many stacks were not taken although a frame may be what was asked for: it cannot be read
            or, for `--find`, the names of its module cannot
    """

    def __init__(self, find: Optional[str] = None, unbacked: bool = False) -> None:
        self.find = find or ""
        self.wider = f"*!{find}" if find and "!" not in find else ""
        self.widened = False
        self.doubtful = 0
        self._pattern = _compiled(find) if find else None
        self._wider = _compiled(self.wider) if self.wider else None
        self._judges: List[Callable[[NamedFrame], Optional[bool]]] = []
        if find:
            self._judges.append(self._finds)
        if unbacked:
            self._judges.append(_is_unbacked)
        # Each frame is judged once: stacks share most of theirs.
        self._verdicts = Memo(self._judge, MAX_FRAMES)
        self._nothing = (False,) * len(self._judges)
        self.everything = not self._judges

    def takes(self, frames: Iterable[NamedFrame]) -> bool:
        """Returns whether a stack is wanted, by its frames; one that cannot be judged is counted, not
        taken."""
        if self.everything:
            return True
        return self._takes(set(map(self._verdicts.__getitem__, frames)))

    def by_addresses(
        self, look_up: Callable[[Optional[int]], NamedFrame]
    ) -> Callable[[Iterable[Optional[int]]], bool]:
        """Returns what does the same as `takes` with the addresses of a stack, without a list of its frames.

        Args:
            look_up: returns the frame of an address
        """
        verdicts: Memo[Optional[int], Tuple[Optional[bool], ...]]
        verdicts = Memo(lambda address: self._verdicts[look_up(address)], MAX_FRAMES)
        return lambda addresses: self._takes(set(map(verdicts.__getitem__, addresses)))

    def _takes(self, found: Set[Tuple[Optional[bool], ...]]) -> bool:
        """Returns whether a stack whose frames have some verdicts is wanted."""
        if len(found) == 1 and self._nothing in found:
            return False
        missed = [number for number in range(len(self._judges)) if not any(each[number] for each in found)]
        if missed and all(any(each[number] is None for each in found) for number in missed):
            self.doubtful += 1
        return not missed

    def takes_gap(self) -> bool:
        """Returns whether to show what stands for stacks that cannot be read; otherwise that is counted."""
        self.doubtful += not self.everything
        return self.everything

    def _judge(self, frame: NamedFrame) -> Tuple[Optional[bool], ...]:
        """Tells for each option whether a frame is what it asks for, None if that is not known."""
        verdict = tuple(judge(frame) for judge in self._judges)
        return self._nothing if verdict == self._nothing else verdict

    def _finds(self, frame: NamedFrame) -> Optional[bool]:
        name = frame.name
        if name is None:
            return None
        nameless = name.source in (MODULE, NONE) and says(name.status, *_NAMELESS)
        return self._matches(name.symbol) or (None if nameless else False)

    def _matches(self, symbol: str) -> bool:
        if self._pattern is None or self._pattern.match(symbol) is not None:
            return True
        wider = self._wider is not None and self._wider.match(symbol) is not None
        self.widened = self.widened or wider
        return wider


def _is_unbacked(frame: NamedFrame) -> Optional[bool]:
    return None if frame.name is None else frame.unbacked


def _compiled(glob: str) -> Pattern[str]:
    return re.compile(fnmatch.translate(glob), re.IGNORECASE)
