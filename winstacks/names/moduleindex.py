# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The index of names of a module's image, shared by processes that are proven to have the same image.

An index is made when an address of the module is first named. It is made from the image section, to which no
process can write. A process shares the index if it has the same content in all parts from which the index was
made: the same physical pages, or equal bytes. Any other process gets its own index, made from its own pages
and, where it has none, from the section's pages; the status names the parts whose bytes differ from the
section. So a write by one process changes no name in another one, whichever is named first.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, Hashable, Optional, Sequence, Set, Tuple, Type

from volatility3.framework import interfaces

from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..process.sections import SectionView
from . import pdbsymbols
from .decode import exports, pe
from .decode.functiontable import FunctionTable
from .decode.functiontable_arm64 import FunctionTableArm64
from .decode.hybrid import CodeMap, read_code_map
from .decode.pclntab import GoTable, may_be_go
from .decode.pe import CodeView, HeaderError, Headers
from .decode.peimage import PeImage
from .decode.rules import ExportNames, GoNames, NameTable, PdbNames, sort_labels
from .decode.unwindinfo import RuntimeFunction
from .imagereader import ImageParts, ImageReader
from .pdbsymbols import PdbSymbols, SymbolArrays

MAX_EXPORTS = 1 << 18
"""Maximum number of exports that are read for one process from modules that may differ from their sections.
Real modules have fewer. Forged modules may share the pages of one huge table."""

MAX_SHARED_EXPORTS = 1 << 20
"""Maximum number of exports that one process gets from shared indexes."""

MAX_KEPT = 1 << 22
"""Exports and functions in the shared indexes that are kept. Above this number, the indexes that were used
longest ago are dropped."""

MAX_FUNCTION_TABLE = 1 << 25
"""Maximum bytes of a function table."""


TABLES: Dict[int, Type[FunctionTable]] = {
    pe.MACHINE_AMD64: FunctionTable,
    pe.MACHINE_ARM64: FunctionTableArm64,
}
"""The function tables of images, by the machine in their headers."""


class ModuleIndex(NamedTuple):
    """The names, headers and tables of a module's image.

    Attributes:
        headers: PE headers, None if they cannot be used
        codeview: RSDS record, None if there is none or it cannot be read
        symbols: symbols from the PDB, None if Volatility lacks the PDB
        functions: function table of x64 or ARM64, None on x86 and if it cannot be read
        names: names by RVA: symbols of the PDB or, without a PDB, exports
        status: parts that could not be read, or that differ; empty for none
        go: functions of a Go program, None of any other
    """

    headers: Optional[Headers]
    codeview: Optional[CodeView]
    symbols: Optional[SymbolArrays]
    functions: Optional[FunctionTable]
    names: NameTable
    status: Status
    file: Optional[PeImage] = None
    hybrid: Optional[CodeMap] = None
    go: Optional[GoTable] = None

    @property
    def sections(self) -> Tuple[pe.Section, ...]:
        """The sections that are not empty, by RVA; none without headers."""
        return () if self.headers is None else self.headers.sections

    def find_entry(self, rva: int) -> Optional[RuntimeFunction]:
        """Returns the entry of the function table for the code at an RVA, None if there is none."""
        return None if self.functions is None else self.functions.find_entry(rva)


class _Room:
    """A budget of exports for the modules of one process. A module that is read again gets the same limit."""

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


class _BuiltIndex(NamedTuple):
    """A new index."""

    module: ModuleIndex
    parts: ImageParts
    exports: int

    @property
    def weight(self) -> int:
        """The number of exports and functions in the index."""
        return self.exports + (0 if self.module.functions is None else len(self.module.functions))


class ModuleIndexes:
    """Makes the indexes of modules, and keeps the shared indexes and the indexes of the latest process."""

    def __init__(self, image: Image, pdbs: PdbSymbols) -> None:
        self._image = image
        self._pdbs = pdbs
        self._shared: Dict[Hashable, _BuiltIndex] = {}
        self._kept_weight = 0
        self._rooms: Dict[Tuple[str, bool], _Room] = {}
        self._last: Tuple[str, Dict[Tuple[int, int], ModuleIndex]] = ("", {})

    def get(
        self,
        reader: ImageReader,
        table: Optional[interfaces.symbols.SymbolTableInterface] = None,
        listed: Optional[Callable[[], Optional[CodeView]]] = None,
    ) -> ModuleIndex:
        """Returns the index of a module.

        Args:
            reader: reads the module as its process has it
            table: the module's symbols, if the caller has loaded them (the kernel's)
            listed: returns the RSDS record that a list of modules has, for a module whose headers are absent
        """
        if self._last[0] != reader.layer_name:
            self._last = reader.layer_name, {}
        indexes, place = self._last[1], (reader.base, reader.size)
        if place not in indexes:
            index = self._make_index(reader, table)
            if index.symbols is None and index.headers is None and listed is not None:
                index = self._of_list(index, listed())
            indexes[place] = index
        return indexes[place]

    def _of_list(self, index: ModuleIndex, codeview: Optional[CodeView]) -> ModuleIndex:
        """Returns an index with the symbols of the PDB that a list of modules names."""
        symbols = self._pdbs.find_symbols(codeview)
        if symbols is None:
            return index
        names = PdbNames(symbols.rvas, symbols.names)
        return index._replace(codeview=codeview, symbols=symbols, names=names)

    def exports_held(self, layer_name: str) -> int:
        """Returns how many exports were read for the process of a layer from modules whose index no other
        process shares."""
        room = self._rooms.get((layer_name, False))
        return 0 if room is None else room.used

    def _make_index(
        self, reader: ImageReader, table: Optional[interfaces.symbols.SymbolTableInterface]
    ) -> ModuleIndex:
        """Returns the shared index of a module if the process has the same content, else one of its own."""
        layer_name, base, view = reader.layer_name, reader.base, reader.view
        differences = NOTHING
        if view is not None and table is None:
            shared = self._section_index(reader, view)
            difference = shared.parts.difference(reader)
            if difference is None:
                return self._within_budget(layer_name, base, shared)
            differences = difference
        room = self._room(layer_name, shared=False)
        index = self._build(reader, table, room.limit(base))
        room.count_exports(base, index.exports)
        return index.module._replace(status=status(index.module.status, differences))

    def _section_index(self, mapped: ImageReader, view: SectionView) -> _BuiltIndex:
        """Returns the index of the section's own content, with the file's content where the section has none.

        The file was chosen by data of a process, which may be forged. So only processes for which the same
        file was chosen share an index.
        """
        base, size, file = mapped.base, mapped.size, mapped.file
        key = (view.prototypes, view.count, base - view.start, size, file)
        index = self._shared.pop(key, None)
        if index is None:
            reader = ImageReader(self._image, mapped.layer_name, base, size, view, True, file)
            index = self._build(reader, None, exports.MAX_EXPORTS)
            self._kept_weight += index.weight
        self._shared[key] = index
        while self._kept_weight > MAX_KEPT and len(self._shared) > 1:
            self._kept_weight -= self._shared.pop(next(iter(self._shared))).weight
        return index

    def _within_budget(self, layer_name: str, base: int, shared: _BuiltIndex) -> ModuleIndex:
        """Returns a shared index for a process, without the exports if they exceed the process's budget."""
        room = self._room(layer_name, shared=True)
        if shared.exports <= room.limit(base):
            room.count_exports(base, shared.exports)
            return shared.module
        index = shared.module
        names = ExportNames([], [], index.sections, index.functions)
        return index._replace(names=names, status=status(index.status, StatusCode.EXPORTS_INCOMPLETE))

    def _room(self, layer_name: str, shared: bool) -> _Room:
        """Returns the budget of the process of a layer: for shared indexes, or for its own."""
        return self._rooms.setdefault(
            (layer_name, shared), _Room(MAX_SHARED_EXPORTS if shared else MAX_EXPORTS)
        )

    def _build(
        self,
        reader: ImageReader,
        table: Optional[interfaces.symbols.SymbolTableInterface],
        limit: int,
    ) -> _BuiltIndex:
        parts = ImageParts(reader)
        try:
            headers = pe.read_headers(parts.read)
        except HeaderError as error:
            return _BuiltIndex(_without_headers(table, status(error.code, parts.file_status())), parts, 0)
        codeview = pe.read_codeview(parts.read, headers)
        symbols = self._pdbs.find_symbols(codeview) if table is None else pdbsymbols.from_table(table)
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
        table_of_go = _go_table(reader, headers, labels)
        names: NameTable
        if symbols is not None:
            names = PdbNames(rvas, labels, headers.sections, functions)
        elif table_of_go is not None:
            names = GoNames(rvas, labels, headers.sections, functions, table_of_go)
        else:
            names = ExportNames(rvas, labels, headers.sections, functions)
        faults = status(faults, parts.file_status())
        hybrid = _code_map(reader, headers, parts)
        index = ModuleIndex(
            headers, codeview, symbols, functions, names, faults, reader.file, hybrid, table_of_go
        )
        return _BuiltIndex(index, parts, count)


def _functions(
    reader: ImageReader, headers: Headers, parts: ImageParts
) -> Tuple[Optional[FunctionTable], Status]:
    """Returns the readable part of the function table, and its faults."""
    rva, size = headers.directory(pe.DIRECTORY_EXCEPTION)
    form = TABLES.get(headers.machine)
    if form is None or not 0 < size <= MAX_FUNCTION_TABLE:
        return None, NOTHING
    extents = parts.load(StatusCode.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION, rva, size)
    runs = [(start - rva, data) for start, data in extents.runs]
    if not runs:
        return None, status(StatusCode.FUNCTION_TABLE_UNREADABLE)
    fault = status(StatusCode.FUNCTION_TABLE_INCOMPLETE) if extents.missing(rva, rva + size) else NOTHING
    table = form.from_runs(runs, size, reader.read)
    parts.add_records(StatusCode.UNWIND_DATA_DIFFERS_FROM_THE_SECTION, table.records, table.record_length)
    return table, fault


def _go_table(reader: ImageReader, headers: Headers, labels: Sequence[str]) -> Optional[GoTable]:
    """Returns the functions of a module that may be a Go program; they are read when one is looked up."""
    return GoTable(reader.load, reader.read, headers, reader.base) if may_be_go(headers, labels) else None


def _code_map(reader: ImageReader, headers: Headers, parts: ImageParts) -> Optional[CodeMap]:
    """Returns the kinds of code of a hybrid image; its parts count only if there is a code map."""
    if headers.machine not in TABLES or read_code_map(reader.read, headers, reader.base) is None:
        return None
    return read_code_map(parts.read, headers, reader.base)


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
