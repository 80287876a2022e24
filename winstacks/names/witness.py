# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the file of --binaries that belongs to a module in memory, and checks addresses of the module by it.

    witnesses = image.service(FileWitnesses)
    file = witnesses.find_file(reader, name, entry)     # None if no file is given, or none agrees

A file is found by the name and build in the loader's entry, the headers and the RSDS record of the module in
memory. All of these may be forged, so pages are compared, too: unless the RSDS records are equal, a file that
differs from most of the compared pages is not used.
"""

from __future__ import annotations

import random
from typing import Dict, List, Optional, Tuple, Union

from ..memory.decode.memo import Kept
from ..memory.decode.pagetable import PAGE_SIZE, round_to_pages
from ..memory.decode.status import NOTHING, Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from .decode import pe
from .decode.functiontable import FunctionTable
from .decode.pe import CodeView, HeaderError
from .decode.peimage import PeImage
from .imagereader import ImageReader
from .loaderlists import LoaderEntry, module_lists
from .modulefiles import ModuleClaims, module_files

MAX_KEPT = 1 << 14
"""Maximum number of modules whose files are kept."""

MAX_COMPARED_PAGES = 64
"""Maximum number of pages of a module that are compared with its file before the file is used."""

_BEFORE = 16
"""Bytes of code before a return address on which its frame depends: more than the longest call has."""

_KERNELS = ("ntoskrnl.exe", "ntkrnlmp.exe", "ntkrnlpa.exe", "ntkrpamp.exe")
"""Names of the kernel's file: setup renames the file, symbol servers use the name from the linker."""

_PAGE_DIFFERS = StatusItem(StatusCode.DIFFERS_FROM_FILE, None, ("page",))

Entry = Tuple[AddressSpace, LoaderEntry]
"""A loader's entry, behind the address space (the kernel, or one half of a process) whose lists hold it."""


class FileWitnesses:
    """Finds the files of modules. Obtained by `image.service(FileWitnesses)`."""

    def __init__(self, image: Image) -> None:
        self._lists = image.service(module_lists)
        self.files = image.service(module_files)
        self._found: Kept[Tuple[str, int, int], Optional[PeImage]] = Kept(MAX_KEPT)

    def find_file(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> Optional[PeImage]:
        """Returns the file of a module; None if the examiner gave none, or none agrees with memory.

        Args:
            name: name of the module's file; text of the image
            entry: loader's entry of the module, None if it is in no list
        """
        if not self.files.given:
            return None
        key = (reader.layer_name, reader.base, reader.size)
        if key not in self._found:
            self._found.keep(key, self._search_file(reader, name, entry))
        return self._found[key]

    def with_file(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> ImageReader:
        """Returns the reader of a module with the file that `find_file` finds."""
        file = self.find_file(reader, name, entry)
        return reader if file is None else reader.with_file(file)

    def lacks(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> None:
        """Logs that the file of a module would help, if such advice is on."""
        if self.files.advise:
            self.files.lacks(self._claims(reader, name, entry))

    def _search_file(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> Optional[PeImage]:
        """Returns the file of a module, if its pages agree with memory. A file that disagrees is logged."""
        claims = self._claims(reader, name, entry)
        file = self.files.find_file(claims)
        if file is None:
            return None
        reason = _contradiction(file, reader, claims.code_view)
        if reason:
            self.files.refuse(file.path, claims, reason)
            return None
        return file

    def _claims(self, reader: ImageReader, name: str, entry: Optional[Entry]) -> ModuleClaims:
        """Returns the name and the build of a module by its loader's entry, headers and RSDS record."""
        stamps: Dict[int, None] = {}
        sizes = {round_to_pages(reader.size): None}
        code_view = None
        try:
            headers = pe.read_headers(reader.read)
            stamps[headers.timestamp] = sizes[round_to_pages(headers.size)] = None
            code_view = pe.read_codeview(reader.read, headers)
        except HeaderError:
            pass
        if entry is not None:
            details = self._lists.details(*entry)
            code_view = code_view or details.code_view
            sizes[round_to_pages(entry[1].size)] = None
            if details.stamp is not None:
                stamps[details.stamp] = None
        names = _KERNELS if name.lower() in (*_KERNELS, "nt") else (name,)
        return ModuleClaims(names, tuple((stamp, size) for stamp in stamps for size in sizes), code_view)


def _contradiction(file: PeImage, reader: ImageReader, code_view: Optional[CodeView]) -> str:
    """Returns why a file does not belong to a module, as the end of a sentence about it; empty if it does.

    The file belongs if the RSDS records are equal, or if at most half of the compared pages differ. If no
    page can be compared, an RSDS record in memory excludes a file with another one.
    """
    if code_view is not None and file.code_view == code_view:
        return ""
    pages = list(range(0, file.headers.size, PAGE_SIZE))
    if len(pages) > MAX_COMPARED_PAGES:
        # A uniform sample, the same in every run.
        pages = sorted(random.Random(file.headers.timestamp).sample(pages, MAX_COMPARED_PAGES))
    compared = differing = 0
    view = reader.with_file(file)
    for rva in pages:
        if view.has(rva) and view.compares(rva):
            compared += 1
            differing += bool(view.differences(rva, PAGE_SIZE))
    if compared and 2 * differing <= compared:
        return ""
    if code_view is not None:
        record = "no RSDS record" if file.code_view is None else f"{file.code_view.guid}-{file.code_view.age}"
        return f"has {record}, the image {code_view.guid}-{code_view.age}"
    return f"has other content: {differing} of {compared} pages of the image differ" if compared else ""


class PageWitness:
    """Compares the code at addresses of a module with the module's file."""

    def __init__(self, reader: ImageReader, functions: Optional[FunctionTable]) -> None:
        self._reader = reader
        self._functions = functions

    def status(self, rva: int) -> Status:
        """Returns the status of the code at an address: whether bytes on which a frame there depends come
        from the file, and whether the page in memory differs from the file."""
        reader, page = self._reader, rva - rva % PAGE_SIZE
        low = max(page, rva - _BEFORE)
        items: List[Union[StatusCode, StatusItem]] = []
        if reader.adds(low, rva + 1 - low):
            items.append(StatusCode.FROM_FILE)
        if reader.differences(page, PAGE_SIZE):
            items.append(_PAGE_DIFFERS)
        function = None if self._functions is None else self._functions.find_entry(rva)
        if function is not None and reader.adds(function.unwind & -2, 4):
            items.append(StatusCode.FROM_FILE)
        return status(*items) if items else NOTHING
