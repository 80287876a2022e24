# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The options `--find` and `--unbacked`: they select stacks by the names of their frames."""

from __future__ import annotations

import difflib
import fnmatch
import re
from typing import Callable, Iterable, List, Optional, Pattern, Set, Tuple

from ..columns.words import MODULE, NONE
from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.text import symbol_globs
from .frames import MAX_FRAMES, NamedFrame

_NAMELESS = words_that(Means.NAME_INCOMPLETE)
"""Status of an address whose name might differ if more of the image could be read."""

_MAX_NAMES = 1 << 16
"""Different Symbols among which the nearest names are searched."""
_SUGGESTED = 3
"""Names that are suggested."""
_SIMILAR = 0.7
"""Least similarity of a name that is suggested, as difflib measures it."""
_PLACE = re.compile(r"(?:\+0x[0-9a-fA-F]+)?(?: 0x[0-9a-fA-F]+)?\Z")
"""The offset or the address at the end of a Symbol."""


class Judged(NamedTuple):
    """Judgements of a `Selection`."""

    widened: bool
    doubtful: int
    others: Set[str]


class Selection:
    """The options `--find` and `--unbacked`, which plugins that list stacks have.

    Args:
        find: a text for `symbol_globs` (case does not matter); None or empty selects all
        unbacked: whether to select only stacks with a frame that no image, no mapped file and no other
            address space backs

    Attributes:
        find: the glob of `--find`; empty for none
        wider: the glob that is tried in addition: `find` with any module where it names none, else empty
        widened: whether a Symbol matched only `wider`
        everything: whether all stacks are selected, so that no frame need be named
        doubtful: number of stacks left out although a frame may match: its address, or for `--find` the names
            of its module, cannot be read
    """

    def __init__(self, find: Optional[str] = None, unbacked: bool = False) -> None:
        self.find = find or ""
        typed, wider = symbol_globs(self.find)
        self.wider = wider[0] if find and wider else ""
        self.widened = False
        self.doubtful = 0
        self._pattern = _compiled(typed) if find else None
        self._wider = _compiled(wider) if self.wider else None
        self._others: Set[str] = set()
        self._judges: List[Callable[[NamedFrame], Optional[bool]]] = []
        if find:
            self._judges.append(self._finds)
        if unbacked:
            self._judges.append(_is_unbacked)
        # Each frame is judged once: stacks share most of their frames.
        self._verdicts = Memo(self._judge, MAX_FRAMES)
        self._nothing = (False,) * len(self._judges)
        self.everything = not self._judges

    def takes(self, frames: Iterable[NamedFrame]) -> bool:
        """Returns whether a stack is selected, by its frames.

        A stack that cannot be judged is counted in `doubtful` and not selected.
        """
        if self.everything:
            return True
        return self._takes(set(map(self._verdicts.__getitem__, frames)))

    def by_addresses(
        self, look_up: Callable[[Optional[int]], NamedFrame]
    ) -> Callable[[Iterable[Optional[int]]], bool]:
        """Returns a function like `takes` for the addresses of a stack, which builds no list of frames."""
        verdicts: Memo[Optional[int], Tuple[Optional[bool], ...]]
        verdicts = Memo(lambda address: self._verdicts[look_up(address)], MAX_FRAMES)
        return lambda addresses: self._takes(set(map(verdicts.__getitem__, addresses)))

    def _takes(self, verdicts: Set[Tuple[Optional[bool], ...]]) -> bool:
        """Returns whether a stack is selected, by the different verdicts on its frames."""
        if len(verdicts) == 1 and self._nothing in verdicts:
            return False
        unmatched = [
            number for number in range(len(self._judges)) if not any(verdict[number] for verdict in verdicts)
        ]
        if unmatched and all(any(verdict[number] is None for verdict in verdicts) for number in unmatched):
            self.doubtful += 1
        return not unmatched

    def takes_gap(self) -> bool:
        """Returns whether to show rows for unreadable stacks; a hidden row counts as doubtful."""
        self.doubtful += not self.everything
        return self.everything

    def take(self) -> Judged:
        """Returns what was judged since the last call, and forgets it."""
        taken = Judged(self.widened, self.doubtful, self._others)
        self.doubtful, self._others = 0, set()
        return taken

    def merge(self, judged: Judged) -> None:
        """Adds what another process has judged."""
        self.widened = self.widened or judged.widened
        self.doubtful += judged.doubtful
        for symbol in judged.others:
            self._add_other(symbol)

    def _add_other(self, symbol: str) -> None:
        if len(self._others) < _MAX_NAMES:
            self._others.add(symbol)

    def _judge(self, frame: NamedFrame) -> Tuple[Optional[bool], ...]:
        """Returns for each option whether a frame matches it, None if that is unknown."""
        verdict = tuple(judge(frame) for judge in self._judges)
        return self._nothing if verdict == self._nothing else verdict

    def _finds(self, frame: NamedFrame) -> Optional[bool]:
        name = frame.name
        if name is None:
            return None
        nameless = name.source in (MODULE, NONE) and has_status(name.status, *_NAMELESS)
        return self._matches(name.symbol) or (None if nameless else False)

    def _matches(self, symbol: str) -> bool:
        if self._pattern is None or self._pattern.match(symbol) is not None:
            return True
        wider = self._wider is not None and self._wider.match(symbol) is not None
        self.widened = self.widened or wider
        if not wider:
            self._add_other(symbol)
        return wider

    def nearest(self) -> List[str]:
        """Returns the names that are nearest to `find` among the Symbols that did not match it.

        Names that contain the letters of `find` come first. Offsets and addresses are left out.
        """
        typed = _PLACE.sub("", self.find).replace("*", "").lower()
        if not typed:
            return []
        names = sorted({_PLACE.sub("", symbol) for symbol in self._others})
        # Without a module the name of a function is compared.
        compared = {name: name.lower() if "!" in typed else name.lower().split("!")[-1] for name in names}
        within = [name for name in names if typed in name.lower()]
        near = difflib.get_close_matches(typed, set(compared.values()), _SUGGESTED, _SIMILAR)
        similar = [name for text in near for name in names if compared[name] == text]
        return list(dict.fromkeys([*sorted(within, key=len), *similar]))[:_SUGGESTED]


def _is_unbacked(frame: NamedFrame) -> Optional[bool]:
    return None if frame.name is None else frame.unbacked


def _compiled(globs: List[str]) -> Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, globs)), re.IGNORECASE)
