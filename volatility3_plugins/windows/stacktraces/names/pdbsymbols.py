# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Symbols of user-mode and driver PDBs: those that Volatility has, and on request those it can get.

They are kept as sorted arrays: the framework looks up exact addresses only. Volatility's own loader tries a
download as soon as a table is missing, even offline, and leaves an empty folder behind; so tables are looked
for here first, and its loader is called only when fetching was asked for.
"""

from __future__ import annotations

import json
import logging
import lzma
import os
import pathlib
import re
import sqlite3
import zlib
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

from volatility3 import symbols
from volatility3.framework import constants, exceptions, interfaces
from volatility3.framework.automagic import symbol_cache
from volatility3.framework.layers import resources
from volatility3.framework.symbols.windows import pdbutil

from ..base.image import Image
from .decode import rules
from .decode.pe import CodeView

vollog = logging.getLogger(__name__)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,127}")
_MAX_REPORTS = 256

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
"""What opening and decoding a damaged or vanished ISF file raises."""

FETCH_ERRORS = (*READ_ERRORS, IndexError)
"""What Volatility's download and its PDB converter raise."""


class SymbolArrays(NamedTuple):
    """The symbols of a module, by RVA: each RVA once, with its best name."""

    rvas: List[int]
    names: List[str]
    by_name: Mapping[str, Any]

    def rva_of(self, name: str) -> Optional[int]:
        """Returns the RVA of a symbol by its exact name."""
        symbol = self.by_name.get(name)
        return None if symbol is None else int(symbol["address"])


def from_table(table: interfaces.symbols.SymbolTableInterface) -> SymbolArrays:
    """Indexes a symbol table that Volatility has loaded.

    The table's own JSON is read where it is at hand: an object per symbol costs more than loading the file.
    """
    symbols = getattr(getattr(table, "_delegate", None), "_json_object", {}).get("symbols")
    if symbols is None:
        symbols = {name: {"address": table.get_symbol(name).address} for name in table.symbols}
    return from_symbols(symbols)


def from_url(url: str) -> Optional[SymbolArrays]:
    """Indexes an ISF file (any form that Volatility opens) without its types; None if it cannot be read."""
    try:
        with resources.ResourceAccessor().open(url) as file:
            symbols = json.load(file)["symbols"]
        return from_symbols(symbols)
    except READ_ERRORS:
        return None


def from_symbols(symbols: Mapping[str, Any]) -> SymbolArrays:
    """Indexes the `symbols` of an ISF: name -> {"address": RVA, ...}."""
    return SymbolArrays(
        *rules.sort_labels((symbol["address"], name) for name, symbol in symbols.items()), symbols
    )


class PdbSymbols:
    """Finds the symbols of a PDB, each once.

    Args:
        image: the memory image, for Volatility's downloader
        fetch_symbols: let Volatility download what is missing
        progress_callback: told about downloads
        advise: warn of the first PDB that is missing, for whoever names addresses and can fetch
    """

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
        self._found: Dict[CodeView, Optional[SymbolArrays]] = {}

    def find(self, pdb: CodeView) -> Optional[SymbolArrays]:
        """Returns the symbols of a PDB or None if Volatility does not have them.

        What is missing is logged, once per PDB.
        """
        if pdb not in self._found:
            self._found[pdb] = self._find(pdb)
        return self._found[pdb]

    def _find(self, pdb: CodeView) -> Optional[SymbolArrays]:
        # The name comes from the image and becomes a file name: nothing but a plain one is looked for.
        if not _PLAIN_NAME.fullmatch(pdb.pdb_name):
            return None
        for url in local_urls(pdb):
            found = from_url(url)
            if found is not None:
                return found
            vollog.warning(f"The symbols at {url} cannot be read")
        if self._fetch_symbols and self._fetch(pdb):
            for url in _files(pdb):
                return from_url(url)
        self._report(f"No symbols for {pdb.pdb_name} {pdb.guid}-{pdb.age}")
        return None

    def _report(self, missing: str) -> None:
        """Says that a PDB is missing: an image lacks hundreds, so only the first one is a warning."""
        if self._advise:
            self._advise = False
            vollog.warning(f"{missing}: its exports are used (-v names others, --fetch-symbols gets them)")
        elif len(self._found) < _MAX_REPORTS:
            vollog.info(missing)

    def _fetch(self, pdb: CodeView) -> bool:
        try:
            pdbutil.PDBUtility.download_pdb_isf(
                self._context, pdb.guid, pdb.age, pdb.pdb_name, self._progress_callback
            )
        except FETCH_ERRORS as fault:
            vollog.warning(f"The symbols of {pdb.pdb_name} {pdb.guid}-{pdb.age} cannot be fetched: {fault}")
            return False
        return True


def local_urls(pdb: CodeView) -> Iterator[str]:
    """Yields where the ISF of a PDB may be read without a network: Volatility's cache, then its folders."""
    cache_path = os.path.join(constants.CACHE_PATH, constants.IDENTIFIERS_FILENAME)
    if os.path.isfile(cache_path):
        identifier = symbol_cache.WindowsIdentifier.generate(pdb.pdb_name, pdb.guid, pdb.age)
        try:
            cache = symbol_cache.SqliteCache(cache_path)
            url = cache.find_location(identifier, "windows")
        except sqlite3.Error as fault:
            vollog.debug(f"Volatility's cache of symbol tables cannot be read: {fault}")
            url = None
        if url and cache.is_url_local(url):
            yield url
    yield from _files(pdb)


def _files(pdb: CodeView) -> Iterator[str]:
    """Yields the ISF files of a PDB in the folders of Volatility's symbol path."""
    for folder in symbols.__path__:
        for extension in constants.ISF_EXTENSIONS:
            path = pathlib.Path(folder, "windows", pdb.pdb_name, f"{pdb.guid}-{pdb.age}{extension}")
            if path.is_file():
                yield path.absolute().as_uri()
