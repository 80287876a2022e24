# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the heaps of processes, if the heaps record the stacks that allocate their blocks.

heaps = Heaps(image, databases)
for space in AddressSpaces.list_spaces(image):
    contents = heaps.read(space)
    if contents:
        contents.owners, contents.groups

`HeapSpace` describes the memory that is searched.
"""

from __future__ import annotations

import functools
import logging
from typing import Iterator, List, Optional, Sequence, Tuple

from ..columns.words import STD
from ..memory import pagetables
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory, Range, join
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import integers
from ..memory.decode.text import counted
from ..memory.image import AddressSpace, Image
from ..process import globalflag
from ..process.decode import globalflags
from ..process.usertypes import peb_at
from ..process.vads import regions
from ..tracedb.decode.layout import HeapLogLayout
from ..tracedb.decode.recorded import RecordedStack
from ..tracedb.finder import Databases
from ..tracedb.model import Layouts
from .decode.blockstack import Traces
from .decode.contents import FoundHeaps, HeapContents, find_heaps, read_contents
from .decode.layout import HeapLayouts, PageHeapLayout, nt_layouts, segment_heap_layouts
from .decode.ntheap import logs_no_block

MAX_HEAPS = 0x10000

# Longer ranges are split by their page tables: processes reserve ranges of terabytes.
_LONG = 0x4000000


class HeapSpace(NamedTuple):
    """The memory of a process that is searched for heaps.

    Attributes:
        ranges: (start, end) of all memory of the process
        private: (start, end) of reserved ranges of private memory
        whole: whether the ranges come from VADs; else they come from page tables, and `private` holds every
            mapped range
        repeated: number of times that a page table leads to an earlier table or large page again; memory
            mapped that way is in no range
    """

    ranges: Tuple[Range, ...]
    private: Tuple[Range, ...]
    whole: bool
    repeated: int


def load_layouts(image: Image, machine: Machine) -> HeapLayouts:
    """Returns the heap structures for a machine: the kernel's if it has that machine, then ours."""
    kernel = image.types if machine is image.machine else None
    return HeapLayouts(
        nt_layouts(kernel, image.our_generations("heap", machine), machine.pointer_size),
        tuple(PageHeapLayout(types) for types in image.our_generations("heap-page", machine)),
        segment_heap_layouts(kernel, image.our_generations("heap-segment", machine), machine.pointer_size),
    )


def find_space(image: Image, space: AddressSpace) -> HeapSpace:
    """Returns the memory of one half of a process."""
    top = 1 << 8 * space.pointer_size
    listed, whole = image.service(regions).list_regions(space)
    if not whole:
        mapped, repeated = _mapped(
            image, space, [(0, min(top, (image.layer_of(space).maximum_address + 1) // 2))]
        )
        return HeapSpace(tuple(mapped), tuple(mapped), False, repeated)
    vads = [vad for vad in listed if vad.start < vad.end <= top]
    whole_vads = [(vad.start, vad.end) for vad in vads]
    long = join(span for span in whole_vads if span[1] - span[0] > _LONG)
    ranges, repeated = _mapped(image, space, long)
    ranges += [span for span in whole_vads if span[1] - span[0] <= _LONG]
    private = tuple((vad.start, vad.end) for vad in vads if not vad.control_area)
    return HeapSpace(tuple(ranges), private, True, repeated)


def listed_heaps(image: Image, space: AddressSpace) -> Optional[List[int]]:
    """Returns the addresses in a PEB's list of heaps; None if PEB or list are not present or inconsistent."""
    number, array, default = _read_list(image, space)
    if not array or number is None or not 0 < number <= MAX_HEAPS:
        return None
    size = space.pointer_size
    data = image.memory(space).read(array, number * size)
    if data is None:
        return None
    heaps = integers(data, size)
    return list(dict.fromkeys(heap for heap in [*heaps, default] if heap))


def list_contradicted(image: Image, space: AddressSpace, where: HeapSpace) -> Status:
    """Returns the faults of a PEB's list of heaps; none if the list is paged out, or if no heap exists yet.

    The array exists before the first heap does.
    """
    number, array, default = _read_list(image, space)
    if not number and not default:
        return NOTHING
    wrong = []
    if number is not None and not 0 < number <= MAX_HEAPS:
        wrong.append("NumberOfHeaps")
    if array is not None and where.whole and not any(start <= array < end for start, end in where.ranges):
        wrong.append("ProcessHeaps")
    return contradicted(*wrong)


def _read_list(image: Image, space: AddressSpace) -> Tuple[Optional[int], Optional[int], Optional[int]]:
    """Returns NumberOfHeaps, ProcessHeaps and ProcessHeap of a PEB; a value that is not present is None."""
    peb = peb_at(image, space)
    return peb.required("NumberOfHeaps"), peb.required("ProcessHeaps"), peb.required("ProcessHeap")


def _mapped(image: Image, space: AddressSpace, ranges: Sequence[Range]) -> Tuple[List[Range], int]:
    """Returns the parts of user-mode ranges that page tables map, and how often they repeat themselves."""
    return pagetables.mapped(image.context, image.layer_of(space), ranges)


vollog = logging.getLogger(__name__)


class Heaps:
    """Reads the heaps of processes."""

    def __init__(self, image: Image, databases: Databases) -> None:
        self._image = image
        self._databases = databases
        self._layouts: Memo[Machine, HeapLayouts] = Memo(functools.partial(load_layouts, image))

    def read(self, space: AddressSpace, keep: bool = False) -> Optional[HeapContents]:
        """Reads the heaps of one half of a process; None if no heap records who allocates. If this is
        unknown, the contents are empty and have a status: the status of the space, or `flags unreadable`
        (NtGlobalFlag is not present, and no heap's own flags ask for traces)."""
        if space.kernel:
            return HeapContents([], [], 0, space.remark) if space.remark else None
        contents = self._read(space, keep) if space.layer_name else None
        if contents is not None:
            return contents._replace(status=status(space.remark, space.status, contents.status))
        statuses = space.status or status(None if self._flags_known(space) else StatusCode.FLAGS_UNREADABLE)
        statuses = status(space.remark, statuses)
        return HeapContents([], [], 0, statuses) if statuses else None

    def log_no_block(self, space: AddressSpace) -> bool:
        """Returns whether a listed heap should record who allocates and cannot (see `logs_no_block`)."""
        listed = listed_heaps(self._image, space) if space.layer_name and not space.kernel else None
        if not listed:
            return False
        memory = self._image.memory(space)
        return any(logs_no_block(memory, heap) for heap in self._find_heaps(space, memory, listed).nt)

    def _read(self, space: AddressSpace, keep: bool) -> Optional[HeapContents]:
        flagged = self._flagged(space)
        listed = listed_heaps(self._image, space)
        if listed is not None and not flagged:
            # The flags of listed heaps are cheaper to read than all memory.
            if not self._find_heaps(space, self._image.memory(space), listed).traced:
                return None
        where = find_space(self._image, space)
        if where.repeated:
            vollog.warning(
                f"Process {space.pid_text} ({space.arch}): its page tables repeat: memory "
                f"that {counted(where.repeated, 'entry maps', 'entries map')} a second time is left out"
            )
        # Of most processes nothing but the beginnings of private memory is read.
        beginnings = self._image.memory(space).within(where.ranges)
        heaps = self._find_heaps(space, beginnings, listed or [], where.private)
        if not heaps.traced and not (flagged and heaps.damaged):
            return self._without_heaps(space, where) if flagged and listed is None else None
        memory = self._image.memory_within(space, where.ranges)
        traces = self._traces(space, memory, bool(heaps.page))
        contents = read_contents(memory, heaps, self._layouts[space.machine], traces, listed, keep)
        self._log_faults(space, where, listed, contents)
        statuses = NOTHING if listed is not None else list_contradicted(self._image, space, where)
        incomplete = StatusCode.VADS_INCOMPLETE if space.eprocess and not where.whole else None
        return contents._replace(status=status(contents.status, statuses, incomplete))

    def _without_heaps(self, space: AddressSpace, where: HeapSpace) -> Optional[HeapContents]:
        """Returns the contents of a process that should record who allocates, if neither its list of heaps
        nor a heap was found: no heaps, and the reason; None if the process has made no heap yet, or if its
        flags are unknown."""
        number, _, default = _read_list(self._image, space)
        if globalflag.read(self._image, space) is None or number == default == 0:
            return None
        contradicted = list_contradicted(self._image, space, where)
        contents = HeapContents([], [], 0, contradicted or status(StatusCode.UNREADABLE))
        self._log_faults(space, where, None, contents)
        return contents

    def _flagged(self, space: AddressSpace) -> bool:
        """Returns whether NtGlobalFlag asks heaps for traces, or cannot be read."""
        flags = globalflag.read(self._image, space)
        return flags is None or bool(flags & globalflags.MAKES_USER_DATABASE)

    def _flags_known(self, space: AddressSpace) -> bool:
        """Returns whether NtGlobalFlag can be read; a process without a PEB, such as System, has none."""
        return not space.peb or globalflag.read(self._image, space) is not None

    def _find_heaps(
        self, space: AddressSpace, memory: Memory, listed: Sequence[int], ranges: Sequence[Range] = ()
    ) -> FoundHeaps:
        return find_heaps(memory, self._layouts[space.machine], listed, ranges)

    def _traces(self, space: AddressSpace, memory: Memory, paged: bool) -> Traces:
        """Returns the traces of one half of a process. `paged` says whether the process has page heap, whose
        blocks name entries of the database."""
        known_layouts = self._databases.layouts(space)
        find = functools.partial(self._databases.find_databases, space, STD)
        layouts = [found.header.layout for found in find() if found.header] if paged else []

        def database() -> Iterator[RecordedStack]:
            for found in find():
                opened = self._databases.open_database(found)
                if opened is None:
                    continue
                for trace in opened.traces(carve=True):
                    yield trace.recorded(opened.max_depth)

        def look_up(index: int) -> Optional[RecordedStack]:
            databases = find()
            header = databases[0].header if len(databases) == 1 else None
            traces = self._databases.look_up_traces(databases[0], (index,)) if header else None
            return traces[0].recorded(header.layout.entry.max_depth) if header and traces else None

        log = self._log_layout(space, known_layouts)
        return Traces(memory, log, (layouts or known_layouts.std)[0].entry, database, look_up)

    def _log_layout(self, space: AddressSpace, known_layouts: Layouts) -> HeapLogLayout:
        """Returns the layout of the process's log; without a log, the layout of the most builds.

        A single record does not decide: a record with few frames may be valid in several layouts.
        """
        if len(known_layouts.heaplogs) == 1:
            return known_layouts.heaplogs[0]
        logs = (database.log for database in self._databases.find_databases(space))
        return next((log for log in logs if log is not None), known_layouts.heaplogs[-1])

    def _log_faults(
        self, space: AddressSpace, where: HeapSpace, listed: Optional[List[int]], contents: HeapContents
    ) -> None:
        """Logs the faults that no row shows."""
        who = f"Process {space.pid_text} ({space.arch})"
        if not where.whole:
            vollog.warning(f"{who}: the VADs cannot be read completely, the page tables are used instead")
        if listed is None:
            vollog.warning(
                f"{who}: the PEB's list of heaps cannot be read, heaps are found by their signatures"
            )
        if any(has_status(owner.status, StatusCode.UST_WITHOUT_HPC) for owner in contents.owners):
            vollog.warning(
                f"{who}: its heaps log no allocation: this Windows (XP, 2003) needs +hpc (0x40) besides +ust "
                "(0x1000), or a debugger that starts the process (0x1070)"
            )
        if contents.lost:
            vollog.warning(f"{who}: in {contents.lost} bytes of its heaps no block header is valid")
