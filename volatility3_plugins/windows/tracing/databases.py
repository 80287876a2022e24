# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where the stack trace databases of an image are.

The kernel's is found by its symbol. A process' is found by ntdll's symbol if Volatility has that PDB, else by
search: a pointer in ntdll's writable data that leads to what proves itself to be a database. What was proven
in one process is where another process with the same ntdll is looked at first.
"""

from __future__ import annotations

import functools
import logging
import struct
from typing import Collection, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from volatility3.framework import interfaces

from . import globalflag, layouts, memory
from .decode import globalflags, heaplog, stdproof, stdwalk
from .decode.reading import Reader
from .decode.stdheader import Header
from .moduleindex import ModuleIndexes
from .ntdll import Ntdll, Ntdlls
from .peek import Peek
from .spaces import AddressSpace
from .vads import Vads

vollog = logging.getLogger(__name__)

STD = "std"
HEAPLOG = "heaplog"
BY_SYMBOL = "symbol"
BY_SEARCH = "search"
NO_POINTER = "no pointer"
"""Status of a database that no global variable leads to."""

# XP, 2003 and Vista write the last word as "Base"; public symbols of 7 and later as "base".
STD_SYMBOLS = ("RtlpStackTraceDatabase", "RtlpStackTraceDataBase")
HEAPLOG_SYMBOL = "RtlpHeapStackTraceLog"

ALLOCATION_GRANULARITY = 0x10000
"""What a process reserves begins at a multiple of 64 KB, so does its database."""


Opened = Union[stdwalk.Database, heaplog.HeapLog]
"""Both yield `traces` and count `figures`."""


class Database(NamedTuple):
    """A database and how it was found.

    Attributes:
        space: the address space that it is in
        kind: `std`, or `heaplog` for the heap's trace log
        address: canonical
        located_by: `symbol` or `search`
        layout: the name of its layout; empty when the header tells none
        header: of an `std`, None when nothing can be made of it
        status: empty, or what is wrong with the header
    """

    space: AddressSpace
    kind: str
    address: int
    located_by: str
    layout: str
    header: Optional[Header]
    status: str


class Databases(interfaces.configuration.VersionableInterface):
    """Finds and opens the databases of an image.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        config_path: where the configuration of our symbol tables goes
        indexes: the module indexes, shared with a symboliser where there is one
    """

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        config_path: str,
        indexes: ModuleIndexes,
    ) -> None:
        super().__init__()
        self._context = context
        self._kernel_module_name = kernel_module_name
        self._config_path = config_path
        self._vads = Vads(context, kernel_module_name)
        self.ntdlls = Ntdlls(context, indexes, self._vads)
        self._layouts: Dict[str, layouts.Layouts] = {}
        self._proven: Dict[Tuple[str, str], Tuple[object, int]] = {}

    def layouts(self, space: AddressSpace) -> layouts.Layouts:
        """Returns the layouts of a space's bitness.

        Raises:
            tables.MissingTableError: when one of our symbol tables is missing
        """
        if space.arch not in self._layouts:
            self._layouts[space.arch] = layouts.load(self._context, self._config_path, space.arch)
        return self._layouts[space.arch]

    def reader(self, space: AddressSpace) -> Reader:
        """Returns the function by which the decoders read a space."""
        return functools.partial(memory.read_extents, self._context, space.layer_name)

    def find(self, space: AddressSpace, carve: bool = False) -> List[Database]:
        """Returns the databases of an address space.

        Args:
            space: the kernel or one half of a process
            carve: also what proves itself in private memory though no global variable leads there, as the
                databases of Application Verifier
        """
        if not space.layer_name:
            return []
        found = list(self._of_kernel(space) if space.kernel else self._of_process(space))
        if carve and not space.kernel:
            found += self._without_pointer(space, {database.address for database in found})
        return found

    def open(self, database: Database) -> Optional[Opened]:
        """Reads a database; None if nothing can be made of its header."""
        reader = self.reader(database.space)
        if database.kind == HEAPLOG:
            return heaplog.HeapLog(reader, database.address, self.layouts(database.space).heaplog)
        return stdwalk.Database(reader, database.header) if database.header else None

    def _of_kernel(self, space: AddressSpace) -> Iterator[Database]:
        kernel = self._context.modules[self._kernel_module_name]
        base = memory.canonical(self._context.layers[kernel.layer_name], kernel.offset)
        peek = Peek(self._context, space.layer_name, space.pointer_size)
        for name in STD_SYMBOLS:
            if not kernel.has_symbol(name):
                continue
            value = peek.pointer(base + kernel.get_symbol(name).address)
            if value is None:
                vollog.warning(f"nt!{name} cannot be read: whether the kernel keeps a database is not known")
            elif value:
                yield self._std(space, value, BY_SYMBOL)
            return
        vollog.warning("The kernel's symbols do not tell where its stack trace database would be")

    def _of_process(self, space: AddressSpace) -> Iterator[Database]:
        ntdll = self.ntdlls.find(space)
        if ntdll is None:
            vollog.info(f"Process {space.pid} ({space.arch}) has no ntdll that its loader or its VADs know")
            return
        found_std = False
        for database in self._by_pointer(ntdll, STD, STD_SYMBOLS):
            found_std = True
            yield database
        flags = globalflag.read(self._context, self._kernel_module_name, space)
        if found_std or flags is None or flags & globalflags.MAKES_USER_DATABASE:
            yield from self._by_pointer(ntdll, HEAPLOG, (HEAPLOG_SYMBOL,))

    def _by_pointer(self, ntdll: Ntdll, kind: str, names: Tuple[str, ...]) -> Iterator[Database]:
        """Yields what a global variable of ntdll leads to: by symbol, by its place elsewhere, by search."""
        space = ntdll.space
        peek = Peek(self._context, space.layer_name, space.pointer_size)
        pointer = ntdll.address_of(*names)
        located_by = BY_SYMBOL
        if pointer is None:
            located_by = BY_SEARCH
            index, rva = self._proven.get((kind, space.arch), (None, 0))
            if index is ntdll.image:
                pointer = ntdll.base + rva
        if pointer is not None:
            value = peek.pointer(pointer)
            if value is None:
                vollog.warning(f"Process {space.pid} ({space.arch}): {names[0]} cannot be read")
            elif value:
                yield self._make(space, kind, value, located_by)
            return
        for place, value in self._candidates(ntdll, kind):
            if self._proves(space, kind, value):
                self._proven[kind, space.arch] = (ntdll.image, place - ntdll.base)
                yield self._make(space, kind, value, located_by)
                return

    def _candidates(self, ntdll: Ntdll, kind: str) -> Iterator[Tuple[int, int]]:
        """Yields (address, value) of the words in ntdll's writable data that may point to a database."""
        width = ntdll.space.pointer_size
        unit = ALLOCATION_GRANULARITY if kind == STD else 2 * width
        image = range(ntdll.base, ntdll.base + ntdll.size)
        seen = {0}
        for extents in self.ntdlls.data(ntdll):
            for start, data in extents.runs:
                skip = -start % width
                count = (len(data) - skip) // width
                words = struct.unpack_from(f"<{max(count, 0)}{'Q' if width == 8 else 'I'}", data, skip)
                for number, value in enumerate(words):
                    if value % unit == 0 and value not in seen and value not in image:
                        seen.add(value)
                        yield start + skip + number * width, value

    def _proves(self, space: AddressSpace, kind: str, address: int) -> bool:
        if kind == STD:
            return stdproof.prove(self.reader(space), address, self.layouts(space).std).header is not None
        return heaplog.prove(self.reader(space), address, self.layouts(space).heaplog)

    def _make(self, space: AddressSpace, kind: str, address: int, located_by: str) -> Database:
        if kind == STD:
            return self._std(space, address, located_by)
        status = "" if self._proves(space, kind, address) else "damaged"
        return Database(space, kind, address, located_by, HEAPLOG, None, status)

    def _std(self, space: AddressSpace, address: int, located_by: str) -> Database:
        proof = stdproof.recover(self.reader(space), address, self.layouts(space).std)
        status = f"header: {', '.join(proof.failed)}" if proof.failed else ""
        name = proof.header.layout.name if proof.header else ""
        return Database(space, STD, address, located_by, name, proof.header, status)

    def _without_pointer(self, space: AddressSpace, known: Collection[int]) -> Iterator[Database]:
        vads, _ = self._vads.list_vads(space.eprocess) if space.eprocess else ([], False)
        for vad in sorted(vads):
            if not vad.control_area and vad.start not in known and self._proves(space, STD, vad.start):
                yield self._std(space, vad.start, BY_SEARCH)._replace(status=NO_POINTER)
