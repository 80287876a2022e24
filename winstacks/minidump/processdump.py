# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process of a memory image as a minidump: its planned content, and its bytes.

    dump = ProcessDump(image, symbolizer, process, machine, custody)
    file.write(dump.head)
    for data in dump.memory.content(): file.write(data)

The bytes before the memory are made first and kept; the memory is read while it is written.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..names.symbolizer import Symbolizer
from ..process.thread import Thread
from ..process.threads import Process
from . import absences
from .absences import UnknownMembers
from .decode.threads import ThreadName
from .decode.threadstates import (
    INCOMPLETE_MODULES,
    INCOMPLETE_REGIONS,
    INCOMPLETE_THREADS,
    WOW64_PROCESS,
    ThreadStates,
)
from .encode import streams
from .encode.dumpfile import Draft
from .encode.streams import WrittenThread
from .handlerecords import HandleRecords, handle_records
from .modulerecords import ModuleRecords, halves_of
from .presentprotection import PresentProtection
from .regionrecords import RegionRecords
from .resident import ResidentMemory
from .systemrecords import system_records
from .threadrecords import ThreadRecord, ThreadRecords

WITH_FULL_MEMORY, WITH_HANDLE_DATA, WITH_UNLOADED_MODULES = 2, 4, 0x20
WITH_FULL_MEMORY_INFO, WITH_THREAD_INFO = 0x800, 0x1000
"""MINIDUMP_TYPE ("minidumpapiset.h")."""
_FLAGS = (
    WITH_FULL_MEMORY | WITH_HANDLE_DATA | WITH_UNLOADED_MODULES | WITH_FULL_MEMORY_INFO | WITH_THREAD_INFO
)

_STREAMS = (
    "SystemInfoStream", "MiscInfoStream", "ThreadListStream", "ThreadInfoListStream", "ThreadNamesStream",
    "ModuleListStream", "UnloadedModuleListStream", "HandleDataStream", "MemoryInfoListStream",
    "WinstacksThreadListStream", "WinstacksFileListStream", "WinstacksTrapFrameListStream",
    "CommentStreamW", "CommentStreamA", "Memory64ListStream",
)  # fmt: skip

_STREAM_OF = dict.fromkeys(
    ("StartAddress", "ExitStatus", "CreateTime", "ExitTime", "KernelTime", "UserTime", "Affinity"),
    "ThreadInfoListStream",
)


class StreamFigures(NamedTuple):
    """The figures of a finished stream. `status` is what could not be listed from the image."""

    name: str
    entries: int
    status: Status = NOTHING


class ProcessDump:
    """A process as a minidump.

    Args:
        machine: the native machine of the process, or I386 for its 32-bit half
        custody: origin of the dump: the text of CommentStreamW
        offset: address of the _EPROCESS, if no list holds the process

    Attributes:
        threads: all threads of the process; a thread that cannot be in the dump has no record
        streams: figures of the finished streams
        lost: members whose value is not in the image
        head: all bytes before the memory
        unread_rva: offset in `head` of the 8 bytes that count the unreadable bytes of memory
    """

    def __init__(
        self,
        image: Image,
        symbolizer: Symbolizer,
        process: Process,
        machine: Machine,
        custody: str,
        offset: Optional[int] = None,
    ) -> None:
        self._image, self._symbolizer = image, symbolizer
        self._native, self._wow64 = process
        self._machine = machine
        self.lost = UnknownMembers()
        self.streams: List[StreamFigures] = []
        self._halves = halves = halves_of(self._native, self._wow64, machine)
        end = min(symbolizer.halves.user_end, machine.address_mask + 1)
        self._modules = ModuleRecords(image, symbolizer, halves, end)
        found = ThreadRecords(image, symbolizer).list_records(self._native, machine, offset)
        self.threads: List[Tuple[Thread, Optional[ThreadRecord]]] = list(found)
        self._records = [record for _, record in self.threads if record is not None]
        self.memory = ResidentMemory(image, self._native, self._modules.regions, end)
        present = PresentProtection(image, self._native)
        self._regions = RegionRecords(self._modules.regions, self.memory, present, end)
        self._system = system_records(image, halves[0], machine)
        self.lost.add("SystemInfoStream", self._system.lost)
        self.lost.add("MiscInfoStream", self._system.lost_of_process)
        named = any(record.name is not None for record in self._records)
        has_kept = any(record.kept for record in self._records)
        needless = {"ThreadNamesStream": not named, "WinstacksTrapFrameListStream": not has_kept}
        names = [name for name in _STREAMS if not needless.get(name, False)]
        self._draft = Draft(self._system.stamp, _FLAGS, names)
        self._put_system()
        self._put_threads(named)
        self._put_modules()
        self._put_handles()
        self._put_regions()
        self.unread_rva = self._put_own()
        streams.comments(self._draft, custody, absences.within_room(self._absences()))
        self._add_stream("CommentStreamW", 1)
        self._add_stream("CommentStreamA", 1)
        limited = status(StatusCode.LIMIT if self.memory.cut else None)
        self._add_stream("Memory64ListStream", len(self.memory.ranges) // 2, limited)
        self.head = bytes(self._draft.head(self.memory.ranges))

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return len(self.head) + self.memory.size

    @property
    def status(self) -> Status:
        """Faults of the dump as a whole."""
        unread = StatusItem(StatusCode.BYTES_ARE_ZERO, self.memory.unread) if self.memory.unread else None
        return status(self._native.remark, *(stream.status for stream in self.streams), unread)

    def _add_stream(self, name: str, entries: int, faults: Status = NOTHING) -> None:
        self.streams.append(StreamFigures(name, entries, faults))

    def _put_system(self) -> None:
        streams.system_info(self._draft, self._system.system)
        streams.misc_info(self._draft, self._system.misc)
        self._add_stream("SystemInfoStream", 1)
        self._add_stream("MiscInfoStream", 1)

    def _put_threads(self, named: bool) -> None:
        written = []
        for record in self._records:
            sp, base = record.stack
            run, place = self.memory.run_at(sp) if base else (0, 0)
            written.append(
                WrittenThread(
                    record.info.ThreadId,
                    record.suspended,
                    *record.priorities,
                    record.teb,
                    (sp, min(run, base - sp) if base else 0, place),
                    record.context,
                )
            )
            for member in record.lost:
                self.lost.add(_STREAM_OF.get(member, "ThreadListStream"), [member])
        streams.thread_list(self._draft, written)
        streams.thread_info_list(self._draft, [record.info for record in self._records])
        self._add_stream("ThreadListStream", len(written), self._threads_status)
        self._add_stream("ThreadInfoListStream", len(written))
        if named:
            names = [ThreadName(record.info.ThreadId, record.name) for record in self._records if record.name]
            streams.thread_names(self._draft, names)
            self._add_stream("ThreadNamesStream", len(names))

    @property
    def _threads_status(self) -> Status:
        return status(*(thread.status for thread, record in self.threads if record is None))

    def _put_modules(self) -> None:
        modules = self._modules.modules()
        for record in modules:
            self.lost.add("ModuleListStream", record.lost)
        streams.module_list(self._draft, [record.module for record in modules])
        incomplete = None if self._modules.lists_whole else StatusCode.NO_LOADER_LIST
        self._add_stream("ModuleListStream", len(modules), status(incomplete))
        unloaded = self._modules.unloaded()
        streams.unloaded_module_list(self._draft, unloaded)
        self._add_stream("UnloadedModuleListStream", len(unloaded))

    def _put_handles(self) -> None:
        known = self._image.attempt(lambda: handle_records(self._image, self._native))
        known = HandleRecords([], False, ()) if known is None else known
        streams.handle_data(self._draft, known.handles)
        self.lost.add("HandleDataStream", known.lost)
        self._add_stream(
            "HandleDataStream",
            len(known.handles),
            status(None if known.whole else StatusCode.PARTLY_UNREADABLE),
        )

    def _put_regions(self) -> None:
        count = streams.memory_info_list(self._draft, self._regions.infos())
        self._add_stream(
            "MemoryInfoListStream",
            count,
            status(
                None if self._modules.regions_whole else StatusCode.VADS_INCOMPLETE,
                StatusCode.LIMIT if self._regions.cut else None,
            ),
        )

    def _put_own(self) -> int:
        """Adds this project's own streams, and returns the file offset of the count of unread bytes."""
        states = [state for record in self._records for state in record.states]
        flags = (
            (0 if self._modules.lists_whole else INCOMPLETE_MODULES)
            | (0 if self._modules.regions_whole else INCOMPLETE_REGIONS)
            | (INCOMPLETE_THREADS if self._threads_status else 0)
            | (WOW64_PROCESS if len(self._halves) > 1 else 0)
        )
        first, *second = (half.peb for half in self._halves)
        known = {(state.ThreadId, state.Machine): state for state in states}
        place = streams.thread_states(
            self._draft,
            ThreadStates(flags, self._native.process or None, 0, first, sum(second), known, NOTHING),
        )
        files = list(self._modules.files())
        streams.mapped_files(self._draft, files)
        self._add_stream("WinstacksThreadListStream", len(known))
        self._add_stream("WinstacksFileListStream", len(files))
        frames = [(record.info.ThreadId, *frame) for record in self._records for frame in record.kept]
        if frames:
            streams.trap_frames(self._draft, frames)
            self._add_stream("WinstacksTrapFrameListStream", len(frames))
        return place

    def _absences(self) -> Iterator[str]:
        """Yields the lines of CommentStreamA."""
        for thread, record in self.threads:
            if record is None:
                who = "A thread" if thread.tid is None else f"Thread {thread.tid}"
                yield f"{who} cannot be listed"
        yield from absences.register_lines(self._records)
        yield from self.lost.lines()
        if self.memory.cut:
            yield f"From {self.memory.cut:#x} on no memory is listed: the limit is reached"
        outside = self._regions.outside()
        if outside:
            yield (
                f"{outside} bytes are in memory where no VAD is: "
                "MemoryInfoListStream lists them as private memory"
            )
        if self.memory.from_sections:
            yield (
                f"{self.memory.from_sections} bytes of images are pages of their sections, which the process "
                "did not have in its working set"
            )
        yield from absences.memory_lines(self._regions.absences)
