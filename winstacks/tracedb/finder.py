# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds and opens the stack trace databases of an image.

The kernel's database is found by the kernel's symbol. That of a process is found by ntdll's symbol if
Volatility has ntdll's PDB. Otherwise each pointer in ntdll's writable data is tried: it is the right one if
the memory to which it leads passes the tests of `decode.proof` or `decode.heaplog`.
"""

from __future__ import annotations

import functools
from typing import Collection, Iterable, Iterator, List, Optional, Tuple, Union

from ..columns.words import BY_SEARCH, BY_SYMBOL, HEAPLOG, STD
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Reader
from ..memory.decode.status import NOTHING, Status, StatusItem, has_status, naming, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.moduleindex import ModuleIndexes
from ..names.ntdll import Ntdll, Ntdlls
from ..process import globalflag
from ..process.decode import globalflags
from ..process.vads import regions
from . import search as databasesearch
from .decode import anomalies, heaplog
from .decode import database as stdwalk
from .decode import proof as stdproof
from .decode.proof import Proof
from .model import Database, Layouts, SearchResult

# The symbol ends in "Base" in XP, 2003 and Vista, in "base" in the public symbols of 7 and later.
STD_SYMBOLS = ("RtlpStackTraceDatabase", "RtlpStackTraceDataBase")
HEAPLOG_SYMBOL = "RtlpHeapStackTraceLog"

_SPACES_KEPT = 1 << 10
"""Address spaces whose databases are remembered, for their heaps, locks and handles."""

_MAX_RANGES_CHECKED = 64
"""The most private ranges of a process that are checked for a present byte."""

Opened = Union[stdwalk.StdDatabase, heaplog.HeapLog]
"""An opened database. Both classes have the methods `traces` and `figures`."""


class Databases:
    """Finds and opens the databases of an image."""

    def __init__(self, image: Image, indexes: ModuleIndexes) -> None:
        self._image = image
        self._vads = image.service(regions)
        self.ntdlls = Ntdlls(image, indexes)
        self._layouts: Memo[Machine, Layouts] = Memo(functools.partial(Layouts, image))
        self._search = databasesearch.Search()
        self._results: Memo[AddressSpace, SearchResult] = Memo(self._search_space, _SPACES_KEPT)

    def layouts(self, space: AddressSpace) -> Layouts:
        """Returns the layouts of a space's bitness."""
        return self._layouts[space.machine]

    def reader(self, space: AddressSpace) -> Reader:
        """Returns the function by which the decoders read a space."""
        return self._image.reader(space.layer_name)

    def find_databases(self, space: AddressSpace, *kinds: str) -> List[Database]:
        """Returns the databases of an address space that are of some kinds, without kinds all."""
        return [found for found in self.search(space).databases if not kinds or found.kind in kinds]

    def search(self, space: AddressSpace, carve: bool = False) -> SearchResult:
        """Returns the databases of an address space, and the reasons why others may be missing. `carve` also
        searches private memory for databases to which no global variable points, such as Application
        Verifier's."""
        result = self._results[space]
        if carve and space.layer_name and not space.kernel:
            addresses = {database.address for database in result.databases}
            result = result._replace(databases=[*result.databases, *self._carve_databases(space, addresses)])
        return result

    def missing(self, space: AddressSpace, found: SearchResult, flags: Optional[int]) -> Status:
        """Returns why no pointer leads to the database that a space's flags ask for; an empty status if one
        does, or if the flags ask for none.

        The status names the obstacle even if a search of private memory has found the database.
        """
        required = globalflags.FLG_KERNEL_STACK_TRACE_DB if space.kernel else globalflags.MAKES_USER_DATABASE
        databases = [database for database in found.databases if database.kind == STD]
        if any(not has_status(database.status, StatusCode.NO_POINTER) for database in databases):
            return NOTHING
        if flags is None:
            obstacle = StatusCode.FLAGS_UNREADABLE if self._flags_are_lost(space) else None
            return status(obstacle, found.status if space.kernel else NOTHING)
        if not flags & required:
            return found.status if space.kernel else NOTHING
        return found.status or (NOTHING if databases else status(StatusCode.NO_DATABASE))

    def missing_log(self, space: AddressSpace, found: SearchResult, flags: Optional[int]) -> Status:
        """Returns why the heap's trace log of a process was not found; an empty status if it was found, or if
        the process has none."""
        if space.kernel or any(database.kind == HEAPLOG for database in found.databases):
            return NOTHING
        debug = self._image.types.first_structure("_RTL_CRITICAL_SECTION_DEBUG")
        if not (self.wide_indices(space) if debug is None else debug.has("CreatorBackTraceIndexHigh")):
            # No Windows that stores indices in 16 bits has the log.
            return NOTHING
        if flags is None:
            return status(StatusCode.FLAGS_UNREADABLE if self._flags_are_lost(space) else None)
        return found.log_status if flags & globalflags.MAKES_USER_DATABASE else NOTHING

    def _flags_are_lost(self, space: AddressSpace) -> bool:
        """Returns whether NtGlobalFlag of a space is missing although other private memory is in the image.

        A process in isolated user mode (LsaIso.exe) has no private memory in an image, so that its missing
        flags are no loss.
        """
        if not globalflag.is_lost(self._image, space):
            return False
        vads, whole = self._vads.list_regions(space)
        private = [vad.start for vad in vads if not vad.control_area][:_MAX_RANGES_CHECKED]
        memory = self._image.memory(space)
        return space.kernel or not whole or any(memory.read(start, 1) for start in private)

    def wide_indices(self, space: AddressSpace) -> Optional[bool]:
        """Returns whether the entries of a space's database store indices of more than 16 bits (Vista and
        later); None if the space has no database with a known layout."""
        database = next((item for item in self.find_databases(space, STD) if item.layout), None)
        if database is None:
            return None
        return next(item.entry.wide for item in self.layouts(space).std if item.name == database.layout)

    def open_database(self, found: Database) -> Optional[Opened]:
        """Opens a database that `search` found. Returns None if its header is too damaged."""
        reader = self.reader(found.space)
        if found.log is not None:
            return heaplog.HeapLog(reader, found.address, found.log)
        return stdwalk.StdDatabase(reader, found.header) if found.header else None

    def look_up_traces(self, found: Database, indices: Collection[int]) -> Optional[List[anomalies.Trace]]:
        """Returns some traces of a database without reading all of it; None if only the whole database shows
        them (see `IndexLookup.traces`)."""
        if found.header is None:
            return None
        return anomalies.IndexLookup(self.reader(found.space), found.header).traces(indices)

    def _search_space(self, space: AddressSpace) -> SearchResult:
        if not space.layer_name:
            return SearchResult([], space.status)
        return self._search_kernel(space) if space.kernel else self._search_process(space)

    def _search_kernel(self, space: AddressSpace) -> SearchResult:
        address = self._image.require_symbol(*STD_SYMBOLS)
        if address is not None:
            return self._database_at(space, STD, self._image.memory(space).pointer(address))
        return SearchResult([], NOTHING)

    def _search_process(self, space: AddressSpace) -> SearchResult:
        ntdll = self.ntdlls.find_ntdll(space)
        if ntdll is None:
            statuses = status(StatusCode.NO_NTDLL)
            return SearchResult([], statuses, NOTHING if self._vads.list_regions(space)[1] else statuses)
        flags = globalflag.read(self._image, space)
        requested = flags is None or bool(flags & globalflags.MAKES_USER_DATABASE)
        std = self._search_ntdll(ntdll, STD, STD_SYMBOLS, requested)
        if not (std.databases or requested):
            return std
        log = self._search_ntdll(ntdll, HEAPLOG, (HEAPLOG_SYMBOL,), requested)
        # A database or log to which no pointer leads may still be in private memory.
        if not std.databases and flags is not None:
            std = std._replace(databases=list(self._carve_databases(space, ())))
        if not log.databases and flags is not None:
            log = self._carve_logs(space, log.status)
        incomplete = None if self._vads.list_regions(space)[1] else StatusCode.VADS_INCOMPLETE
        statuses = status(std.status or log.status, incomplete)
        return SearchResult([*std.databases, *log.databases], statuses, status(log.status, incomplete))

    def _search_ntdll(self, ntdll: Ntdll, kind: str, names: Tuple[str, ...], requested: bool) -> SearchResult:
        """Returns the databases to which a global variable of ntdll points. Its symbol gives the variable's
        address; without the symbol, a search of ntdll's data does. `requested` says whether the process's
        flags ask for a database, or are unknown."""
        space = ntdll.space
        pointer = ntdll.address_of(*names)
        if pointer is not None:
            return self._database_at(space, kind, self._image.memory(space).pointer(pointer))
        reader, layouts = self.reader(space), self.layouts(space)
        data, missing = self.ntdlls.data(ntdll)
        words, statuses = self._search.words(space, kind, ntdll.base, ntdll.size, data)
        hits, nearly = self._search.prove_words(words, kind, reader, layouts)
        if requested and kind == STD:
            reserved = self._reserved_starts(space)
            nearly += [(rva, value) for rva, value in words.items() if value in reserved]
        if kind == STD:
            nearly += [(rva, words[rva]) for rva in self._search.known(space, kind) if rva in words]
        # A database without fault may be a decoy beside the real one, whose header was damaged.
        hits += self._search.recover_words(nearly, {hit.address for hit in hits}, reader, layouts)
        if not hits:
            unreadable = kind == HEAPLOG and requested and self._leads_to_unproven_log(space, words.values())
            obstacle = (
                StatusCode.DATABASE_UNREADABLE
                if unreadable
                else StatusCode.NTDLL_DATA_INCOMPLETE
                if missing
                else None
            )
            return SearchResult([], statuses or status(obstacle))
        self._search.remember(space, kind, hits[0].rva)
        databases = [self._make_database(space, kind, hit.address, BY_SEARCH, hit.proof) for hit in hits]
        return SearchResult(_mark_ambiguous(databases), NOTHING)

    def _database_at(self, space: AddressSpace, kind: str, address: Optional[int]) -> SearchResult:
        """Returns the database to which a symbol's pointer leads."""
        if address is None:
            return SearchResult([], status(StatusCode.DATABASE_POINTER_UNREADABLE))
        return SearchResult(
            [self._make_database(space, kind, address, BY_SYMBOL)] if address else [], NOTHING
        )

    def _make_database(
        self, space: AddressSpace, kind: str, address: int, located_by: str, proof: Optional[Proof] = None
    ) -> Database:
        """Returns the database at a canonical address, with the faults of its header. `proof` is the proof of
        an `std`, None if it has not been made yet."""
        reader, layouts = self.reader(space), self.layouts(space)
        if kind == HEAPLOG:
            sound = heaplog.prove(reader, address, layouts.heaplogs)
            log = sound or heaplog.likeliest(reader, address, layouts.heaplogs)
            statuses = NOTHING if sound else status(StatusCode.DAMAGED)
            return Database(space, kind, address, located_by, HEAPLOG, None, statuses, log)
        proof = proof or stdproof.recover(reader, address, layouts.std)
        name = proof.header.layout.name if proof.header else ""
        statuses = naming(StatusCode.HEADER, *proof.failed)
        return Database(space, STD, address, located_by, name, proof.header, statuses)

    def _carve_databases(self, space: AddressSpace, addresses: Collection[int]) -> Iterator[Database]:
        """Yields the databases at the starts of private memory ranges, except those at known addresses."""
        reader, layouts = self.reader(space), self.layouts(space)
        reserved = self._reserved_starts(space)
        for start in self._private_starts(space):
            if start in addresses:
                continue
            proof: Optional[Proof] = stdproof.prove(reader, start, layouts.std)
            if proof is not None and proof.header is None:
                proof = databasesearch.recover_checked(reader, start, layouts) if start in reserved else None
            if proof is not None:
                database = self._make_database(space, STD, start, BY_SEARCH, proof)
                yield database._replace(status=status(StatusCode.NO_POINTER, database.status))

    def _carve_logs(self, space: AddressSpace, statuses: Status) -> SearchResult:
        """Returns the heap's trace logs at the starts of private memory ranges."""
        addresses, incomplete = databasesearch.find_logs(
            self._private_starts(space), self.reader(space), self.layouts(space)
        )
        databases = [self._make_database(space, HEAPLOG, address, BY_SEARCH) for address in addresses]
        no_pointer = [
            database._replace(status=status(StatusCode.NO_POINTER, database.status)) for database in databases
        ]
        return SearchResult(_mark_ambiguous(no_pointer), status(statuses, incomplete))

    def _leads_to_unproven_log(self, space: AddressSpace, pointers: Iterable[int]) -> bool:
        """Returns whether a pointer leads to a heap's trace log that cannot prove itself.

        The pointer must lead to the first LOG_PLACES bytes of a private memory range, and the memory there
        must have gaps or begin like a log.
        """
        starts, reader = set(self._private_starts(space)), self.reader(space)
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

    def _private_starts(self, space: AddressSpace, size: int = 0) -> List[int]:
        """Returns the starts of the private memory ranges that have at least `size` bytes, ascending."""
        vads, _ = self._vads.list_regions(space)
        return [vad.start for vad in vads if not vad.control_area and vad.end - vad.start >= size]

    def _reserved_starts(self, space: AddressSpace) -> Collection[int]:
        """Returns the starts of private memory ranges that are large enough for a database."""
        return set(self._private_starts(space, databasesearch.MIN_RESERVE))


def _mark_ambiguous(databases: List[Database]) -> List[Database]:
    """Returns databases of one kind. If there are several, each gets the status ONE_OF_DATABASES, because
    Windows makes only one for a process."""
    several = StatusItem(StatusCode.ONE_OF_DATABASES, len(databases)) if len(databases) > 1 else None
    return [database._replace(status=status(several, database.status)) for database in databases]
