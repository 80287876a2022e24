# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rules for the name of an address in a module, and for how sure the name is.

A label is an RVA with a name, from a PDB or from the exports. These rules decide which label names an
address:

* If an entry of the x64 function table covers the address, the entry is a piece of a function, and the table
  shows where the function starts. An export names the address only if it is the label at the start of the
  piece or of the function. A PDB has labels within functions, too (assembly code has several), so the last
  label in the piece up to the address names it. If the piece has no such label, the label at the function's
  start does: a piece that the compiler moved away from its function keeps the function's name.
* In a program of Go its own table of functions (`pclntab`) comes before exports.
* If no entry covers the address (x86, leaf functions), the last label before the address in the same section
  names it, unless a function of the table lies between the two. The source of such a name is `nearest` for an
  export. It is `nearest` also for a PDB label, if the next label, the next function of the table and the end
  of the section are all further away than a function can be long: some PDBs lack the symbols of whole
  stretches of code.

The offset in a name is negative if a moved piece lies before its function.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Iterable, List, Optional, Sequence, Tuple

from ...columns.words import EXPORT, NEAREST, NONE, PCLNTAB, PDB
from .functiontable import FunctionTable
from .pclntab import GoTable
from .pe import Section

MAX_FUNCTION = 0x4000
"""Maximum bytes of a function that no function table bounds. By public symbols the longest function of XP's
kernel (ntkrnlpa 5.1, x86) has 1FECh bytes, and the longest of wntdll 10.0.16299 has 1E3Dh. In that wntdll,
229F0h bytes of code lie between two labels where the PDB lacks symbols."""

_FAR = 1 << 32
"""An RVA behind every RVA of an image."""

Label = Tuple[int, str, str]
"""The label that names an address: its RVA, its name, and the word of the column Source."""

_UNKNOWN: Label = (-1, "", NONE)
"""Marks a piece of code whose label has not been looked up yet."""


def sort_labels(pairs: Iterable[Tuple[int, str]]) -> Tuple[List[int], List[str]]:
    """Returns the RVAs of labels and their names as two lists, sorted by RVA.

    Each RVA is there once, with its best name (see `_rank`).
    """
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
    """Returns the plain name of a function: 32-bit ones may begin with `_` or `@` and end with `@8`."""
    return (function or "").lstrip("_@").partition("@")[0]


class NameTable:
    """The labels of a module; `PdbNames` and `ExportNames` decide how far a label reaches.

    Args:
        rvas: RVAs of the labels, ascending, each once
        sections: the module's sections, ascending; if empty (unknown), a label may name an address in another
            section
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
        """Returns the label that names an RVA, None if there is none."""
        raise NotImplementedError

    def rva_of(self, name: str) -> Optional[int]:
        """Returns the RVA of a label, None if no label has the name."""
        return next((rva for rva, label in zip(self._rvas, self._names) if label == name), None)

    def labels_with_prefix(self, *prefixes: str) -> List[Tuple[int, str]]:
        """Returns (RVA, name) of the labels whose names start with one of several prefixes, by RVA."""
        pairs = zip(self._rvas, self._names)
        return [(rva, name) for rva, name in pairs if name.startswith(prefixes)]

    def _function_label(self, piece: int) -> Optional[Label]:
        """Returns the label of the function to which a piece of code without a label belongs. The result is
        kept."""
        label = self._pieces[piece]
        if label is _UNKNOWN:
            label = None
            if self._functions is not None and self._functions.may_be_moved(piece):
                primary = self._functions.primary(self._functions.entry(piece))
                label = None if primary is None else self._label_at(primary.begin)
            self._pieces[piece] = label
        return label

    def _label_at(self, rva: int) -> Optional[Label]:
        """Returns the label at an RVA, None if there is none."""
        position = bisect_left(self._rvas, rva)
        if position == len(self._rvas) or self._rvas[position] != rva:
            return None
        return (rva, self._names[position], self.SOURCE)

    def _nearest(self, rva: int, piece: int) -> Optional[Label]:
        """Returns the last label up to an RVA that no entry of the function table covers, if no function lies
        between the two. `piece` is the position of the last entry before the RVA in the function table, -1 if
        there is none."""
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
        """Returns the source of a name outside all functions: whether the label certainly reaches the RVA.

        Args:
            offset: bytes from the label to the RVA
            room: bytes from the label to the next label or function, or to the end of the section
        """
        raise NotImplementedError


class PdbNames(NameTable):
    """The symbols of a PDB: each label names the addresses up to the next label or the end of the piece."""

    __slots__ = ()

    def find_label(self, rva: int) -> Optional[Label]:
        piece = bisect_right(self._begins, rva) - 1
        if piece < 0 or rva >= self._ends[piece]:
            return self._nearest(rva, piece)
        position = bisect_right(self._rvas, rva) - 1
        if position >= 0 and self._rvas[position] >= self._begins[piece]:
            return (self._rvas[position], self._names[position], PDB)
        return self._function_label(piece)

    def _source(self, offset: int, room: int) -> str:
        return PDB if not offset or room <= MAX_FUNCTION else NEAREST


class ExportNames(NameTable):
    """Exports: each export names only the function that starts at it."""

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
        return self._function_label(piece) if label is _UNKNOWN else label

    def _source(self, offset: int, room: int) -> str:
        return NEAREST


class GoNames(ExportNames):
    """The functions of a Go program. Elsewhere, as in its C code, exports name addresses."""

    __slots__ = ("_table",)

    def __init__(
        self,
        rvas: Sequence[int],
        names: Sequence[str],
        sections: Sequence[Section],
        functions: Optional[FunctionTable],
        table: GoTable,
    ) -> None:
        super().__init__(rvas, names, sections, functions)
        self._table = table

    def find_label(self, rva: int) -> Optional[Label]:
        function = self._table.find(rva)
        if function is None:
            return super().find_label(rva)
        return (function.begin, function.name, PCLNTAB)
