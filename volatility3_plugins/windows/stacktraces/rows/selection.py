# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which stacks a user wants to see: those with a certain name or with a frame that no file backs."""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import Callable, Iterable, Optional

from ..base.decode.memo import Memo
from ..names.symbolizer import UNBACKED, Name

_SYMBOLS = 1 << 16
"""So many symbols are remembered: stacks share most of theirs."""


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
        """Whether no stack is left out, so that names need not be known beforehand."""
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

    def by_address(self, name: Callable[[int], Name]) -> Callable[[Iterable[Optional[int]]], bool]:
        """Returns what tells whether a stack is wanted, by the addresses of its frames (None: not there).

        Args:
            name: names an address; asked once of each
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


def _judge(verdict: Callable[[int], bool]) -> Callable[[Optional[int]], bool]:
    """Returns a function that remembers the verdict on each address; a frame that is not there gets a no."""
    verdicts: Memo[Optional[int], bool] = Memo(lambda address: address is not None and verdict(address))
    return verdicts.__getitem__
