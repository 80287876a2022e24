# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which structures each word of Status, and each warning, names.

Names of members are `structure.member`, as `members` notes them; `nt.` stands before the kernel's variables.
A word that says nothing of damage (`freed`, `running`) names nothing. Every word is in the table: a new one
has to be put there.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import Collection, Dict, Iterable, NamedTuple, Tuple

from winstacks.memory.decode.statuscodes import StatusCode

from .members import Member

PROCESS = ("_EPROCESS.*", "_KPROCESS.*", "_DISPATCHER_HEADER.*")
THREAD_LIST = ("_EPROCESS.ThreadListHead*", "_ETHREAD.ThreadListEntry*", "_EPROCESS.ActiveThreads")
PROCESSORS = ("nt.KiProcessorBlock*", "nt.KeNumberProcessors", "_KPRCB.*")
PROCESS_LIST = ("nt.PsActiveProcessHead*", "_EPROCESS.ActiveProcessLinks*")
IDS = ("nt.PspCidTable", "_HANDLE_TABLE*", "_EPROCESS.UniqueProcessId", "_ETHREAD.Cid.*")
"""PspCidTable is a handle table, too."""
HANDLE_TABLE = ("word.process/*handletable*", "_HANDLE_TABLE*", "_EPROCESS.ObjectTable")
RING = ("_HANDLE_TRACE*", "_HANDLE_TABLE.DebugInfo")
OBJECT_TRACES = ("_OBJECT_REF*", "_STACK_TABLE*", "nt.Obp*", "word.objects/lister")
STACK = (
    "_ETHREAD.Tcb.*Stack*",
    "_KTHREAD.*Stack*",
    "_KPRCB.*Stack",
    "_KSTACK_CONTROL.*",
    "_KERNEL_STACK_CONTROL.*",
    "_KSWITCH_FRAME.*",
    "_NT_TIB.*",
    "_KEXCEPTION_FRAME.*",
)
FRAMES = ("word.traps/reader", "_KTRAP_FRAME.*", "_CONTEXT.*", "*TrapFrame*", "_EXCEPTION_RECORD.*")
OBJECTS = (
    "word.process/objectheaders",
    "_OBJECT_HEADER*",
    "_OBJECT_TYPE*",
    "_HANDLE_TABLE*",
    "nt.ObTypeIndexTable",
    "nt.ObHeaderCookie",
)
HEAPLOG = ("_RTLP_HEAP_STACK_TRACE*", "word.tracedb/decode/heaplog")
HEAP = ("_HEAP*", "_DPH*", "_SEGMENT_HEAP*", "_PEB*.*Heap*", "word.heaps/*", *HEAPLOG)
DATABASE = (
    "word.tracedb/decode/proof",
    "word.tracedb/decode/blocks",
    "_STACK_TRACE_DATABASE*",
    "_RTL_STACK_TRACE_ENTRY*",
    "nt.RtlpStackTraceData?ase",
)
RESOURCE = ("_FAST_*", "_ERESOURCE.*", "_OWNER_ENTRY.*", "nt.ExpSystemResourcesList*")
SECTION = ("_RTL_CRITICAL_SECTION*", "_LIST_ENTRY.*", "_PEB*.FastPebLock", "_PEB*.LoaderLock")
CALLBACKS = (
    *("nt.KiTimerTableListHead*", "nt.KiWait*", "_KPRCB.*Timer*", "_KPRCB.*Dpc*", "_KTIMER*", "_KDPC*"),
    *("nt.ExWorkerQueue*", "_EX_WORK_QUEUE.*", "_WORK_QUEUE_ITEM.*", "_IO_WORKITEM.*", "_LIST_ENTRY.*"),
    *("word.callbacks/*", *PROCESSORS),
)
VADS = ("_MMVAD*", "_EPROCESS.Vad*", "_MM_AVL*", "_SUBSECTION.*", "_CONTROL_AREA.*", "_FILE_OBJECT.*")
MODULES = ("_KLDR_DATA_TABLE_ENTRY.*", "_LDR_DATA_TABLE_ENTRY*", "nt.PsLoadedModuleList*", "_PEB_LDR_DATA*")
UNLOADED = ("_UNLOADED*", "nt.Mm*Unloaded*")
CREATORS = ("*BackTraceIndex*",)

NAMES: Dict[StatusCode, Tuple[str, ...]] = {
    # Of anything: what the row is about, which is what leads to it.
    StatusCode.UNREADABLE: (*FRAMES, *STACK, *HEAP, *DATABASE, *RESOURCE, *SECTION),
    StatusCode.PARTLY_UNREADABLE: (*FRAMES, *HEAP, *DATABASE, "_KTHREAD.WaitBlock*", "_KWAIT_BLOCK.*"),
    StatusCode.NOT_CANONICAL: (*FRAMES, *STACK),
    StatusCode.RUNNING: (),
    StatusCode.STALE: (*FRAMES, *STACK),
    StatusCode.TERMINATED: (),
    StatusCode.UNSURE: (),
    StatusCode.DAMAGED: HEAP,
    StatusCode.OVERLAP: HEAP,
    StatusCode.LIMIT: (),
    StatusCode.FREED: (),
    StatusCode.HASH: (*HEAP, *DATABASE),
    StatusCode.CONTRADICTED: (),
    StatusCode.PAGE_TABLES_UNREADABLE: ("_EPROCESS.Pcb.DirectoryTableBase", "_KPROCESS.DirectoryTableBase"),
    StatusCode.PROCESS_UNREADABLE: (*PROCESS_LIST, "_EPROCESS.*"),
    StatusCode.WOW64_PROCESS_STRUCTURE_UNREADABLE: ("_EPROCESS.W*64Process", "_EWOW64PROCESS.*"),
    StatusCode.PROCESS_LIST_DAMAGED: PROCESS_LIST,
    StatusCode.NOT_IN_THE_PROCESS_LIST: PROCESS_LIST,
    StatusCode.FOUND_BY: (),
    StatusCode.ID_IN_CID_TABLE: IDS,
    StatusCode.PAGE_TABLES_OF_PROCESS: ("_EPROCESS.Pcb.DirectoryTableBase", "_KPROCESS.DirectoryTableBase"),
    # Threads.
    StatusCode.THREAD_LIST_DAMAGED: THREAD_LIST,
    StatusCode.THREAD_LINKS_DISAGREE: THREAD_LIST,
    StatusCode.THREAD_COUNT: (*THREAD_LIST, "_EPROCESS.ActiveThreads"),
    StatusCode.RUNNING_ON_NO_PROCESSOR: ("_ETHREAD.Tcb.State", "_KTHREAD.State", *PROCESSORS),
    StatusCode.NOT_A_THREAD: (*THREAD_LIST, "_ETHREAD.Tcb.Header.Type"),
    StatusCode.NOT_IN_THE_THREAD_LIST: THREAD_LIST,
    # Trap frames and contexts.
    StatusCode.NOT_A_TRAP_FRAME: (*FRAMES, *STACK),
    StatusCode.OUTSIDE_THE_STACK: (*FRAMES, *STACK),
    StatusCode.STACK_LIMITS_UNUSABLE: STACK,
    StatusCode.CONTEXT_MAY_BE_OLDER: ("_KPRCB.*", *FRAMES),
    StatusCode.NOT_A_CONTEXT: (*FRAMES, "_TEB*.TlsSlots*"),
    # Call stacks.
    StatusCode.IN_USER_MODE: (),
    StatusCode.IN_32_BIT_CODE: (),
    StatusCode.EXPANDED: (),
    StatusCode.NO_SWITCH_FRAME: STACK,
    StatusCode.NO_SAVED_REGISTERS: (*STACK, *FRAMES, "_TEB*.TlsSlots*", "_ETHREAD.Tcb.Teb"),
    StatusCode.STACK_LIMITS_UNKNOWN: ("_TEB*.NtTib*", "_NT_TIB.*", "_ETHREAD.Tcb.Teb", *FRAMES),
    StatusCode.CODE_UNREADABLE: (*FRAMES, *STACK),
    StatusCode.CODE_IN_NO_MODULE: (*FRAMES, *MODULES, *STACK),
    StatusCode.CODE_AND_UNWIND_DATA_DIFFER: (),
    StatusCode.NOT_BEHIND_A_CALL: (*FRAMES, *STACK),
    # Of the flat tables, which are not written to.
    StatusCode.KNOWN_FROM_ANOTHER_PROCESS: (),
    StatusCode.FILE_PARTS_UNREADABLE: (),
    StatusCode.FILE_CUT: (),
    StatusCode.TRACES_UNREADABLE: (),
    StatusCode.COMPUTER_NAMES: (),
    StatusCode.WORKER_ENDED: (),
    # Of dumps of a process only, which are no images.
    StatusCode.PEB_NOT_IN_THE_DUMP: (),
    StatusCode.NO_SYSTEM_INFO: (),
    StatusCode.NO_THREAD_LIST: (),
    StatusCode.EXCEPTION: (),
    StatusCode.AFTER_THE_EXCEPTION: (),
    StatusCode.BEYOND_THE_FILE: (),
    StatusCode.MORE_THAN_THE_STREAM: (),
    StatusCode.FEWER_THAN_THE_STREAM: (),
    StatusCode.STREAMS_MISSING: (),
    StatusCode.TWICE: (),
    StatusCode.RANGES_OVERLAP: (),
    StatusCode.SHARED_DATA_UNREADABLE: (),
    StatusCode.FILE_NOT_HASHED: (),
    StatusCode.NOT_CHECKED: (),
    StatusCode.STACKS_CUT: (),
    StatusCode.SUM_LIMIT: (),
    StatusCode.NOT_WRITTEN: (),
    StatusCode.NO_FUNCTION_TABLE: (),
    StatusCode.NO_UNWIND_DATA: (),
    StatusCode.UNWIND_DATA_UNREADABLE: (),
    StatusCode.UNWIND_DATA_INVALID: (),
    StatusCode.FRAME_REGISTER_UNKNOWN: (),
    # Of dumps of ARM64 only.
    StatusCode.VECTOR_LENGTH_UNKNOWN: (),
    StatusCode.OTHER_ARCHITECTURE: (),
    StatusCode.EMULATED: (),
    StatusCode.FRAME_POINTER_UNKNOWN: FRAMES,
    StatusCode.FRAME_POINTER_IMPLAUSIBLE: FRAMES,
    StatusCode.FRAME_POINTER_UNSURE: FRAMES,
    StatusCode.DISPATCHER: (),
    StatusCode.STACK_UNREADABLE: (*STACK, *FRAMES),
    StatusCode.CYCLE: STACK,
    StatusCode.TOO_MANY_FRAMES: STACK,
    StatusCode.FRAMES_NOT_SHOWN: STACK,
    StatusCode.STACK_SWITCHED: STACK,
    StatusCode.CANDIDATES: STACK,
    StatusCode.CANDIDATE: (),
    StatusCode.CODE_ABSENT: (),
    StatusCode.RETURNS_NOWHERE: STACK,
    StatusCode.FUNCTION_BEGINS_THERE: STACK,
    StatusCode.UNWIND_DATA_INCOMPLETE: STACK,
    StatusCode.HASH_UNSURE: (),
    # Handles.
    StatusCode.NO_LONGER_OPEN: (*HANDLE_TABLE, "_HANDLE_TRACE_DB_ENTRY.Handle"),
    StatusCode.HANDLE_TABLE_SHARED: HANDLE_TABLE,
    StatusCode.HANDLE_TABLE_UNREADABLE: HANDLE_TABLE,
    StatusCode.EVENTS_LOST: (*RING, *OBJECT_TRACES),
    StatusCode.EVENTS_UNREADABLE: (*RING, *OBJECT_TRACES),
    StatusCode.UNKNOWN_TYPE: ("_HANDLE_TRACE_DB_ENTRY.Type",),
    StatusCode.BEYOND_THE_RINGS_COUNTER: RING,
    StatusCode.CLIENT_ID_ABOVE_32_BITS: ("_HANDLE_TRACE_DB_ENTRY.ClientId*",),
    StatusCode.TABLE_SIZE: RING,
    StatusCode.RING_UNREADABLE: RING,
    StatusCode.PAGES_OF_THE_HANDLE_TABLE_UNREADABLE: HANDLE_TABLE,
    StatusCode.OBJECT_HEADERS_UNREADABLE: (*HANDLE_TABLE, "_OBJECT_HEADER*"),
    # Objects.
    StatusCode.OBJECT_UNREADABLE: ("_OBJECT_HEADER*", *HANDLE_TABLE),
    StatusCode.OBJECT_TYPE_UNKNOWN: OBJECTS,
    # Object traces.
    StatusCode.NO_SYMBOL: (),
    StatusCode.LATER_FORM: OBJECT_TRACES,
    StatusCode.EARLIER_FORM: OBJECT_TRACES,
    StatusCode.CHAIN_LEADS_BACK: OBJECT_TRACES,
    StatusCode.TOO_MANY_EVENTS: OBJECT_TRACES,
    StatusCode.EVENTS_OVERLAP: OBJECT_TRACES,
    StatusCode.EVENTS_NOT_READ: OBJECT_TRACES,
    StatusCode.EVENT_LIMIT: OBJECT_TRACES,
    StatusCode.BUCKET: (*OBJECT_TRACES, *DATABASE, *HEAPLOG),
    StatusCode.BUCKET_UNREADABLE: OBJECT_TRACES,
    StatusCode.BUCKETS_UNREADABLE: OBJECT_TRACES,
    StatusCode.NO_LONGER_TRACED: (*OBJECT_TRACES, "_OBJECT_HEADER*"),
    StatusCode.IN_NO_CHAIN: (*OBJECT_TRACES, "_OBJECT_HEADER.TraceFlags"),
    StatusCode.NO_STACK_TABLE: OBJECT_TRACES,
    StatusCode.NO_SUCH_TRACE: OBJECT_TRACES,
    StatusCode.TRACE_UNREADABLE: OBJECT_TRACES,
    # Callbacks.
    StatusCode.CALLBACKS_UNREADABLE: CALLBACKS,
    # Heaps.
    StatusCode.NOT_READ_YET: (),
    StatusCode.UNLISTED: HEAP,
    StatusCode.BYTES_UNREAD: HEAP,
    StatusCode.UST_WITHOUT_HPC: (),
    StatusCode.STACK_OF_THE_FREE: (),
    StatusCode.HOLDS_THE_ADDRESS: (),
    StatusCode.ENDS_BELOW_THE_ADDRESS: (),
    StatusCode.BEGINS_BELOW_THE_ADDRESS: (),
    StatusCode.BEGINS_ABOVE_THE_ADDRESS: (),
    StatusCode.STACK_OF_ALLOCATION_OR_FREE: (),
    StatusCode.NO_DATABASE: DATABASE,
    StatusCode.NO_SUCH_INDEX: (*DATABASE, *CREATORS),
    StatusCode.FLAGS_UNREADABLE: (
        "_PEB*.NtGlobalFlag",
        "_EPROCESS.Peb",
        "_EPROCESS.W*64Process",
        "_EWOW64PROCESS.Peb",
    ),
    StatusCode.UNTRACED: HEAP,
    StatusCode.UNSIZED: HEAP,
    StatusCode.GONE: (),
    StatusCode.GROWTH_UNKNOWN: (),
    # Traces of databases.
    StatusCode.UNINDEXED: DATABASE,
    StatusCode.SATURATED: (),
    StatusCode.ORPHAN: DATABASE,
    StatusCode.INDEX: DATABASE,
    StatusCode.DEPTH: (*DATABASE, *HEAPLOG),
    StatusCode.ONE_OF_DATABASES: DATABASE,
    StatusCode.NO_POINTER: DATABASE,
    StatusCode.NO_NTDLL: (*MODULES, *VADS, "_PEB*.Ldr"),
    StatusCode.DATABASE_POINTER_UNREADABLE: DATABASE,
    StatusCode.NTDLL_DATA_INCOMPLETE: MODULES,
    StatusCode.SEARCH_CUT_SHORT: (),
    StatusCode.DATABASE_UNREADABLE: DATABASE,
    StatusCode.INDEX_AMBIGUOUS: DATABASE,
    StatusCode.HEADER: DATABASE,
    # Frames.
    StatusCode.ADDRESS: CREATORS,
    StatusCode.OVERWRITTEN: (),
    # Locks.
    StatusCode.LIST_BROKEN: (*RESOURCE, *SECTION, *CALLBACKS),
    StatusCode.LIST_DAMAGED: (*RESOURCE, *SECTION, *CALLBACKS),
    StatusCode.DEBUG_INFORMATION_UNREADABLE: SECTION,
    StatusCode.SECTION_DOES_NOT_POINT_BACK: SECTION,
    StatusCode.INDEX_MAY_BE_STALE: SECTION,
    StatusCode.LIST_HEAD_UNREADABLE: (*SECTION, *CALLBACKS),
    StatusCode.LIST_NOT_FOUND: SECTION,
    StatusCode.ON_ANOTHER_LIST: SECTION,
    StatusCode.ON_ONE_OF_LISTS: SECTION,
    # Owners of locks.
    StatusCode.NO_THREAD: (*RESOURCE, *SECTION, "_ETHREAD.Tcb.Header.Type", "_ETHREAD.Cid.*"),
    StatusCode.OWNER_UNREADABLE: RESOURCE,
    StatusCode.RESOURCES_OVERLAP: RESOURCE,
    StatusCode.OWNER_TABLE_UNREADABLE: RESOURCE,
    StatusCode.OWNER_TABLE_TOO_BIG: RESOURCE,
    StatusCode.OWNER_TABLE_SHARED: RESOURCE,
    StatusCode.OWNER_LIMIT: RESOURCE,
    StatusCode.OWNER_LIST_BROKEN: RESOURCE,
    StatusCode.OWNERS_UNKNOWN: RESOURCE,
    StatusCode.OWNERS_MISSING: RESOURCE,
    StatusCode.OWNED_BY: (),
    StatusCode.MORE_OWNERS: (),
    # Modules.
    StatusCode.PARTLY_UNLINKED: MODULES,
    StatusCode.NO_VAD: (*MODULES, *VADS),
    StatusCode.VAD_WITHOUT_FILE: (*MODULES, *VADS),
    StatusCode.IMAGE_WITHOUT_NAME: (*MODULES, *VADS),
    StatusCode.VAD_OF_ANOTHER_FILE: (*MODULES, *VADS),
    StatusCode.NO_LOADER_LIST: (*MODULES, "_PEB*.Ldr", "_EPROCESS.Peb", "_EWOW64PROCESS.Peb"),
    StatusCode.OVERLAPS_ANOTHER_MODULE: MODULES,
    StatusCode.NOT_IN_THE_MODULE_LIST: MODULES,
    StatusCode.HEADERS_CONTRADICT_THE_LIST: MODULES,
    StatusCode.IN_NO_MODULE_LIST: MODULES,
    StatusCode.OVERLAPS_AN_UNLOADED_MODULE: UNLOADED,
    StatusCode.MODULE_LIST_INCOMPLETE: (*MODULES, *UNLOADED),
    StatusCode.MODULE_LIST_NOT_IN_THE_FILE: (),
    StatusCode.VADS_INCOMPLETE: VADS,
    StatusCode.PROTECTION_UNKNOWN: (),
    StatusCode.FILE_NAME_UNREADABLE: VADS,
    # Images of modules: their headers and tables have no members that a structure knows.
    StatusCode.EXPORTS_UNREADABLE: (),
    StatusCode.EXPORTS_INCOMPLETE: (),
    StatusCode.HEADERS_UNREADABLE: MODULES,
    StatusCode.HEADERS_INVALID: MODULES,
    StatusCode.EXPORTS_DIFFER_FROM_THE_SECTION: (),
    StatusCode.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION: (),
    StatusCode.UNWIND_DATA_DIFFERS_FROM_THE_SECTION: (),
    StatusCode.FUNCTION_TABLE_UNREADABLE: MODULES,
    StatusCode.FUNCTION_TABLE_INCOMPLETE: MODULES,
    # Flags.
    StatusCode.NO_PEB: ("_EPROCESS.Peb",),
    # Module files, minidumps that are written and small kernel dumps: no structure of an image is doubted.
    StatusCode.FROM_FILE: (),
    StatusCode.DIFFERS_FROM_FILE: (),
    StatusCode.NO_32_BIT_HALF: (),
    StatusCode.ZERO_FOR_UNKNOWN: (),
    StatusCode.BYTES_ARE_ZERO: (),
    StatusCode.HEADER_ONLY: (),
    StatusCode.NOT_IN_THE_DUMP: (),
    StatusCode.OFFSET_UNKNOWN: (),
    StatusCode.ATTACHED: (),
    StatusCode.BUG_CHECK: (),
}

WARNINGS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("^process list damaged", PROCESS_LIST),
    (": no database$", DATABASE),
    ("^The thread list of process", THREAD_LIST),
    ("^contradicted: MmSystemRangeStart", ("nt.MmSystemRangeStart", "nt.MmHighestUserAddress")),
    ("^contradicted: MmUnloadedDrivers|elements of MmUnloadedDrivers are not in the image", UNLOADED),
    ("^The kernel's list of modules is broken", MODULES),
    ("of KiProcessorBlock repeat the KPRCB", PROCESSORS),
    ("of KiProcessorBlock without a KPRCB", PROCESSORS),
    ("KeNumberProcessors is not in the image", PROCESSORS),
    ("claims another stack as its", ("_KPRCB.*",)),
    ("^No processor has saved a context", PROCESSORS),
    ("^The VADs below|the VADs cannot be read", VADS),
    ("the PEB's list of heaps cannot be read", ("_PEB*.*Heaps",)),
    ("of its heaps no block header is valid", HEAP),
    ("index slots lead to no entry|of the used parts are not in the image", DATABASE),
    ("^Process at .* cannot be read at", PROCESS),
    (": ntdll data incomplete", MODULES),
    ("VADs incomplete", VADS),
    (" ends before the kernel's PsLoadedModuleList", ()),
    ("^Rows may be missing or wrong: ", ()),
)
"""Part of the text of a warning, and what it names."""

EVIDENCE: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("KTHREAD.Teb leads to no TEB", ("_ETHREAD.Tcb.Teb", "_TEB*", "_NT_TIB.*")),
    (
        "the image section of a module cannot be read",
        ("_CONTROL_AREA.*", "_SEGMENT.*", "_SUBSECTION.*", *VADS),
    ),
    ("the loader's lists cannot be followed", MODULES),
    ("the pointers to the shadow stack contradict each other", ("_ETHREAD.Tcb.*ShadowStack*",)),
    ("no saved state has the pointer to the shadow stack", ("_ETHREAD.Tcb.*ShadowStack*",)),
    ("the file of the image is about to be deleted", ("_FILE_OBJECT.DeletePending",)),
    ("the handle table, which has the rights of handles, cannot be read", HANDLE_TABLE),
    ("no loader list has the image", MODULES),
    ("a handle that is not in the handle table", HANDLE_TABLE),
    ("the object of a handle that such code opened", OBJECTS),
    ("the loader names another file than the VAD", MODULES),
    ("the VAD leads to no file", VADS),
    ("the VAD has", VADS),
    ("is not that of the VAD", VADS),
    ("not executable, against its VAD", ("_MMPTE*", "_MMVAD*")),
)
"""Part of the Evidence of a finding, or of a check that did not run, and what it names."""

CONTRADICTS: Dict[str, Tuple[str, ...]] = {
    "ActiveEntries": RESOURCE,
    "CriticalSection": ("_RTL_CRITICAL_SECTION.DebugInfo",),
    "Cid.UniqueProcess": (*IDS, "_ETHREAD.Tcb.Process", "_ETHREAD.ThreadsProcess"),
    "MmUnloadedDrivers": UNLOADED,
    "ObjectTable": HANDLE_TABLE,
    "ObpObjectTable": OBJECT_TRACES,
    "Peb": ("nt.MmHighestUserAddress",),
    "ProcessHeaps": HEAP,
    "Teb": ("_TEB*.ClientId*", "_TEB*.RealClientId*", "_NT_TIB.Self", "_ETHREAD.Cid.UniqueThread"),
    "TraceCount": HEAPLOG,
    "TypeIndex": ("word.process/objectheaders",),
    "VadRoot": VADS,
    "WaitOnAddressHashTable": ("_RTLP_ADDRESS_WAIT_BLOCK.*", "_ETHREAD.Cid.UniqueThread"),
    "WoW64Process": (
        *("_EPROCESS.Wow64Process", "_EWOW64PROCESS.Peb"),
        *("_TEB*.ProcessEnvironmentBlock", "_TEB*.NtTib.ExceptionList"),
    ),
}
"""What a member that is contradicted names besides its own structure: what contradicts it, its name in
another version, or what it leads to: WoW64Process is the way to the PEB32, directly or through an
_EWOW64PROCESS, TypeIndex is a place in ObTypeIndexTable."""

COUNTS: Dict[str, Tuple[str, ...]] = {
    "Mismatched": (*DATABASE, *HEAPLOG),
    "Orphans": DATABASE,
    "Unindexed": DATABASE,
    "UnreadableBytes": (*DATABASE, *HEAPLOG),
}
"""Columns that count what is wrong, and with what."""

ROWS: Dict[str, Tuple[str, ...]] = {
    "gflags": (*DATABASE, "nt.NtGlobalFlag"),
    "stacktracedb": DATABASE,
    "locks": (*RESOURCE, *DATABASE),
    "handletraces": (*OBJECTS, *DATABASE, "nt.NtGlobalFlag"),
    "objecttraces": (*OBJECTS, *OBJECT_TRACES),
    "tracefindings": (
        *(*RESOURCE, *DATABASE, *OBJECTS, *OBJECT_TRACES, *MODULES, *UNLOADED, "nt.NtGlobalFlag"),
        *("_CONTROL_AREA.*", "_SUBSECTION.*", "_FILE_OBJECT.*", *CREATORS),
    ),
}
"""The shared structures whose content a plugin's rows show."""


class Telling(NamedTuple):
    """A word that stands in a Status, with the members that it names."""

    word: StatusCode
    members: Tuple[str, ...]


@functools.lru_cache(None)
def of_status(text: str) -> Tuple[Telling, ...]:
    """Returns the words of a Status as the column shows it.

    Raises:
        ValueError: when a part of it is no word
    """
    found = []
    for part in filter(None, text.split(", ")):
        for word, pattern in _patterns():
            match = pattern.fullmatch(part)
            if match:
                members = match.groupdict().get("members") or ""
                found.append(Telling(word, tuple(members.split())))
                break
        else:
            raise ValueError(f"{part!r} is no word of Status")
    return tuple(found)


@functools.lru_cache(None)
def _patterns() -> Tuple[Tuple[StatusCode, "re.Pattern[str]"], ...]:
    """Returns the words, those without a number first."""
    patterns = []
    for word in sorted(StatusCode, key=lambda code: "{" in code.value):
        text = re.escape(word.value).replace(r"\{\}", "-?[0-9]+").replace(r"\{members\}", r"(?P<members>.+)")
        patterns.append((word, re.compile(text)))
    return tuple(patterns)


def named_by(telling: Telling, member: Member, requests: Collection[Tuple[str, str]]) -> bool:
    """Returns whether a word names the structure of a member.

    Args:
        telling: the word
        member: the member
        requests: (structure, path) of all members that the plugin asks for: a word that names one of these
            names its structure
    """
    paths = {path for structure, path in requests if structure == member.structure} | {member.path}
    if any(_is_part(name, path) for name in telling.members for path in paths):
        return True
    if any(matches(member, CONTRADICTS.get(name, ())) for name in telling.members):
        return True
    return matches(member, NAMES[telling.word])


def _is_part(name: str, path: str) -> bool:
    """Returns whether a name is one of the members in a path, or several of them."""
    return f".{name}." in f".{path}."


def warned_of(text: str, member: Member) -> bool:
    """Returns whether a warning names the structure of a member."""
    return matches(member, [name for part, names in WARNINGS if re.search(part, text) for name in names])


def shown_of(evidence: str, member: Member) -> bool:
    """Returns whether the Evidence of a row names the structure of a member."""
    return matches(member, [name for part, names in EVIDENCE if part in evidence for name in names])


def makes_rows(plugin: str, member: Member) -> bool:
    """Returns whether the rows of a plugin are those of a shared structure, so that it may change them."""
    return matches(member, ROWS.get(plugin, ()))


def matches(member: Member, patterns: Iterable[str]) -> bool:
    """Returns whether one of several patterns is that of a member."""
    return any(fnmatch.fnmatchcase(name, pattern) for name in member.names for pattern in patterns)
