# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the exports of a module from the image in memory.

All locations are RVAs, and every number is bounded, because the module may have written it itself. An export
has a name and an ordinal, or an ordinal only. If the RVA of an export lies within the export directory, the
export is a forwarder: a string at that RVA names an export of another module.

Source: Microsoft, "PE Format", "The .edata Section".
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, Optional, Set, Tuple

from ...memory.decode import text
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, status
from ...memory.decode.statuscodes import StatusCode
from .pe import DIRECTORY_EXPORT, Headers

LoadRva = Callable[[int, int], Extents]
"""Takes an RVA and a length; returns the present parts of the image there, by RVA."""

MAX_EXPORTS = 0x10000
"""Maximum number of exports of one module: ordinals have 16 bits."""

MAX_NAME = 0x1000
"""Maximum bytes of a name that are searched for its end."""
MAX_DIRECTORY = 1 << 24
"""Maximum bytes of the export directory that are read."""
MAX_STRAY_PAGES = 0x400
"""Pages outside the export directory that are read for names; linkers put names into the directory."""

_DIRECTORY = struct.Struct("<16xIIIIII")
_NAME = struct.Struct("<12xI")


Export = Tuple[int, str]
"""An RVA and its name. An export without a name, or whose name is paged out, is called `OrdinalN`, as in
WinDbg."""


class Exports(NamedTuple):
    """The exports of a module.

    Attributes:
        entries: exports that are code or data of the module, by RVA
        forwarders: (name, target) of the other exports; the target is empty if unreadable
        status: whether the table, or parts of it, could not be read
    """

    entries: Tuple[Export, ...]
    forwarders: Tuple[Tuple[str, str], ...]
    status: Status


def read_exports(load: LoadRva, headers: Headers, limit: int = MAX_EXPORTS) -> Exports:
    """Reads the export table as far as it is present. Returns the exports; none if the module has no export
    directory. `limit` is the maximum number of exports to read; of a longer table the rest is missing, as the
    status says."""
    rva, size = headers.directory(DIRECTORY_EXPORT)
    if not size:
        return Exports((), (), NOTHING)
    directory = load(rva, min(max(size, _DIRECTORY.size), MAX_DIRECTORY))
    head = directory.read(rva, _DIRECTORY.size)
    if head is None:
        return Exports((), (), status(StatusCode.EXPORTS_UNREADABLE))
    base, function_count, name_count, functions_rva, names_rva, ordinals_rva = _DIRECTORY.unpack(head)
    limit = min(limit, MAX_EXPORTS)
    image = _Image(load, headers.size, directory, rva)
    image.missing = max(function_count, name_count) > limit
    function_count, name_count = min(function_count, limit), min(name_count, limit)
    functions = image.array("I", functions_rva, function_count)
    ordinals = image.array("H", ordinals_rva, name_count)
    names = [image.string(name) for name in image.array("I", names_rva, name_count)]
    entries: List[Export] = []
    forwarders: List[Tuple[str, str]] = []
    named: Set[int] = set()
    for name, ordinal in zip(names, ordinals):
        if name is None or ordinal is None or ordinal >= function_count:
            continue
        named.add(ordinal)
        _add_export(functions[ordinal], name, rva, size, image, entries, forwarders)
    for ordinal, function in enumerate(functions):
        # Here and in the table, ordinals are counted from 0: the directory has the first one (its Base).
        if function and ordinal not in named:
            _add_export(function, f"Ordinal{base + ordinal}", rva, size, image, entries, forwarders)
    missing = status(StatusCode.EXPORTS_INCOMPLETE) if image.missing else NOTHING
    return Exports(tuple(sorted(entries)), tuple(forwarders), missing)


def module_name(load: LoadRva, headers: Headers) -> str:
    """Returns the file name that a module's linker wrote into the directory; "" if it cannot be read."""
    rva, size = headers.directory(DIRECTORY_EXPORT)
    directory = load(rva, _DIRECTORY.size) if size else None
    head = None if directory is None else directory.read(rva, _NAME.size)
    if directory is None or head is None:
        return ""
    return _Image(load, headers.size, directory, rva).string(_NAME.unpack(head)[0]) or ""


def _add_export(
    function: Optional[int],
    name: str,
    start: int,
    size: int,
    image: _Image,
    entries: List[Export],
    forwarders: List[Tuple[str, str]],
) -> None:
    """Adds an export to the entries or to the forwarders, unless its RVA is missing or impossible. `function`
    is the RVA of the export, None if missing."""
    if not function or function >= image.size:
        return
    if start <= function < start + size:
        forwarders.append((name, image.string(function) or ""))
    else:
        entries.append((function, name))


class _Image:
    """Reads arrays and strings of an image. `missing` says whether a part of an array or a string was
    missing."""

    def __init__(self, load: LoadRva, size: int, directory: Extents, directory_rva: int) -> None:
        self.load = load
        self.size = size
        self.missing = False
        self._directory = directory
        self._run = directory.run_at(directory_rva) or (0, b"")
        self._pages: Dict[int, Extents] = {}

    def array(self, code: str, rva: int, count: int) -> List[Optional[int]]:
        """Returns an array of integers, with None for each integer that is not in the image. `code` is the
        code of the integers in the module `struct`."""
        width = struct.calcsize(code)
        values: List[Optional[int]] = [None] * count
        if rva >= self.size:
            self.missing = self.missing or count > 0
            return values
        extents = self.load(rva, count * width)
        for low, high in extents.covered(rva, rva + count * width):
            first, last = -(-(low - rva) // width), (high - rva) // width
            data = extents.read(rva + first * width, max(last - first, 0) * width)
            if data:
                values[first:last] = struct.unpack(f"<{last - first}{code}", data)
        self.missing = self.missing or None in values
        return values

    def string(self, rva: Optional[int]) -> Optional[str]:
        """Returns the zero-terminated string at an RVA, made printable; None if it is not in the image."""
        if rva is None or not 0 < rva < self.size:
            return None
        start, data = self._run
        if not start <= rva < start + len(data):
            start, data = self._page(rva).run_at(rva) or (rva, b"")
        end = data.find(b"\0", rva - start, rva - start + MAX_NAME)
        if end <= rva - start:
            self.missing = True
            return None
        # Columns cut a name to this length.
        name = data[rva - start : min(end, rva - start + text.MAX_NAME + 1)].decode("latin-1")
        if name.isidentifier() and len(name) < text.MAX_NAME:
            return name
        return text.printable(name).replace(";", "\\x3b")

    def _page(self, rva: int) -> Extents:
        """Returns the page of an RVA and the next page; the directory after MAX_STRAY_PAGES pages."""
        page = rva // PAGE_SIZE
        if page not in self._pages and len(self._pages) >= MAX_STRAY_PAGES:
            return self._directory
        if page not in self._pages:
            self._pages[page] = self.load(page * PAGE_SIZE, 2 * PAGE_SIZE)
        return self._pages[page]
