# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The index of names of a module's image, shared by processes that are proven to have the same image.

An index is made when an address of the module is first named. It is made from the image section, which no
process can write. Every process shares it that has the same content in all parts used for it: the same
physical pages or equal bytes. Any other process gets its own index, made from its own pages or, where it has
none, from the section's pages; the status names parts whose bytes differ from the section. So a write by one
process changes no name elsewhere, in whatever order processes are named.
"""

from __future__ import annotations

import functools
from typing import Dict, Hashable, NamedTuple, Optional, Set, Tuple

from volatility3.framework import interfaces

from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.statuscodes import StatusCode
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
"""Maximum number of exports that are read of modules of one process which are not proven to equal their
section. The modules of a process have fewer. Forged ones may share the pages of one huge table."""

MAX_SHARED_EXPORTS = 1 << 20
"""Maximum number of exports of all other modules of one process."""

MAX_KEPT = 1 << 22
"""Exports and functions of shared indexes that are kept; above this the index used longest ago is dropped."""

MAX_FUNCTION_TABLE = 1 << 25


class ModuleIndex(NamedTuple):
    """The names, headers and tables of a module's image.

    `status` has the parts that could not be read. `symbols` come from its PDB, None if Volatility lacks the
    PDB. `functions` is the x64 function table, None on x86 and if it cannot be read. `file` has the pages
    that memory lacks, None if there is none.
    """

    headers: Optional[Headers]
    codeview: Optional[CodeView]
    symbols: Optional[SymbolArrays]
    functions: Optional[FunctionTable]
    names: NameTable
    status: Status
    file: Optional[PeImage] = None


class _Room:
    """A budget of exports for one process's modules. A module that is read again gets the same limit
    again."""

    def __init__(self, most: int) -> None:
        self.used = 0
        self._most = most
        self._granted: Dict[int, int] = {}
        self._counted: Set[int] = set()

    def limit(self, base: int) -> int:
        """Returns the maximum number of exports to read of the module at an address."""
        return self._granted.setdefault(base, self._most - self.used)

    def count_exports(self, base: int, count: int) -> None:
        """Counts the exports that were read of a module, the first time."""
        if base not in self._counted:
            self._counted.add(base)
            self.used += count


class _Made(NamedTuple):
    """An index, the parts from which it was made, and its number of exports."""

    module: ModuleIndex
    parts: ImageParts
    exports: int

    @property
    def weight(self) -> int:
        """The number of exports and functions that it keeps."""
        return self.exports + (0 if self.module.functions is None else len(self.module.functions))


class ModuleIndexes:
    """Makes the indexes, and keeps the shared ones.

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
            base: canonical address of the module
            size: bytes of the module according to the loader
            view: the module's section, None if it has none
            table: the module's symbols, if the caller has loaded them (the kernel's)
            file: the module's file, which has the pages that memory lacks; None if there is none
        """
        if self._last[0] != layer_name:
            self._last = layer_name, {}
        indexes = self._last[1]
        if (base, size) not in indexes:
            reader = ImageReader(self._image, layer_name, base, size, view, file=file)
            indexes[base, size] = self._find(reader, view, table)
        return indexes[base, size]

    def exports_held(self, layer_name: str) -> int:
        """Returns the number of exports that were read of modules whose index only the process of a layer
        has."""
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
            difference = shared.parts.difference(reader)
            if difference is None:
                return self._within(layer_name, base, shared)
            differs = difference
        room = self._room(layer_name, shared=False)
        index = self._build(reader, table, room.limit(base))
        room.count_exports(base, index.exports)
        return index.module._replace(status=status(index.module.status, differs))

    def _of_section(self, mapped: ImageReader, view: SectionView) -> _Made:
        """Returns the index of the section's own content, with the file's content where the section has none.

        A process may have forged the choice of the file: an index is shared only by processes with the same
        file.
        """
        base, size, file = mapped.base, mapped.size, mapped.file
        key = (view.prototypes, view.count, base - view.start, size, file)
        index = self._shared.pop(key, None)
        if index is None:
            reader = ImageReader(self._image, mapped.layer_name, base, size, view, True, file)
            index = self._build(reader, None, exports.MAX_EXPORTS)
            self._kept += index.weight
        self._shared[key] = index
        while self._kept > MAX_KEPT and len(self._shared) > 1:
            self._kept -= self._shared.pop(next(iter(self._shared))).weight
        return index

    def _within(self, layer_name: str, base: int, shared: _Made) -> ModuleIndex:
        """Returns a shared index; without its exports if the process exceeds its budget of exports."""
        room = self._room(layer_name, shared=True)
        if shared.exports <= room.limit(base):
            room.count_exports(base, shared.exports)
            return shared.module
        index = shared.module
        sections = () if index.headers is None else index.headers.sections
        names = ExportNames([], [], sections, index.functions)
        return index._replace(names=names, status=status(index.status, StatusCode.EXPORTS_INCOMPLETE))

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
            table: the module's symbols, if they are loaded
            limit: maximum number of exports to read
        """
        parts = ImageParts(reader)
        try:
            headers = pe.read_headers(parts.read)
        except HeaderError as error:
            return _Made(_without_headers(table, status(error.code, parts.of_file())), parts, 0)
        codeview = pe.read_codeview(parts.read, headers)
        symbols = pdbsymbols.from_table(table) if table is not None else None
        if symbols is None and codeview is not None:
            symbols = self._pdbs.find_symbols(codeview)
        functions, faults = _functions(reader, headers, parts)
        count = 0
        if symbols is None:
            load = functools.partial(parts.load, StatusCode.EXPORTS_DIFFER_FROM_THE_SECTION)
            export_table = exports.read_exports(load, headers, limit)
            count = len(export_table.entries)
            rvas, labels = sort_labels(export_table.entries)
            faults = status(export_table.status, faults)
        else:
            rvas, labels = symbols.rvas, symbols.names
        kind = ExportNames if symbols is None else PdbNames
        names = kind(rvas, labels, headers.sections, functions)
        faults = status(faults, parts.of_file())
        index = ModuleIndex(headers, codeview, symbols, functions, names, faults, reader.file)
        return _Made(index, parts, count)


def _functions(
    reader: ImageReader, headers: Headers, parts: ImageParts
) -> Tuple[Optional[FunctionTable], Status]:
    """Returns the readable part of the x64 function table, and its faults."""
    rva, size = headers.directory(pe.DIRECTORY_EXCEPTION)
    if headers.machine != pe.MACHINE_AMD64 or not 0 < size <= MAX_FUNCTION_TABLE:
        return None, NOTHING
    extents = parts.load(StatusCode.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION, rva, size)
    runs = [(start - rva, data) for start, data in extents.runs]
    if not runs:
        return None, status(StatusCode.FUNCTION_TABLE_UNREADABLE)
    fault = status(StatusCode.FUNCTION_TABLE_INCOMPLETE) if extents.missing(rva, rva + size) else NOTHING
    table = FunctionTable.from_runs(runs, size, reader.read)
    parts.add_records(StatusCode.UNWIND_DATA_DIFFERS_FROM_THE_SECTION, table.records, table.record_length)
    return table, fault


def _without_headers(table: Optional[interfaces.symbols.SymbolTableInterface], fault: Status) -> ModuleIndex:
    """Makes the index of a module whose headers cannot be used, from the caller's symbols."""
    if table is None:
        return without_anything(fault)
    symbols = pdbsymbols.from_table(table)
    names = PdbNames(symbols.rvas, symbols.names)
    return ModuleIndex(None, None, symbols, None, names, fault)


def without_anything(index_status: Status) -> ModuleIndex:
    """Makes the index of a module about which nothing is known."""
    return ModuleIndex(None, None, None, None, ExportNames([], []), index_status)
