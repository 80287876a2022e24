# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The streams of a minidump, each from tuples to bytes.

Members and arguments have their names in "minidumpapiset.h". Flags and sizes are those that Windows' own
dbghelp writes, for the newest version of each structure.
"""

from __future__ import annotations

from typing import Iterable, List, Sequence, Tuple

from ...memory.decode.declared import Declared
from ...memory.decode.records import NamedTuple
from ..decode.dumpfile import Location
from ..decode.handles import HANDLE, HandleDescriptor
from ..decode.lists import COUNT, HEADER_OF_16
from ..decode.memory import MEMORY_INFO, MEMORY_INFO_LIST, MemoryInfo
from ..decode.modules import MODULE, UNLOADED, MinidumpModule, MinidumpUnloadedModule
from ..decode.system import MISC, MISC_GROUPS, SYSTEM, MiscInfo, SystemInfo
from ..decode.threads import THREAD, THREAD_INFO, THREAD_NAME, MinidumpThread, ThreadInfo, ThreadName
from ..decode.threadstates import (
    MAPPED_FILE,
    NO_VALUE,
    THREAD_STATE,
    THREADS_HEADER,
    TRAP_FRAME,
    KeptTrapFrame,
    MappedFile,
    ThreadList,
    ThreadStates,
    WinstacksThread,
    bits_of,
)
from .dumpfile import Draft, MemoryPart, encode_counted_list

_STACK_RVA = THREAD.offsets["Stack"] + Declared(Location).offsets["Rva"]
"""Offset of Stack.Memory.Rva in a MINIDUMP_THREAD."""


class WrittenThread(NamedTuple):
    """A thread of ThreadListStream. `stack` is the lowest address of the stack in use, size in bytes, and
    offset in the dump's memory; the size is 0 if the memory does not have the stack."""

    ThreadId: int
    SuspendCount: int
    PriorityClass: int
    Priority: int
    Teb: int
    stack: Tuple[int, int, int]
    context: bytes


class WrittenModule(NamedTuple):
    """A module of ModuleListStream.

    Attributes:
        VersionInfo: VS_FIXEDFILEINFO, empty if the image does not have it
        CvRecord: the record that names the PDB, empty if the image does not have it
    """

    BaseOfImage: int
    SizeOfImage: int
    CheckSum: int
    TimeDateStamp: int
    ModuleName: str
    VersionInfo: bytes
    CvRecord: bytes


def system_info(draft: Draft, info: SystemInfo) -> None:
    draft.stream("SystemInfoStream", SYSTEM.encode(info, draft.string))


def misc_info(draft: Draft, info: MiscInfo) -> None:
    """Adds MiscInfoStream. Flags1 vouches for each group of members whose first member is known."""
    flags = sum(flag for flag, (_, names) in MISC_GROUPS.items() if getattr(info, names[0]) is not None)
    draft.stream("MiscInfoStream", MISC.encode(info._replace(SizeOfInfo=MISC.size, Flags1=flags)))


def thread_list(draft: Draft, threads: Sequence[WrittenThread]) -> None:
    rows: List[bytes] = []
    parts: List[MemoryPart] = []
    for thread in threads:
        context = Location(len(thread.context), draft.put(thread.context))
        start, size, place = thread.stack
        if size:
            position = COUNT.size + THREAD.size * len(rows) + _STACK_RVA
            parts.append(MemoryPart(position, place, size))
        rows.append(THREAD.encode(MinidumpThread(*thread[:5], start, Location(size, 0), context)))
    draft.stream("ThreadListStream", encode_counted_list(rows), parts)


def thread_info_list(draft: Draft, infos: Sequence[ThreadInfo]) -> None:
    draft.headed_list("ThreadInfoListStream", THREAD_INFO, infos)


def thread_names(draft: Draft, names: Sequence[ThreadName]) -> None:
    rows = (THREAD_NAME.encode(name, draft.string) for name in names)
    draft.stream("ThreadNamesStream", encode_counted_list(rows))


def module_list(draft: Draft, modules: Sequence[WrittenModule]) -> None:
    rows = []
    for module in modules:
        # The name comes before the record; a text is put once.
        draft.string(module.ModuleName)
        record = Location(len(module.CvRecord), draft.put(module.CvRecord) if module.CvRecord else 0)
        rows.append(MODULE.encode(MinidumpModule(*module[:6], record), draft.string))
    draft.stream("ModuleListStream", encode_counted_list(rows))


def unloaded_module_list(draft: Draft, modules: Sequence[MinidumpUnloadedModule]) -> None:
    draft.headed_list("UnloadedModuleListStream", UNLOADED, modules)


def memory_info_list(draft: Draft, infos: Iterable[MemoryInfo]) -> int:
    """Adds MemoryInfoListStream, and returns the number of its regions."""
    return draft.headed_list("MemoryInfoListStream", MEMORY_INFO, infos, MEMORY_INFO_LIST)


def handle_data(draft: Draft, handles: Iterable[HandleDescriptor]) -> int:
    """Adds HandleDataStream, and returns the number of its handles."""
    return draft.headed_list("HandleDataStream", HANDLE, handles, HEADER_OF_16)


def comments(draft: Draft, custody: str, absences: str) -> None:
    """Adds CommentStreamW, with the origin of the dump, and CommentStreamA, with the missing data."""
    draft.stream("CommentStreamW", custody.encode("utf-16-le", "replace") + b"\0\0")
    draft.stream("CommentStreamA", absences.encode("ascii", "backslashreplace") + b"\0")


def thread_states(draft: Draft, states: ThreadStates) -> int:
    """Adds WinstacksThreadListStream, and returns the file offset of UnreadBytes."""
    rows = []
    for thread in states.threads.values():
        state, reason = (
            NO_VALUE if value is None else value & 0xFF for value in (thread.State, thread.WaitReason)
        )
        unknown, unsure = bits_of(thread.unknown), bits_of(thread.unsure)
        key = thread.ThreadId, thread.Machine
        row = WinstacksThread(*key, state, reason, unknown, unsure, thread.Status, thread.known)
        rows.append(THREAD_STATE.encode(row, draft.string))
    header = ThreadList(THREADS_HEADER.size, THREAD_STATE.size, len(rows), *states[:5])
    data = THREADS_HEADER.encode(header, draft.string) + b"".join(rows)
    return draft.stream("WinstacksThreadListStream", data).Rva + THREADS_HEADER.offsets["UnreadBytes"]


def mapped_files(draft: Draft, files: Iterable[Tuple[int, str]]) -> None:
    """Adds WinstacksFileListStream: (base, path) of each mapping."""
    draft.headed_list("WinstacksFileListStream", MAPPED_FILE, map(MappedFile._make, files), HEADER_OF_16)


def trap_frames(draft: Draft, frames: Sequence[Tuple[int, int, bytes]]) -> None:
    """Adds WinstacksTrapFrameListStream: (thread ID, address, bytes) of each."""
    rows = (KeptTrapFrame(at, tid, Location(len(data), draft.put(data))) for tid, at, data in frames)
    draft.headed_list("WinstacksTrapFrameListStream", TRAP_FRAME, rows, HEADER_OF_16)
