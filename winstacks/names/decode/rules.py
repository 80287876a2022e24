# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rules for the name of an address in a module, and for how sure the name is.

A name is a label at an RVA. These rules decide which label names an address:

* If the x64 function table covers the address, it has the start of the function that holds the address. An
  export names the address only if it is the label at that start. A PDB has labels for more than starts
  (assembly code has several in one function), so the last label within that piece of code is taken. If the
  piece has no label, the label at the function's start is taken: code that the compiler moved away from its
  function keeps the function's name.
* If no function table covers the address (x86, leaf functions), the last label before it in the same section
  is taken, unless a function of the table lies between the two. An export is only `nearest` there. So is a
  PDB label, unless the next label of the section, or the next function of the table, is close enough to
  be the end of one function: some PDBs lack the symbols of whole stretches of code.

The offset in a name is negative if a moved piece lies before its function.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Iterable, List, Optional, Sequence, Tuple

from ...columns.words import EXPORT, NEAREST, NONE, PDB
from .functiontable import FunctionTable
from .pe import Section

MAX_FUNCTION = 0x4000
"""Maximum bytes of a function that no function table bounds. By public symbols the longest function of XP's
kernel (ntkrnlpa 5.1, x86) has 1FECh bytes, and the longest of wntdll 10.0.16299 has 1E3Dh; where that PDB
lacks symbols, 229F0h bytes of code lie between two labels."""

_FAR = 1 << 32
"""An RVA behind every RVA of an image."""

Label = Tuple[int, str, str]
"""The label that names an address: its RVA, its name, and its source."""

_UNKNOWN: Label = (-1, "", NONE)


def sort_labels(pairs: Iterable[Tuple[int, str]]) -> Tuple[List[int], List[str]]:
    """Returns (RVA, name) pairs as two lists, sorted by RVA. Each RVA is there once, with its best name."""
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
    """Returns the sort key of a name: plain names before decorated ones, then shorter names first."""
    return (0 if name[:1].isalpha() else 1 if name[:1] == "_" else 2, len(name), name)


def undecorated(function: Optional[str]) -> str:
    """Returns the plain name of a function; 32-bit names may begin with `_` or `@` and end with `@8`."""
    return (function or "").lstrip("_@").partition("@")[0]


class NameTable:
    """The labels of a module; `PdbNames` and `ExportNames` decide how far a label reaches.

    Args:
        rvas: RVAs of the labels, ascending, each once
        names: names of the labels, in the same order
        sections: the module's sections, ascending; if empty (unknown), any label reaches any address
        functions: the x64 function table, None if there is none
    """

    __slots__ = (
        "_begins",
        "_ends",
        "_functions",
        "_names",
        "_pieces",
        "_rvas",
        "_section_starts",
        "_sections",
    )

    SOURCE = PDB

    def __init__(
        self,
        rvas: Sequence[int],
        names: Sequence[str],
        sections: Sequence[Section] = (),
        functions: Optional[FunctionTable] = None,
    ) -> None:
        self._rvas = rvas
        self._names = names
        self._sections = sections
        self._section_starts: List[int] = [section.start for section in sections]
        self._functions = functions
        self._begins: Sequence[int] = ()
        self._ends: Sequence[int] = ()
        if functions is not None:
            self._begins, self._ends = functions.ranges
        self._pieces: List[Optional[Label]] = [_UNKNOWN] * len(self._begins)

    def find_label(self, rva: int) -> Optional[Label]:
        """Returns the label that names an RVA, or None if none does."""
        raise NotImplementedError

    def rva_of(self, name: str) -> Optional[int]:
        """Returns the RVA of a label, None if no label has the name."""
        return next((rva for rva, label in zip(self._rvas, self._names) if label == name), None)

    def starting(self, *prefixes: str) -> List[Tuple[int, str]]:
        """Returns (RVA, name) of the labels whose names start with one of several words, by RVA."""
        pairs = zip(self._rvas, self._names)
        return [(rva, name) for rva, name in pairs if name.startswith(prefixes)]

    def _start(self, piece: int) -> Optional[Label]:
        """Returns the label of the function to which a piece of code without a label belongs (kept)."""
        label = self._pieces[piece]
        if label is _UNKNOWN:
            label = None
            if self._functions is not None and self._functions.may_be_moved(piece):
                primary = self._functions.primary(self._functions.entry(piece))
                label = None if primary is None else self._exact(primary.begin)
            self._pieces[piece] = label
        return label

    def _exact(self, rva: int) -> Optional[Label]:
        position = bisect_left(self._rvas, rva)
        if position == len(self._rvas) or self._rvas[position] != rva:
            return None
        return (rva, self._names[position], self.SOURCE)

    def _nearest(self, rva: int, piece: int) -> Optional[Label]:
        """Returns the last label before an RVA outside all functions, if no function lies between the two.

        Args:
            rva: the RVA
            piece: position of the last piece of code before the RVA, -1 if there is none
        """
        position = bisect_right(self._rvas, rva) - 1
        if position < 0:
            return None
        start = self._rvas[position]
        if piece >= 0 and start < self._ends[piece]:
            return None
        ends: List[int] = []
        if self._sections:
            index = bisect_right(self._section_starts, rva) - 1
            if index < 0 or rva >= self._sections[index].end or start < self._sections[index].start:
                return None
            ends.append(self._sections[index].end)
        ends += self._rvas[position + 1 : position + 2]
        ends += self._begins[piece + 1 : piece + 2]
        return (start, self._names[position], self._source(rva - start, min(ends, default=_FAR) - start))

    def _source(self, offset: int, room: int) -> str:
        """Returns the source of a name: how sure it is that the last label before an RVA names it.

        Args:
            offset: bytes from the label to the RVA
            room: bytes from the label to the next label or function, or to the end of the section
        """
        raise NotImplementedError


class PdbNames(NameTable):
    """A PDB's symbols: every label counts, within its function."""

    __slots__ = ()

    def find_label(self, rva: int) -> Optional[Label]:
        piece = bisect_right(self._begins, rva) - 1
        if piece < 0 or rva >= self._ends[piece]:
            return self._nearest(rva, piece)
        position = bisect_right(self._rvas, rva) - 1
        if position >= 0 and self._rvas[position] >= self._begins[piece]:
            return (self._rvas[position], self._names[position], PDB)
        return self._start(piece)

    def _source(self, offset: int, room: int) -> str:
        return PDB if not offset or room <= MAX_FUNCTION else NEAREST


class ExportNames(NameTable):
    """Exports: an export names only the function that starts at it."""

    __slots__ = ()

    SOURCE = EXPORT

    def __init__(
        self,
        rvas: Sequence[int],
        names: Sequence[str],
        sections: Sequence[Section] = (),
        functions: Optional[FunctionTable] = None,
    ) -> None:
        super().__init__(rvas, names, sections, functions)
        labels = {rva: (rva, name, EXPORT) for rva, name in zip(rvas, names)}
        self._pieces = [labels.get(begin, _UNKNOWN) for begin in self._begins]

    def find_label(self, rva: int) -> Optional[Label]:
        piece = bisect_right(self._begins, rva) - 1
        if piece < 0 or rva >= self._ends[piece]:
            return self._nearest(rva, piece)
        label = self._pieces[piece]
        return self._start(piece) if label is _UNKNOWN else label

    def _source(self, offset: int, room: int) -> str:
        return NEAREST
