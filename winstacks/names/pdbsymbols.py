# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the symbols of PDBs: in the examiner's PDBs, in Volatility's symbol files, or by a download.

The examiner's PDBs come from --symbols-from (`pdbfiles`); only --fetch-symbols downloads.

They are kept as sorted arrays, because Volatility itself can look up exact addresses only. Volatility's
loader tries a download whenever a table is missing, even offline, and leaves an empty folder behind. So the
table is first searched here, and that loader is called only with `fetch_symbols`.
"""

from __future__ import annotations

import functools
import json
import logging
import lzma
import os
import pathlib
import re
import sqlite3
import threading
import zlib
from typing import Any, Iterator, List, Mapping, Optional, Sequence

from volatility3 import symbols
from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.automagic import symbol_cache
from volatility3.framework.layers import resources
from volatility3.framework.symbols.windows import pdbutil

from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import printable
from ..memory.image import Image
from .decode import rules
from .decode.pdb import Symbol
from .decode.pe import CodeView
from .pdbfiles import pdb_files

vollog = logging.getLogger(__name__)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,127}")
_MAX_REPORTS = 256
"""Missing PDBs are logged until this many PDBs have been searched."""

READ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    lzma.LZMAError,
    zlib.error,
    exceptions.VolatilityException,
)
"""Exceptions that reading a damaged or deleted ISF file may raise."""

FETCH_ERRORS = (*READ_ERRORS, IndexError)
"""Exceptions that Volatility's download and its PDB converter raise."""


class SymbolArrays(NamedTuple):
    """The symbols of a module.

    Attributes:
        rvas: RVAs with a symbol, ascending, each once
        by_name: `symbols` of the ISF by name: a dictionary with `address`, the RVA
    """

    rvas: List[int]
    names: List[str]
    by_name: Mapping[str, Any]

    def rva_of(self, name: str) -> Optional[int]:
        """Returns the RVA of a symbol by its exact name."""
        symbol = self.by_name.get(name)
        return None if symbol is None else int(symbol["address"])


def from_table(table: interfaces.symbols.SymbolTableInterface) -> SymbolArrays:
    """Returns the symbols of a table that Volatility has loaded.

    If the table's JSON is in memory, it is read directly: making an object for each symbol takes longer than
    loading the file.
    """
    symbols = getattr(getattr(table, "_delegate", None), "_json_object", {}).get("symbols")
    if symbols is None:
        symbols = {name: {"address": table.get_symbol(name).address} for name in table.symbols}
    return from_symbols(symbols)


def from_url(url: str) -> Optional[SymbolArrays]:
    """Returns the symbols of an ISF file (in any form that Volatility opens), None if it cannot be read."""
    try:
        with resources.ResourceAccessor().open(url) as file:
            symbols = json.load(file)["symbols"]
        return from_symbols(symbols)
    except READ_ERRORS:
        return None


def from_symbols(symbols: Mapping[str, Any]) -> SymbolArrays:
    """Returns the symbols in the member `symbols` of an ISF: name -> {"address": RVA, ...}."""
    return SymbolArrays(
        *rules.sort_labels((symbol["address"], name) for name, symbol in symbols.items()), symbols
    )


def from_pdb(given: Sequence[Symbol]) -> SymbolArrays:
    """Returns the symbols of a PDB. Static functions of several files may have one name; each keeps it."""
    shown = [(symbol.rva, printable(symbol.name)) for symbol in given]
    by_name = {name: {"address": rva} for rva, name in reversed(shown)}
    return SymbolArrays(*rules.sort_labels(shown), by_name)


class PdbSymbols:
    """Finds the symbols of PDBs. Each PDB is searched once. `advise` says whether to log the first missing
    PDB as a warning, for plugins that name addresses and have --fetch-symbols."""

    def __init__(
        self,
        image: Image,
        fetch_symbols: bool = False,
        progress_callback: constants.ProgressCallback = None,
        advise: bool = False,
    ) -> None:
        self._context = image.context
        self._fetch_symbols = fetch_symbols
        self._progress_callback = progress_callback
        self._advise = advise and not fetch_symbols
        self._given = image.service(pdb_files)
        self._found: Memo[CodeView, Optional[SymbolArrays]] = Memo(self._search_pdb)

    def find_symbols(self, pdb: Optional[CodeView]) -> Optional[SymbolArrays]:
        """Returns the symbols of a PDB, None if Volatility lacks them or without a record that names a PDB.

        A missing PDB is logged once.
        """
        if pdb is None:
            return None
        return self._found[pdb]

    def _search_pdb(self, pdb: CodeView) -> Optional[SymbolArrays]:
        given = self._given.find_symbols(pdb)
        if given is not None:
            return from_pdb(given)
        # The name comes from the image and becomes a file name, so only a plain name is accepted.
        if not _PLAIN_NAME.fullmatch(pdb.pdb_name):
            return None
        for url in local_urls(pdb):
            symbols = from_url(url)
            if symbols is not None:
                return symbols
            vollog.warning(f"The symbols at {url} cannot be read")
        if self._fetch_symbols and self._fetch(pdb):
            for url in _isf_files(pdb):
                return from_url(url)
        self._report(f"No symbols for {pdb.pdb_name} {pdb.guid}-{pdb.age}")
        return None

    def _report(self, missing: str) -> None:
        """Logs that a PDB is missing. Hundreds may be missing, so only the first is a warning."""
        if self._advise:
            self._advise = False
            advice = "its exports are used (-v names others, --fetch-symbols gets them)"
            vollog.warning(f"{missing}: {advice}", extra={"unless_said": missing})
        elif len(self._found) < _MAX_REPORTS:
            vollog.info(missing)

    def _fetch(self, pdb: CodeView) -> bool:
        """Lets Volatility download a PDB and convert it to an ISF; returns whether that succeeded."""
        try:
            pdbutil.PDBUtility.download_pdb_isf(
                self._context, pdb.guid, pdb.age, pdb.pdb_name, self._progress_callback
            )
        except FETCH_ERRORS as fault:
            vollog.warning(f"The symbols of {pdb.pdb_name} {pdb.guid}-{pdb.age} cannot be fetched: {fault}")
            return False
        return True


def local_urls(pdb: CodeView) -> Iterator[str]:
    """Yields the URLs of local ISF files of a PDB: from Volatility's cache, then from its folders."""
    cache_path = os.path.join(constants.CACHE_PATH, constants.IDENTIFIERS_FILENAME)
    if os.path.isfile(cache_path):
        identifier = symbol_cache.WindowsIdentifier.generate(pdb.pdb_name, pdb.guid, pdb.age)
        try:
            cache = _identifiers(cache_path, os.getpid(), threading.get_ident())
            url = cache.find_location(identifier, "windows")
        except sqlite3.Error as fault:
            vollog.debug(f"Volatility's cache of symbol tables cannot be read: {fault}")
            url = None
        if url and cache.is_url_local(url):
            yield url
    yield from _isf_files(pdb)


@functools.lru_cache(maxsize=4)
def _identifiers(path: str, _process: int, _thread: int) -> symbol_cache.SqliteCache:
    """Returns Volatility's cache of identifiers, opened once for each thread of a process: SQLite demands
    that. Opened for each PDB, hundreds of files would be open until Python's collector runs."""
    return symbol_cache.SqliteCache(path)


def _isf_files(pdb: CodeView) -> Iterator[str]:
    """Yields the URLs of the ISF files of a PDB in the folders of Volatility's symbol path."""
    for folder in symbols.__path__:
        for extension in constants.ISF_EXTENSIONS:
            path = pathlib.Path(folder, "windows", pdb.pdb_name, f"{pdb.guid}-{pdb.age}{extension}")
            if path.is_file():
                yield path.absolute().as_uri()
