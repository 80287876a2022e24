# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which name an address of a module gets, and how sure that is.

A name is a label at an RVA; the question is how far it reaches. In the order of what is known:

* The x64 function table tells where the function starts that holds the address. An export names it only
  if it starts it. A PDB names every label, so the last one within that piece of code counts (assembly code
  has several labels in one function), else the label that the function starts with: code that the compiler
  moved away from its function keeps the function's name.
* Where no function table covers the address (x86, leaf functions) the last label before it in the same
  section counts, unless a function that the table knows lies between them.

Offsets may be negative where the moved piece lies before its function.
"""

from __future__ import annotations

import bisect
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .functiontable import FunctionTable, RuntimeFunction
from .peimage import Section

PDB = "pdb"
EXPORT = "export"
NEAREST = "nearest"
MODULE = "module"
UNLOADED = "unloaded"
NONE = "none"


class Label(NamedTuple):
    """A name that reaches an address: the RVA it stands for, the name, and where it comes from."""

    rva: int
    name: str
    source: str


def sort_labels(pairs: Iterable[Tuple[int, str]]) -> Tuple[List[int], List[str]]:
    """Returns (RVA, name) pairs as two lists, by RVA, each RVA once with the best of its names."""
    rvas: List[int] = []
    names: List[str] = []
    last = -1
    for rva, name in sorted(pairs):
        if rva != last:
            rvas.append(rva)
            names.append(name)
            last = rva
        elif _rank(name) < _rank(names[-1]):
            names[-1] = name
    return rvas, names


def _rank(name: str) -> Tuple[int, int, str]:
    """Orders names of one address: plain words before decorated ones, then the shorter one."""
    return (0 if name[:1].isalpha() else 1 if name[:1] == "_" else 2, len(name), name)


class NameTable:
    """The labels of a module, with the rules above.

    Args:
        rvas: where the labels are, ascending, each once
        names: their names, in the same order
        exports: the labels are exports (they name only what they start), not a PDB's symbols
        sections: the module's sections, ascending; empty if unknown, then any label reaches any address
        functions: the x64 function table, None where there is none
    """

    __slots__ = ("_exports", "_functions", "_moved", "_names", "_rvas", "_section_starts", "_sections")

    def __init__(
        self,
        rvas: Sequence[int],
        names: Sequence[str],
        exports: bool,
        sections: Sequence[Section] = (),
        functions: Optional[FunctionTable] = None,
    ) -> None:
        self._rvas = rvas
        self._names = names
        self._exports = exports
        self._sections = sections
        self._section_starts: List[int] = [section.start for section in sections]
        self._functions = functions
        self._moved: Dict[int, Optional[int]] = {}

    def find(self, rva: int) -> Optional[Label]:
        """Returns the label that reaches an RVA, or None where none is known to."""
        function = self._functions.find(rva) if self._functions is not None else None
        position = bisect.bisect_right(self._rvas, rva) - 1
        if function is None:
            return self._nearest(rva, position)
        if not self._exports and position >= 0 and self._rvas[position] >= function.begin:
            return Label(self._rvas[position], self._names[position], PDB)
        start = self._start(function)
        if start is None:
            return None
        return Label(self._rvas[start], self._names[start], EXPORT if self._exports else PDB)

    def _start(self, function: RuntimeFunction) -> Optional[int]:
        """Returns the position of the label that starts a function (remembered by the piece's start)."""
        begin = function.begin
        if begin not in self._moved:
            start = self._exact(begin)
            if start is None and self._functions is not None:
                primary = self._functions.primary(function)
                start = None if primary is None else self._exact(primary.begin)
            self._moved[begin] = start
        return self._moved[begin]

    def _exact(self, rva: int) -> Optional[int]:
        position = bisect.bisect_left(self._rvas, rva)
        return position if position < len(self._rvas) and self._rvas[position] == rva else None

    def _nearest(self, rva: int, position: int) -> Optional[Label]:
        """Returns the last label before an RVA that no function covers, if nothing comes between."""
        if position < 0:
            return None
        start = self._rvas[position]
        if self._sections:
            index = bisect.bisect_right(self._section_starts, rva) - 1
            if index < 0 or rva >= self._sections[index].end or start < self._sections[index].start:
                return None
        if self._functions is not None:
            before = self._functions.last_before(rva)
            if before is not None and start < before.end:
                return None
        return Label(start, self._names[position], NEAREST if self._exports else PDB)
