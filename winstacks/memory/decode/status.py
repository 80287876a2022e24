# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The column Status: what a row says besides its values.

A status is a tuple of `Said`: a word of the enum `Word`, with a number or the names of members where the word
has them, in the order in which they were found. Code compares words by identity and never searches a text;
`text` makes the text for the column. An empty status says that nothing is wrong.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Optional, Tuple, Union


class Word(Enum):
    """All words that a column Status can have. The `{}` of a text is replaced by the number of its `Said`."""

    # Statuses are joined for each row; that of Enum hashes a text, in Python.
    __hash__ = object.__hash__

    # Of anything.
    UNREADABLE = "unreadable"
    """What the row is about is not in the image, or a part of it."""
    PARTLY_UNREADABLE = "partly unreadable"
    """A part of the structure is not in the image: what lies in that part is absent."""
    NOT_CANONICAL = "not canonical"
    """An address that no processor accepts."""
    RUNNING = "running"
    """The thread ran: its registers are in no memory. What is shown is of its last entry into the kernel."""
    STALE = "stale"
    """Left over: below the stack in use, a WoW64 context while the trap frame (SegCs 23h) is live, or a
    processor's context whose stack pointer is on none of its stacks."""
    TERMINATED = "terminated"
    """The thread has ended."""
    UNSURE = "unsure"
    """A guess, or found by way of a guess."""
    DAMAGED = "damaged"
    """Headers contradict each other. Of a heap: blocks are known by the records that they name."""
    OVERLAP = "overlap"
    """Memory that another structure of the image has already claimed; it is read once."""
    LIMIT = "limit"
    """More than the limit; the rest is not read."""
    FREED = "freed"
    """Released. What is still there is shown."""
    HASH = "hash"
    """What is named is not a record: the hash of its frames, its depth or its place is wrong."""
    CONTRADICTED = "contradicted: {members}"
    """The rest of the image contradicts these members. What is shown does without them where it can."""
    # Processes and their page tables.
    PAGE_TABLES_UNREADABLE = "page tables unreadable"
    """The page tables of the process are not in the image, so none of its memory can be read."""
    PROCESS_UNREADABLE = "process unreadable"
    """The _EPROCESS, or a part of it, is not in the image. PspCidTable may have its ID all the same."""
    WOW64_PROCESS_STRUCTURE_UNREADABLE = "WoW64 process structure unreadable"
    """What leads to the 32-bit half of the process is not in the image."""
    PROCESS_LIST_DAMAGED = "process list damaged"
    """A process may be missing. It is said of the kernel, whose list it is."""
    NOT_IN_THE_PROCESS_LIST = "not in the process list"
    """The list does not lead to the process; another witness does."""
    FOUND_BY = "found by {members}"
    """Said with the witness that knows what the list lacks: PspCidTable, KiProcessorBlock (a processor was
    executing it), HandleTableListHead (it has a handle table), or the pool scan."""
    ID_IN_CID_TABLE = "ID {} in PspCidTable"
    """Windows finds the process or thread by this ID; its own structure has another."""
    PAGE_TABLES_OF_PROCESS = "page tables of process {}"
    """DirectoryTableBase is that of another process: what can be read there is not this one's."""
    # The image as a whole.
    FILE_PARTS_UNREADABLE = "{} parts of files unreadable"
    """So many parts of the files, of those of which ImageId is the hash, cannot be read."""
    FILE_CUT = "{} % of the file missing"
    """The file ends before its container, or the kernel, says: so much is behind its end."""
    FILE_NOT_HASHED = "{} files not hashed"
    """So many files have no SHA-256: they are not on this machine, or cannot be read."""
    SHARED_DATA_UNREADABLE = "KUSER_SHARED_DATA unreadable"
    """The kernel's clock is not in the image."""
    COMPUTER_NAMES = "{} computer names"
    """The system processes disagree about the name of the computer: that of most of them is shown."""
    # Threads.
    THREAD_LIST_DAMAGED = "thread list damaged"
    """Threads may be missing, or the list's head has one wrong link."""
    THREAD_LINKS_DISAGREE = "thread links disagree"
    """One link of the list is wrong; no thread is missing. Changes while the image is taken may do that."""
    THREAD_COUNT = "{} active threads"
    """The process counts so many threads (ActiveThreads); the list has fewer, or more."""
    RUNNING_ON_NO_PROCESSOR = "running on no processor"
    """KTHREAD.State says that the thread was running, and every processor was executing another."""
    NOT_A_THREAD = "not a thread"
    """The list of threads leads to something that is no thread."""
    NOT_IN_THE_THREAD_LIST = "not in the thread list"
    """The list lacks the thread; another witness has it (`found by ...`), or a pool scan if none is named."""
    # Trap frames and contexts.
    NOT_A_TRAP_FRAME = "not a trap frame"
    """The bytes there are no trap frame."""
    OUTSIDE_THE_STACK = "outside the stack"
    """The address is outside the thread's stack."""
    STACK_LIMITS_UNUSABLE = "stack limits unusable"
    """The limits of the kernel stack contradict each other."""
    NOT_A_CONTEXT = "not a context"
    """The bytes there are no CONTEXT."""
    CONTEXT_MAY_BE_OLDER = "context may be older"
    """Only a crash dump tells that its processor was stopped: kernel debuggers leave contexts in memory."""
    # Call stacks.
    IN_USER_MODE = "in user mode"
    """A stopped processor's thread was in user mode: it has no kernel part."""
    IN_32_BIT_CODE = "in 32-bit code"
    """A stopped processor's thread was in 32-bit code: its 64-bit registers are in no memory."""
    EXPANDED = "expanded"
    """The kernel moved the thread here because its stack was too small; no callback lies between."""
    NO_SWITCH_FRAME = "no switch frame"
    """The thread does not run, and no switch frame lies where its kernel stack ends."""
    NO_SAVED_REGISTERS = "no saved registers"
    """No saved registers from which this part could be walked."""
    STACK_LIMITS_UNKNOWN = "stack limits unknown"
    """The stack pointer is outside the limits that the TEB has: a fiber's stack, say."""
    CODE_UNREADABLE = "code unreadable"
    """Code is not in the image: an epilogue could have gone unseen, or a leaf's caller be none."""
    CODE_IN_NO_MODULE = "code in no module"
    """Code in no module has no unwind data: the walk had to guess."""
    CODE_AND_UNWIND_DATA_DIFFER = "code and unwind data differ"
    """The code was believed; the caller is unsure where the process has changed it."""
    NOT_BEHIND_A_CALL = "not behind a call"
    """x64: what was unwound is no return address, and unsure with all that follows."""
    NO_FUNCTION_TABLE = "no function table"
    """The module has no function table: the walk had to guess."""
    NO_UNWIND_DATA = "no unwind data"
    """The function has no unwind data, and is no leaf: the walk had to guess."""
    UNWIND_DATA_UNREADABLE = "unwind data unreadable"
    """The unwind data is not in the image: the walk had to guess."""
    UNWIND_DATA_INVALID = "unwind data invalid"
    """The unwind data contradicts itself: the walk had to guess."""
    FRAME_REGISTER_UNKNOWN = "frame register unknown"
    """The function's frame register is not known at this point: the walk had to guess."""
    FRAME_POINTER_UNKNOWN = "frame pointer unknown"
    """x86: Ebp is not known at this point: the walk had to guess."""
    FRAME_POINTER_IMPLAUSIBLE = "frame pointer implausible"
    """x86: Ebp leads to no frame: the walk had to guess."""
    FRAME_POINTER_UNSURE = "frame pointer unsure"
    """x86: only the next frame is doubtful; a caller may be missing before it."""
    DISPATCHER = "dispatcher"
    """x86: what the kernel interrupted to call KiUserExceptionDispatcher, KiUserApcDispatcher or
    KiUserCallbackDispatcher is not proven: callers may be missing before the next frame."""
    STACK_UNREADABLE = "stack unreadable"
    """The stack is not in the image from here on."""
    CYCLE = "cycle"
    """The walk comes back to where it was, and ends."""
    TOO_MANY_FRAMES = "too many frames"
    """More than 1,024 frames; the rest is not walked."""
    HASH_UNSURE = "hash unsure"
    """A guess is among the frames that Depth and BackTraceHash count, or among those skipped."""
    # Handles.
    NO_LONGER_OPEN = "no longer open"
    """The ring has the open and no close, and the handle table has no such handle: it was closed untraced."""
    HANDLE_TABLE_SHARED = "handle table shared"
    """Other processes that claim this table have its events; it does not name this process."""
    HANDLE_TABLE_UNREADABLE = "handle table unreadable"
    """Nothing is known of the handles that the process has now."""
    EVENTS_LOST = "events lost"
    """Later events of the ring cannot be read; the close of the handle may be among them."""
    EVENTS_UNREADABLE = "{} events unreadable"
    """So many events of the ring or of the object are not in the image."""
    UNKNOWN_TYPE = "unknown type {}"
    """An event of a type that Windows does not have."""
    BEYOND_THE_RINGS_COUNTER = "beyond the ring's counter"
    """The ring's counter says that this place was never written."""
    CLIENT_ID_ABOVE_32_BITS = "ClientId above 32 bits"
    """Process and thread IDs have 32 bits: a longer value is no ID, and is not shown."""
    TABLE_SIZE = "table size"
    """The ring's size is none that Windows makes; at most 131,072 events are read."""
    RING_UNREADABLE = "ring unreadable"
    """The ring of the process is not in the image."""
    PAGES_OF_THE_HANDLE_TABLE_UNREADABLE = "{} pages of the handle table unreadable"
    """So many pages of the handle table are not in the image: handles may be missing."""
    OBJECT_HEADERS_UNREADABLE = "{} object headers unreadable"
    """So many headers of objects are not in the image: who created these objects is not known."""
    # Objects.
    OBJECT_UNREADABLE = "object unreadable"
    """The object, or its name, is not in the image."""
    OBJECT_TYPE_UNKNOWN = "object type unknown"
    """The type of the object cannot be told."""
    # Object traces.
    NO_SYMBOL = "no symbol"
    """The kernel's symbols lack what leads to the traces."""
    LATER_FORM = "later form (StackDb)"
    """Traces of a later Windows (StackDb), which are not read."""
    EARLIER_FORM = "earlier form"
    """Traces of an earlier Windows, which are not read."""
    CHAIN_LEADS_BACK = "chain leads back"
    """The hash chain leads back to itself, and was left there."""
    TOO_MANY_EVENTS = "too many events"
    """More events than an object can have; the rest is not read."""
    EVENTS_OVERLAP = "{} events overlap"
    """Their memory was already read as events of another object, and can be the events of one object only."""
    EVENTS_NOT_READ = "{} events not read"
    """So many events of the object are beyond the limit for the image."""
    EVENT_LIMIT = "event limit"
    """The image has more events than the limit, which were not read."""
    BUCKET = "bucket"
    """In another hash chain than its content says, or in none."""
    BUCKET_UNREADABLE = "bucket {} unreadable"
    """This bucket is not in the image: objects may be missing."""
    BUCKETS_UNREADABLE = "{} buckets unreadable"
    """So many buckets are not in the image: objects may be missing."""
    NO_LONGER_TRACED = "no longer traced"
    """The object's header does not say that it is traced: another object may be there now."""
    IN_NO_CHAIN = "in no chain"
    """The object's header says that it is traced, and no bucket of ObpObjectTable leads to its events."""
    NO_STACK_TABLE = "no stack table"
    """The table of stacks cannot be found."""
    NO_SUCH_TRACE = "no such trace"
    """The table of stacks has no trace of this number."""
    TRACE_UNREADABLE = "trace unreadable"
    """The trace is not in the image."""
    # Heaps.
    NOT_READ_YET = "not-read"
    """The blocks of a segment heap: counted by the records that they name. Which are freed is not known."""
    UNLISTED = "unlisted"
    """A heap that the PEB does not list."""
    BYTES_UNREAD = "{} bytes unread"
    """In so many bytes of a heap no header can be told: only what proves itself by its record is in a sum."""
    UST_WITHOUT_HPC = "+ust without +hpc"
    """XP and 2003 trace no heap block with +ust alone."""
    STACK_OF_THE_FREE = "stack of the free"
    """The stack is that of the free: it has overwritten the stack of the allocation."""
    STACK_OF_ALLOCATION_OR_FREE = "stack of allocation or free"
    """Of a freed block of page heap: nothing proves which of the two its trace is."""
    NO_DATABASE = "no database"
    """There is no stack trace database in which the trace could be."""
    TRACES_UNREADABLE = "{} traces unreadable"
    """So many more traces are in the index of the database; they are not in the image."""
    NO_SUCH_INDEX = "no such index"
    """The stack trace database has no trace of this number."""
    FLAGS_UNREADABLE = "flags unreadable"
    """NtGlobalFlag is not in the image. Of heaps: nothing else tells whether they remember, either."""
    UNTRACED = "untraced"
    """The blocks that name no trace: among them what the heap keeps for itself."""
    UNSIZED = "unsized"
    """Of some blocks the size is not known; it is not in Bytes."""
    GONE = "gone"
    """A stack of the baseline that no block in use has any more, as far as their traces can be read."""
    GROWTH_UNKNOWN = "growth unknown"
    """Of some blocks of the stack the size is not known."""
    # Traces of databases.
    UNINDEXED = "unindexed"
    """A live trace for which nobody asked for an index: it is in its hash chain only."""
    SATURATED = "saturated"
    """Captured 2,047 times or more: the count stops there (since 6.0)."""
    ORPHAN = "orphan"
    """In use, but neither the index array nor a chain leads to it."""
    INDEX = "index"
    """The index array disagrees: its slot of this number leads elsewhere, or to nothing."""
    DEPTH = "depth"
    """The number of frames is 0, more than Windows records, or more than the block holds."""
    # Databases.
    ONE_OF_DATABASES = "one of {} databases"
    """Pointers in the data of ntdll, which keeps one, lead to so many that prove themselves."""
    NO_POINTER = "no pointer"
    """No global variable that is in the image leads to the database."""
    NO_NTDLL = "no ntdll"
    """The process has no ntdll that can be read, and that would lead to the database."""
    DATABASE_POINTER_UNREADABLE = "database pointer unreadable"
    """The variable that points to the database is not in the image."""
    NTDLL_DATA_INCOMPLETE = "ntdll data incomplete"
    """Pages of ntdll's data are not in the image: the pointer may be there."""
    SEARCH_CUT_SHORT = "search cut short"
    """ntdll's data is full of what looks like databases and is none: not all was tried."""
    DATABASE_UNREADABLE = "database unreadable"
    """The database is there and cannot be read."""
    INDEX_AMBIGUOUS = "index ambiguous"
    """There are more traces than 16 bits can number: the index may stand for a trace 65,536 later."""
    HEADER = "header: {members}"
    """Said with the members that contradict the rest."""
    # Frames.
    OVERWRITTEN = "overwritten"
    """The free list has overwritten the frame."""
    # Locks.
    ADDRESS = "address"
    """An ERESOURCE holds an address in the place of the index: it stands in Address."""
    LIST_BROKEN = "list broken"
    """The row stands for an unknown number of locks: the list cannot be followed from either side."""
    LIST_DAMAGED = "list damaged"
    """One link of this lock is wrong, or (in a row without a lock) of the list's head. No lock is missing."""
    DEBUG_INFORMATION_UNREADABLE = "debug information unreadable"
    """The lock's debug information is not in the image."""
    SECTION_DOES_NOT_POINT_BACK = "section does not point back"
    """The critical section is gone, or another is in its place: only its debug information is left."""
    INDEX_MAY_BE_STALE = "index may be stale"
    """Deleting a section releases its trace: the index may have been given to another trace since."""
    LIST_HEAD_UNREADABLE = "list head unreadable"
    """The head of the list is not in the image."""
    LIST_NOT_FOUND = "list not found"
    """The list was not found, although locks of the process have debug information."""
    ON_ANOTHER_LIST = "on another list"
    """ntdll keeps one list of critical sections; that to which the PEB's locks belong is another one."""
    ON_ONE_OF_LISTS = "on one of {} lists"
    """ntdll keeps one list of critical sections, and nothing says which of these is it."""
    # Owners of locks.
    NO_THREAD = "no thread"
    """The owner is no thread: ExSetResourceOwnerPointer put something else there."""
    RESOURCES_OVERLAP = "{} resources overlap"
    """So many more are on the list whose memory is that of others; they are not shown."""
    OWNER_TABLE_UNREADABLE = "owner table unreadable"
    """The table of owners is not in the image, or a part of it."""
    OWNER_TABLE_TOO_BIG = "owner table too big"
    """The table of owners claims more entries than are read."""
    OWNER_TABLE_SHARED = "owner table shared"
    """The table of owners, or a part of it, is another resource's: its owners stand below that."""
    OWNER_LIMIT = "owner limit"
    """At most 65,536 entries of owners are read of an image."""
    OWNER_LIST_BROKEN = "owner list broken"
    """The list of owners does not close: owners are missing."""
    OWNERS_UNKNOWN = "owners unknown"
    """The kernel's symbols do not describe the owners of a fast resource."""
    OWNERS_MISSING = "{} owners missing"
    """ActiveEntries counts so many more owners than the lock's entries name."""
    # Owners of locks in a flat table.
    OWNED_BY = "owned by {members}"
    """These threads, by their IDs, own the lock at the same time; TID is the first one."""
    MORE_OWNERS = "{} more owners"
    """So many threads own the lock besides those that are named."""
    # Modules.
    PARTLY_UNLINKED = "partly unlinked"
    """The module is in one of the loader lists only."""
    NO_VAD = "no VAD"
    """The loader lists say that a module is there; no VAD is. Counts as unmapped memory."""
    VAD_WITHOUT_FILE = "VAD without file"
    """The loader lists say that a module is there; the VAD has no file. Counts as private memory."""
    VAD_OF_ANOTHER_FILE = "VAD of another file"
    """The loader lists and the VAD name different files."""
    NO_LOADER_LIST = "no loader list"
    """The loader list is absent, breaks off, or has an impossible entry: only the VADs know this module."""
    OVERLAPS_ANOTHER_MODULE = "overlaps another module"
    """Two listed modules share addresses."""
    NOT_IN_THE_MODULE_LIST = "not in the module list"
    """The kernel itself is not in its list of modules."""
    IN_NO_MODULE_LIST = "in no module list"
    """The kernel's list lacks the driver; the headers in memory below the address name it. It counts as
    unbacked."""
    HEADERS_CONTRADICT_THE_LIST = "headers contradict the module list"
    """Where the list has a driver lies no image of its size: the entry vouches for nothing there."""
    OVERLAPS_AN_UNLOADED_MODULE = "overlaps an unloaded module"
    """What is there now came after a module that has gone: an old trace may mean the latter."""
    MODULE_LIST_INCOMPLETE = "module list incomplete"
    """The kernel's list of modules breaks off: `<no-module>` is not certain."""
    VADS_INCOMPLETE = "VADs incomplete"
    """A part of the VAD tree is not in the image, the tree has fewer VADs than the kernel counts, or the
    process has a page in memory where no VAD is: `<unmapped>` is not certain."""
    FILE_NAME_UNREADABLE = "file name unreadable"
    """The name of the mapped file is not in the image."""
    KNOWN_FROM_ANOTHER_PROCESS = "known from another process"
    """Only the loader of another process that maps the same file tells which build it is."""
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
    """The process has an export table of its own, as a hook makes it, unlike the section's: it is used."""
    FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION = "function table differs from the image section"
    """The process has its own copy of the function table, with other bytes than the section."""
    UNWIND_DATA_DIFFERS_FROM_THE_SECTION = "unwind data differs from the image section"
    """The process has its own copy of unwind data, with other bytes than the section."""
    FUNCTION_TABLE_UNREADABLE = "function table unreadable"
    """The function table is not in the image: `nearest` stands where `export` or `module` might."""
    FUNCTION_TABLE_INCOMPLETE = "function table incomplete"
    """Pages of the function table are not in the image: `nearest` stands where `export` or `module` might."""
    # Files of modules.
    FROM_FILE = "from the file"
    """Pages that the image lacks were read from the module's file: the name, or the way on, rests on them."""
    DIFFERS_FROM_FILE = "differs from the file: {members}"
    """This of the module has other bytes in memory than in its file, relocations and imports apart."""
    # Flags.
    NO_PEB = "no PEB"
    """The process has no PEB: System and what Windows runs without user code."""
    # Dumps of a process.
    PEB_NOT_IN_THE_DUMP = "PEB not in the dump"
    """The dump has not the memory that leads to heaps, locks and databases: one with full memory has it."""
    EXCEPTION = "exception {members}"
    """The dump was made when the thread met this exception."""
    BEYOND_THE_FILE = "{} bytes beyond the end of the file"
    """The file is shorter than it says: so many bytes of this are missing."""
    MORE_THAN_THE_STREAM = "more than the stream holds: {members}"
    """A count is larger than what its stream has room for: what fits is read."""
    FEWER_THAN_THE_STREAM = "fewer than the stream holds: {members}"
    """A count is smaller than what its stream has room for: what it leaves out is not read."""
    STREAMS_MISSING = "streams missing: {members}"
    """Flags says that the writer was asked for these, and the directory does not have them."""
    TWICE = "given before"
    """Another of its kind comes before it, and counts."""
    RANGES_OVERLAP = "{} memory ranges overlap"
    """So many share addresses, or bytes of the file, with others, which were given first and count."""
    # Dumps that are written.
    NO_32_BIT_HALF = "no 32-bit half"
    """The process runs no 32-bit code: --format wow64 has nothing to write."""
    ZERO_FOR_UNKNOWN = "unknown and 0 in {}"
    """The image does not tell the member; in so many structures of the stream it is 0 or empty."""
    BYTES_ARE_ZERO = "{} unreadable bytes are 0"
    """So much memory could not be read while the dump was written, though the page tables have it."""
    # Small kernel dumps.
    NOT_IN_THE_DUMP = "not in the dump: {members}"
    """A small kernel dump does not tell these: the kernel's symbols, or a larger dump, would."""
    BUG_CHECK = "bug check {members}"
    """The thread was executing when Windows stopped with this code."""
    # Findings.
    NOT_CHECKED = "not checked"
    """The check of this name, or a part of it, could not run; Evidence says why."""
    # Pictures.
    STACKS_CUT = "stacks cut"
    """There are more different stacks than are drawn: boxes `…` have the weight of what was cut. Or, in
    windows.tracereport, there are more threads or heap traces than its lists have."""
    SUM_LIMIT = "sum limit"
    """The weights add up to more than 9007199254740991: the rest is left out."""
    NOT_WRITTEN = "not written"
    """The file cannot be written; the log says why."""


class Said(NamedTuple):
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
    if not any(parts):
        return NOTHING
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
    """Returns whether a status says one of several words."""
    return any(each.word is word for each in said for word in words)


def text(said: Status) -> str:
    """Returns a status as the column Status shows it."""
    return ", ".join(each.word.value.format(each.number, members=" ".join(each.members)) for each in said)
