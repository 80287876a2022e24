# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The dictionary of columns: a name has one meaning in all tables.

    column = COLUMNS["How"]
    column.name, column.type, column.meaning, column.nullable, column.values

The grids of the plugins, the JSON schemas, the Arrow schemas and the tables of the documentation are made
from this dictionary. Names follow Microsoft's where Microsoft has one.

The type of a column is a word. It stands for these types of Volatility, of Parquet (Volatility's renderer)
and of JSON:

    str       str       string              string
    int       int       int64               number
    bool      bool      bool                true or false
    hex       Hex       uint64              number: an identifier, bits or bytes
    address   Hex       uint64              number: an address in the form of Volatility's columns
    register  Hex       uint64              number: the value of a register, bit for bit as it was saved
    hexstr    str       string              string: `0x` and lower-case hexadecimal digits
    time      datetime  timestamp[ms], UTC  string: ISO 8601, UTC

A column keeps its type in an empty table.
"""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple, Tuple

from . import words
from .registers import ARM64_REGISTERS, REGISTERS
from .words import Words

STR, INT, BOOL, HEX, ADDRESS = "str", "int", "bool", "hex", "address"
REGISTER, HEXSTR, TIME = "register", "hexstr", "time"

SCHEMA = 4
"""The version of the flat tables.

It rises when a column goes, or when its meaning, type or nullability changes.
"""

STACK_SEPARATOR = "; "
"""Separator of the frames in a column Stack."""
WARNING_SEPARATOR = " | "
"""Separator of the warnings in WarningText."""


class Column(NamedTuple):
    """A column.

    Attributes:
        name: name of the column; in the flat tables not a reserved word of SQL
        nullable: whether a row of a flat table may lack a value. In any other grid a cell may be absent
        values: the only words that the column may hold, each with its meaning; empty if any value is possible
    """

    name: str
    type: str
    meaning: str
    nullable: bool = True
    values: Words = {}


def names(text: str) -> Tuple[str, ...]:
    """Returns the names in a list that separates them by `, `."""
    return tuple(text.split(", "))


def _registers(first: int, end: int, meaning: str) -> Tuple[Column, ...]:
    return tuple(Column(name, REGISTER, meaning.format(name)) for name in REGISTERS[first:end])


def _plain(explained: Iterable[str]) -> Words:
    """Returns words that explain themselves."""
    return dict.fromkeys(explained, "")


_ALL = (
    # An image.
    Column("ImageId", STR, "The image: the same for the same files, and it starts with a letter.", False),
    Column("Schema", INT, f"Version of the schema: {SCHEMA}.", False),
    Column(
        "Files",
        STR,
        "The files that the image consists of: a JSON array of objects with `path`, `size` and `sha256` "
        "(null without --sha256).",
        False,
    ),
    Column("VolatilityVersion", STR, "Version of Volatility.", False),
    Column("PluginVersion", STR, "Version of this set of plugins.", False),
    Column("KernelBuild", INT, "Build of the kernel: the low 16 bits of NtBuildNumber."),
    Column("BuildLab", STR, "NtBuildLab: the complete build; an enablement package does not change it."),
    Column("Product", STR, "Type of the product.", values=_plain(words.PRODUCTS.values())),
    Column("Processors", INT, "Number of processors."),
    Column("CaptureTime", TIME, "The kernel's clock; the acquisition may have lasted minutes."),
    Column("BootTime", TIME, "Time when Windows was started."),
    Column("BootTimeSource", STR, "Source of BootTime.", values=words.BOOT_TIMES),
    Column("TimeZoneBias", INT, "Minutes to add to local time to get UTC."),
    Column("ComputerName", STR, "Name of the computer in the environment of session 0's processes."),
    Column("Processes", INT, "Number of processes.", False),
    Column("ProcessesFoundOtherwise", INT, "Number of processes that the process list lacks.", False),
    Column("ProcessesUnreadable", INT, "Number of processes without a readable page table.", False),
    Column("Threads", INT, "Number of threads; null if no kind of thread stack was requested."),
    Column("StacksIncomplete", INT, "Number of thread stacks that are incomplete; null as Threads."),
    Column(
        "Databases", INT, "Number of stack trace databases and trace logs; null if they were not requested."
    ),
    Column(
        "StacksKnown",
        STR,
        "Number of stacks that the image refers to, by kind, as JSON: those that are listed, and those in "
        "lists, indices and counts.",
        False,
    ),
    Column("StacksRead", STR, "Number of these that were read, by kind, as JSON.", False),
    Column(
        "StructuresAbsent",
        STR,
        "Structures that are missing from the image, as JSON: by values of Status, the number of "
        "processes, threads, lists or stacks with the value.",
        False,
    ),
    Column(
        "Truncated",
        BOOL,
        "Whether the file is shorter than its container or the kernel says; null if neither says it.",
    ),
    Column("MissingShare", INT, "Missing part of the file, in percent, rounded up; null as Truncated."),
    Column("Warnings", INT, "Number of logged warnings.", False),
    Column(
        "WarningText", STR, "The warnings, each once, separated by ` | `; empty if there are none.", False
    ),
    Column("InputKind", STR, "Kind of the files.", False, words.INPUT_KINDS),
    Column(
        "Completeness",
        STR,
        "Completeness of a dump; null for other images, which have StacksRead.",
        values=words.COMPLETENESSES,
    ),
    Column("BugCheckCode", HEX, "Code with which Windows stopped; null if the files are not a crash dump."),
    Column("BugCheck", STR, "Name of the bug check; null if the code has no name."),
    Column("BugCheckParameters", STR, "The four parameters of the bug check, separated by blanks."),
    # The crash of a dump.
    Column("CrashCode", HEX, "ExceptionCode, or BugCheckCode; null if the files are of no crash."),
    Column("CrashName", STR, "Name of the exception or bug check; null if the code has no name."),
    Column("CrashParameters", STR, "Parameters of the exception or bug check, separated by blanks."),
    Column("CrashAddress", HEXSTR, "Address at which the registers of the crash are. It is canonical."),
    Column("CrashSymbol", STR, "Name of CrashAddress: module, function and offset, or the kind of memory."),
    Column("CrashModule", STR, "Module of CrashAddress; null if it is in none."),
    Column(
        "CrashDriver",
        STR,
        "First module on the stack of a bug check that is not the kernel; its frame may be a guess.",
    ),
    Column("CrashPID", INT, "ID of the process that crashed, or that ran when Windows stopped."),
    Column("CrashProcess", STR, "Name of the process that has CrashPID."),
    Column("CrashTID", INT, "ID of the thread that crashed, or that ran when Windows stopped."),
    Column("CrashTraceId", STR, "TraceId of the stack that begins at the crash."),
    Column("CrashKey", STR, "StackKey of the stack that begins at the crash: equal crashes have equal keys."),
    Column("CrashStack", STR, "The stack that begins at the crash, as in Stack."),
    # Keys: the process, thread and structure of a row.
    Column(
        "PID", INT, "ID of the process to which the row belongs, 0 for the kernel; null if it is unknown."
    ),
    Column(
        "Process", STR, "Name of the process that has the PID, `nt` for the kernel; null if it is unknown."
    ),
    Column("ProcessOffset", ADDRESS, "Address of the _EPROCESS, equal to `Offset(V)` of windows.pslist."),
    Column("ProcessCreateTime", TIME, "Time when the process was started."),
    Column(
        "TID",
        INT,
        "ID of the thread to which the row belongs; for a lock its owner, the first one if there are "
        "several (Status has all); for a handle event the acting thread.",
    ),
    Column("ThreadCreateTime", TIME, "Time when the thread of the stack was started."),
    Column("Arch", STR, "Bitness of the data in the row; a WoW64 process has both.", False, words.ARCHES),
    # A stack.
    Column(
        "TraceId",
        STR,
        "Key of the stack: unique in its image, the same with any options; with ImageId the key of "
        "windows.traces.",
        False,
    ),
    Column("Kind", STR, "Source of the stack.", False, words.KINDS),
    Column(
        "Owner",
        HEXSTR,
        "Owner of the stack: address of the _ETHREAD, database, heap, lock or object in the form of "
        "Volatility's columns, or the handle.",
    ),
    Column(
        "OwnerName", STR, "Type of the lock or heap, layout of the database, type and name of the object."
    ),
    Column(
        "Count",
        INT,
        "Number of times the stack occurs: captures, blocks in use, references or equal stacks, else 1; "
        "none in a row that is not a stack.",
    ),
    Column(
        "Depth",
        INT,
        "Number of return addresses; none if it cannot be read, and in a row that is not a stack.",
    ),
    Column(
        "BackTraceHash",
        HEX,
        "Sum of the low 32 bits of the return addresses: the hash that RtlCaptureStackBackTrace returns.",
    ),
    Column("StackKey", STR, "Key of the code in the stack, equal on every machine and after every boot."),
    Column("ShapeKey", STR, "Key of the modules in the stack, equal for all versions of the modules."),
    Column("KeyQuality", STR, "Quality of the keys.", values=words.KEY_QUALITIES),
    Column("Unbacked", INT, "Number of frames whose Backing is not `image`, `mapped` or `user`."),
    Column("Guessed", INT, "Number of frames that are guesses, or were found by way of a guess."),
    Column(
        "Stack",
        STR,
        "The Symbols of the frames, innermost first, separated by `; `; in plugins with --fold, only with "
        "that option. In text and CSV the address stands behind a Symbol such as `<private>`.",
    ),
    Column(
        "Modules",
        STR,
        "Modules and Backings of all frames, innermost first, repeats merged, separated by `; `; including "
        "frames that the keys leave out.",
    ),
    Column(
        "Incomplete",
        BOOL,
        "Whether frames are missing, or may be missing, at the outer end or inside.",
        False,
    ),
    # A frame.
    Column("Frame", INT, "Number of the frame in its stack, 0 for the innermost.", False),
    Column("Address", ADDRESS, "Address at which the code of the frame continues, usually a return address."),
    Column("Sp", ADDRESS, "Stack pointer when the code continues; none of recorded addresses and callbacks."),
    Column("Module", STR, "Name of the module, as in Symbol."),
    Column("ModulePath", STR, "Path of the module's file, according to the loader."),
    Column("ModuleStamp", HEX, "TimeDateStamp of the module."),
    Column("ModuleSize", HEX, "SizeOfImage of the module, rounded up to whole pages of 4096 bytes."),
    Column("Rva", HEX, "Address relative to the base of the module."),
    Column("Function", STR, "Name of the function in Symbol."),
    Column("Displacement", INT, "Bytes from the function's start to the address."),
    Column("Symbol", STR, "Name of the address: module, function and offset, or the kind of memory there."),
    Column("Source", STR, "Source of the name in Symbol.", values=words.SOURCES),
    Column("How", STR, "Method that found the address.", False, words.HOWS),
    Column(
        "ReturnRegister",
        STR,
        "Register from which the walk took the return address, else null.",
        values=words.RETURN_REGISTERS,
    ),
    Column("Backing", STR, "Kind of memory at the address.", values=words.BACKINGS),
    Column(
        "Protection", STR, "Protection of the memory there, according to the VAD, such as `PAGE_READWRITE`."
    ),
    Column(
        "PageProtection", STR, "Protection of the page there now: of its page table entry, or a dump's list."
    ),
    Column(
        "AllocationPrivateBytes",
        INT,
        "Bytes of the whole VAD there that are executable and in pages of the process's own; null if that is "
        "unknown for a page.",
    ),
    Column(
        "CallsiteLeadingBytes", STR, "The 32 bytes before the address in hexadecimal, of code in no file."
    ),
    Column("CallsiteTrailingBytes", STR, "The 32 bytes from the address on, as CallsiteLeadingBytes."),
    Column("Status", STR, "Problems of the data in the row, in fixed words; empty if there are none.", False),
    # A file that a plugin wrote.
    Column("File output", STR, "Name of the file that the plugin wrote."),
    Column("Stacks", INT, "Number of rows of windows.traces in the file, or in a part of it."),
    Column("Frames", INT, "Number of their frames."),
    Column(
        "Weight",
        INT,
        "Sum of the weights of the stacks: their Count, or the weight that `--weight` of "
        "windows.tracegraph names.",
    ),
    # A trace that Windows keeps.
    Column("Database", ADDRESS, "Address of the stack trace database, or of the heap's trace log."),
    Column(
        "Index",
        INT,
        "Index of the trace in the stack trace database of its address space; 0 for a lock without a trace.",
    ),
    Column("EntryAddress", ADDRESS, "Address of the record that holds the trace."),
    Column("TraceKind", STR, "Place where the trace of heap blocks is kept.", values=words.TRACE_KINDS),
    # A database.
    Column("CommittedMemory", HEX, "Bytes that the database has committed, according to its header."),
    Column("ReservedMemory", HEX, "Bytes that the database has reserved, according to its header."),
    Column("Lookups", INT, "Number of captures that searched the database for their trace."),
    Column("BackTraces", INT, "Number of traces in the database, according to its header."),
    Column("NtGlobalFlag", HEX, "NtGlobalFlag of the kernel or of the process."),
    Column("Flags", STR, "The bits of NtGlobalFlag by the abbreviations of gflags."),
    Column("LocatedBy", STR, "Method that found the database.", values=words.LOCATIONS),
    Column("Layout", STR, "Name of the database's layout."),
    Column("Indexed", INT, "Number of live traces with an index."),
    Column("Chained", INT, "Number of live traces in hash chains."),
    Column("Freed", INT, "Number of released traces whose block still exists."),
    Column("Orphans", INT, "Number of blocks in use that neither the index array nor a chain reaches."),
    Column(
        "Unindexed",
        INT,
        "Number of live traces whose index was never requested; only chains lead to them.",
    ),
    Column(
        "Mismatched", INT, "Number of traces that contradict the index array, their chain or their depth."
    ),
    Column("UnreadableBytes", INT, "Bytes of the used parts of the database that are not in the image."),
    # A thread.
    Column(
        "Part",
        STR,
        "The part of the thread's execution that the stack shows; before a callback to user mode `kernel 2`, "
        "`user 2` and so on.",
        values={part: words.KINDS[part] for part in words.THREAD_KINDS},
    ),
    Column("State", STR, "Scheduling state of the thread."),
    Column("WaitReason", STR, "Reason why the thread waits."),
    Column("StartAddress", ADDRESS, "Start address of the thread: Win32StartAddress, else StartAddress."),
    Column("StartSymbol", STR, "Name of StartAddress, as in Symbol."),
    # A register state.
    Column("Origin", STR, "Place where the registers were found.", values=words.ORIGINS),
    Column("TrapFrame", ADDRESS, "Address of the trap frame or context that has the registers."),
    Column("TrapKind", STR, "Cause of the entry into the kernel.", values=words.TRAP_KINDS),
    Column("Mode", STR, "The mode that was interrupted.", values=words.MODES),
    Column(
        "Processor",
        STR,
        "The processor that saved the registers, or whose own stack has them (`CPU 0 dpc`).",
    ),
    Column("Unsure", STR, "Names of the registers that may not have been saved: their values are unsure."),
    Column("NotSaved", STR, "Names of the registers that were not saved: their columns are absent."),
    Column("Member", STR, "Name of a member of the structure."),
    Column("Value", STR, "Value of the member, and its validity."),
    Column(
        "Rip", REGISTER, "Rip (Eip): the address at which the interrupted code continues; Symbol names it."
    ),
    *_registers(1, 9, "Register {0}; of 32 bits in an x86 row."),
    *_registers(9, 17, "Register {0}; x86 has none."),
    Column("EFlags", REGISTER, "The flags register."),
    Column("ErrorCode", REGISTER, "The error code of the exception."),
    Column("FaultAddress", REGISTER, "The address that caused a page fault (Cr2); not in x86 trap frames."),
    *_registers(20, 26, "Segment register {0}."),
    Column("GsSwap", REGISTER, "The user's Gs base that the entry saved; x86 has none."),
    Column("PreviousMode", INT, "PreviousMode of the thread before the entry: 0 kernel, 1 user."),
    Column("PreviousIrql", INT, "Interrupt request level before the entry."),
    *_registers(29, 35, "Debug register {0}."),
    Column("MxCsr", REGISTER, "Control and status of SSE."),
    Column("Pc", REGISTER, "ARM64: the address at which the interrupted code continues; Symbol names it."),
    Column("Fp", REGISTER, "ARM64: the frame pointer, X29."),
    Column(
        "Lr", REGISTER, "ARM64: the link register, X30, as it was; the processor may have signed the address."
    ),
    *(Column(name, REGISTER, f"Register {name} of ARM64.") for name in ARM64_REGISTERS[4:-1]),
    Column("Cpsr", REGISTER, "ARM64: the flags and the exception level (bits 3 and 2: 0 is user mode)."),
    # A lock.
    Column("Lock", ADDRESS, "Address of the lock, or of its debug information if only that is known."),
    Column("LockType", STR, "Type of the lock.", values=words.LOCK_TYPES),
    Column(
        "OwningThread",
        ADDRESS,
        "The owner as stored in the lock: address of an _ETHREAD, in a critical section a thread ID.",
    ),
    Column("OwnerRole", STR, "Role of the thread for the lock.", values=words.ROLES),
    Column("OwnerPID", INT, "ID of the process of the thread in OwnerTID."),
    Column("OwnerProcess", STR, "Name of the process of the thread in OwnerTID."),
    Column("OwnerTID", INT, "ID of the thread that owns the lock."),
    Column("LockCount", INT, "LockCount of a critical section; number of owners of a resource."),
    Column("ContentionCount", INT, "Number of times that a thread had to wait for the lock."),
    Column("EntryCount", INT, "EntryCount in the lock's debug information."),
    Column("RecursionCount", INT, "Number of times that the owner has taken the lock."),
    Column("NumberOfWaitingShared", INT, "Number of threads that wait for shared ownership."),
    Column("NumberOfWaitingExclusive", INT, "Number of threads that wait for exclusive ownership."),
    Column("Waiters", INT, "Number of threads that wait for the lock, for either kind of ownership."),
    # A wait.
    Column("WaitsFor", STR, "What the thread waits for.", values=words.WAIT_KINDS),
    Column("WaitAddress", ADDRESS, "Address of the lock, variable, object or message."),
    Column(
        "WaitName",
        STR,
        "Name of the object, or what the lock is: `loader lock`, `PEB lock`, `heap lock`.",
    ),
    Column("WaitMode", STR, "How the thread wants it.", values=words.WAIT_MODES),
    Column("Since", TIME, "Time when the wait began, according to KTHREAD.WaitTime."),
    Column("Known", STR, "How it is known what the thread waits for.", values=words.KNOWN),
    Column("Ownership", STR, "Who owns what the thread waits for.", values=words.OWNERSHIPS),
    Column(
        "ChainEnd",
        STR,
        "Where the chain ends that leads from the thread to the owner, to what the owner waits for, and so "
        "on.",
        values=words.CHAIN_ENDS,
    ),
    Column("Deadlock", INT, "Number of the deadlock to which the thread belongs; null if it is in none."),
    Column(
        "Step",
        INT,
        "With --chains: number of the owner in the chain behind the thread, 1 for the owner of what the "
        "thread itself waits for.",
    ),
    # A handle or an object.
    Column("Handle", HEX, "The handle value in the process."),
    Column("Event", STR, "Operation on the handle or object.", values=words.EVENTS),
    Column("Sequence", INT, "Number of the event, in the order of the events."),
    Column("ByPID", INT, "ID of the acting process."),
    Column("ByTID", INT, "ID of the acting thread."),
    Column("Object", ADDRESS, "Address of the object's body."),
    Column("ObjectType", STR, "Name of the object's type."),
    Column("ObjectName", STR, "Name of the object."),
    Column("ImageFileName", STR, "Name of the process that made the object, as stored in the trace."),
    Column("Tag", STR, "Tag under which the reference was taken or dropped."),
    # A heap.
    Column("Heap", ADDRESS, "Address of the heap."),
    Column("Bytes", INT, "Bytes that the callers requested, for the heap blocks in Count."),
    Column("CountGrowth", INT, "Increase of Count since the baseline."),
    Column("BytesGrowth", INT, "Increase of Bytes since the baseline."),
    Column("Block", ADDRESS, "Address of the caller's bytes, or of the heap, segment or container."),
    Column("BlockKind", STR, "Kind of Block.", values=words.BLOCK_KINDS),
    Column("Size", INT, "Bytes of Block: those that the caller requested, or all of a heap or segment."),
    # A finding.
    Column(
        "Severity", STR, "Importance of the finding, fixed by each check.", values=_plain(words.SEVERITIES)
    ),
    Column("Confidence", STR, "Certainty that Evidence is true.", values=_plain(words.CONFIDENCES)),
    Column(
        "Finding",
        STR,
        "Name of the check; `lost_stacks`: stacks of a process that no check could examine; `summary`: the "
        "row of a process; `nothing_found`: Evidence has what was examined.",
    ),
    Column("Evidence", STR, "Facts that a second examiner can check; or the reason why a check did not run."),
    Column("Innocent", STR, "Harmless explanations of the finding that this process has."),
    Column("Group", STR, "Head line of the findings about one process, in the kernel about one place."),
    Column("Next", STR, "Command that shows or writes what the finding is about."),
    Column("Technique", STR, "IDs of MITRE ATT&CK techniques that look like this."),
)

COLUMNS: Dict[str, Column] = {column.name: column for column in _ALL}
"""Each column by its name."""
