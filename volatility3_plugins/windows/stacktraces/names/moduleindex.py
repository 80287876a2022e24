# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One index of names per module image, made when an address of the module is first met, shared by processes.

An image is known by its PDB's GUID and age, else by where it lies; its headers must agree as well, so that
a module that borrows another's PDB record does not lend it its names. So must what its names were read from:
a process may have changed its own copy (a hook in the export table is such a change), which then has an index
of its own, and says so.
"""

from __future__ import annotations

import functools
from typing import Dict, Hashable, List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces

from ..base.decode.status import NOTHING, Status, Word, status
from ..base.image import Image
from . import pdbsymbols
from .decode import exports as peexports
from .decode import pe
from .decode.functiontable import FunctionTable
from .decode.pe import CodeView, HeaderError, Headers
from .decode.rules import ExportNames, NameTable, PdbNames, sort_labels
from .imagereader import ImageParts, ImageReader
from .pdbsymbols import PdbSymbols, SymbolArrays

MAX_TRIES = 4
"""A module whose pages were missing in one process is looked at again in so many others."""

MAX_VARIANTS = 8
"""So many versions of an image are kept; whoever has yet another one does not share it."""

MAX_EXPORTS = 1 << 20
"""Exports of all modules together, more than those of all modules that Windows comes with: modules may share
the pages of one huge table."""

MAX_FUNCTION_TABLE = 1 << 25


class ModuleIndex(NamedTuple):
    """What is known of a module's image.

    `status` says what could not be read. `symbols` are those of its PDB, if Volatility has them. `functions`
    is the x64 function table, None on x86 and where it cannot be read.
    """

    headers: Optional[Headers]
    codeview: Optional[CodeView]
    symbols: Optional[SymbolArrays]
    functions: Optional[FunctionTable]
    names: NameTable
    status: Status


class _Variant:
    """An image as some processes have it: from what its index was made, and how often that was tried."""

    def __init__(self, image: ModuleIndex, parts: ImageParts) -> None:
        self.image = image
        self.parts = parts
        self.tries = 1


class ModuleIndexes:
    """Makes and keeps the indexes.

    Args:
        image: the memory image
        pdbs: finds the symbols of PDBs
    """

    def __init__(self, image: Image, pdbs: PdbSymbols) -> None:
        self._image = image
        self._pdbs = pdbs
        self._variants: Dict[Hashable, List[_Variant]] = {}
        self._room = MAX_EXPORTS

    def get(
        self,
        layer_name: str,
        base: int,
        size: int,
        table: Optional[interfaces.symbols.SymbolTableInterface] = None,
    ) -> ModuleIndex:
        """Returns the index of the module at an address.

        Args:
            layer_name: a virtual layer that maps the module
            base: its address, canonical
            size: bytes that the loader says it has
            table: its symbols, if the caller has them loaded (the kernel's)
        """
        reader = ImageReader(self._image, layer_name, base, size)
        try:
            headers = pe.read_headers(reader.read)
        except HeaderError as error:
            return _without_headers(table, status(error.word))
        codeview = pe.read_codeview(reader.read, headers)
        variants = self._variants.setdefault((codeview or base, headers), [])
        differs: Optional[Word] = None
        for known in variants:
            part = known.parts.difference(reader)
            if part is not None:
                differs = differs or part
                continue
            if known.image.status not in (NOTHING, status(differs)) and known.tries < MAX_TRIES:
                image, parts = self._build(reader, headers, codeview, table, differs)
                known.tries += 1
                if image.status == status(differs):
                    known.image, known.parts = image, parts
            return known.image
        image, parts = self._build(reader, headers, codeview, table, differs)
        if len(variants) < MAX_VARIANTS:
            variants.append(_Variant(image, parts))
        return image

    def _build(
        self,
        reader: ImageReader,
        headers: Headers,
        codeview: Optional[CodeView],
        table: Optional[interfaces.symbols.SymbolTableInterface],
        differs: Optional[Word],
    ) -> Tuple[ModuleIndex, ImageParts]:
        symbols = pdbsymbols.from_table(table) if table is not None else None
        if symbols is None and codeview is not None:
            symbols = self._pdbs.find(codeview)
        parts = ImageParts(reader)
        functions, said = _functions(reader, headers, parts)
        if symbols is None:
            load = functools.partial(parts.load, Word.EXPORTS_DIFFER_FROM_OTHER_PROCESSES)
            exports = peexports.read_exports(load, headers, self._room)
            self._room -= len(exports.entries)
            rvas, labels = sort_labels(exports.entries)
            said = status(exports.status, said)
        else:
            rvas, labels = symbols.rvas, symbols.names
        kind = ExportNames if symbols is None else PdbNames
        names = kind(rvas, labels, headers.sections, functions)
        said = status(said, differs)
        return ModuleIndex(headers, codeview, symbols, functions, names, said), parts


def _functions(
    reader: ImageReader, headers: Headers, parts: ImageParts
) -> Tuple[Optional[FunctionTable], Status]:
    """Returns the x64 function table as far as it can be read, and what is wrong with it."""
    rva, size = headers.directory(pe.DIRECTORY_EXCEPTION)
    if headers.machine != pe.MACHINE_AMD64 or not 0 < size <= MAX_FUNCTION_TABLE:
        return None, NOTHING
    extents = parts.load(Word.FUNCTION_TABLE_DIFFERS_FROM_OTHER_PROCESSES, rva, size)
    runs = [(start - rva, data) for start, data in extents.runs]
    if not runs:
        return None, status(Word.FUNCTION_TABLE_UNREADABLE)
    said = status(Word.FUNCTION_TABLE_INCOMPLETE) if extents.missing(rva, rva + size) else NOTHING
    return FunctionTable.from_runs(runs, size, reader.read), said


def _without_headers(table: Optional[interfaces.symbols.SymbolTableInterface], said: Status) -> ModuleIndex:
    """Makes an index from nothing but the symbols that the caller may have."""
    if table is None:
        return without_anything(said)
    symbols = pdbsymbols.from_table(table)
    names = PdbNames(symbols.rvas, symbols.names)
    return ModuleIndex(None, None, symbols, None, names, said)


def without_anything(said: Status) -> ModuleIndex:
    """Makes the index of a module of which nothing is known."""
    return ModuleIndex(None, None, None, None, ExportNames([], []), said)
