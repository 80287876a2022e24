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

from winstacks.memory.decode.statuswords import Word

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
    "*Stack*",
    "_KSTACK_CONTROL.*",
    "_KERNEL_STACK_CONTROL.*",
    "_KSWITCH_FRAME.*",
    "_NT_TIB.*",
    "_KEXCEPTION_FRAME.*",
)
FRAMES = ("word.traps/reader", "_KTRAP_FRAME.*", "_CONTEXT.*", "*TrapFrame*", "_EXCEPTION_RECORD.*")
OBJECTS = ("word.process/objectheaders", "_OBJECT_*", "_HANDLE_TABLE*", "nt.Ob*")
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
VADS = ("_MMVAD*", "_EPROCESS.Vad*", "_MM_AVL*", "_SUBSECTION.*", "_CONTROL_AREA.*", "_FILE_OBJECT.*")
MODULES = ("_KLDR_DATA_TABLE_ENTRY.*", "_LDR_DATA_TABLE_ENTRY*", "nt.PsLoadedModuleList*", "_PEB_LDR_DATA*")
CREATORS = ("*.CreatorBackTraceIndex*", "*.Address")

NAMES: Dict[Word, Tuple[str, ...]] = {
    # Of anything: what the row is about, which is what leads to it.
    Word.UNREADABLE: (*FRAMES, *STACK, *HEAP, *DATABASE, *RESOURCE, *SECTION),
    Word.PARTLY_UNREADABLE: (*FRAMES, *HEAP, *DATABASE),
    Word.NOT_CANONICAL: (*FRAMES, *STACK),
    Word.RUNNING: (),
    Word.STALE: (*FRAMES, *STACK),
    Word.TERMINATED: (),
    Word.UNSURE: (),
    Word.DAMAGED: HEAP,
    Word.OVERLAP: HEAP,
    Word.LIMIT: (),
    Word.FREED: (),
    Word.HASH: (*HEAP, *DATABASE),
    Word.CONTRADICTED: (),
    Word.PAGE_TABLES_UNREADABLE: ("_EPROCESS.Pcb.DirectoryTableBase", "_KPROCESS.DirectoryTableBase"),
    Word.PROCESS_UNREADABLE: (*PROCESS_LIST, "_EPROCESS.*"),
    Word.WOW64_PROCESS_STRUCTURE_UNREADABLE: ("_EPROCESS.W*64Process", "_EWOW64PROCESS.*"),
    Word.PROCESS_LIST_DAMAGED: PROCESS_LIST,
    Word.NOT_IN_THE_PROCESS_LIST: PROCESS_LIST,
    Word.FOUND_BY: (),
    Word.ID_IN_CID_TABLE: IDS,
    Word.PAGE_TABLES_OF_PROCESS: ("_EPROCESS.Pcb.DirectoryTableBase", "_KPROCESS.DirectoryTableBase"),
    # Threads.
    Word.THREAD_LIST_DAMAGED: THREAD_LIST,
    Word.THREAD_LINKS_DISAGREE: THREAD_LIST,
    Word.THREAD_COUNT: (*THREAD_LIST, "_EPROCESS.ActiveThreads"),
    Word.RUNNING_ON_NO_PROCESSOR: ("_ETHREAD.Tcb.State", "_KTHREAD.State", *PROCESSORS),
    Word.NOT_A_THREAD: (*THREAD_LIST, "_ETHREAD.Tcb.Header.Type"),
    Word.NOT_IN_THE_THREAD_LIST: THREAD_LIST,
    # Trap frames and contexts.
    Word.NOT_A_TRAP_FRAME: (*FRAMES, *STACK),
    Word.OUTSIDE_THE_STACK: (*FRAMES, *STACK),
    Word.STACK_LIMITS_UNUSABLE: STACK,
    Word.CONTEXT_MAY_BE_OLDER: ("_KPRCB.*", *FRAMES),
    Word.NOT_A_CONTEXT: (*FRAMES, "_TEB*"),
    # Call stacks.
    Word.IN_USER_MODE: (),
    Word.IN_32_BIT_CODE: (),
    Word.EXPANDED: (),
    Word.NO_SWITCH_FRAME: STACK,
    Word.NO_SAVED_REGISTERS: (*STACK, *FRAMES, "_TEB*.TlsSlots*"),
    Word.STACK_LIMITS_UNKNOWN: ("_TEB*.NtTib*", "_NT_TIB.*", "_ETHREAD.Tcb.Teb", *FRAMES),
    Word.CODE_UNREADABLE: (*FRAMES, *STACK),
    Word.CODE_IN_NO_MODULE: (*FRAMES, *MODULES, *STACK),
    Word.CODE_AND_UNWIND_DATA_DIFFER: (),
    Word.NOT_BEHIND_A_CALL: (*FRAMES, *STACK),
    # Of the flat tables, which are not written to.
    Word.KNOWN_FROM_ANOTHER_PROCESS: (),
    Word.FILE_PARTS_UNREADABLE: (),
    Word.FILE_CUT: (),
    Word.TRACES_UNREADABLE: (),
    Word.COMPUTER_NAMES: (),
    # Of dumps of a process only, which are no images.
    Word.PEB_NOT_IN_THE_DUMP: (),
    Word.EXCEPTION: (),
    Word.BEYOND_THE_FILE: (),
    Word.MORE_THAN_THE_STREAM: (),
    Word.FEWER_THAN_THE_STREAM: (),
    Word.STREAMS_MISSING: (),
    Word.TWICE: (),
    Word.RANGES_OVERLAP: (),
    Word.SHARED_DATA_UNREADABLE: (),
    Word.FILE_NOT_HASHED: (),
    Word.NOT_CHECKED: (),
    Word.STACKS_CUT: (),
    Word.SUM_LIMIT: (),
    Word.NOT_WRITTEN: (),
    Word.NO_FUNCTION_TABLE: (),
    Word.NO_UNWIND_DATA: (),
    Word.UNWIND_DATA_UNREADABLE: (),
    Word.UNWIND_DATA_INVALID: (),
    Word.FRAME_REGISTER_UNKNOWN: (),
    Word.FRAME_POINTER_UNKNOWN: FRAMES,
    Word.FRAME_POINTER_IMPLAUSIBLE: FRAMES,
    Word.FRAME_POINTER_UNSURE: FRAMES,
    Word.DISPATCHER: (),
    Word.STACK_UNREADABLE: (*STACK, *FRAMES),
    Word.CYCLE: STACK,
    Word.TOO_MANY_FRAMES: STACK,
    Word.HASH_UNSURE: (),
    # Handles.
    Word.NO_LONGER_OPEN: (*HANDLE_TABLE, "_HANDLE_TRACE_DB_ENTRY.Handle"),
    Word.HANDLE_TABLE_SHARED: HANDLE_TABLE,
    Word.HANDLE_TABLE_UNREADABLE: HANDLE_TABLE,
    Word.EVENTS_LOST: (*RING, *OBJECT_TRACES),
    Word.EVENTS_UNREADABLE: (*RING, *OBJECT_TRACES),
    Word.UNKNOWN_TYPE: ("_HANDLE_TRACE_DB_ENTRY.Type",),
    Word.BEYOND_THE_RINGS_COUNTER: RING,
    Word.CLIENT_ID_ABOVE_32_BITS: ("_HANDLE_TRACE_DB_ENTRY.ClientId*",),
    Word.TABLE_SIZE: RING,
    Word.RING_UNREADABLE: RING,
    Word.PAGES_OF_THE_HANDLE_TABLE_UNREADABLE: HANDLE_TABLE,
    Word.OBJECT_HEADERS_UNREADABLE: (*HANDLE_TABLE, "_OBJECT_HEADER*"),
    # Objects.
    Word.OBJECT_UNREADABLE: ("_OBJECT_*", *HANDLE_TABLE),
    Word.OBJECT_TYPE_UNKNOWN: OBJECTS,
    # Object traces.
    Word.NO_SYMBOL: (),
    Word.LATER_FORM: OBJECT_TRACES,
    Word.EARLIER_FORM: OBJECT_TRACES,
    Word.CHAIN_LEADS_BACK: OBJECT_TRACES,
    Word.TOO_MANY_EVENTS: OBJECT_TRACES,
    Word.EVENTS_OVERLAP: OBJECT_TRACES,
    Word.EVENTS_NOT_READ: OBJECT_TRACES,
    Word.EVENT_LIMIT: OBJECT_TRACES,
    Word.BUCKET: (*OBJECT_TRACES, *DATABASE, *HEAPLOG),
    Word.BUCKET_UNREADABLE: OBJECT_TRACES,
    Word.BUCKETS_UNREADABLE: OBJECT_TRACES,
    Word.NO_LONGER_TRACED: (*OBJECT_TRACES, "_OBJECT_HEADER*"),
    Word.IN_NO_CHAIN: (*OBJECT_TRACES, "_OBJECT_HEADER.TraceFlags"),
    Word.NO_STACK_TABLE: OBJECT_TRACES,
    Word.NO_SUCH_TRACE: OBJECT_TRACES,
    Word.TRACE_UNREADABLE: OBJECT_TRACES,
    # Heaps.
    Word.NOT_READ_YET: (),
    Word.UNLISTED: HEAP,
    Word.BYTES_UNREAD: HEAP,
    Word.UST_WITHOUT_HPC: (),
    Word.STACK_OF_THE_FREE: (),
    Word.STACK_OF_ALLOCATION_OR_FREE: (),
    Word.NO_DATABASE: DATABASE,
    Word.NO_SUCH_INDEX: (*DATABASE, *CREATORS),
    Word.FLAGS_UNREADABLE: ("_PEB*", "_EPROCESS.Peb", "_EPROCESS.W*64Process", "_EWOW64PROCESS.Peb"),
    Word.UNTRACED: HEAP,
    Word.UNSIZED: HEAP,
    Word.GONE: (),
    Word.GROWTH_UNKNOWN: (),
    # Traces of databases.
    Word.UNINDEXED: DATABASE,
    Word.SATURATED: (),
    Word.ORPHAN: DATABASE,
    Word.INDEX: DATABASE,
    Word.DEPTH: (*DATABASE, *HEAPLOG),
    Word.ONE_OF_DATABASES: DATABASE,
    Word.NO_POINTER: DATABASE,
    Word.NO_NTDLL: (*MODULES, *VADS, "_PEB*"),
    Word.DATABASE_POINTER_UNREADABLE: DATABASE,
    Word.NTDLL_DATA_INCOMPLETE: MODULES,
    Word.SEARCH_CUT_SHORT: (),
    Word.DATABASE_UNREADABLE: DATABASE,
    Word.INDEX_AMBIGUOUS: DATABASE,
    Word.HEADER: DATABASE,
    # Frames.
    Word.ADDRESS: CREATORS,
    Word.OVERWRITTEN: (),
    # Locks.
    Word.LIST_BROKEN: (*RESOURCE, *SECTION),
    Word.LIST_DAMAGED: (*RESOURCE, *SECTION),
    Word.DEBUG_INFORMATION_UNREADABLE: SECTION,
    Word.SECTION_DOES_NOT_POINT_BACK: SECTION,
    Word.INDEX_MAY_BE_STALE: SECTION,
    Word.LIST_HEAD_UNREADABLE: SECTION,
    Word.LIST_NOT_FOUND: SECTION,
    Word.ON_ANOTHER_LIST: SECTION,
    Word.ON_ONE_OF_LISTS: SECTION,
    # Owners of locks.
    Word.NO_THREAD: (*RESOURCE, *SECTION, "_ETHREAD.Tcb.Header.Type", "_ETHREAD.Cid.*"),
    Word.RESOURCES_OVERLAP: RESOURCE,
    Word.OWNER_TABLE_UNREADABLE: RESOURCE,
    Word.OWNER_TABLE_TOO_BIG: RESOURCE,
    Word.OWNER_TABLE_SHARED: RESOURCE,
    Word.OWNER_LIMIT: RESOURCE,
    Word.OWNER_LIST_BROKEN: RESOURCE,
    Word.OWNERS_UNKNOWN: RESOURCE,
    Word.OWNERS_MISSING: RESOURCE,
    Word.OWNED_BY: (),
    Word.MORE_OWNERS: (),
    # Modules.
    Word.PARTLY_UNLINKED: MODULES,
    Word.NO_VAD: (*MODULES, *VADS),
    Word.VAD_WITHOUT_FILE: (*MODULES, *VADS),
    Word.VAD_OF_ANOTHER_FILE: (*MODULES, *VADS),
    Word.NO_LOADER_LIST: (*MODULES, "_PEB*.Ldr", "_EPROCESS.Peb", "_EWOW64PROCESS.Peb"),
    Word.OVERLAPS_ANOTHER_MODULE: MODULES,
    Word.NOT_IN_THE_MODULE_LIST: MODULES,
    Word.HEADERS_CONTRADICT_THE_LIST: MODULES,
    Word.IN_NO_MODULE_LIST: MODULES,
    Word.OVERLAPS_AN_UNLOADED_MODULE: ("_UNLOADED*", "nt.Mm*Unloaded*"),
    Word.MODULE_LIST_INCOMPLETE: MODULES,
    Word.VADS_INCOMPLETE: VADS,
    Word.FILE_NAME_UNREADABLE: VADS,
    # Images of modules: their headers and tables have no members that a structure knows.
    Word.EXPORTS_UNREADABLE: (),
    Word.EXPORTS_INCOMPLETE: (),
    Word.HEADERS_UNREADABLE: MODULES,
    Word.HEADERS_INVALID: MODULES,
    Word.EXPORTS_DIFFER_FROM_THE_SECTION: (),
    Word.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION: (),
    Word.UNWIND_DATA_DIFFERS_FROM_THE_SECTION: (),
    Word.FUNCTION_TABLE_UNREADABLE: MODULES,
    Word.FUNCTION_TABLE_INCOMPLETE: MODULES,
    # Flags.
    Word.NO_PEB: ("_EPROCESS.Peb",),
    # Module files, minidumps that are written and small kernel dumps: no structure of an image is doubted.
    Word.FROM_FILE: (),
    Word.DIFFERS_FROM_FILE: (),
    Word.NO_32_BIT_HALF: (),
    Word.ZERO_FOR_UNKNOWN: (),
    Word.BYTES_ARE_ZERO: (),
    Word.NOT_IN_THE_DUMP: (),
    Word.BUG_CHECK: (),
}

WARNINGS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("^process list damaged", PROCESS_LIST),
    (": no database$", DATABASE),
    ("^The thread list of process", THREAD_LIST),
    ("^contradicted: MmUnloadedDrivers", ("nt.Mm*Unloaded*",)),
    ("^The kernel's list of modules is broken", MODULES),
    ("of KiProcessorBlock repeat the KPRCB", PROCESSORS),
    ("claims another stack as its", ("_KPRCB.*",)),
    ("^No processor has saved a context", PROCESSORS),
    ("^The VADs below|the VADs cannot be read", VADS),
    ("the PEB's list of heaps cannot be read", ("_PEB*.*Heaps",)),
    ("of its heaps no block's header can be told", HEAP),
    ("index slots lead to no entry|of the used parts are not in the image", DATABASE),
    ("^Process at .* cannot be read at", PROCESS),
    (": ntdll data incomplete", MODULES),
    ("VADs incomplete", VADS),
)
"""Part of the text of a warning, and what it names."""


CONTRADICTS: Dict[str, Tuple[str, ...]] = {
    "ActiveEntries": RESOURCE,
    "Cid.UniqueProcess": (*IDS, "_ETHREAD.Tcb.Process", "_ETHREAD.ThreadsProcess"),
    "ObjectTable": HANDLE_TABLE,
    "ObpObjectTable": OBJECT_TRACES,
    "ProcessHeaps": HEAP,
    "TraceCount": HEAPLOG,
    "VadRoot": VADS,
    "WoW64Process": ("_EPROCESS.Wow64Process",),
}
"""What a member that is contradicted names besides its own structure: what contradicts it, or its name in
another version."""

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
}
"""The shared structures whose content a plugin's rows show."""


class Telling(NamedTuple):
    """A word that stands in a Status, with the members that it names."""

    word: Word
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
def _patterns() -> Tuple[Tuple[Word, "re.Pattern[str]"], ...]:
    """Returns the words, those without a number first."""
    made = []
    for word in sorted(Word, key=lambda each: "{" in each.value):
        text = re.escape(word.value).replace(r"\{\}", "-?[0-9]+").replace(r"\{members\}", r"(?P<members>.+)")
        made.append((word, re.compile(text)))
    return tuple(made)


def named_by(telling: Telling, member: Member, asked: Collection[Tuple[str, str]]) -> bool:
    """Returns whether a word names the structure of a member.

    Args:
        telling: the word
        member: the member
        asked: (structure, path) of all members that the plugin asks for: a word that names one of these names
            its structure
    """
    paths = {path for structure, path in asked if structure == member.structure} | {member.path}
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
    return matches(member, [each for part, names in WARNINGS if re.search(part, text) for each in names])


def makes_rows(plugin: str, member: Member) -> bool:
    """Returns whether the rows of a plugin are those of a shared structure, so that it may change them."""
    return matches(member, ROWS.get(plugin, ()))


def matches(member: Member, patterns: Iterable[str]) -> bool:
    """Returns whether one of several patterns is that of a member."""
    return any(fnmatch.fnmatchcase(name, pattern) for name in member.names for pattern in patterns)
