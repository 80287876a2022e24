# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One index of names for each module image, shared by processes.

An index is made when an address of the module is first named. Two processes share an index if their images
have the same PDB GUID and age (or, without a PDB record, the same address), the same headers, and the same
content wherever names were read. The headers count so that a module with a copied PDB record does not get
another module's names. The content counts because a process may have changed its copy, for instance with a
hook in the export table: such a copy gets an index of its own, whose status says so.
"""

from __future__ import annotations

import functools
from typing import Dict, Hashable, List, Optional, Tuple

from volatility3.framework import interfaces

from ..base.decode.record import Record
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
"""If pages of a module are missing in one process, its index is tried again in at most so many others."""

MAX_VARIANTS = 8
"""How many different copies of an image are kept; a process with yet another one shares no index."""

MAX_EXPORTS = 1 << 20
"""The most exports that are read of all modules together, which is more than all modules of Windows have. The
limit is needed because forged modules may share the pages of one huge table."""

MAX_FUNCTION_TABLE = 1 << 25


class ModuleIndex(Record):
    """What is known of a module's image.

    `status` says what could not be read. `symbols` are those of its PDB, None if Volatility lacks the PDB.
    `functions` is the x64 function table, None on x86 and if it cannot be read.
    """

    headers: Optional[Headers]
    codeview: Optional[CodeView]
    symbols: Optional[SymbolArrays]
    functions: Optional[FunctionTable]
    names: NameTable
    status: Status


class _Variant:
    """One copy of an image: what its index was made from, and in how many processes that was tried."""

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
            size: its bytes according to the loader
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
    """Returns the readable part of the x64 function table, and what is wrong with the table."""
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
    """Makes the index of a module whose headers cannot be used, from the symbols that the caller gave."""
    if table is None:
        return without_anything(said)
    symbols = pdbsymbols.from_table(table)
    names = PdbNames(symbols.rvas, symbols.names)
    return ModuleIndex(None, None, symbols, None, names, said)


def without_anything(said: Status) -> ModuleIndex:
    """Makes the index of a module of which nothing is known."""
    return ModuleIndex(None, None, None, None, ExportNames([], []), said)
