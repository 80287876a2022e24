# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds and opens the stack trace databases of an image.

The kernel's database is found by the kernel's symbol. That of a process is found by ntdll's symbol if
Volatility has ntdll's PDB. Otherwise ntdll's writable data is searched for a pointer to memory that proves to
be a database.
"""

from __future__ import annotations

from typing import Collection, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from ..columns.words import BY_SEARCH, BY_SYMBOL, HEAPLOG, STD
from ..memory.decode.machine import Machine
from ..memory.decode.memory import Reader
from ..memory.decode.status import NOTHING, Status, StatusItem, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.moduleindex import ModuleIndexes
from ..names.ntdll import Ntdll, Ntdlls
from ..process import globalflag
from ..process.decode import globalflags
from ..process.vads import regions
from . import search as databasesearch
from .decode import anomalies, heaplog
from .decode import anomalies as stdjudge
from .decode import database as stdwalk
from .decode import proof as stdproof
from .decode.proof import Proof
from .model import Database, Layouts, SearchResult

# The symbol ends in "Base" in XP, 2003 and Vista, in "base" in the public symbols of 7 and later.
STD_SYMBOLS = ("RtlpStackTraceDatabase", "RtlpStackTraceDataBase")
HEAPLOG_SYMBOL = "RtlpHeapStackTraceLog"

_MOST_ASKED = 64
"""The most private ranges of a process that are asked whether any is in the image."""

Opened = Union[stdwalk.StdDatabase, heaplog.HeapLog]
"""Both classes yield `traces` and count `figures`."""


class Databases:
    """Finds and opens the databases of an image.

    Args:
        image: the image
        indexes: the module indexes, which a symboliser may share

    Attributes:
        ntdlls: finds the ntdll of a process
    """

    def __init__(self, image: Image, indexes: ModuleIndexes) -> None:
        super().__init__()
        self._image = image
        self._vads = image.service(regions)
        self.ntdlls = Ntdlls(image, indexes)
        self._layouts: Dict[Machine, Layouts] = {}
        self._search = databasesearch.Search()

    def layouts(self, space: AddressSpace) -> Layouts:
        """Returns the layouts of a space's bitness.

        Raises:
            tables.MissingTableError: when one of our symbol tables is missing
        """
        if space.machine not in self._layouts:
            self._layouts[space.machine] = Layouts(self._image, space.machine)
        return self._layouts[space.machine]

    def reader(self, space: AddressSpace) -> Reader:
        """Returns the function by which the decoders read a space."""
        return self._image.reader(space.layer_name)

    def find_databases(self, space: AddressSpace, carve: bool = False) -> List[Database]:
        """Returns the databases of an address space; see `search` for the arguments."""
        return self.search(space, carve).databases

    def search(self, space: AddressSpace, carve: bool = False) -> SearchResult:
        """Returns the databases of an address space, and the reasons why others may be missing.

        Args:
            space: the kernel or one half of a process
            carve: also search private memory for databases to which no global variable points, such as those
                of Application Verifier
        """
        if not space.layer_name:
            return SearchResult([], space.status)
        if space.kernel:
            return self._of_kernel(space)
        result = self._of_process(space)
        if carve:
            addresses = {database.address for database in result.databases}
            result = result._replace(databases=[*result.databases, *self._without_pointer(space, addresses)])
        return result

    def missing(self, space: AddressSpace, found: SearchResult, flags: Optional[int]) -> Status:
        """Returns why no pointer led to a database where a space's flags ask for one, else an empty status.

        The status names the obstacle even if the database was then found in private memory.

        Args:
            space: the address space
            found: the result of `search` for it
            flags: its NtGlobalFlag, None if unknown
        """
        required = globalflags.FLG_KERNEL_STACK_TRACE_DB if space.kernel else globalflags.MAKES_USER_DATABASE
        databases = [database for database in found.databases if database.kind == STD]
        if any(not has_status(database.status, StatusCode.NO_POINTER) for database in databases):
            return NOTHING
        if flags is None:
            lost = StatusCode.FLAGS_UNREADABLE if self._flags_are_lost(space) else None
            return status(lost, found.status if space.kernel else NOTHING)
        if not flags & required:
            return found.status if space.kernel else NOTHING
        return found.status or (NOTHING if databases else status(StatusCode.NO_DATABASE))

    def missing_log(self, space: AddressSpace, found: SearchResult, flags: Optional[int]) -> Status:
        """Returns why a heap's trace log that a process may have was not found, else an empty status.

        Args:
            space: the address space; the kernel has no such log
            found: the result of `search` for it
            flags: its NtGlobalFlag, None if unknown
        """
        if space.kernel or any(database.kind == HEAPLOG for database in found.databases):
            return NOTHING
        debug = self._image.types.first_structure("_RTL_CRITICAL_SECTION_DEBUG")
        if not (self.wide_indices(space) if debug is None else debug.has("CreatorBackTraceIndexHigh")):
            # The log came with indices of more than 16 bits, or later.
            return NOTHING
        if flags is None:
            return status(StatusCode.FLAGS_UNREADABLE if self._flags_are_lost(space) else None)
        return found.log_status if flags & globalflags.MAKES_USER_DATABASE else NOTHING

    def _flags_are_lost(self, space: AddressSpace) -> bool:
        """Returns whether NtGlobalFlag of a space is missing although other memory of the space is here.

        An image has no private memory of a process in isolated user mode (LsaIso.exe).
        """
        if not globalflag.is_lost(self._image, space):
            return False
        vads, whole = self._vads.list_regions(space)
        private = [vad.start for vad in vads if not vad.control_area][:_MOST_ASKED]
        memory = self._image.memory(space)
        return space.kernel or not whole or any(memory.read(start, 1) for start in private)

    def wide_indices(self, space: AddressSpace) -> Optional[bool]:
        """Returns whether the traces of a space have indices of more than 16 bits, as they do since Vista.

        None if the space has no database that shows it.
        """
        database = next(
            (item for item in self.find_databases(space) if item.kind == STD and item.layout), None
        )
        if database is None:
            return None
        return next(item.entry.wide for item in self.layouts(space).std if item.name == database.layout)

    def open_database(self, found: Database) -> Optional[Opened]:
        """Reads a database; None if its header is too damaged."""
        reader = self.reader(found.space)
        if found.log is not None:
            return heaplog.HeapLog(reader, found.address, found.log)
        return stdwalk.StdDatabase(reader, found.header) if found.header else None

    def pick(self, found: Database, indices: Collection[int]) -> Optional[List[anomalies.Trace]]:
        """Returns some traces of a database without reading all of it; None if that is not possible.

        Args:
            found: the database
            indices: the indices of the traces
        """
        if found.header is None:
            return None
        return stdjudge.IndexLookup(self.reader(found.space), found.header).traces(indices)

    def _of_kernel(self, space: AddressSpace) -> SearchResult:
        address = self._image.needed(*STD_SYMBOLS)
        if address is not None:
            return self._at(space, STD, self._image.memory(space).pointer(address))
        return SearchResult([], NOTHING)

    def _of_process(self, space: AddressSpace) -> SearchResult:
        ntdll = self.ntdlls.find_ntdll(space)
        if ntdll is None:
            statuses = status(StatusCode.NO_NTDLL)
            return SearchResult([], statuses, NOTHING if self._vads.list_regions(space)[1] else statuses)
        flags = globalflag.read(self._image, space)
        requested = flags is None or bool(flags & globalflags.MAKES_USER_DATABASE)
        std = self._by_pointer(ntdll, STD, STD_SYMBOLS, requested)
        if not (std.databases or requested):
            return std
        log = self._by_pointer(ntdll, HEAPLOG, (HEAPLOG_SYMBOL,), requested)
        # The flags ask for both: no pointer leads to a database, but private memory may hold it.
        if not std.databases and flags is not None:
            std = std._replace(databases=list(self._without_pointer(space, ())))
        if not log.databases and flags is not None:
            log = self._logs_without_pointer(space, log.status)
        incomplete = None if self._vads.list_regions(space)[1] else StatusCode.VADS_INCOMPLETE
        statuses = status(std.status or log.status, incomplete)
        return SearchResult([*std.databases, *log.databases], statuses, status(log.status, incomplete))

    def _by_pointer(self, ntdll: Ntdll, kind: str, names: Tuple[str, ...], requested: bool) -> SearchResult:
        """Follows a global variable of ntdll, found by its symbol or else by search."""
        space = ntdll.space
        pointer = ntdll.address_of(*names)
        if pointer is not None:
            return self._at(space, kind, self._image.memory(space).pointer(pointer))
        reader, layouts = self.reader(space), self.layouts(space)
        data, missing = self.ntdlls.data(ntdll)
        words, statuses = self._search.words(space, kind, ntdll.base, ntdll.size, data)
        hits, nearly = self._search.prove_words(words, kind, reader, layouts)
        if requested and kind == STD:
            reserved = self._reserved(space)
            nearly += [(rva, value) for rva, value in words.items() if value in reserved]
        if kind == STD:
            nearly += [(rva, words[rva]) for rva in self._search.known(space, kind) if rva in words]
        # A database without fault may be a decoy beside the real one, whose header was damaged.
        hits += self._search.recover_words(nearly, {hit.address for hit in hits}, reader, layouts)
        if not hits:
            absent = kind == HEAPLOG and requested and self._leads_out(space, words.values())
            obstacle = (
                StatusCode.DATABASE_UNREADABLE
                if absent
                else StatusCode.NTDLL_DATA_INCOMPLETE
                if missing
                else None
            )
            return SearchResult([], statuses or status(obstacle))
        self._search.remember(space, kind, hits[0].rva)
        databases = [self._made(space, kind, hit.address, BY_SEARCH, hit.proof) for hit in hits]
        return SearchResult(_marked(databases), NOTHING)

    def _at(self, space: AddressSpace, kind: str, address: Optional[int]) -> SearchResult:
        """Returns the database to which a symbol's pointer leads."""
        if address is None:
            return SearchResult([], status(StatusCode.DATABASE_POINTER_UNREADABLE))
        return SearchResult([self._made(space, kind, address, BY_SYMBOL)] if address else [], NOTHING)

    def _made(
        self, space: AddressSpace, kind: str, address: int, located_by: str, proof: Optional[Proof] = None
    ) -> Database:
        reader, layouts = self.reader(space), self.layouts(space)
        if kind == HEAPLOG:
            sound = heaplog.prove(reader, address, layouts.heaplogs)
            log = sound or heaplog.likeliest(reader, address, layouts.heaplogs)
            statuses = NOTHING if sound else status(StatusCode.DAMAGED)
            return Database(space, kind, address, located_by, HEAPLOG, None, statuses, log)
        proof = proof or stdproof.recover(reader, address, layouts.std)
        statuses = status(StatusItem(StatusCode.HEADER, members=proof.failed)) if proof.failed else NOTHING
        name = proof.header.layout.name if proof.header else ""
        return Database(space, STD, address, located_by, name, proof.header, statuses)

    def _without_pointer(self, space: AddressSpace, addresses: Collection[int]) -> Iterator[Database]:
        reader, shapes = self.reader(space), self.layouts(space)
        reserved = self._reserved(space)
        for start in self._private(space):
            if start in addresses:
                continue
            proof: Optional[Proof] = stdproof.prove(reader, start, shapes.std)
            if proof is not None and proof.header is None:
                proof = databasesearch.recovered(reader, start, shapes) if start in reserved else None
            if proof is not None:
                database = self._made(space, STD, start, BY_SEARCH, proof)
                yield database._replace(status=status(StatusCode.NO_POINTER, database.status))

    def _logs_without_pointer(self, space: AddressSpace, statuses: Status) -> SearchResult:
        """Looks for the heap's trace log in private memory.

        Args:
            space: one half of a process
            statuses: reasons why no pointer was found
        """
        addresses, cut = databasesearch.logs_in(self._private(space), self.reader(space), self.layouts(space))
        databases = [self._made(space, HEAPLOG, address, BY_SEARCH) for address in addresses]
        no_pointer = [
            database._replace(status=status(StatusCode.NO_POINTER, database.status)) for database in databases
        ]
        return SearchResult(_marked(no_pointer), status(statuses, cut))

    def _leads_out(self, space: AddressSpace, pointers: Iterable[int]) -> bool:
        """Returns whether a pointer leads to where a heap's trace log begins, and none proves itself."""
        starts, reader = set(self._private(space)), self.reader(space)
        layouts = self.layouts(space).heaplogs
        size = layouts[0].size
        for pointer in pointers:
            place = pointer % databasesearch.ALLOCATION_GRANULARITY
            if 0 < place < databasesearch.LOG_PLACES and pointer - place in starts:
                memory = reader(pointer, size)
                if memory.missing(pointer, pointer + size) or databasesearch.may_be_log(
                    memory, pointer, layouts
                ):
                    return True
        return False

    def _private(self, space: AddressSpace, size: int = 0) -> List[int]:
        """Returns the starts of private memory ranges of at least a size."""
        vads, _ = self._vads.list_regions(space)
        return sorted(vad.start for vad in vads if not vad.control_area and vad.end - vad.start >= size)

    def _reserved(self, space: AddressSpace) -> Collection[int]:
        """Returns the starts of private memory ranges that are large enough for a database."""
        return set(self._private(space, databasesearch.MIN_RESERVE))


def _marked(databases: List[Database]) -> List[Database]:
    """Returns databases of one kind; if there are several, each has the status that a process has only
    one."""
    several = StatusItem(StatusCode.ONE_OF_DATABASES, len(databases)) if len(databases) > 1 else None
    return [database._replace(status=status(several, database.status)) for database in databases]
