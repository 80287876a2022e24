# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The column Status: remarks of a row about its values.

A status is a tuple of `Said`: a word of the enum `Word`, with a number or the names of members if the word
has them, in the order in which they were found. Code compares words by identity and never searches a text;
`text` makes the text for the column. An empty status means that no problem was found.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Optional, Tuple, Union


class Word(Enum):
    """All words that a column Status can have. The `{}` of a text is replaced by the number of its `Said` (N
    below)."""

    # Statuses are joined for each row: this hash is faster than Enum's, which hashes a text, in Python.
    __hash__ = object.__hash__

    # Of anything.
    UNREADABLE = "unreadable"
    """The subject of the row, or a part of it, is not in the image."""
    PARTLY_UNREADABLE = "partly unreadable"
    """A part of the structure is not in the image: the values of that part are absent."""
    NOT_CANONICAL = "not canonical"
    """An address that no processor accepts."""
    RUNNING = "running"
    """The thread ran: its registers are in no memory. The values shown come from its last entry into the
    kernel."""
    STALE = "stale"
    """Left over: below the stack in use; or a WoW64 context while the trap frame (SegCs 23h) is live; or the
    context of a processor whose stack pointer is on none of its stacks."""
    TERMINATED = "terminated"
    """The thread has ended."""
    UNSURE = "unsure"
    """A guess, or a value found by way of a guess."""
    DAMAGED = "damaged"
    """Headers contradict each other. For a heap: blocks are known by the records that they name."""
    OVERLAP = "overlap"
    """Memory that another structure of the image has already claimed; it is read once."""
    LIMIT = "limit"
    """The limit is exceeded; the rest is not read."""
    FREED = "freed"
    """Released. The data that is still there is shown."""
    HASH = "hash"
    """The data named as a record is not one: the hash of its frames, its depth or its place is wrong."""
    CONTRADICTED = "contradicted: {members}"
    """The rest of the image contradicts these members. The values shown do not rely on them where
    possible."""
    # Processes and their page tables.
    PAGE_TABLES_UNREADABLE = "page tables unreadable"
    """The page tables of the process are not in the image, so none of its memory can be read."""
    PROCESS_UNREADABLE = "process unreadable"
    """The _EPROCESS, or a part of it, is not in the image. PspCidTable may still have the ID of the
    process."""
    WOW64_PROCESS_STRUCTURE_UNREADABLE = "WoW64 process structure unreadable"
    """The structure that leads to the 32-bit half of the process is not in the image."""
    PROCESS_LIST_DAMAGED = "process list damaged"
    """A process may be missing. The word is in the rows of the kernel, which owns the list."""
    NOT_IN_THE_PROCESS_LIST = "not in the process list"
    """The list does not lead to the process; another witness does."""
    FOUND_BY = "found by {members}"
    """The witness that knows the process or thread although the list lacks it: PspCidTable, KiProcessorBlock
    (a processor was executing it), HandleTableListHead (it has a handle table), or the pool scan."""
    ID_IN_CID_TABLE = "ID {} in PspCidTable"
    """Windows finds the process or thread by this ID; its own structure has another."""
    PAGE_TABLES_OF_PROCESS = "page tables of process {}"
    """DirectoryTableBase belongs to process N: the memory read there is not the memory of this process."""
    # The image as a whole.
    FILE_PARTS_UNREADABLE = "{} parts of files unreadable"
    """N parts of the files whose hash is ImageId cannot be read."""
    FILE_CUT = "{} % of the file missing"
    """The file is shorter than its container, or the kernel, says: N % lie behind its end."""
    FILE_NOT_HASHED = "{} files not hashed"
    """N files have no SHA-256: they are not on this machine, or cannot be read."""
    SHARED_DATA_UNREADABLE = "KUSER_SHARED_DATA unreadable"
    """The kernel's clock is not in the image."""
    COMPUTER_NAMES = "{} computer names"
    """The system processes disagree about the name of the computer: the most frequent name is shown."""
    # Threads.
    THREAD_LIST_DAMAGED = "thread list damaged"
    """Threads may be missing, or one link of the list's head is wrong."""
    THREAD_LINKS_DISAGREE = "thread links disagree"
    """One link of the list is wrong; no thread is missing. Changes during the acquisition may cause this."""
    THREAD_COUNT = "{} active threads"
    """ActiveThreads of the process is N; the list has fewer threads, or more."""
    RUNNING_ON_NO_PROCESSOR = "running on no processor"
    """KTHREAD.State says that the thread was running, but every processor was executing another thread."""
    NOT_A_THREAD = "not a thread"
    """The list of threads leads to data that is not a thread."""
    NOT_IN_THE_THREAD_LIST = "not in the thread list"
    """The list lacks the thread; another witness (`found by ...`) has it, or a pool scan if none is named."""
    # Trap frames and contexts.
    NOT_A_TRAP_FRAME = "not a trap frame"
    """The bytes at the address are not a trap frame."""
    OUTSIDE_THE_STACK = "outside the stack"
    """The address is outside the thread's stack."""
    STACK_LIMITS_UNUSABLE = "stack limits unusable"
    """The limits of the kernel stack contradict each other."""
    NOT_A_CONTEXT = "not a context"
    """The bytes at the address are not a CONTEXT."""
    CONTEXT_MAY_BE_OLDER = "context may be older"
    """Only a crash dump proves that its processor was stopped: kernel debuggers leave contexts in memory."""
    # Call stacks.
    IN_USER_MODE = "in user mode"
    """The thread of a stopped processor was in user mode: it has no kernel part."""
    IN_32_BIT_CODE = "in 32-bit code"
    """The thread of a stopped processor was in 32-bit code: its 64-bit registers are in no memory."""
    EXPANDED = "expanded"
    """The kernel moved the thread to this stack because its stack was too small; no callback lies between."""
    NO_SWITCH_FRAME = "no switch frame"
    """The thread does not run, and no switch frame lies where its kernel stack ends."""
    NO_SAVED_REGISTERS = "no saved registers"
    """The image has no saved registers from which this part could be walked."""
    STACK_LIMITS_UNKNOWN = "stack limits unknown"
    """The stack pointer is outside the limits in the TEB: the thread may use the stack of a fiber, for
    example."""
    CODE_UNREADABLE = "code unreadable"
    """Code is not in the image: the walk may have missed an epilogue, or have a wrong caller for a leaf."""
    CODE_IN_NO_MODULE = "code in no module"
    """Code in no module has no unwind data: the walk had to guess."""
    CODE_AND_UNWIND_DATA_DIFFER = "code and unwind data differ"
    """The walk followed the code; the caller is unsure if the process has changed the code."""
    NOT_BEHIND_A_CALL = "not behind a call"
    """x64: the unwound value is not a return address. It is unsure, and so are all frames after it."""
    NO_FUNCTION_TABLE = "no function table"
    """The module has no function table: the walk had to guess."""
    NO_UNWIND_DATA = "no unwind data"
    """The function has no unwind data and is not a leaf: the walk had to guess."""
    UNWIND_DATA_UNREADABLE = "unwind data unreadable"
    """The unwind data is not in the image: the walk had to guess."""
    UNWIND_DATA_INVALID = "unwind data invalid"
    """The unwind data contradicts itself: the walk had to guess."""
    FRAME_REGISTER_UNKNOWN = "frame register unknown"
    """The value of the function's frame register is unknown at this point: the walk had to guess."""
    FRAME_POINTER_UNKNOWN = "frame pointer unknown"
    """x86: the value of Ebp is unknown at this point: the walk had to guess."""
    FRAME_POINTER_IMPLAUSIBLE = "frame pointer implausible"
    """x86: Ebp does not lead to a frame: the walk had to guess."""
    FRAME_POINTER_UNSURE = "frame pointer unsure"
    """x86: only the next frame is doubtful; a caller may be missing before it."""
    DISPATCHER = "dispatcher"
    """x86: the kernel interrupted code to call KiUserExceptionDispatcher, KiUserApcDispatcher or
    KiUserCallbackDispatcher, and that code is not proven: callers may be missing before the next frame."""
    STACK_UNREADABLE = "stack unreadable"
    """The stack is not in the image from here on."""
    CYCLE = "cycle"
    """The walk came back to a place where it was before, and ends."""
    TOO_MANY_FRAMES = "too many frames"
    """The stack has more than 1,024 frames; the rest is not walked."""
    HASH_UNSURE = "hash unsure"
    """A guess is among the frames that Depth and BackTraceHash cover, or among the skipped frames."""
    # Handles.
    NO_LONGER_OPEN = "no longer open"
    """The ring has the open and no close, and the handle table lacks the handle: it was closed untraced."""
    HANDLE_TABLE_SHARED = "handle table shared"
    """Other processes that claim this table have its events; the table does not name this process."""
    HANDLE_TABLE_UNREADABLE = "handle table unreadable"
    """The handles that the process has now are unknown."""
    EVENTS_LOST = "events lost"
    """Later events of the ring cannot be read; the close of the handle may be among them."""
    EVENTS_UNREADABLE = "{} events unreadable"
    """N events of the ring or of the object are not in the image."""
    UNKNOWN_TYPE = "unknown type {}"
    """An event of a type that Windows does not have."""
    BEYOND_THE_RINGS_COUNTER = "beyond the ring's counter"
    """By the ring's counter this place was never written."""
    CLIENT_ID_ABOVE_32_BITS = "ClientId above 32 bits"
    """Process and thread IDs have 32 bits: a longer value is not an ID, and is not shown."""
    TABLE_SIZE = "table size"
    """Windows makes no ring of this size; at most 131,072 events are read."""
    RING_UNREADABLE = "ring unreadable"
    """The ring of the process is not in the image."""
    PAGES_OF_THE_HANDLE_TABLE_UNREADABLE = "{} pages of the handle table unreadable"
    """N pages of the handle table are not in the image: handles may be missing."""
    OBJECT_HEADERS_UNREADABLE = "{} object headers unreadable"
    """N object headers are not in the image: the creators of these objects are unknown."""
    # Objects.
    OBJECT_UNREADABLE = "object unreadable"
    """The object, or its name, is not in the image."""
    OBJECT_TYPE_UNKNOWN = "object type unknown"
    """The type of the object cannot be determined."""
    # Object traces.
    NO_SYMBOL = "no symbol"
    """The kernel's symbols lack the symbol that leads to the traces."""
    LATER_FORM = "later form (StackDb)"
    """Traces of a later Windows (StackDb), which this version does not read."""
    EARLIER_FORM = "earlier form"
    """Traces of an earlier Windows, which this version does not read."""
    CHAIN_LEADS_BACK = "chain leads back"
    """The hash chain leads back to itself; the walk ended there."""
    TOO_MANY_EVENTS = "too many events"
    """The chain has more events than an object can have; the rest is not read."""
    EVENTS_OVERLAP = "{} events overlap"
    """Their memory was already read as events of another object, and can belong to one object only."""
    EVENTS_NOT_READ = "{} events not read"
    """N events of the object are beyond the limit for the image."""
    EVENT_LIMIT = "event limit"
    """The image has more events than the limit; the further ones were not read."""
    BUCKET = "bucket"
    """The entry is in another hash chain than its content requires, or in none."""
    BUCKET_UNREADABLE = "bucket {} unreadable"
    """This bucket is not in the image: objects may be missing."""
    BUCKETS_UNREADABLE = "{} buckets unreadable"
    """N buckets are not in the image: objects may be missing."""
    NO_LONGER_TRACED = "no longer traced"
    """The object's header does not mark it as traced: another object may be there now."""
    IN_NO_CHAIN = "in no chain"
    """The object's header marks it as traced, but no bucket of ObpObjectTable leads to its events."""
    NO_STACK_TABLE = "no stack table"
    """The table of stacks cannot be found."""
    NO_SUCH_TRACE = "no such trace"
    """The table of stacks has no trace of this number."""
    TRACE_UNREADABLE = "trace unreadable"
    """The trace is not in the image."""
    # Heaps.
    NOT_READ_YET = "not-read"
    """The blocks of a segment heap, counted by the records that they name. Freed blocks cannot be
    recognised."""
    UNLISTED = "unlisted"
    """A heap that the PEB does not list."""
    BYTES_UNREAD = "{} bytes unread"
    """In N bytes of a heap no header can be recognised: the sums have only the blocks there that
    their records prove."""
    UST_WITHOUT_HPC = "+ust without +hpc"
    """XP and 2003 do not trace heap blocks with +ust alone."""
    STACK_OF_THE_FREE = "stack of the free"
    """The stack is the one of the free: it has overwritten the stack of the allocation."""
    STACK_OF_ALLOCATION_OR_FREE = "stack of allocation or free"
    """A freed block of page heap: which of the two its trace shows is unknown."""
    NO_DATABASE = "no database"
    """There is no stack trace database that could hold the trace."""
    TRACES_UNREADABLE = "{} traces unreadable"
    """The index of the database has N further traces; they are not in the image."""
    NO_SUCH_INDEX = "no such index"
    """The stack trace database has no trace of this number."""
    FLAGS_UNREADABLE = "flags unreadable"
    """NtGlobalFlag is not in the image. For heaps: whether they record stacks is unknown, too."""
    UNTRACED = "untraced"
    """The blocks that name no trace, among them blocks that the heap uses itself."""
    UNSIZED = "unsized"
    """The size of some blocks is unknown; Bytes does not include it."""
    GONE = "gone"
    """A stack of the baseline that no block in use has any more, as far as traces can be read."""
    GROWTH_UNKNOWN = "growth unknown"
    """The size of some blocks of the stack is unknown."""
    # Traces of databases.
    UNINDEXED = "unindexed"
    """A live trace whose index was never requested: it is only in its hash chain."""
    SATURATED = "saturated"
    """Captured 2,047 times or more: the count stops at this number (since 6.0)."""
    ORPHAN = "orphan"
    """In use, but neither the index array nor a chain leads to it."""
    INDEX = "index"
    """The index array disagrees: its slot of this number leads elsewhere, or is empty."""
    DEPTH = "depth"
    """The number of frames is 0, more than Windows records, or more than the block holds."""
    # Databases.
    ONE_OF_DATABASES = "one of {} databases"
    """Pointers in the data of ntdll lead to N valid databases; ntdll uses only one."""
    NO_POINTER = "no pointer"
    """No global variable in the image points to the database."""
    NO_NTDLL = "no ntdll"
    """The process has no readable ntdll that would lead to the database."""
    DATABASE_POINTER_UNREADABLE = "database pointer unreadable"
    """The variable that points to the database is not in the image."""
    NTDLL_DATA_INCOMPLETE = "ntdll data incomplete"
    """Pages of ntdll's data are not in the image: the pointer may be there."""
    SEARCH_CUT_SHORT = "search cut short"
    """ntdll's data has too many structures that resemble a database and are none: not all were tried."""
    DATABASE_UNREADABLE = "database unreadable"
    """The database exists but cannot be read."""
    INDEX_AMBIGUOUS = "index ambiguous"
    """There are more traces than 16 bits can number: the index may mean a trace 65,536 places later."""
    HEADER = "header: {members}"
    """These members of the header contradict the rest."""
    # Frames.
    OVERWRITTEN = "overwritten"
    """The free list has overwritten the frame."""
    # Locks.
    ADDRESS = "address"
    """An ERESOURCE has an address in place of the index: the column Address shows it."""
    LIST_BROKEN = "list broken"
    """The row stands for an unknown number of locks: the list cannot be followed from either end."""
    LIST_DAMAGED = "list damaged"
    """One link of this lock or, in a row without a lock, of the list's head is wrong. No lock is missing."""
    DEBUG_INFORMATION_UNREADABLE = "debug information unreadable"
    """The lock's debug information is not in the image."""
    SECTION_DOES_NOT_POINT_BACK = "section does not point back"
    """The critical section is gone, or another is in its place: only its debug information remains."""
    INDEX_MAY_BE_STALE = "index may be stale"
    """Deleting a section releases its trace: the index may belong to another trace since then."""
    LIST_HEAD_UNREADABLE = "list head unreadable"
    """The head of the list is not in the image."""
    LIST_NOT_FOUND = "list not found"
    """The list was not found, although locks of the process have debug information."""
    ON_ANOTHER_LIST = "on another list"
    """ntdll keeps one list of critical sections; the locks of the PEB belong to another list."""
    ON_ONE_OF_LISTS = "on one of {} lists"
    """ntdll keeps one list of critical sections; it is unknown which of these N is that list."""
    # Owners of locks.
    NO_THREAD = "no thread"
    """The owner is not a thread: ExSetResourceOwnerPointer stored another value there."""
    RESOURCES_OVERLAP = "{} resources overlap"
    """N further resources are on the list; their memory overlaps others, and they are not
    shown."""
    OWNER_TABLE_UNREADABLE = "owner table unreadable"
    """The table of owners, or a part of it, is not in the image."""
    OWNER_TABLE_TOO_BIG = "owner table too big"
    """The table of owners claims more entries than are read."""
    OWNER_TABLE_SHARED = "owner table shared"
    """The table of owners, or a part of it, belongs to another resource: its owners are listed there."""
    OWNER_LIMIT = "owner limit"
    """At most 65,536 owner entries of an image are read."""
    OWNER_LIST_BROKEN = "owner list broken"
    """The list of owners does not close: owners are missing."""
    OWNERS_UNKNOWN = "owners unknown"
    """The kernel's symbols do not describe the owners of a fast resource."""
    OWNERS_MISSING = "{} owners missing"
    """ActiveEntries counts N more owners than the lock's entries name."""
    # Owners of locks in a flat table.
    OWNED_BY = "owned by {members}"
    """These threads, by their IDs, own the lock at the same time; TID is the first of them."""
    MORE_OWNERS = "{} more owners"
    """N threads own the lock besides those that are named."""
    # Modules.
    PARTLY_UNLINKED = "partly unlinked"
    """Only one of the loader lists has the module."""
    NO_VAD = "no VAD"
    """The loader lists have a module there, but no VAD is there. Counts as unmapped memory."""
    VAD_WITHOUT_FILE = "VAD without file"
    """The loader lists have a module there, but the VAD has no file. Counts as private memory."""
    VAD_OF_ANOTHER_FILE = "VAD of another file"
    """The loader lists and the VAD name different files."""
    NO_LOADER_LIST = "no loader list"
    """The loader list is absent, breaks off, or has an impossible entry: only the VADs show this module."""
    OVERLAPS_ANOTHER_MODULE = "overlaps another module"
    """Two listed modules share addresses."""
    NOT_IN_THE_MODULE_LIST = "not in the module list"
    """The kernel itself is missing from its list of modules."""
    IN_NO_MODULE_LIST = "in no module list"
    """The kernel's list lacks the driver; its name comes from the headers in memory below the address. It
    counts as unbacked."""
    HEADERS_CONTRADICT_THE_LIST = "headers contradict the module list"
    """No image of the listed size is at the driver's address: the entry proves nothing about that memory."""
    OVERLAPS_AN_UNLOADED_MODULE = "overlaps an unloaded module"
    """The current content came after a module that was unloaded: an old trace may mean the unloaded
    module."""
    MODULE_LIST_INCOMPLETE = "module list incomplete"
    """The kernel's list of modules breaks off: `<no-module>` is not certain."""
    VADS_INCOMPLETE = "VADs incomplete"
    """A part of the VAD tree is not in the image, the tree has fewer VADs than the kernel counts, or the
    process has a page in memory without a VAD: `<unmapped>` is not certain."""
    FILE_NAME_UNREADABLE = "file name unreadable"
    """The name of the mapped file is not in the image."""
    KNOWN_FROM_ANOTHER_PROCESS = "known from another process"
    """The build comes only from the loader of another process that maps the same file."""
    # Images of modules.
    EXPORTS_UNREADABLE = "exports unreadable"
    """The export table is not in the image."""
    EXPORTS_INCOMPLETE = "exports incomplete"
    """Pages of the export table are not in the image."""
    HEADERS_UNREADABLE = "headers unreadable"
    """The module's headers are not in the image: only `module+0x...` is left."""
    HEADERS_INVALID = "headers invalid"
    """The module's headers contradict themselves: only `module+0x...` is left."""
    EXPORTS_DIFFER_FROM_THE_SECTION = "exports differ from the image section"
    """The process has its own export table, unlike the section's, as after a hook: this table is used."""
    FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION = "function table differs from the image section"
    """The process has its own copy of the function table, with other bytes than the section."""
    UNWIND_DATA_DIFFERS_FROM_THE_SECTION = "unwind data differs from the image section"
    """The process has its own copy of unwind data, with other bytes than the section."""
    FUNCTION_TABLE_UNREADABLE = "function table unreadable"
    """The function table is not in the image: `nearest` replaces a possible `export` or `module`."""
    FUNCTION_TABLE_INCOMPLETE = "function table incomplete"
    """Pages of the function table are not in the image: `nearest` replaces a possible `export` or
    `module`."""
    # Files of modules.
    FROM_FILE = "from the file"
    """Pages that the image lacks were read from the module's file: the name or the next frames depend on
    them."""
    DIFFERS_FROM_FILE = "differs from the file: {members}"
    """These parts of the module have other bytes in memory than in its file, not counting relocations and
    imports."""
    # Flags.
    NO_PEB = "no PEB"
    """The process has no PEB: System, and processes that Windows runs without user code."""
    # Dumps of a process.
    PEB_NOT_IN_THE_DUMP = "PEB not in the dump"
    """The dump lacks the memory that leads to heaps, locks and databases: a dump with full memory has it."""
    EXCEPTION = "exception {members}"
    """The dump was made when the thread raised this exception."""
    BEYOND_THE_FILE = "{} bytes beyond the end of the file"
    """The file is shorter than its headers say: N bytes are missing."""
    MORE_THAN_THE_STREAM = "more than the stream holds: {members}"
    """A count is larger than its stream has room for: the entries that fit are read."""
    FEWER_THAN_THE_STREAM = "fewer than the stream holds: {members}"
    """A count is smaller than its stream has room for: the further entries are not read."""
    STREAMS_MISSING = "streams missing: {members}"
    """By Flags the writer was asked for these streams, but the directory lacks them."""
    TWICE = "given before"
    """Another item of the same kind comes before it, and is used."""
    RANGES_OVERLAP = "{} memory ranges overlap"
    """N ranges share addresses, or bytes of the file, with earlier ranges, which are used."""
    # Dumps that are written.
    NO_32_BIT_HALF = "no 32-bit half"
    """The process runs no 32-bit code: --format wow64 has nothing to write."""
    ZERO_FOR_UNKNOWN = "unknown and 0 in {}"
    """The image lacks the member; in N structures of the stream it is 0 or empty."""
    BYTES_ARE_ZERO = "{} unreadable bytes are 0"
    """N bytes could not be read when the dump was written, although the page tables map them."""
    # Small kernel dumps.
    NOT_IN_THE_DUMP = "not in the dump: {members}"
    """A small kernel dump lacks these: the kernel's symbols, or a larger dump, would give them."""
    BUG_CHECK = "bug check {members}"
    """The thread was executing when Windows stopped with this code."""
    # Findings.
    NOT_CHECKED = "not checked"
    """The check of this name, or a part of it, could not run; the column Evidence has the reason."""
    # Pictures.
    STACKS_CUT = "stacks cut"
    """There are more different stacks than are drawn: boxes `…` have the weight of the stacks left out. In
    windows.tracereport: there are more threads or heap traces than its lists show."""
    SUM_LIMIT = "sum limit"
    """The weights add up to more than 9007199254740991: the rest is left out."""
    NOT_WRITTEN = "not written"
    """The file cannot be written; the log has the reason."""


class Said(NamedTuple):
    """One item of a status.

    Attributes:
        word: the word
        number: number for the `{}` in the word's text; None for a word without one
        members: names for the `{members}` in the word's text, mostly members of a structure
    """

    word: Word
    number: Optional[int] = None
    members: Tuple[str, ...] = ()


Status = Tuple[Said, ...]

NOTHING: Status = ()

Part = Union[Word, Said, Status, None]


def status(*parts: Part) -> Status:
    """Joins words and statuses to one status. Equal items are kept once; None and empty ones add nothing."""
    if not any(parts):
        return NOTHING
    items = []
    for part in parts:
        if isinstance(part, Word):
            items.append(Said(part))
        elif isinstance(part, Said):
            items.append(part)
        elif part:
            items.extend(part)
    return tuple(dict.fromkeys(items))


def says(said: Status, *words: Word) -> bool:
    """Returns whether a status has one of several words."""
    return any(item.word is word for item in said for word in words)


def text(said: Status) -> str:
    """Returns a status as the column Status shows it."""
    return ", ".join(item.word.value.format(item.number, members=" ".join(item.members)) for item in said)
