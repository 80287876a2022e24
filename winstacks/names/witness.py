# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The file of --binaries that belongs to a module in memory, and what is said of an address by it.

    witnesses = image.service(FileWitnesses)
    file = witnesses.find(reader, names, entry)     # None: none is given, or none agrees

A file is found by what the loader's entry, the headers and the RSDS record say. All of these may be forged.
So the pages in memory are asked as well: unless the RSDS records are equal, a file from which most of them
differ is no witness.
"""

from __future__ import annotations

import random
from typing import Dict, List, Optional, Tuple, Union

from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import NOTHING, Said, Status, Word, status
from ..memory.image import AddressSpace, Image
from .decode import pe
from .decode.functiontable import FunctionTable
from .decode.pe import CodeView, HeaderError
from .decode.peimage import PeImage
from .imagereader import ImageReader
from .loaderlists import LoaderEntry, module_lists
from .modulefiles import ModuleClaims, module_files, rounded

MAX_KEPT = 1 << 14
"""Modules of processes whose files are kept."""

MAX_ASKED = 64
"""Pages of a module that are compared with those of its file before that is believed."""

_BEFORE = 16
"""Bytes of code before an address on which a frame rests: more than the longest call."""

_KERNELS = ("ntoskrnl.exe", "ntkrnlmp.exe", "ntkrnlpa.exe", "ntkrpamp.exe")
"""Names of the kernel's file: setup renames it, symbol servers have the name that it was linked with."""

_PAGE_DIFFERS = Said(Word.DIFFERS_FROM_FILE, None, ("page",))

Entry = Tuple[AddressSpace, LoaderEntry]
"""A loader's entry, and the half of a process, or the kernel, in whose lists it is."""


class FileWitnesses:
    """Finds the files of modules. Made as `image.service(FileWitnesses)`."""

    def __init__(self, image: Image) -> None:
        self._lists = image.service(module_lists)
        self.files = image.service(module_files)
        self._found: Dict[Tuple[str, int, int], Optional[PeImage]] = {}

    def find(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> Optional[PeImage]:
        """Returns the file of a module; None if none is given, or none agrees with what memory has.

        Args:
            reader: the module in memory
            name: of its file; text of the image
            entry: the loader's entry, None if no list has one
        """
        if not self.files.given:
            return None
        key = (reader.layer_name, reader.base, reader.size)
        if key not in self._found:
            if len(self._found) >= MAX_KEPT:
                self._found.clear()
            self._found[key] = self._find(reader, name, entry)
        return self._found[key]

    def lacks(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> None:
        """Logs, if that is worth a word, that a file would help: pages of a module are not in the image."""
        if self.files.advise:
            self.files.lacks(self._claims(reader, name, entry))

    def _find(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> Optional[PeImage]:
        claims = self._claims(reader, name, entry)
        found = self.files.find(claims)
        if found is None:
            return None
        reason = _contradiction(found, reader, claims.code_view)
        if reason:
            self.files.refuse(found.path, claims, reason)
            return None
        return found

    def _claims(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> ModuleClaims:
        """Returns what the loader's entry, the headers and the RSDS record say of a module."""
        stamps: Dict[int, None] = {}
        sizes = {rounded(reader.size): None}
        code_view = None
        try:
            headers = pe.read_headers(reader.read)
            stamps[headers.timestamp] = sizes[rounded(headers.size)] = None
            code_view = pe.read_codeview(reader.read, headers)
        except HeaderError:
            pass
        if entry is not None:
            details = self._lists.details(*entry)
            code_view = code_view or details.code_view
            sizes[rounded(entry[1].size)] = None
            if details.stamp:
                stamps[details.stamp] = None
        names = _KERNELS if name.lower() in (*_KERNELS, "nt") else (name,)
        return ModuleClaims(names, tuple((stamp, size) for stamp in stamps for size in sizes), code_view)


def _contradiction(file: PeImage, reader: ImageReader, known: Optional[CodeView]) -> str:
    """Returns why a file is not that of a module by the pages of both, empty if it is.

    Where the image lacks all pages that could tell, the RSDS records decide.
    """
    if known is not None and file.code_view == known:
        return ""
    pages = list(range(0, file.headers.size, PAGE_SIZE))
    if len(pages) > MAX_ASKED:
        # Evenly, and the same at every run.
        pages = sorted(random.Random(file.headers.timestamp).sample(pages, MAX_ASKED))
    asked = differing = 0
    view = reader.of_file(file)
    for rva in pages:
        if view.has(rva) and view.compares(rva):
            asked += 1
            differing += bool(view.differences(rva, PAGE_SIZE))
    if asked and 2 * differing <= asked:
        return ""
    if known is not None:
        mine = "no RSDS record" if file.code_view is None else f"{file.code_view.guid}-{file.code_view.age}"
        return f"has {mine}, the image {known.guid}-{known.age}"
    return f"has other content: {differing} of {asked} pages of the image differ" if asked else ""


class PageWitness:
    """Says of addresses of a module what its file does.

    Args:
        reader: the module as the process has it, with its file
        functions: its x64 function table, None without one
    """

    def __init__(self, reader: ImageReader, functions: Optional[FunctionTable]) -> None:
        self._reader = reader
        self._functions = functions

    def status(self, rva: int) -> Status:
        """Returns the words for an address.

        Args:
            rva: of the code there
        """
        reader, page = self._reader, rva - rva % PAGE_SIZE
        low = max(page, rva - _BEFORE)
        said: List[Union[Word, Said]] = []
        if reader.adds(low, rva + 1 - low):
            said.append(Word.FROM_FILE)
        if reader.differences(page, PAGE_SIZE):
            said.append(_PAGE_DIFFERS)
        piece = None if self._functions is None else self._functions.find(rva)
        if piece is not None and reader.adds(piece.unwind & -2, 4):
            said.append(Word.FROM_FILE)
        return status(*said) if said else NOTHING
