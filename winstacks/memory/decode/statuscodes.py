# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The words of Status: what can be wrong or special with what a row shows.

A word is a text with at most one number `{}` and names of members `{members}`, and has what it means for the
rules that depend on words (`statusmeanings`). The docstring below each member is its explanation in the
documentation.
"""

from __future__ import annotations

from enum import Enum
from typing import FrozenSet

from .statusmeanings import Means


class StatusCode(Enum):
    """All words that a column Status can have. The `{}` of a text is replaced by the number of its
    `StatusItem` (N below)."""

    # Statuses are joined for each row: this hash is faster than Enum's, which hashes a text, in Python.
    __hash__ = object.__hash__

    means: Means
    _value_: str

    def __new__(cls, text: str, means: Means) -> StatusCode:
        """Makes a word of its text and its meanings: a word without them is an error."""
        word = object.__new__(cls)
        word._value_ = text
        word.means = means
        return word

    # Of anything.
    UNREADABLE = (
        "unreadable",
        Means.FRAMES_MISSING | Means.FRAMES_LOST | Means.ABSENT | Means.NO_THREAD | Means.NO_REGISTERS,
    )
    """The subject of the row, or a part of it, is not in the image."""
    PARTLY_UNREADABLE = "partly unreadable", Means.FRAMES_LOST | Means.ABSENT
    """A part of the structure is not in the image: the values of that part are absent."""
    NOT_CANONICAL = "not canonical", Means.PLAIN
    """An address that no processor accepts."""
    RUNNING = "running", Means.FRAMES_MISSING
    """The thread was running: its registers are not in memory. The values shown come from its last entry into
    the kernel. Callers in user mode are unsure: the thread may have called other functions since."""
    STALE = "stale", Means.PLAIN
    """Left over: below the stack in use; or a WoW64 context while the trap frame (SegCs 23h) is live; or the
    context of a processor whose stack pointer is on none of its stacks."""
    TERMINATED = "terminated", Means.NONE_LOST | Means.NO_REGISTERS
    """The thread has ended."""
    UNSURE = "unsure", Means.PLAIN
    """A guess, or a value found by way of a guess."""
    DAMAGED = "damaged", Means.DISAGREES
    """Headers contradict each other. For a heap: blocks are known by the records that they name."""
    OVERLAP = "overlap", Means.PLAIN
    """Memory that another structure of the image has already claimed; it is read once."""
    LIMIT = "limit", Means.PLAIN
    """The limit is exceeded; the rest is not read."""
    WORKER_ENDED = "worker ended", Means.FRAMES_MISSING | Means.FRAMES_LOST
    """With `--workers`: the process that read this address space ended before it had read all.
    Rows are missing."""
    FREED = "freed", Means.PLAIN
    """Released by Windows. The remaining data is shown."""
    HASH = "hash", Means.DISAGREES
    """The data named as a record is not one: the hash of its frames, its depth or its place is wrong."""
    CONTRADICTED = "contradicted: {members}", Means.DISAGREES
    """The rest of the image contradicts these members. The values shown do not rely on them where
    possible."""
    # Processes and their page tables.
    PAGE_TABLES_UNREADABLE = (
        "page tables unreadable",
        Means.FRAMES_LOST | Means.ABSENT | Means.NAME_INCOMPLETE | Means.LIST_INCOMPLETE,
    )
    """The page tables of the process are not in the image, or the process gave them back when it ended:
    none of its memory can be read."""
    PROCESS_UNREADABLE = "process unreadable", Means.ABSENT | Means.NAMELESS_PROCESS
    """The _EPROCESS, or a part of it, is not in the image. PspCidTable may still have the ID of the
    process."""
    WOW64_PROCESS_STRUCTURE_UNREADABLE = "WoW64 process structure unreadable", Means.ABSENT
    """The structure that leads to the 32-bit half of the process is not in the image."""
    PROCESS_LIST_DAMAGED = "process list damaged", Means.ABSENT | Means.NO_THREAD
    """A process may be missing. The word is in the rows of the kernel, which owns the list."""
    NOT_IN_THE_PROCESS_LIST = "not in the process list", Means.PLAIN
    """The list lacks the process; another structure (`found by ...`) leads to it."""
    FOUND_BY = "found by {members}", Means.PLAIN
    """The structure that leads to the process or thread although the list lacks it: PspCidTable,
    KiProcessorBlock (a processor was executing it), HandleTableListHead (it has a handle table), or the pool
    scan."""
    ID_IN_CID_TABLE = "ID {} in PspCidTable", Means.DISAGREES
    """Windows finds the process or thread by this ID; its own structure has another."""
    PAGE_TABLES_OF_PROCESS = "page tables of process {}", Means.PLAIN
    """DirectoryTableBase belongs to process N: the memory read there is not the memory of this process."""
    # The image as a whole.
    FILE_PARTS_UNREADABLE = "{} parts of files unreadable", Means.PLAIN
    """N parts of the files whose hash is ImageId cannot be read."""
    FILE_CUT = "{} % of the file missing", Means.PLAIN
    """The file is shorter than its container, or the kernel, says: N % are missing at its end."""
    FILE_NOT_HASHED = "{} files not hashed", Means.PLAIN
    """N files have no SHA-256: they are not on this machine, or cannot be read."""
    SHARED_DATA_UNREADABLE = "KUSER_SHARED_DATA unreadable", Means.ABSENT
    """The kernel's clock is not in the image."""
    COMPUTER_NAMES = "{} computer names", Means.PLAIN
    """The system processes disagree about the name of the computer: the most frequent name is shown."""
    # Threads.
    THREAD_LIST_DAMAGED = "thread list damaged", Means.ABSENT | Means.NO_THREAD
    """Threads may be missing, or one link of the list's head is wrong."""
    THREAD_LINKS_DISAGREE = "thread links disagree", Means.PLAIN
    """One link of the list is wrong; no thread is missing. Changes during the acquisition may cause this."""
    THREAD_COUNT = "{} active threads", Means.NO_THREAD
    """ActiveThreads of the process is N; the list has fewer threads, or more."""
    RUNNING_ON_NO_PROCESSOR = "running on no processor", Means.PLAIN
    """KTHREAD.State says that the thread was running, but every processor was executing another thread."""
    NOT_A_THREAD = "not a thread", Means.FRAMES_LOST | Means.NO_THREAD
    """The list of threads leads to data that is not a thread."""
    NOT_IN_THE_THREAD_LIST = "not in the thread list", Means.PLAIN
    """The list lacks the thread; another structure (`found by ...`) leads to it, or a pool scan if none is
    named."""
    # Trap frames and contexts.
    NOT_A_TRAP_FRAME = "not a trap frame", Means.FRAMES_LOST
    """The bytes at the address are not a trap frame."""
    OUTSIDE_THE_STACK = "outside the stack", Means.FRAMES_LOST
    """The address is outside the thread's stack."""
    STACK_LIMITS_UNUSABLE = "stack limits unusable", Means.FRAMES_LOST
    """The limits of the kernel stack contradict each other."""
    NOT_A_CONTEXT = "not a context", Means.FRAMES_LOST
    """The bytes at the address are not a CONTEXT."""
    CONTEXT_MAY_BE_OLDER = "context may be older", Means.PLAIN
    """Only a crash dump proves that its processor was stopped: kernel debuggers leave contexts in memory."""
    # Call stacks.
    IN_USER_MODE = "in user mode", Means.NO_STACK_HERE
    """The thread of a stopped processor was in user mode: it has no kernel part."""
    IN_32_BIT_CODE = "in 32-bit code", Means.NO_STACK_HERE
    """The thread of a stopped processor was in 32-bit code: its 64-bit registers are not in memory."""
    EXPANDED = "expanded", Means.PLAIN
    """The kernel moved the thread to this stack because its stack was too small; no callback lies between."""
    NO_SWITCH_FRAME = "no switch frame", Means.FRAMES_MISSING | Means.FRAMES_LOST | Means.ABSENT
    """The thread does not run, and no switch frame lies where its kernel stack ends."""
    NO_SAVED_REGISTERS = "no saved registers", Means.FRAMES_MISSING | Means.FRAMES_LOST
    """The image has no saved registers from which this part could be walked."""
    STACK_LIMITS_UNKNOWN = "stack limits unknown", Means.PLAIN
    """The stack pointer is outside the limits in the TEB: the thread may use the stack of a fiber, for
    example."""
    CODE_UNREADABLE = (
        "code unreadable",
        Means.FRAMES_MISSING | Means.FRAMES_LOST | Means.CODE_UNSURE | Means.SCANNED | Means.ABSENT,
    )
    """Code is not in the image: the walk may have missed an epilogue, or have a wrong caller for a leaf."""
    CODE_IN_NO_MODULE = "code in no module", Means.FRAMES_MISSING
    """Code in no module has no unwind data: the walk had to guess."""
    CODE_AND_UNWIND_DATA_DIFFER = "code and unwind data differ", Means.FRAMES_MISSING | Means.CODE_UNSURE
    """The walk followed the code; the caller is unsure if the process has changed the code, or if the
    function is known to be other code than its unwind data describes."""
    NOT_BEHIND_A_CALL = "not behind a call", Means.FRAMES_MISSING
    """The value is not a return address. It is unsure, and so are all frames after it, unless unmodified code
    of Windows returns there."""
    FUNCTION_BEGINS_THERE = "function begins there", Means.PLAIN
    """No call is before the address, and a function begins exactly there. The frame has that function's name
    and unwind data, not the name and unwind data of the function before."""
    RETURNS_NOWHERE = "returns nowhere", Means.PLAIN
    """Unwind data led to an address in no memory, or in the other half: the walk had to guess."""
    NO_FUNCTION_TABLE = "no function table", Means.FRAMES_MISSING | Means.SCANNED
    """The module has no function table, or none of it is in the image: the walk had to guess. Status of the
    frame says which."""
    NO_UNWIND_DATA = "no unwind data", Means.FRAMES_MISSING
    """The function has no unwind data and is not a leaf: the walk had to guess."""
    UNWIND_DATA_UNREADABLE = (
        "unwind data unreadable",
        Means.FRAMES_MISSING | Means.FRAMES_LOST | Means.SCANNED | Means.ABSENT,
    )
    """The unwind data is not in the image: the walk had to guess."""
    UNWIND_DATA_INVALID = "unwind data invalid", Means.FRAMES_MISSING
    """The unwind data contradicts itself: the walk had to guess."""
    VECTOR_LENGTH_UNKNOWN = "vector length unknown", Means.PLAIN
    """ARM64: the function keeps scalable vectors, whose size no dump has: the walk had to guess."""
    OTHER_ARCHITECTURE = "other architecture", Means.PLAIN
    """Code of ARM64EC, or x64 code on ARM64, follows: the walk ended there, without a guess."""
    UNWIND_DATA_INCOMPLETE = "unwind data incomplete", Means.PLAIN
    """A function's unwind data has a handler and no codes for its frame, or the code has no frame where the
    data describes one (builtins of V8): the walk had to guess."""
    FRAME_REGISTER_UNKNOWN = "frame register unknown", Means.FRAMES_MISSING | Means.SCANNED
    """The value of the function's frame register is unknown at this point: the walk had to guess."""
    FRAME_POINTER_UNKNOWN = "frame pointer unknown", Means.FRAMES_MISSING
    """x86: the value of Ebp is unknown at this point: the walk had to guess."""
    FRAME_POINTER_IMPLAUSIBLE = "frame pointer implausible", Means.FRAMES_MISSING
    """x86: Ebp does not lead to a frame: the walk had to guess."""
    FRAME_POINTER_UNSURE = "frame pointer unsure", Means.FRAMES_MISSING
    """x86: only the next frame is doubtful; a caller may be missing before it."""
    DISPATCHER = "dispatcher", Means.FRAMES_MISSING
    """x86: the kernel interrupted code to call KiUserExceptionDispatcher, KiUserApcDispatcher or
    KiUserCallbackDispatcher, and that code is not proven: callers may be missing before the next frame."""
    STACK_UNREADABLE = "stack unreadable", Means.FRAMES_MISSING | Means.FRAMES_LOST | Means.ABSENT
    """The stack is not in the image from here on."""
    CYCLE = "cycle", Means.FRAMES_MISSING | Means.FRAMES_LOST
    """The walk returned to an earlier place, and ended there."""
    TOO_MANY_FRAMES = "too many frames", Means.FRAMES_MISSING
    """The stack has more than 65,536 frames, or all stacks too many; the rest is not walked."""
    FRAMES_NOT_SHOWN = "{} frames not shown", Means.PLAIN
    """Of a stack with over 1,024 frames the innermost 960 and the outermost 64 are shown."""
    STACK_SWITCHED = "stack switched", Means.PLAIN
    """Unwind data led to another stack of the program: it has its own for fibers or goroutines."""
    CANDIDATES = "{} candidates", Means.PLAIN
    """N further values on the scanned parts of the stack may be return addresses (--candidates)."""
    CANDIDATE = "candidate", Means.PLAIN
    """No frame: a value on the stack that may be a return address."""
    CODE_ABSENT = "code absent", Means.PLAIN
    """The code at the address is not in the image: whether a call is before it is unknown."""
    HASH_UNSURE = "hash unsure", Means.PLAIN
    """A guess is among the frames that Depth and BackTraceHash cover, or among the skipped frames."""
    EMULATED = "emulated on ARM64", Means.PLAIN
    """The dump is of an x64 process on ARM64: its ntdll has code of ARM64EC. Only its x64 code is walked."""
    # Handles.
    NO_LONGER_OPEN = "no longer open", Means.PLAIN
    """The ring has the open and no close, and the handle table lacks the handle: it was closed untraced."""
    HANDLE_TABLE_SHARED = "handle table shared", Means.PLAIN
    """Other processes that claim this table have its events; the table does not name this process."""
    HANDLE_TABLE_UNREADABLE = "handle table unreadable", Means.ABSENT
    """The handles that the process has now are unknown."""
    EVENTS_LOST = "events lost", Means.PLAIN
    """Later events of the ring cannot be read; the close of the handle may be among them."""
    EVENTS_UNREADABLE = "{} events unreadable", Means.COUNTS_STACKS | Means.ABSENT
    """N events of the ring or of the object are not in the image."""
    UNKNOWN_TYPE = "unknown type {}", Means.PLAIN
    """An event of a type that Windows does not have."""
    BEYOND_THE_RINGS_COUNTER = "beyond the ring's counter", Means.DISAGREES
    """According to the ring's counter this place was never written."""
    CLIENT_ID_ABOVE_32_BITS = "ClientId above 32 bits", Means.PLAIN
    """Process and thread IDs have 32 bits: a longer value is not an ID, and is not shown."""
    TABLE_SIZE = "table size", Means.PLAIN
    """Windows makes no ring of this size; at most 131,072 events are read."""
    RING_UNREADABLE = "ring unreadable", Means.ABSENT
    """The ring of the process is not in the image."""
    PAGES_OF_THE_HANDLE_TABLE_UNREADABLE = "{} pages of the handle table unreadable", Means.ABSENT
    """N pages of the handle table are not in the image: handles may be missing."""
    OBJECT_HEADERS_UNREADABLE = "{} object headers unreadable", Means.COUNTS_STACKS | Means.ABSENT
    """N object headers are not in the image: the creators of these objects are unknown."""
    # Objects.
    OBJECT_UNREADABLE = "object unreadable", Means.ABSENT
    """The object, or its name, is not in the image."""
    OBJECT_TYPE_UNKNOWN = "object type unknown", Means.PLAIN
    """The type of the object cannot be determined."""
    # Object traces.
    NO_SYMBOL = "no symbol", Means.PLAIN
    """The kernel's symbols lack the symbol that leads to the traces."""
    LATER_FORM = "later form (StackDb)", Means.PLAIN
    """Traces of a later Windows (StackDb), which this version does not read."""
    EARLIER_FORM = "earlier form", Means.PLAIN
    """Traces of an earlier Windows, which this version does not read."""
    CHAIN_LEADS_BACK = "chain leads back", Means.PLAIN
    """The hash chain leads back to itself; the walk ended there."""
    TOO_MANY_EVENTS = "too many events", Means.PLAIN
    """The chain has more events than an object can have; the rest is not read."""
    EVENTS_OVERLAP = "{} events overlap", Means.PLAIN
    """Their memory was already read as events of another object, and can belong to one object only."""
    EVENTS_NOT_READ = "{} events not read", Means.PLAIN
    """N events of the object are beyond the limit for the image."""
    EVENT_LIMIT = "event limit", Means.PLAIN
    """The image has more events than the limit; the further ones were not read."""
    BUCKET = "bucket", Means.PLAIN
    """The entry is in another hash chain than its content requires, or in none."""
    BUCKET_UNREADABLE = "bucket {} unreadable", Means.ABSENT
    """This bucket is not in the image: objects may be missing."""
    BUCKETS_UNREADABLE = "{} buckets unreadable", Means.ABSENT
    """N buckets are not in the image: objects may be missing."""
    NO_LONGER_TRACED = "no longer traced", Means.PLAIN
    """The object's header does not mark it as traced: another object may be there now."""
    IN_NO_CHAIN = "in no chain", Means.PLAIN
    """The object's header marks it as traced, but no bucket of ObpObjectTable leads to its events."""
    NO_STACK_TABLE = "no stack table", Means.ABSENT
    """The table of stacks cannot be found."""
    NO_SUCH_TRACE = "no such trace", Means.PLAIN
    """The table of stacks has no trace of this number."""
    TRACE_UNREADABLE = "trace unreadable", Means.ABSENT
    """The trace is not in the image."""
    # Callbacks.
    CALLBACKS_UNREADABLE = "{} callbacks unreadable", Means.COUNTS_STACKS | Means.ABSENT
    """N nodes of a list of callbacks lead to no function: a pointer or its target is absent, or is none."""

    # Heaps.
    NOT_READ_YET = "not-read", Means.NONE_LOST
    """The blocks of a segment heap, counted by the records that they name. Freed blocks cannot be
    recognised."""
    UNLISTED = "unlisted", Means.PLAIN
    """A heap that the PEB does not list."""
    BYTES_UNREAD = "{} bytes unread", Means.PLAIN
    """In N bytes of a heap no header can be recognised: the sums have only the blocks there that
    their records prove."""
    UST_WITHOUT_HPC = "+ust without +hpc", Means.PLAIN
    """XP and 2003 do not trace heap blocks with +ust alone."""
    STACK_OF_THE_FREE = "stack of the free", Means.PLAIN
    """The stack is the one of the free: it has overwritten the stack of the allocation."""
    STACK_OF_ALLOCATION_OR_FREE = "stack of allocation or free", Means.PLAIN
    """A freed block of page heap: which of the two its trace shows is unknown."""
    HOLDS_THE_ADDRESS = "holds the address at {}", Means.PLAIN
    """The block of --address: the address is N bytes behind the first byte that the caller got."""
    ENDS_BELOW_THE_ADDRESS = "ends {} bytes below the address", Means.PLAIN
    """The next block below --address: N bytes lie between the caller's last byte and the address, or 0."""
    BEGINS_BELOW_THE_ADDRESS = "begins {} bytes below the address", Means.PLAIN
    """The next block below --address, whose size is unknown: it may hold the address."""
    BEGINS_ABOVE_THE_ADDRESS = "begins {} bytes above the address", Means.PLAIN
    """The next block above --address."""
    NO_DATABASE = "no database", Means.FRAMES_LOST
    """There is no stack trace database that could hold the trace."""
    TRACES_UNREADABLE = "{} traces unreadable", Means.COUNTS_STACKS | Means.ABSENT
    """The index of the database has N further traces; they are not in the image."""
    NO_SUCH_INDEX = "no such index", Means.FRAMES_LOST
    """The stack trace database has no trace of this number."""
    FLAGS_UNREADABLE = "flags unreadable", Means.ABSENT
    """NtGlobalFlag is not in the image. For heaps: whether they record stacks is unknown, too."""
    UNTRACED = "untraced", Means.NO_STACK_HERE
    """The blocks that name no trace, among them blocks that the heap uses itself."""
    UNSIZED = "unsized", Means.PLAIN
    """The size of some blocks is unknown; Bytes does not include it."""
    GONE = "gone", Means.PLAIN
    """A stack of the baseline that no block in use has any more, as far as traces can be read."""
    GROWTH_UNKNOWN = "growth unknown", Means.PLAIN
    """The size of some blocks of the stack is unknown."""
    # Traces of databases.
    UNINDEXED = "unindexed", Means.PLAIN
    """A live trace whose index was never requested: it is only in its hash chain."""
    SATURATED = "saturated", Means.PLAIN
    """Captured 2,047 times or more: the count stops at this number (since 6.0)."""
    ORPHAN = "orphan", Means.PLAIN
    """In use, but neither the index array nor a chain leads to it."""
    INDEX = "index", Means.PLAIN
    """The index array disagrees: its slot of this number leads elsewhere, or is empty."""
    DEPTH = "depth", Means.FRAMES_MISSING | Means.FRAMES_LOST
    """The number of frames is 0, more than Windows records, or more than the block holds."""
    # Databases.
    ONE_OF_DATABASES = "one of {} databases", Means.DISAGREES | Means.DATABASE_DOUBTFUL
    """Pointers in the data of ntdll lead to N valid databases; ntdll uses only one."""
    NO_POINTER = "no pointer", Means.NONE_LOST | Means.DATABASE_DOUBTFUL
    """No global variable in the image points to the database."""
    NO_NTDLL = "no ntdll", Means.ABSENT
    """The process has no readable ntdll that would lead to the database."""
    DATABASE_POINTER_UNREADABLE = "database pointer unreadable", Means.ABSENT
    """The variable that points to the database is not in the image."""
    NTDLL_DATA_INCOMPLETE = "ntdll data incomplete", Means.ABSENT
    """Pages of ntdll's data are not in the image: the pointer may be there."""
    SEARCH_CUT_SHORT = "search cut short", Means.PLAIN
    """ntdll's data has too many structures that resemble a database but are not one: not all were tried."""
    DATABASE_UNREADABLE = "database unreadable", Means.ABSENT
    """The database exists but cannot be read."""
    INDEX_AMBIGUOUS = "index ambiguous", Means.PLAIN
    """There are more traces than 16 bits can number: the index may mean a trace 65,536 places later."""
    HEADER = "header: {members}", Means.PLAIN
    """These members of the header contradict the rest."""
    # Frames.
    OVERWRITTEN = "overwritten", Means.PLAIN
    """The free list has overwritten the frame."""
    # Locks.
    ADDRESS = "address", Means.FRAMES_MISSING
    """An ERESOURCE has an address instead of the index: the column Address shows it."""
    LIST_BROKEN = "list broken", Means.ABSENT
    """The row stands for an unknown number of locks or callbacks: the list cannot be followed from either
    end."""
    LIST_DAMAGED = "list damaged", Means.PLAIN
    """One link of this lock or, in a row without a lock, of a list is wrong. No lock or callback is
    missing."""
    DEBUG_INFORMATION_UNREADABLE = "debug information unreadable", Means.ABSENT
    """The lock's debug information is not in the image."""
    SECTION_DOES_NOT_POINT_BACK = "section does not point back", Means.PLAIN
    """The critical section is gone, or another is in its place: only its debug information remains."""
    INDEX_MAY_BE_STALE = "index may be stale", Means.PLAIN
    """Deleting a section releases its trace: the index may belong to another trace since then."""
    LIST_HEAD_UNREADABLE = "list head unreadable", Means.ABSENT
    """The head of the list is not in the image."""
    LIST_NOT_FOUND = "list not found", Means.ABSENT
    """The list was not found, although locks of the process have debug information."""
    ON_ANOTHER_LIST = "on another list", Means.PLAIN
    """ntdll keeps one list of critical sections; the locks of the PEB belong to another list."""
    ON_ONE_OF_LISTS = "on one of {} lists", Means.PLAIN
    """ntdll keeps one list of critical sections; it is unknown which of these N is that list."""
    # Owners of locks.
    NO_THREAD = "no thread", Means.PLAIN
    """The owner is not a thread: ExSetResourceOwnerPointer stored another value there."""
    OWNER_UNREADABLE = "owner unreadable", Means.ABSENT
    """The owner's _ETHREAD is not in the image. OwnerTID is the ID in PspCidTable, if it is there."""
    RESOURCES_OVERLAP = "{} resources overlap", Means.PLAIN
    """N further resources are on the list; their memory overlaps others, and they are not
    shown."""
    OWNER_TABLE_UNREADABLE = "owner table unreadable", Means.PLAIN
    """The table of owners, or a part of it, is not in the image."""
    OWNER_TABLE_TOO_BIG = "owner table too big", Means.PLAIN
    """The table of owners claims more entries than are read."""
    OWNER_TABLE_SHARED = "owner table shared", Means.PLAIN
    """The table of owners, or a part of it, belongs to another resource: its owners are listed there."""
    OWNER_LIMIT = "owner limit", Means.PLAIN
    """At most 65,536 owner entries of an image are read."""
    OWNER_LIST_BROKEN = "owner list broken", Means.PLAIN
    """The list of owners does not close: owners are missing."""
    OWNERS_UNKNOWN = "owners unknown", Means.PLAIN
    """The kernel's symbols do not describe the owners of a fast resource."""
    OWNERS_MISSING = "{} owners missing", Means.PLAIN
    """ActiveEntries counts N more owners than the lock's entries name."""
    # Owners of locks in a flat table.
    OWNED_BY = "owned by {members}", Means.PLAIN
    """These threads, by their IDs, own the lock at the same time; TID is the first of them."""
    MORE_OWNERS = "{} more owners", Means.PLAIN
    """N threads own the lock besides those that are named."""
    # Modules.
    PARTLY_UNLINKED = "partly unlinked", Means.PLAIN
    """Only one of the loader lists has the module."""
    NO_VAD = "no VAD", Means.NOT_ITS_FILE
    """The loader lists have a module there, but no VAD is there. Counts as unmapped memory."""
    VAD_WITHOUT_FILE = "VAD without file", Means.NOT_ITS_FILE
    """The loader lists have a module there, but the VAD has no file. Counts as private memory."""
    IMAGE_WITHOUT_NAME = "image without file name", Means.NOT_ITS_FILE
    """The VAD maps an image whose file has no name. Counts as an image."""
    VAD_OF_ANOTHER_FILE = "VAD of another file", Means.NOT_ITS_FILE
    """The loader lists and the VAD name different files."""
    NO_LOADER_LIST = "no loader list", Means.LOWERS_CONFIDENCE
    """The loader list is absent, breaks off, or has an impossible entry: only the VADs show this module."""
    OVERLAPS_ANOTHER_MODULE = "overlaps another module", Means.PLAIN
    """Two listed modules share addresses."""
    NOT_IN_THE_MODULE_LIST = "not in the module list", Means.PLAIN
    """The kernel itself is missing from its list of modules."""
    IN_NO_MODULE_LIST = "in no module list", Means.LIST_INCOMPLETE
    """The kernel's list lacks the driver; its name comes from the headers in memory below the address. It
    counts as unbacked."""
    HEADERS_CONTRADICT_THE_LIST = "headers contradict the module list", Means.LIST_INCOMPLETE
    """No image of the listed size is at the driver's address: the entry proves nothing about that memory."""
    OVERLAPS_AN_UNLOADED_MODULE = "overlaps an unloaded module", Means.PLAIN
    """The current content came after a module that was unloaded: an old trace may mean the unloaded
    module."""
    MODULE_LIST_INCOMPLETE = (
        "module list incomplete",
        Means.ABSENT | Means.NAME_INCOMPLETE | Means.LIST_INCOMPLETE | Means.LOWERS_CONFIDENCE,
    )
    """The list of modules of the kernel or of a dump breaks off, or a part of MmUnloadedDrivers is not in the
    image: `<no-module>` is not certain, and neither is `<private>` in a dump. `<unknown>`: the list gives a
    module below the address no size."""
    MODULE_LIST_NOT_IN_THE_FILE = (
        "module list not in the file",
        Means.FRAMES_MISSING | Means.NAME_INCOMPLETE | Means.LIST_INCOMPLETE | Means.LOWERS_CONFIDENCE,
    )
    """A dump that was written without a list of modules, or its header only, or cut before the list, or a
    small kernel dump and code of a process: which module has the address is unknown. A walk guessed there."""
    VADS_INCOMPLETE = (
        "VADs incomplete",
        Means.ABSENT | Means.NAME_INCOMPLETE | Means.LIST_INCOMPLETE | Means.LOWERS_CONFIDENCE,
    )
    """A part of the VAD tree is not in the image, the tree has fewer VADs than the kernel counts, or the
    process has a page in memory without a VAD: `<unmapped>` is not certain. `<no-module>`: a dump does not
    list the memory there, and none of its modules has the address."""
    PROTECTION_UNKNOWN = (
        "protection unknown",
        Means.NAME_INCOMPLETE | Means.LIST_INCOMPLETE | Means.LOWERS_CONFIDENCE,
    )
    """Memory that no list of a dump describes: it counts as private, but a file may be mapped there."""
    FILE_NAME_UNREADABLE = (
        "file name unreadable",
        Means.ABSENT | Means.NAME_INCOMPLETE | Means.LIST_INCOMPLETE | Means.LOWERS_CONFIDENCE,
    )
    """The name of the mapped file is not in the image."""
    KNOWN_FROM_ANOTHER_PROCESS = "known from another process", Means.PLAIN
    """The build comes only from the loader of another process that maps the same file."""
    # Images of modules.
    EXPORTS_UNREADABLE = (
        "exports unreadable",
        Means.NAME_INCOMPLETE | Means.EXPORTS_LOST | Means.FILE_WOULD_HELP,
    )
    """The export table is not in the image."""
    EXPORTS_INCOMPLETE = (
        "exports incomplete",
        Means.NAME_INCOMPLETE | Means.EXPORTS_LOST | Means.FILE_WOULD_HELP,
    )
    """Pages of the export table are not in the image."""
    HEADERS_UNREADABLE = (
        "headers unreadable",
        Means.NAME_INCOMPLETE | Means.EXPORTS_LOST | Means.FILE_WOULD_HELP,
    )
    """The module's headers are not in the image, or their page is all zeros: only `module+0x...` is left."""
    HEADERS_INVALID = "headers invalid", Means.PLAIN
    """The module's headers contradict themselves: only `module+0x...` is left."""
    EXPORTS_DIFFER_FROM_THE_SECTION = "exports differ from the image section", Means.PLAIN
    """The process has its own export table, unlike the section's, as after a hook: this table is used."""
    FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION = "function table differs from the image section", Means.PLAIN
    """The process has its own copy of the function table, with other bytes than the section."""
    UNWIND_DATA_DIFFERS_FROM_THE_SECTION = "unwind data differs from the image section", Means.PLAIN
    """The process has its own copy of unwind data, with other bytes than the section."""
    FUNCTION_TABLE_UNREADABLE = (
        "function table unreadable",
        Means.FRAMES_MISSING | Means.FRAMES_LOST | Means.SCANNED | Means.ABSENT | Means.FILE_WOULD_HELP,
    )
    """The function table, or the part that a walk needed, is not in the image: the walk had to guess, and
    `nearest` replaces a possible `export` or `module`."""
    FUNCTION_TABLE_INCOMPLETE = "function table incomplete", Means.FILE_WOULD_HELP
    """Pages of the function table are not in the image: `nearest` replaces a possible `export` or
    `module`."""
    # Files of modules.
    FROM_FILE = "from the file", Means.PLAIN
    """Pages that the image lacks were read from the module's file: the name or the next frames depend on
    them."""
    DIFFERS_FROM_FILE = "differs from the file: {members}", Means.PLAIN
    """These parts of the module have other bytes in memory than in its file, not counting relocations and
    imports."""
    # Flags.
    NO_PEB = "no PEB", Means.PLAIN
    """The process has no PEB: System, and processes that Windows runs without user code."""
    # Dumps of a process.
    PEB_NOT_IN_THE_DUMP = "PEB not in the dump", Means.PLAIN
    """The dump lacks the memory that leads to heaps, locks and databases: a dump with full memory has it."""
    NO_SYSTEM_INFO = "no SystemInfoStream (CPU by {members})", Means.PLAIN
    """The dump does not say which CPU it is of: the named member shows it. The Windows version is unknown."""
    NO_THREAD_LIST = "no thread list", Means.ABSENT | Means.NO_THREAD
    """The dump has no ThreadListStream: the threads of the process are unknown."""
    EXCEPTION = "exception {members}", Means.PLAIN
    """The dump was made when the thread raised this exception."""
    AFTER_THE_EXCEPTION = "after the exception", Means.PLAIN
    """The registers are later than the exception: its handler ran, or the code that wrote the dump. The stack
    of the exception comes before this one."""
    BEYOND_THE_FILE = "{} bytes beyond the end of the file", Means.PLAIN
    """The file is shorter than its headers say: N bytes are missing."""
    MORE_THAN_THE_STREAM = "more than the stream holds: {members}", Means.PLAIN
    """A count is larger than its stream has room for: the entries that fit are read."""
    FEWER_THAN_THE_STREAM = "fewer than the stream holds: {members}", Means.PLAIN
    """A count is smaller than its stream has room for: the further entries are not read."""
    STREAMS_MISSING = "streams missing: {members}", Means.PLAIN
    """Flags requires these streams, but the directory lacks them."""
    TWICE = "given before", Means.PLAIN
    """Another item of the same kind comes before it, and is used."""
    RANGES_OVERLAP = "{} memory ranges overlap", Means.PLAIN
    """N ranges share addresses, or bytes of the file, with earlier ranges, which are used; memory
    listed twice alike does not count."""
    # Dumps that are written.
    NO_32_BIT_HALF = "no 32-bit half", Means.PLAIN
    """The process runs no 32-bit code as far as the image shows: --format wow64 has nothing to write, and
    32-bit registers in the input belong to no known code."""
    ZERO_FOR_UNKNOWN = "0 stands for unknown in {} of its structures", Means.PLAIN
    """The image lacks the member; in N structures of the stream it is 0 or empty."""
    BYTES_ARE_ZERO = "{} unreadable bytes are 0", Means.PLAIN
    """N bytes could not be read when the dump was written, although the page tables map them."""
    # Small kernel dumps.
    HEADER_ONLY = "header only", Means.PLAIN
    """The file ends before TRIAGE_DUMP: it has the bug check, build, times and perhaps the registers, but no
    stack, no drivers and no memory."""
    NOT_IN_THE_DUMP = "not in the dump: {members}", Means.NAMELESS_PROCESS
    """The file was searched for these and lacks them: a larger dump would have them."""
    OFFSET_UNKNOWN = "offset unknown for this build: {members}", Means.NAMELESS_PROCESS
    """The file has the structure, but no known layout fits it: the kernel's symbols would give these."""
    ATTACHED = "thread of process {}", Means.PLAIN
    """The thread belongs to process N, and was attached to the process of the row."""
    BUG_CHECK = "bug check {members}", Means.PLAIN
    """The thread was executing when Windows stopped with this code."""
    # Findings.
    NOT_CHECKED = "not checked", Means.PLAIN
    """The check of this name, or a part of it, could not run; the column Evidence has the reason."""
    # Pictures.
    STACKS_CUT = "stacks cut", Means.PLAIN
    """There are more distinct stacks than are drawn: boxes `…` have the weight of the stacks left out. In
    windows.tracereport: there are more threads or heap traces than its lists show."""
    SUM_LIMIT = "sum limit", Means.PLAIN
    """The weights add up to more than 9007199254740991: the rest is left out."""
    NOT_WRITTEN = "not written", Means.PLAIN
    """The file cannot be written; the log has the reason."""


_WORDS = [(word, word.means.value) for word in StatusCode]
"""Each word, and its meanings as bits: Python's Flag is slow."""


def words_that(means: Means) -> FrozenSet[StatusCode]:
    """Returns the words that have a meaning."""
    wanted = means.value
    return frozenset([word for word, bits in _WORDS if bits & wanted])
