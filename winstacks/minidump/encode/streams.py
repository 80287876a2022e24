# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The streams of a minidump, each from tuples to bytes.

Members and arguments have their names in "minidumpapiset.h". Flags and sizes are those that Windows' own
dbghelp writes, for the newest version of each structure.
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ..decode.handles import HANDLE, HANDLE_HEADER, HandleDescriptor
from ..decode.memory import MEMORY_INFO, MEMORY_INFO_HEADER, MemoryInfo
from ..decode.modules import MODULE, UNLOADED, UNLOADED_HEADER, MinidumpUnloadedModule
from ..decode.system import MISC, SYSTEM
from ..decode.threads import THREAD, THREAD_INFO, THREAD_INFO_HEADER, THREAD_NAME, ThreadInfo, ThreadName
from ..decode.threadstates import (
    FILES_HEADER,
    MAPPED_FILE,
    NO_VALUE,
    THREAD_STATE,
    THREADS_HEADER,
    TRAP_FRAME,
    ThreadStates,
    bits_of,
)
from .dumpfile import Draft, MemoryPart, encode_counted_list

_THREAD_STACK_RVA = 36
"""Offset of Stack.Memory.Rva in a MINIDUMP_THREAD."""

_UNREAD_BYTES = 24
"""Offset of UnreadBytes in a WINSTACKS_THREAD_LIST."""

MISC1_PROCESS_ID, MISC1_PROCESS_TIMES, MISC3_TIMEZONE, MISC4_BUILDSTRING, MISC5_PROCESS_COOKIE = (
    *(1, 2, 0x40),
    *(0x100, 0x200),
)
"""Bits of MINIDUMP_MISC_INFO.Flags1: the valid members."""


class WrittenThread(NamedTuple):
    """A thread of ThreadListStream.

    Attributes:
        stack: lowest address of the stack in use, size in bytes, and offset in the dump's memory; the size is
            0 if the memory does not have the stack
    """

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


class WrittenSystem(NamedTuple):
    """The members of SystemInfoStream; see `decode.system.SystemInfo`."""

    ProcessorArchitecture: int
    ProcessorLevel: int
    ProcessorRevision: int
    NumberOfProcessors: int
    ProductType: int
    MajorVersion: int
    MinorVersion: int
    BuildNumber: int
    PlatformId: int
    CSDVersion: str
    SuiteMask: int
    CPU: bytes


class WrittenMisc(NamedTuple):
    """The members of MiscInfoStream; None if unknown. Times are seconds; the creation time counts from
    1970."""

    ProcessId: Optional[int] = None
    ProcessCreateTime: Optional[int] = None
    ProcessUserTime: Optional[int] = None
    ProcessKernelTime: Optional[int] = None
    Bias: Optional[int] = None
    BuildString: Optional[str] = None
    ProcessCookie: Optional[int] = None


def system_info(draft: Draft, info: WrittenSystem) -> None:
    """Adds SystemInfoStream."""
    *before, csd, suite, cpu = info
    draft.stream("SystemInfoStream", SYSTEM.struct.pack(*before, draft.string(csd), suite, 0, cpu))


def misc_info(draft: Draft, info: WrittenMisc) -> None:
    """Adds MiscInfoStream. Flags1 vouches for each group of members whose first member is known."""
    known = (
        (MISC1_PROCESS_ID, info.ProcessId),
        (MISC1_PROCESS_TIMES, info.ProcessCreateTime),
        (MISC3_TIMEZONE, info.Bias),
        (MISC4_BUILDSTRING, info.BuildString),
        (MISC5_PROCESS_COOKIE, info.ProcessCookie),
    )
    flags = sum(flag for flag, value in known if value is not None)
    times = info.ProcessCreateTime or 0, info.ProcessUserTime or 0, info.ProcessKernelTime or 0
    build = (info.BuildString or "").encode("utf-16-le", "replace")[:518]
    data = MISC.struct.pack(
        *(MISC.size, flags, info.ProcessId or 0, *times),
        *(0,) * 8,
        *(0, info.Bias or 0, b"", b"", 0, b"", b"", 0),
        *(build, b"", 0, 0, 0, b"", info.ProcessCookie or 0),
    )
    draft.stream("MiscInfoStream", data)


def thread_list(draft: Draft, threads: Sequence[WrittenThread]) -> None:
    """Adds ThreadListStream."""
    rows: List[bytes] = []
    parts: List[MemoryPart] = []
    for thread in threads:
        context = draft.put(thread.context)
        start, size, place = thread.stack
        if size:
            parts.append(MemoryPart(4 + THREAD.size * len(rows) + _THREAD_STACK_RVA, place, size))
        rows.append(THREAD.struct.pack(*thread[:5], start, size, 0, len(thread.context), context))
    draft.stream("ThreadListStream", encode_counted_list(rows), parts)


def thread_info_list(draft: Draft, infos: Sequence[ThreadInfo]) -> None:
    """Adds ThreadInfoListStream."""
    header = THREAD_INFO_HEADER.struct.pack(THREAD_INFO_HEADER.size, THREAD_INFO.size, len(infos))
    draft.stream("ThreadInfoListStream", header + b"".join(THREAD_INFO.struct.pack(*info) for info in infos))


def thread_names(draft: Draft, names: Sequence[ThreadName]) -> None:
    """Adds ThreadNamesStream."""
    rows = (THREAD_NAME.struct.pack(tid, draft.string(name)) for tid, name in names)
    draft.stream("ThreadNamesStream", encode_counted_list(rows))


def module_list(draft: Draft, modules: Sequence[WrittenModule]) -> None:
    """Adds ModuleListStream."""
    rows = []
    for module in modules:
        name, record = draft.string(module.ModuleName), draft.put(module.CvRecord) if module.CvRecord else 0
        head = MODULE.struct.pack(
            *module[:4], name, *(0,) * 10, b"", len(module.CvRecord), record, 0, 0, 0, 0
        )
        version = module.VersionInfo
        rows.append(head[:24] + version + head[24 + len(version) :])
    draft.stream("ModuleListStream", encode_counted_list(rows))


def unloaded_module_list(draft: Draft, modules: Sequence[MinidumpUnloadedModule]) -> None:
    """Adds UnloadedModuleListStream."""
    rows = [UNLOADED.struct.pack(*module[:4], draft.string(module.ModuleName)) for module in modules]
    header = UNLOADED_HEADER.struct.pack(UNLOADED_HEADER.size, UNLOADED.size, len(rows))
    draft.stream("UnloadedModuleListStream", header + b"".join(rows))


def memory_info_list(draft: Draft, infos: Iterable[MemoryInfo]) -> int:
    """Adds MemoryInfoListStream, and returns the number of its regions."""
    data, count = bytearray(MEMORY_INFO_HEADER.size), 0
    for info in infos:
        data += MEMORY_INFO.struct.pack(*info[:3], 0, *info[3:], 0)
        count += 1
    MEMORY_INFO_HEADER.struct.pack_into(data, 0, MEMORY_INFO_HEADER.size, MEMORY_INFO.size, count)
    draft.stream("MemoryInfoListStream", bytes(data))
    return count


def handle_data(draft: Draft, handles: Iterable[HandleDescriptor]) -> int:
    """Adds HandleDataStream, and returns the number of its handles."""
    data, count = bytearray(HANDLE_HEADER.size), 0
    for handle, kind, name, *rest in handles:
        data += HANDLE.struct.pack(handle, draft.string(kind), draft.string(name), *rest, 0, 0)
        count += 1
    HANDLE_HEADER.struct.pack_into(data, 0, HANDLE_HEADER.size, HANDLE.size, count, 0)
    draft.stream("HandleDataStream", bytes(data))
    return count


def comments(draft: Draft, custody: str, absences: str) -> None:
    """Adds CommentStreamW, with the origin of the dump, and CommentStreamA, with the missing data."""
    draft.stream("CommentStreamW", custody.encode("utf-16-le", "replace") + b"\0\0")
    draft.stream("CommentStreamA", absences.encode("ascii", "backslashreplace") + b"\0")


def thread_states(draft: Draft, states: ThreadStates) -> int:
    """Adds WinstacksThreadListStream, and returns the file offset of UnreadBytes."""
    rows = [
        THREAD_STATE.struct.pack(
            thread.ThreadId,
            thread.Machine,
            *(NO_VALUE if value is None else value & 0xFF for value in (thread.State, thread.WaitReason)),
            bits_of(thread.unknown),
            bits_of(thread.unsure),
            draft.string(thread.Status),
            thread.known,
        )
        for thread in states.threads.values()
    ]
    header = THREADS_HEADER.struct.pack(
        *(THREADS_HEADER.size, THREAD_STATE.size, len(rows), states.flags),
        *(draft.string(states.image_file_name), 0, states.unread_bytes, states.peb, states.peb32),
    )
    return draft.stream("WinstacksThreadListStream", header + b"".join(rows)).Rva + _UNREAD_BYTES


def mapped_files(draft: Draft, files: Sequence[Tuple[int, str]]) -> None:
    """Adds WinstacksFileListStream: (base, path) of each mapping."""
    rows: List[bytes] = [MAPPED_FILE.struct.pack(base, draft.string(path), 0) for base, path in files]
    header = FILES_HEADER.struct.pack(FILES_HEADER.size, MAPPED_FILE.size, len(rows), 0)
    draft.stream("WinstacksFileListStream", header + b"".join(rows))


def trap_frames(draft: Draft, frames: Sequence[Tuple[int, int, bytes]]) -> None:
    """Adds WinstacksTrapFrameListStream: (thread ID, address, bytes) of each."""
    rows = [
        TRAP_FRAME.struct.pack(address, tid, 0, len(data), draft.put(data)) for tid, address, data in frames
    ]
    header = FILES_HEADER.struct.pack(FILES_HEADER.size, TRAP_FRAME.size, len(rows), 0)
    draft.stream("WinstacksTrapFrameListStream", header + b"".join(rows))
