# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The schema of the flat tables: `windows.traces`, `windows.traceframes` and `windows.traceimage`.

    for column in TABLES["traces"]:
        column.name, column.type, column.nullable, column.values, column.description

All that says what the tables look like is made from here: the columns of the plugins, the JSON schema, the
tables of the documentation, the Arrow schema of the fleet.

The type of a column is a word, which means in Volatility, in Parquet (Volatility's renderer) and in JSON:

    str     str             string              string
    int     int             int64               number
    bool    bool            bool                true or false
    hex     Hex             uint64              number
    hexstr  str             string              string: `0x` and lower-case hexadecimal digits
    time    datetime        timestamp[ms], UTC  string: ISO 8601, UTC

No column has another type where a table is empty.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

from ...memory.decode.status import Word

SCHEMA = 1
"""The version. It rises when a column changes its meaning or type; a new column comes last."""

STR, INT, BOOL, HEX, HEXSTR, TIME = "str", "int", "bool", "hex", "hexstr", "time"
TYPES = (STR, INT, HEXSTR, BOOL, TIME, HEX)
"""The words for types."""

KERNEL, USER, WOW64 = "kernel", "user", "wow64"
STD, HEAPLOG = "std", "heaplog"
HEAP, LOCK, HANDLE, OBJECT = "heap", "lock", "handle", "object"

KINDS: Dict[str, str] = {
    KERNEL: "a thread's stack in the kernel",
    USER: "a thread's stack in user mode",
    WOW64: "a WoW64 thread's stack in 32-bit mode",
    STD: "a back trace of a stack trace database",
    HEAPLOG: "a record of a heap's trace log",
    HEAP: "heap blocks by the trace of their allocation, and who made heaps and their segments",
    LOCK: "who created a lock",
    HANDLE: "an event of a handle",
    OBJECT: "an event of a traced object",
}
"""The values of `Kind`: who remembered the stack."""
THREAD_KINDS = (KERNEL, USER, WOW64)

ARCHES = ("x64", "x86")
"""The values of `Arch`."""

STACK_SEPARATOR = "; "
"""What stands between the frames in a column Stack."""
WARNING_SEPARATOR = " | "
"""What stands between the warnings in WarningText."""

TRAP, SCAN, RECORDED = "trap", "scan", "recorded"
HOWS: Dict[str, str] = {
    TRAP: "a saved register state holds it",
    "unwind": "by unwind data",
    "leaf": "the top of the stack, in a function that keeps nothing there",
    "framepointer": "by the chain of frame pointers",
    SCAN: "a guess: a value on the stack that may be a return address",
    RECORDED: "Windows recorded the address",
}
"""The values of `How`: how the address of a frame was found."""

SHADOW = "shadow"
"""What stands in their place where the processor's shadow stack confirms the address: in findings only."""

BACKINGS: Dict[str, str] = {
    "image": "a module",
    "mapped": "a mapped file that no loader list has",
    "private": "private memory",
    "unmapped": "nothing",
    "none": "a kernel address in no module",
    "unloaded": "a module that is gone lay there",
    "user": "a user address in a stack of the kernel",
}
"""The values of `Backing`: what lies at the address of a frame."""

SOURCES = ("pdb", "export", "nearest", "module", "unloaded", "none")
"""The values of `Source`."""

EXACT, GUESSED, PARTIAL = "exact", "guessed", "partial"
KEY_QUALITIES: Dict[str, str] = {
    EXACT: "all frames are in the keys with all that is to be known of them",
    PARTIAL: "the stack is incomplete, or a module is known by its name only or contradicted by its headers",
    GUESSED: "the walk had to guess; frames that a scan of the stack found are left out",
}
"""The values of `KeyQuality`; of two that hold the later one stands there."""

PRODUCTS: Dict[int, str] = {1: "workstation", 2: "domain controller", 3: "server"}
"""The values of `Product`, by NtProductType."""

BOOT_TIME, INTERRUPT_TIME = "KeBootTime", "InterruptTime"
BOOT_TIMES = (BOOT_TIME, INTERRUPT_TIME)
"""The values of `BootTimeSource`: the kernel's variable; its clock less the time that it ran."""

EVENTS = ("open", "close", "badref", "create", "reference", "dereference")
"""The values of `Event`."""

STATUS_WORDS: Tuple[str, ...] = tuple(word.value for word in Word)
"""The words of `Status`, which has `, ` between them; `{}` stands for a number, `{members}` for names."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: its name, no reserved word of SQL
        type: one of TYPES
        nullable: whether a row may have none
        description: what it says, one sentence
        values: the only values that it has; empty if any is possible
    """

    name: str
    type: str
    nullable: bool
    description: str
    values: Tuple[str, ...] = ()


def _keys() -> Tuple[Column, ...]:
    """Returns the columns that all tables begin with."""
    return (
        Column("ImageId", STR, False, "The image: the same for the same files, and it starts with a letter."),
        Column("Schema", INT, False, f"Version of the schema: {SCHEMA}."),
    )


TRACES: Tuple[Column, ...] = (
    *_keys(),
    Column("TraceId", STR, False, "The stack: unique in its image, the same with any options."),
    Column("Kind", STR, False, "Who remembered the stack.", tuple(KINDS)),
    Column("PID", INT, False, "ID of the process to which the stack belongs, 0 for the kernel."),
    Column("Process", STR, False, "Name of the process, `nt` for the kernel."),
    Column("ProcessOffset", HEX, True, "Address of the _EPROCESS, as `Offset(V)` of windows.pslist has it."),
    Column("ProcessCreateTime", TIME, True, "When the process was started."),
    Column(
        "TID",
        INT,
        True,
        "ID of the thread whose stack it is; of a lock the thread that owns it, the first one if several do "
        "(Status has all); of a handle's event the one that did it.",
    ),
    Column("ThreadCreateTime", TIME, True, "When the thread whose stack it is was started."),
    Column("Arch", STR, False, "Bitness of the code.", ARCHES),
    Column(
        "Owner",
        HEXSTR,
        True,
        "What the stack belongs to: address of the _ETHREAD, database, heap, lock or object, or the handle.",
    ),
    Column(
        "OwnerName",
        STR,
        True,
        "Type of the lock or heap, layout of the database, type and name of the object.",
    ),
    Column("Event", STR, True, "What was done with the handle or object.", EVENTS),
    Column(
        "Count",
        INT,
        True,
        "How often the stack is there: captures, blocks in use or references, else 1; null in a row that is "
        "no stack.",
    ),
    Column("Bytes", INT, True, "Bytes that the callers asked for in the heap blocks that Count counts."),
    Column(
        "Depth",
        INT,
        True,
        "Number of return addresses; null where it cannot be read, and in a row that is no stack.",
    ),
    Column("BackTraceHash", HEX, True, "Sum of the low 32 bits of the return addresses."),
    Column("StackKey", STR, True, "Key of the code in the stack, equal on every machine and at every boot."),
    Column("ShapeKey", STR, True, "Key of the modules in the stack, equal for all versions of these."),
    Column("KeyQuality", STR, True, "What the keys are worth.", tuple(KEY_QUALITIES)),
    Column("Unbacked", INT, True, "Number of frames whose Backing is not `image`, `mapped` or `user`."),
    Column("Guessed", INT, True, "Number of frames that are a guess, or were found by way of one."),
    Column("Stack", STR, True, "The Symbols of the frames, innermost first, with `; ` between."),
    Column(
        "Modules",
        STR,
        True,
        "Modules and Backings of all frames, innermost first, repeats merged, with `; ` between; those that "
        "the keys leave out, too.",
    ),
    Column(
        "Incomplete",
        BOOL,
        False,
        "Whether frames are missing, or may be missing, at the outer end or inside.",
    ),
    Column("Status", STR, False, "What is wrong with the stack, in fixed words; empty if nothing is."),
)
"""One row for each stack."""

FRAMES: Tuple[Column, ...] = (
    *_keys(),
    Column("TraceId", STR, False, "The stack: with ImageId the key of its row in windows.traces."),
    Column("PID", INT, False, "ID of the process to which the stack belongs, 0 for the kernel."),
    Column("Arch", STR, False, "Bitness of the code.", ARCHES),
    Column("Frame", INT, False, "Number of the frame in its stack, 0 for the innermost."),
    Column("Address", HEXSTR, True, "Where the code goes on, canonical; null where it cannot be read."),
    Column("Sp", HEXSTR, True, "Stack pointer when the code goes on; null where the address was recorded."),
    Column("Module", STR, True, "Name of the module, as in Symbol."),
    Column("ModulePath", STR, True, "Path of the module's file, as the loader has it."),
    Column("ModuleStamp", HEX, True, "TimeDateStamp of the module."),
    Column("ModuleSize", HEX, True, "SizeOfImage of the module, rounded up to whole pages of 4096 bytes."),
    Column("Rva", HEX, True, "Address relative to the base of the module."),
    Column("Function", STR, True, "Name of the function in Symbol."),
    Column("Displacement", INT, True, "Bytes from the function's start to the address."),
    Column(
        "Symbol", STR, True, "The address in words: module, function and offset, or what else lies there."
    ),
    Column("Source", STR, True, "What Symbol is taken from.", SOURCES),
    Column("How", STR, False, "How the address was found.", tuple(HOWS)),
    Column("Backing", STR, True, "What lies at the address.", tuple(BACKINGS)),
    Column(
        "Protection",
        STR,
        True,
        "Protection of the memory there, as the VAD has it, such as `PAGE_READWRITE`.",
    ),
    Column("Status", STR, False, "What is wrong with the frame, in fixed words; empty if nothing is."),
)
"""One row for each frame of each stack."""

IMAGE: Tuple[Column, ...] = (
    *_keys(),
    Column(
        "Files",
        STR,
        False,
        "The files that the image consists of: a JSON array of objects with `path`, `size` and `sha256` "
        "(null without --sha256).",
    ),
    Column("VolatilityVersion", STR, False, "Version of Volatility."),
    Column("PluginVersion", STR, False, "Version of this set of plugins."),
    Column("KernelBuild", INT, True, "Build of the kernel: the low 16 bits of NtBuildNumber."),
    Column(
        "BuildLab", STR, True, "NtBuildLab: the build in full; an enablement package leaves it as it was."
    ),
    Column("Product", STR, True, "Type of the product.", tuple(PRODUCTS.values())),
    Column("Arch", STR, False, "Bitness of the kernel.", ARCHES),
    Column("Processors", INT, True, "Number of processors."),
    Column("CaptureTime", TIME, True, "The kernel's clock; acquisition may have gone on for minutes."),
    Column("BootTime", TIME, True, "When Windows was started."),
    Column("BootTimeSource", STR, True, "What BootTime is taken from.", BOOT_TIMES),
    Column("TimeZoneBias", INT, True, "Minutes to add to local time to get UTC."),
    Column("ComputerName", STR, True, "Name of the computer in the environment of session 0's processes."),
    Column("Processes", INT, False, "Number of processes."),
    Column("ProcessesFoundOtherwise", INT, False, "How many of them the process list does not lead to."),
    Column("ProcessesUnreadable", INT, False, "Of how many no page table can be read."),
    Column("Threads", INT, True, "Number of threads; null if no kind of their stacks was asked for."),
    Column("Stacks", INT, True, "Number of stacks of threads that were walked; null as Threads."),
    Column("StacksIncomplete", INT, True, "How many of these are incomplete; null as Threads."),
    Column(
        "Databases",
        INT,
        True,
        "Number of stack trace databases and trace logs; null if they were not asked for.",
    ),
    Column("PagesWanted", INT, False, "Number of pages to which structures led, as often as they were read."),
    Column("PagesMissing", INT, False, "How many of these are not in the image."),
    Column("Warnings", INT, False, "Number of warnings that were logged."),
    Column(
        "WarningText", STR, False, "The warnings, each once, with ` | ` between; empty if there are none."
    ),
    Column(
        "Status", STR, False, "What is wrong with the image as a whole, in fixed words; empty if nothing is."
    ),
)
"""One row for the image."""

TABLES: Dict[str, Tuple[Column, ...]] = {"traces": TRACES, "traceframes": FRAMES, "traceimage": IMAGE}
"""The columns of each table, from left to right, by the name of its plugin."""
