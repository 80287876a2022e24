# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The column Status: what a row says besides its values.

A status is a tuple of `Said`: a word of the enum `Word`, with a number or the names of members where the word
has them, in the order in which they were found. Code compares words by identity and never searches a text;
`text` makes the text for the column. An empty status says that nothing is wrong.
"""

from __future__ import annotations

import enum
from typing import Optional, Tuple, Union

from .record import Record


class Word(enum.Enum):
    """All words that a column Status can have. The `{}` of a text is replaced by the number of its `Said`."""

    # Of anything.
    UNREADABLE = "unreadable"
    PARTLY_UNREADABLE = "partly unreadable"
    NOT_CANONICAL = "not canonical"
    RUNNING = "running"
    STALE = "stale"
    TERMINATED = "terminated"
    UNSURE = "unsure"
    DAMAGED = "damaged"
    OVERLAP = "overlap"
    LIMIT = "limit"
    FREED = "freed"
    HASH = "hash"
    # Processes and their page tables.
    PAGE_TABLES_UNREADABLE = "page tables unreadable"
    WOW64_PROCESS_STRUCTURE_UNREADABLE = "WoW64 process structure unreadable"
    PROCESS_LIST_DAMAGED = "process list damaged"
    # Threads.
    THREAD_LIST_DAMAGED = "thread list damaged"
    THREAD_LIST_ALTERED = "thread list altered"
    NOT_A_THREAD = "not a thread"
    NOT_IN_THE_THREAD_LIST = "not in the thread list"
    # Trap frames and contexts.
    NOT_A_TRAP_FRAME = "not a trap frame"
    OUTSIDE_THE_STACK = "outside the stack"
    STACK_LIMITS_UNUSABLE = "stack limits unusable"
    NOT_A_CONTEXT = "not a context"
    # Call stacks.
    IN_USER_MODE = "in user mode"
    IN_32_BIT_CODE = "in 32-bit code"
    EXPANDED = "expanded"
    """The kernel moved the thread here because its stack was too small; no callback lies between."""
    NO_SWITCH_FRAME = "no switch frame"
    NO_SAVED_REGISTERS = "no saved registers"
    STACK_LIMITS_UNKNOWN = "stack limits unknown"
    CODE_UNREADABLE = "code unreadable"
    CODE_IN_NO_MODULE = "code in no module"
    CODE_AND_UNWIND_DATA_DIFFER = "code and unwind data differ"
    """The code was believed; the caller is unsure where the process has changed it."""
    NOT_BEHIND_A_CALL = "not behind a call"
    NO_FUNCTION_TABLE = "no function table"
    NO_UNWIND_DATA = "no unwind data"
    UNWIND_DATA_UNREADABLE = "unwind data unreadable"
    UNWIND_DATA_INVALID = "unwind data invalid"
    FRAME_REGISTER_UNKNOWN = "frame register unknown"
    FRAME_POINTER_UNKNOWN = "frame pointer unknown"
    FRAME_POINTER_IMPLAUSIBLE = "frame pointer implausible"
    FRAME_POINTER_UNSURE = "frame pointer unsure"
    DISPATCHER = "dispatcher"
    """x86: what the kernel interrupted to call KiUserExceptionDispatcher, KiUserApcDispatcher or
    KiUserCallbackDispatcher is not proven: callers may be missing before the next frame."""
    STACK_UNREADABLE = "stack unreadable"
    CYCLE = "cycle"
    TOO_MANY_FRAMES = "too many frames"
    HASH_UNSURE = "hash unsure"
    # Handles.
    NO_LONGER_OPEN = "no longer open"
    """The ring has the open and no close, and the handle table has no such handle: it was closed untraced."""
    HANDLE_TABLE_UNREADABLE = "handle table unreadable"
    EVENTS_LOST = "events lost"
    """Later events of the ring cannot be read; the close of the handle may be among them."""
    EVENTS_UNREADABLE = "{} events unreadable"
    UNKNOWN_TYPE = "unknown type {}"
    BEYOND_THE_RINGS_COUNTER = "beyond the ring's counter"
    CLIENT_ID_ABOVE_32_BITS = "ClientId above 32 bits"
    """Process and thread IDs have 32 bits: a longer value is no ID, and is not shown."""
    TABLE_SIZE = "table size"
    RING_UNREADABLE = "ring unreadable"
    PAGES_OF_THE_HANDLE_TABLE_UNREADABLE = "{} pages of the handle table unreadable"
    OBJECT_HEADERS_UNREADABLE = "{} object headers unreadable"
    # Objects.
    OBJECT_UNREADABLE = "object unreadable"
    OBJECT_TYPE_UNKNOWN = "object type unknown"
    # Object traces.
    NO_SYMBOL = "no symbol"
    LATER_FORM = "later form (StackDb)"
    EARLIER_FORM = "earlier form"
    CHAIN_LEADS_BACK = "chain leads back"
    TOO_MANY_EVENTS = "too many events"
    EVENTS_OVERLAP = "{} events overlap"
    """Their memory was already read as events of another object, and can be the events of one object only."""
    EVENTS_NOT_READ = "{} events not read"
    EVENT_LIMIT = "event limit"
    """The image has more events than the limit, which were not read."""
    BUCKET = "bucket"
    BUCKET_UNREADABLE = "bucket {} unreadable"
    BUCKETS_UNREADABLE = "{} buckets unreadable"
    NO_LONGER_TRACED = "no longer traced"
    NO_STACK_TABLE = "no stack table"
    NO_SUCH_TRACE = "no such trace"
    TRACE_UNREADABLE = "trace unreadable"
    # Heaps.
    NOT_READ_YET = "not-read"
    UNLISTED = "unlisted"
    BYTES_UNREAD = "{} bytes unread"
    """In so many bytes of a heap no header can be told: only what proves itself by its record is in a sum."""
    UST_WITHOUT_HPC = "+ust without +hpc"
    """XP and 2003 trace no heap block with +ust alone."""
    STACK_OF_THE_FREE = "stack of the free"
    """Whoever frees a block takes the place of who allocated it."""
    STACK_OF_ALLOCATION_OR_FREE = "stack of allocation or free"
    NO_DATABASE = "no database"
    NO_SUCH_INDEX = "no such index"
    FLAGS_UNREADABLE = "flags unreadable"
    UNTRACED = "untraced"
    UNSIZED = "unsized"
    GONE = "gone"
    GROWTH_UNKNOWN = "growth unknown"
    # Traces of databases.
    UNINDEXED = "unindexed"
    SATURATED = "saturated"
    ORPHAN = "orphan"
    INDEX = "index"
    DEPTH = "depth"
    # Databases.
    NO_POINTER = "no pointer"
    """No global variable leads to the database."""
    NO_NTDLL = "no ntdll"
    DATABASE_POINTER_UNREADABLE = "database pointer unreadable"
    NTDLL_DATA_INCOMPLETE = "ntdll data incomplete"
    SEARCH_CUT_SHORT = "search cut short"
    DATABASE_UNREADABLE = "database unreadable"
    INDEX_AMBIGUOUS = "index ambiguous"
    """There are more traces than 16 bits can number: the index may stand for a trace 65,536 later."""
    HEADER = "header: {members}"
    """Said with the members that contradict the rest."""
    # Frames.
    ADDRESS = "address"
    OVERWRITTEN = "overwritten"
    # Locks.
    LIST_BROKEN = "list broken"
    """The row stands for an unknown number of locks: the list cannot be followed from either side."""
    LIST_DAMAGED = "list damaged"
    """One link of this lock is wrong, or (in a row without a lock) of the list's head. No lock is missing."""
    DEBUG_INFORMATION_UNREADABLE = "debug information unreadable"
    SECTION_DOES_NOT_POINT_BACK = "section does not point back"
    """The critical section is gone, or another is in its place: only its debug information is left."""
    INDEX_MAY_BE_STALE = "index may be stale"
    """Deleting a section releases its trace: the index may have been given to another trace since."""
    LIST_HEAD_UNREADABLE = "list head unreadable"
    LIST_NOT_FOUND = "list not found"
    # Owners of locks.
    NO_THREAD = "no thread"
    OWNER_TABLE_UNREADABLE = "owner table unreadable"
    OWNER_TABLE_TOO_BIG = "owner table too big"
    OWNER_TABLE_SHARED = "owner table shared"
    OWNER_LIMIT = "owner limit"
    OWNER_LIST_BROKEN = "owner list broken"
    OWNERS_UNKNOWN = "owners unknown"
    # Modules.
    PARTLY_UNLINKED = "partly unlinked"
    NO_VAD = "no VAD"
    VAD_WITHOUT_FILE = "VAD without file"
    VAD_OF_ANOTHER_FILE = "VAD of another file"
    NO_LOADER_LIST = "no loader list"
    OVERLAPS_ANOTHER_MODULE = "overlaps another module"
    NOT_IN_THE_MODULE_LIST = "not in the module list"
    OVERLAPS_AN_UNLOADED_MODULE = "overlaps an unloaded module"
    MODULE_LIST_INCOMPLETE = "module list incomplete"
    VADS_INCOMPLETE = "VADs incomplete"
    FILE_NAME_UNREADABLE = "file name unreadable"
    # Images of modules.
    EXPORTS_UNREADABLE = "exports unreadable"
    EXPORTS_INCOMPLETE = "exports incomplete"
    HEADERS_UNREADABLE = "headers unreadable"
    HEADERS_INVALID = "headers invalid"
    EXPORTS_DIFFER_FROM_THE_SECTION = "exports differ from the image section"
    FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION = "function table differs from the image section"
    UNWIND_DATA_DIFFERS_FROM_THE_SECTION = "unwind data differs from the image section"
    """The process has a copy of its own, with other bytes than the section that all processes share."""
    FUNCTION_TABLE_UNREADABLE = "function table unreadable"
    FUNCTION_TABLE_INCOMPLETE = "function table incomplete"
    # Flags.
    NO_PEB = "no PEB"


class Said(Record):
    """One item of a status.

    Attributes:
        word: what is said
        number: for the `{}` in the word's text; None for a word without one
        members: for the `{members}` in the word's text: names of members of a structure
    """

    word: Word
    number: Optional[int] = None
    members: Tuple[str, ...] = ()


Status = Tuple[Said, ...]

NOTHING: Status = ()

Part = Union[Word, Said, Status, None]


def status(*parts: Part) -> Status:
    """Joins words and statuses to one status. Equal items are kept once; None and empty ones add nothing."""
    said = []
    for part in parts:
        if isinstance(part, Word):
            said.append(Said(part))
        elif isinstance(part, Said):
            said.append(part)
        elif part:
            said.extend(part)
    return tuple(dict.fromkeys(said))


def says(said: Status, *words: Word) -> bool:
    """Tells whether a status says one of several words."""
    return any(each.word is word for each in said for word in words)


def text(said: Status) -> str:
    """Returns a status as the column Status shows it."""
    return ", ".join(each.word.value.format(each.number, members=" ".join(each.members)) for each in said)
