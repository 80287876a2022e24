# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The index of names of a module's image, shared by the processes that are proven to have the same image.

An index is made when an address of the module is first named. It is made from the image section, which no
process can write, and is shared by every process that has the same in all parts that it was made from: the
same physical pages or equal bytes. Any other process gets an index of its own, made from its own pages and,
where it has none, from those of the section; the status says where it has other bytes than the section. So
nothing that one process writes changes a name elsewhere, in whatever order processes are named.
"""

from __future__ import annotations

import functools
from typing import Dict, Hashable, NamedTuple, Optional, Set, Tuple

from volatility3.framework import interfaces

from ..memory.decode.status import NOTHING, Status, Word, status
from ..memory.image import Image
from ..process.sections import SectionView
from . import pdbsymbols
from .decode import exports, pe
from .decode.functiontable import FunctionTable
from .decode.pe import CodeView, HeaderError, Headers
from .decode.peimage import PeImage
from .decode.rules import ExportNames, NameTable, PdbNames, sort_labels
from .imagereader import ImageParts, ImageReader
from .pdbsymbols import PdbSymbols, SymbolArrays

MAX_EXPORTS = 1 << 18
"""The most exports that are read of modules of one process that are not proven to be as in their section. The
modules of a process have fewer. Forged ones may share the pages of one huge table."""

MAX_SHARED_EXPORTS = 1 << 20
"""The most exports of all other modules of one process."""

MAX_KEPT = 1 << 22
"""Exports and functions of shared indexes that are kept; the index that was asked for first is made again."""

MAX_FUNCTION_TABLE = 1 << 25


class ModuleIndex(NamedTuple):
    """What is known of a module's image.

    `status` says what could not be read. `symbols` are those of its PDB, None if Volatility lacks the PDB.
    `functions` is the x64 function table, None on x86 and if it cannot be read. `file` has the pages that
    memory lacks, None without one.
    """

    headers: Optional[Headers]
    codeview: Optional[CodeView]
    symbols: Optional[SymbolArrays]
    functions: Optional[FunctionTable]
    names: NameTable
    status: Status
    file: Optional[PeImage] = None


class _Room:
    """How many more exports of one process's modules are read. What a module got, it gets again."""

    def __init__(self, most: int) -> None:
        self.used = 0
        self._most = most
        self._granted: Dict[int, int] = {}
        self._counted: Set[int] = set()

    def limit(self, base: int) -> int:
        """Returns how many exports of the module at an address may be read."""
        return self._granted.setdefault(base, self._most - self.used)

    def take(self, base: int, count: int) -> None:
        """Counts the exports that were read of a module, the first time."""
        if base not in self._counted:
            self._counted.add(base)
            self.used += count


class _Made(NamedTuple):
    """An index, what it was made from, and how many exports it has."""

    module: ModuleIndex
    parts: ImageParts
    exports: int

    @property
    def weight(self) -> int:
        """How many exports and functions it keeps."""
        return self.exports + (0 if self.module.functions is None else len(self.module.functions))


class ModuleIndexes:
    """Makes the indexes, and keeps those that processes share.

    Args:
        image: the memory image
        pdbs: finds the symbols of PDBs
    """

    def __init__(self, image: Image, pdbs: PdbSymbols) -> None:
        self._image = image
        self._pdbs = pdbs
        self._shared: Dict[Hashable, _Made] = {}
        self._kept = 0
        self._rooms: Dict[Tuple[str, bool], _Room] = {}
        self._last: Tuple[str, Dict[Tuple[int, int], ModuleIndex]] = ("", {})

    def get(
        self,
        layer_name: str,
        base: int,
        size: int,
        view: Optional[SectionView] = None,
        table: Optional[interfaces.symbols.SymbolTableInterface] = None,
        file: Optional[PeImage] = None,
    ) -> ModuleIndex:
        """Returns the index of the module at an address.

        Args:
            layer_name: a virtual layer that maps the module
            base: its address, canonical
            size: its bytes according to the loader
            view: its section, None if it has none
            table: its symbols, if the caller has them loaded (the kernel's)
            file: its file, which has the pages that memory lacks; None without one
        """
        if self._last[0] != layer_name:
            self._last = layer_name, {}
        known = self._last[1]
        if (base, size) not in known:
            reader = ImageReader(self._image, layer_name, base, size, view, file=file)
            known[base, size] = self._find(reader, view, table)
        return known[base, size]

    def held(self, layer_name: str) -> int:
        """Returns how many exports were read of modules that only the process of a layer has."""
        room = self._rooms.get((layer_name, False))
        return 0 if room is None else room.used

    def _find(
        self,
        reader: ImageReader,
        view: Optional[SectionView],
        table: Optional[interfaces.symbols.SymbolTableInterface],
    ) -> ModuleIndex:
        layer_name, base = reader.layer_name, reader.base
        differs = NOTHING
        if view is not None and table is None:
            shared = self._of_section(reader, view)
            found = shared.parts.difference(reader)
            if found is None:
                return self._within(layer_name, base, shared)
            differs = found
        room = self._room(layer_name, shared=False)
        made = self._build(reader, table, room.limit(base))
        room.take(base, made.exports)
        return made.module._replace(status=status(made.module.status, differs))

    def _of_section(self, mapped: ImageReader, view: SectionView) -> _Made:
        """Returns the index of what the section itself has, and where it has nothing, of the file.

        Which file it is a process may have forged: an index is shared by those only that have the same.
        """
        base, size, file = mapped.base, mapped.size, mapped.file
        key = (view.prototypes, view.count, base - view.start, size, file)
        found = self._shared.pop(key, None)
        if found is None:
            reader = ImageReader(self._image, mapped.layer_name, base, size, view, True, file)
            found = self._build(reader, None, exports.MAX_EXPORTS)
            self._kept += found.weight
        self._shared[key] = found
        while self._kept > MAX_KEPT and len(self._shared) > 1:
            self._kept -= self._shared.pop(next(iter(self._shared))).weight
        return found

    def _within(self, layer_name: str, base: int, shared: _Made) -> ModuleIndex:
        """Returns a shared index; without its exports, if the process has too many modules with very many."""
        room = self._room(layer_name, shared=True)
        if shared.exports <= room.limit(base):
            room.take(base, shared.exports)
            return shared.module
        index = shared.module
        sections = () if index.headers is None else index.headers.sections
        names = ExportNames([], [], sections, index.functions)
        return index._replace(names=names, status=status(index.status, Word.EXPORTS_INCOMPLETE))

    def _room(self, layer_name: str, shared: bool) -> _Room:
        return self._rooms.setdefault(
            (layer_name, shared), _Room(MAX_SHARED_EXPORTS if shared else MAX_EXPORTS)
        )

    def _build(
        self,
        reader: ImageReader,
        table: Optional[interfaces.symbols.SymbolTableInterface],
        limit: int,
    ) -> _Made:
        """Makes the index of an image.

        Args:
            reader: the image
            table: its symbols, if they are loaded
            limit: the most exports that are read
        """
        parts = ImageParts(reader)
        try:
            headers = pe.read_headers(parts.read)
        except HeaderError as error:
            return _Made(_without_headers(table, status(error.word, parts.of_file())), parts, 0)
        codeview = pe.read_codeview(parts.read, headers)
        symbols = pdbsymbols.from_table(table) if table is not None else None
        if symbols is None and codeview is not None:
            symbols = self._pdbs.find(codeview)
        functions, said = _functions(reader, headers, parts)
        count = 0
        if symbols is None:
            load = functools.partial(parts.load, Word.EXPORTS_DIFFER_FROM_THE_SECTION)
            found = exports.read_exports(load, headers, limit)
            count = len(found.entries)
            rvas, labels = sort_labels(found.entries)
            said = status(found.status, said)
        else:
            rvas, labels = symbols.rvas, symbols.names
        kind = ExportNames if symbols is None else PdbNames
        names = kind(rvas, labels, headers.sections, functions)
        said = status(said, parts.of_file())
        made = ModuleIndex(headers, codeview, symbols, functions, names, said, reader.file)
        return _Made(made, parts, count)


def _functions(
    reader: ImageReader, headers: Headers, parts: ImageParts
) -> Tuple[Optional[FunctionTable], Status]:
    """Returns the readable part of the x64 function table, and what is wrong with the table."""
    rva, size = headers.directory(pe.DIRECTORY_EXCEPTION)
    if headers.machine != pe.MACHINE_AMD64 or not 0 < size <= MAX_FUNCTION_TABLE:
        return None, NOTHING
    extents = parts.load(Word.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION, rva, size)
    runs = [(start - rva, data) for start, data in extents.runs]
    if not runs:
        return None, status(Word.FUNCTION_TABLE_UNREADABLE)
    said = status(Word.FUNCTION_TABLE_INCOMPLETE) if extents.missing(rva, rva + size) else NOTHING
    table = FunctionTable.from_runs(runs, size, reader.read)
    parts.add_records(Word.UNWIND_DATA_DIFFERS_FROM_THE_SECTION, table.records, table.record_length)
    return table, said


def _without_headers(table: Optional[interfaces.symbols.SymbolTableInterface], said: Status) -> ModuleIndex:
    """Makes the index of a module whose headers cannot be used, from the symbols that the caller gave."""
    if table is None:
        return without_anything(said)
    symbols = pdbsymbols.from_table(table)
    names = PdbNames(symbols.rvas, symbols.names)
    return ModuleIndex(None, None, symbols, None, names, said)


def without_anything(said: Status) -> ModuleIndex:
    """Makes the index of a module of which nothing is known."""
    return ModuleIndex(None, None, None, None, ExportNames([], []), said)
