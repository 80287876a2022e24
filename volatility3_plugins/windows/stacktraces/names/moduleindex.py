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

from . import isfindex
from .decode import exports as peexports
from .decode import pe
from .decode.functiontable import FunctionTable
from .decode.pe import CodeView, HeaderError, Headers
from .decode.rules import ExportNames, NameTable, PdbNames, sort_labels
from .imageparts import ImageParts
from .imagereader import ImageReader
from .isfindex import SymbolArrays
from .pdbsymbols import PdbSymbols

MAX_TRIES = 4
"""A module whose pages were missing in one process is looked at again in so many others."""

MAX_VARIANTS = 8
"""So many versions of an image are kept; whoever has yet another one does not share it."""

MAX_EXPORTS = 1 << 20
"""Exports of all modules together, more than those of all modules that Windows comes with: modules may share
the pages of one huge table."""

MAX_FUNCTION_TABLE = 1 << 25

EXPORTS_DIFFER = "exports differ from other processes"
FUNCTION_TABLE_DIFFERS = "function table differs from other processes"

NO_FUNCTION_TABLE = "function table unreadable"
FUNCTION_TABLE_INCOMPLETE = "function table incomplete"


class ModuleIndex(NamedTuple):
    """What is known of a module's image.

    `status` is empty or says in fixed words what could not be read. `symbols` are those of its PDB, if
    Volatility has them. `functions` is the x64 function table, None on x86 and where it cannot be read.
    """

    headers: Optional[Headers]
    codeview: Optional[CodeView]
    symbols: Optional[SymbolArrays]
    functions: Optional[FunctionTable]
    names: NameTable
    status: str


class _Variant(NamedTuple):
    """An image as some processes have it: from what its index was made, and how often that was tried."""

    image: ModuleIndex
    parts: ImageParts
    tries: int


class ModuleIndexes:
    """Makes and keeps the indexes.

    Args:
        context: the context that holds the layers
        pdbs: finds the symbols of PDBs
    """

    def __init__(self, context: interfaces.context.ContextInterface, pdbs: PdbSymbols) -> None:
        self._context = context
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
        reader = ImageReader(self._context, layer_name, base, size)
        try:
            headers = pe.read_headers(reader.read)
        except HeaderError as error:
            return _without_headers(table, str(error))
        codeview = pe.read_codeview(reader.read, headers)
        variants = self._variants.setdefault((codeview or base, headers), [])
        differs = ""
        for number, known in enumerate(variants):
            part = known.parts.difference(reader)
            if part:
                differs = differs or part
                continue
            if known.image.status not in ("", differs) and known.tries < MAX_TRIES:
                fresh = self._build(reader, headers, codeview, table, differs, known.tries + 1)
                better = fresh.image.status == differs
                variants[number] = fresh if better else known._replace(tries=fresh.tries)
            return variants[number].image
        made = self._build(reader, headers, codeview, table, differs, 1)
        if len(variants) < MAX_VARIANTS:
            variants.append(made)
        return made.image

    def _build(
        self,
        reader: ImageReader,
        headers: Headers,
        codeview: Optional[CodeView],
        table: Optional[interfaces.symbols.SymbolTableInterface],
        differs: str,
        tries: int,
    ) -> _Variant:
        symbols = isfindex.from_table(table) if table is not None else None
        if symbols is None and codeview is not None:
            symbols = self._pdbs.find(codeview)
        parts = ImageParts(reader)
        functions, status = _functions(reader, headers, parts)
        if symbols is None:
            load = functools.partial(parts.load, EXPORTS_DIFFER)
            exports = peexports.read_exports(load, headers, self._room)
            self._room -= len(exports.entries)
            rvas, labels = sort_labels(exports.entries)
            status = ", ".join(filter(None, (exports.status, status)))
        else:
            rvas, labels = symbols.rvas, symbols.names
        kind = ExportNames if symbols is None else PdbNames
        names = kind(rvas, labels, headers.sections, functions)
        status = ", ".join(filter(None, (status, differs)))
        return _Variant(ModuleIndex(headers, codeview, symbols, functions, names, status), parts, tries)


def _functions(
    reader: ImageReader, headers: Headers, parts: ImageParts
) -> Tuple[Optional[FunctionTable], str]:
    """Returns the x64 function table as far as it can be read, and what is wrong with it."""
    rva, size = headers.directory(pe.DIRECTORY_EXCEPTION)
    if headers.machine != pe.MACHINE_AMD64 or not 0 < size <= MAX_FUNCTION_TABLE:
        return None, ""
    extents = parts.load(FUNCTION_TABLE_DIFFERS, rva, size)
    runs = [(start - rva, data) for start, data in extents.runs]
    if not runs:
        return None, NO_FUNCTION_TABLE
    status = FUNCTION_TABLE_INCOMPLETE if extents.missing(rva, rva + size) else ""
    return FunctionTable.from_runs(runs, size, reader.read), status


def _without_headers(table: Optional[interfaces.symbols.SymbolTableInterface], status: str) -> ModuleIndex:
    """Makes an index from nothing but the symbols that the caller may have."""
    if table is None:
        return ModuleIndex(None, None, None, None, ExportNames([], []), status)
    symbols = isfindex.from_table(table)
    names = PdbNames(symbols.rvas, symbols.names)
    return ModuleIndex(None, None, symbols, None, names, status)
