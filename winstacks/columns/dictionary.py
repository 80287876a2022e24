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
from .words import Words

STR, INT, BOOL, HEX, ADDRESS = "str", "int", "bool", "hex", "address"
REGISTER, HEXSTR, TIME = "register", "hexstr", "time"

SCHEMA = 3
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
        type: one of the words for types
        meaning: one sentence
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


REGISTERS = names(
    "Rip, Rsp, Rbp, Rax, Rcx, Rdx, Rbx, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15, EFlags, ErrorCode, "
    "FaultAddress, SegCs, SegSs, SegDs, SegEs, SegFs, SegGs, GsSwap, PreviousMode, PreviousIrql, Dr0, Dr1, "
    "Dr2, Dr3, Dr6, Dr7, MxCsr"
)
"""The columns of registers, from left to right."""


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
    Column("BuildLab", STR, "NtBuildLab: the build in full; an enablement package leaves it as it was."),
    Column("Product", STR, "Type of the product.", values=_plain(words.PRODUCTS.values())),
    Column("Processors", INT, "Number of processors."),
    Column("CaptureTime", TIME, "The kernel's clock; acquisition may have gone on for minutes."),
    Column("BootTime", TIME, "When Windows was started."),
    Column("BootTimeSource", STR, "What BootTime is taken from.", values=words.BOOT_TIMES),
    Column("TimeZoneBias", INT, "Minutes to add to local time to get UTC."),
    Column("ComputerName", STR, "Name of the computer in the environment of session 0's processes."),
    Column("Processes", INT, "Number of processes.", False),
    Column("ProcessesFoundOtherwise", INT, "How many of them the process list does not lead to.", False),
    Column("ProcessesUnreadable", INT, "Of how many no page table can be read.", False),
    Column("Threads", INT, "Number of threads; null if no kind of their stacks was asked for."),
    Column("StacksIncomplete", INT, "How many of these are incomplete; null as Threads."),
    Column(
        "Databases", INT, "Number of stack trace databases and trace logs; null if they were not asked for."
    ),
    Column(
        "StacksKnown",
        STR,
        "Stacks that the image says it had, by kind, as JSON: those that are listed, and those that lists, "
        "indices and counts know.",
        False,
    ),
    Column("StacksRead", STR, "How many of these are here, by kind, as JSON.", False),
    Column(
        "StructuresAbsent",
        STR,
        "What was wanted and is not in the image, by the words of Status, as JSON: how many processes, "
        "threads, lists or stacks say so.",
        False,
    ),
    Column(
        "Truncated", BOOL, "Whether the file ends before its container or the kernel says; null if none does."
    ),
    Column("MissingShare", INT, "Missing part of the file, in percent, rounded up; null as Truncated."),
    Column("Warnings", INT, "Number of warnings that were logged.", False),
    Column(
        "WarningText", STR, "The warnings, each once, with ` | ` between; empty if there are none.", False
    ),
    Column("InputKind", STR, "What the files are.", False, words.INPUT_KINDS),
    Column(
        "Completeness",
        STR,
        "How much a dump has of its source; null for other images, which have StacksRead.",
        values=words.COMPLETENESSES,
    ),
    Column("BugCheckCode", HEX, "Code with which Windows stopped; null where the files are of no crash."),
    Column("BugCheck", STR, "Name of the bug check; null where the code has none."),
    Column("BugCheckParameters", STR, "The four parameters of the bug check, with blanks between."),
    # Keys: the process, thread and structure of a row.
    Column(
        "PID", INT, "ID of the process to which the row belongs, 0 for the kernel; null if it is unknown."
    ),
    Column(
        "Process", STR, "Name of the process that has the PID, `nt` for the kernel; null if it is unknown."
    ),
    Column("ProcessOffset", ADDRESS, "Address of the _EPROCESS, as `Offset(V)` of windows.pslist has it."),
    Column("ProcessCreateTime", TIME, "When the process was started."),
    Column(
        "TID",
        INT,
        "ID of the thread to which the row belongs; of a lock the one that owns it, the first one if several "
        "do (Status has all); of a handle's event the one that did it.",
    ),
    Column("ThreadCreateTime", TIME, "When the thread whose stack it is was started."),
    Column("Arch", STR, "Bitness of what the row shows; a WoW64 process has both.", False, words.ARCHES),
    # A stack.
    Column(
        "TraceId",
        STR,
        "The stack: unique in its image, the same with any options; with ImageId its key in windows.traces.",
        False,
    ),
    Column("Kind", STR, "Who remembered the stack.", False, words.KINDS),
    Column(
        "Owner",
        HEXSTR,
        "What the stack belongs to: address of the _ETHREAD, database, heap, lock or object, as Volatility's "
        "columns have it, or the handle.",
    ),
    Column(
        "OwnerName", STR, "Type of the lock or heap, layout of the database, type and name of the object."
    ),
    Column(
        "Count",
        INT,
        "How often the stack is there: captures, blocks in use, references or equal stacks, else 1; none in "
        "a row that is no stack.",
    ),
    Column(
        "Depth",
        INT,
        "Number of return addresses; none where it cannot be read, and in a row that is no stack.",
    ),
    Column(
        "BackTraceHash",
        HEX,
        "Sum of the low 32 bits of the return addresses: what RtlCaptureStackBackTrace returns.",
    ),
    Column("StackKey", STR, "Key of the code in the stack, equal on every machine and at every boot."),
    Column("ShapeKey", STR, "Key of the modules in the stack, equal for all versions of these."),
    Column("KeyQuality", STR, "What the keys are worth.", values=words.KEY_QUALITIES),
    Column("Unbacked", INT, "Number of frames whose Backing is not `image`, `mapped` or `user`."),
    Column("Guessed", INT, "Number of frames that are a guess, or were found by way of one."),
    Column(
        "Stack",
        STR,
        "The Symbols of the frames, innermost first, with `; ` between; where there is --fold, only with it. "
        "In text and CSV the address stands behind a Symbol such as `<private>`.",
    ),
    Column(
        "Modules",
        STR,
        "Modules and Backings of all frames, innermost first, repeats merged, with `; ` between; those that "
        "the keys leave out, too.",
    ),
    Column(
        "Incomplete",
        BOOL,
        "Whether frames are missing, or may be missing, at the outer end or inside.",
        False,
    ),
    # A frame.
    Column("Frame", INT, "Number of the frame in its stack, 0 for the innermost.", False),
    Column("Address", ADDRESS, "Address at which the code of the frame goes on: a return address as a rule."),
    Column("Sp", ADDRESS, "Stack pointer when the code goes on; none where the address was recorded."),
    Column("Module", STR, "Name of the module, as in Symbol."),
    Column("ModulePath", STR, "Path of the module's file, as the loader has it."),
    Column("ModuleStamp", HEX, "TimeDateStamp of the module."),
    Column("ModuleSize", HEX, "SizeOfImage of the module, rounded up to whole pages of 4096 bytes."),
    Column("Rva", HEX, "Address relative to the base of the module."),
    Column("Function", STR, "Name of the function in Symbol."),
    Column("Displacement", INT, "Bytes from the function's start to the address."),
    Column("Symbol", STR, "The address in words: module, function and offset, or what else lies there."),
    Column("Source", STR, "What Symbol is taken from.", values=words.SOURCES),
    Column("How", STR, "How the address was found.", False, words.HOWS),
    Column("Backing", STR, "What lies at the address.", values=words.BACKINGS),
    Column("Protection", STR, "Protection of the memory there, as the VAD has it, such as `PAGE_READWRITE`."),
    Column(
        "Status", STR, "What is wrong with what the row shows, in fixed words; empty if nothing is.", False
    ),
    # A file that a plugin wrote.
    Column("File output", STR, "Name of the file that the plugin wrote."),
    Column("Stacks", INT, "Number of rows of windows.traces that are in the file, or in a part of it."),
    Column("Frames", INT, "Number of their frames."),
    Column(
        "Weight",
        INT,
        "Sum of the weights of the stacks: their Count, or what `--weight` of windows.tracegraph asks for.",
    ),
    # A trace that Windows keeps.
    Column("Database", ADDRESS, "Address of the stack trace database, or of the heap's trace log."),
    Column(
        "Index",
        INT,
        "Index of the trace in the stack trace database of its address space; 0 where a lock has none.",
    ),
    Column("EntryAddress", ADDRESS, "Address of the record that holds the trace."),
    Column("TraceKind", STR, "Where the trace of heap blocks is kept.", values=words.TRACE_KINDS),
    # A database.
    Column("CommittedMemory", HEX, "Bytes that the database has committed, as its header says."),
    Column("ReservedMemory", HEX, "Bytes that the database has reserved, as its header says."),
    Column("Lookups", INT, "Number of captures that looked for their trace in the database."),
    Column("BackTraces", INT, "Number of traces in the database, as its header says."),
    Column("NtGlobalFlag", HEX, "NtGlobalFlag of the kernel or of the process."),
    Column("Flags", STR, "The bits of NtGlobalFlag by the abbreviations of gflags."),
    Column("LocatedBy", STR, "How the database was found.", values=words.LOCATIONS),
    Column("Layout", STR, "Name of the layout that the database has."),
    Column("Indexed", INT, "Number of live traces with an index."),
    Column("Chained", INT, "Number of live traces that a hash chain leads to."),
    Column("Freed", INT, "Number of released traces whose block is still there."),
    Column("Orphans", INT, "Number of blocks in use that neither the index array nor a chain leads to."),
    Column(
        "Unindexed",
        INT,
        "Number of live traces for which nobody asked for an index; only chains lead to them.",
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
    Column("WaitReason", STR, "Why the thread waits."),
    Column("StartAddress", ADDRESS, "Where the thread was started: Win32StartAddress, else StartAddress."),
    Column("StartSymbol", STR, "StartAddress in words, as in Symbol."),
    # A register state.
    Column("Origin", STR, "How the registers were found.", values=words.ORIGINS),
    Column("TrapFrame", ADDRESS, "Address of the trap frame or context in which the registers were saved."),
    Column("TrapKind", STR, "What led into the kernel.", values=words.TRAP_KINDS),
    Column("Mode", STR, "The mode that was interrupted.", values=words.MODES),
    Column(
        "Processor",
        STR,
        "The processor that saved the registers, or on whose own stack they are (`CPU 0 dpc`).",
    ),
    Column("Unsure", STR, "Names of the registers that may not have been saved: their values are unsure."),
    Column(
        "NotSaved", STR, "Names of the registers that were not saved, whose columns are therefore absent."
    ),
    Column("Member", STR, "Name of a member of the structure."),
    Column("Value", STR, "Value of the member, and what it is worth."),
    Column("Rip", REGISTER, "Rip (Eip): the address at which the interrupted code goes on; Symbol names it."),
    *_registers(1, 9, "Register {0}; of 32 bits in an x86 row."),
    *_registers(9, 17, "Register {0}; x86 has none."),
    Column("EFlags", REGISTER, "The flags register."),
    Column("ErrorCode", REGISTER, "The error code of the exception."),
    Column(
        "FaultAddress", REGISTER, "The address that a page fault was about (Cr2); not in x86 trap frames."
    ),
    *_registers(20, 26, "Segment register {0}."),
    Column("GsSwap", REGISTER, "Value that the entry kept of the user's Gs base; x86 has none."),
    Column("PreviousMode", INT, "PreviousMode of the thread before the entry: 0 kernel, 1 user."),
    Column("PreviousIrql", INT, "Interrupt request level before the entry."),
    *_registers(29, 35, "Debug register {0}."),
    Column("MxCsr", REGISTER, "Control and status of SSE."),
    # A lock.
    Column("Lock", ADDRESS, "Address of the lock; of its debug information where only that is known."),
    Column("LockType", STR, "What the lock is.", values=words.LOCK_TYPES),
    Column(
        "OwningThread",
        ADDRESS,
        "The owner as the lock has it: address of an _ETHREAD, in a critical section a thread ID.",
    ),
    Column("OwnerRole", STR, "What the thread is to the lock.", values=_plain(words.ROLES)),
    Column("OwnerPID", INT, "ID of the owner's process."),
    Column("OwnerProcess", STR, "Name of the owner's process."),
    Column("OwnerTID", INT, "ID of the thread that owns the lock, or waits for it."),
    Column("LockCount", INT, "LockCount as a critical section holds it; how many owners a resource has."),
    Column("ContentionCount", INT, "How often a thread had to wait for the lock."),
    Column("EntryCount", INT, "EntryCount as the lock's debug information holds it."),
    Column("RecursionCount", INT, "How many times the owner has taken the lock."),
    Column("NumberOfWaitingShared", INT, "Number of threads that wait for shared ownership."),
    Column("NumberOfWaitingExclusive", INT, "Number of threads that wait for exclusive ownership."),
    Column("Waiters", INT, "Number of threads that wait for the lock, for either kind of ownership."),
    # A handle or an object.
    Column("Handle", HEX, "The handle, as the process has it."),
    Column("Event", STR, "What was done with the handle or object.", values=words.EVENTS),
    Column("Sequence", INT, "Number of the event, which says in which order events happened."),
    Column("ByPID", INT, "ID of the process that did it."),
    Column("ByTID", INT, "ID of the thread that did it."),
    Column("Object", ADDRESS, "Address of the object's body."),
    Column("ObjectType", STR, "Name of the object's type."),
    Column("ObjectName", STR, "Name of the object."),
    Column("ImageFileName", STR, "Name of the process that made the object, as its trace keeps it."),
    Column("Tag", STR, "Tag under which the reference was taken or dropped."),
    # A heap.
    Column("Heap", ADDRESS, "Address of the heap."),
    Column("Bytes", INT, "Bytes that the callers asked for in the heap blocks that Count counts."),
    Column("CountGrowth", INT, "How much more Count is than in the baseline."),
    Column("BytesGrowth", INT, "How many more Bytes there are than in the baseline."),
    Column("Block", ADDRESS, "Address of the caller's bytes; of the heap, segment or container itself."),
    Column("BlockKind", STR, "What Block is.", values=words.BLOCK_KINDS),
    Column("Size", INT, "Bytes of Block: those that the caller asked for, or all of a heap or segment."),
    # A finding.
    Column(
        "Severity", STR, "How much a finding matters: each check fixes it.", values=_plain(words.SEVERITIES)
    ),
    Column(
        "Confidence", STR, "How sure it is that what Evidence says is so.", values=_plain(words.CONFIDENCES)
    ),
    Column(
        "Finding",
        STR,
        "Name of the check; `lost_stacks`: which stacks of a process no check could look at; `summary`: with "
        "--summary the line of a process.",
    ),
    Column(
        "Evidence",
        STR,
        "What a second examiner can check: VAD, page table entry, bytes, lists; or why a check did not run.",
    ),
    Column("Innocent", STR, "What else explains the finding in this process."),
    Column("Technique", STR, "IDs of MITRE ATT&CK techniques that look like this."),
)

COLUMNS: Dict[str, Column] = {column.name: column for column in _ALL}
"""Each column by its name."""
