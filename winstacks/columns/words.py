# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The closed lists of words that columns hold, each word with its meaning.

A word and its meaning stand only here: listers take the word from here, and the dictionary of columns takes
the list. A word that explains itself has an empty meaning. The words of Status are in `memory.decode.status`.
"""

from __future__ import annotations

from typing import Dict

Words = Dict[str, str]
"""Meanings by their words, in the order in which the words are listed."""

ARCHES: Words = {"x64": "64 bits", "x86": "32 bits", "arm64": "ARM64, 64 bits"}

KERNEL, USER, WOW64 = "kernel", "user", "wow64"
STD, HEAPLOG = "std", "heaplog"
HEAP, LOCK, HANDLE, OBJECT = "heap", "lock", "handle", "object"
CALLBACK = "callback"
KINDS: Words = {
    KERNEL: "a thread's stack in the kernel",
    USER: "a thread's stack in user mode",
    WOW64: "a WoW64 thread's stack in 32-bit mode",
    STD: "a stack trace database",
    HEAPLOG: "the trace log that heaps keep since Windows 7",
    HEAP: "heap blocks by the trace of their allocation, and the creators of heaps and segments",
    LOCK: "the creator of a lock",
    HANDLE: "an event of a handle",
    OBJECT: "an event of a traced object",
    CALLBACK: "no stack: a function that Windows will call, by a timer, DPC, work item, APC or in a process",
}
"""The stores of stacks: the words of Kind."""
THREAD_KINDS = (KERNEL, USER, WOW64)
"""The kinds of threads' stacks, and the words of Part."""

TRAP, UNWIND, LEAF, FRAME_POINTER, SCAN = "trap", "unwind", "leaf", "framepointer", "scan"
RECORDED, SHADOW, AWAITED = "recorded", "shadow", "awaited"
HOWS: Words = {
    TRAP: "from a saved register state",
    UNWIND: "by the unwind data of the function below",
    LEAF: "the top of the stack, in a function that saves no values there; on ARM64 the link register",
    FRAME_POINTER: "by the chain of frame pointers; on ARM64 a guess, for code without unwind data",
    SCAN: "a guess: a value on the stack that may be a return address",
    RECORDED: "Windows recorded the address",
    SHADOW: "the thread's shadow stack, which the processor writes, has the address",
    AWAITED: "a callback: Windows will call the address, and no thread's stack leads there",
}
"""Ways to find the address of a frame: the words of How. In findings `shadow` replaces another word."""

LINK_REGISTER = "Lr"
RETURN_REGISTERS: Words = {LINK_REGISTER: "the link register of ARM64"}
"""Registers that can hold a return address: the words of ReturnRegister."""

FAR = "~"
"""Stands before a name in Symbol that is only the nearest one, more than a page below the address."""
PDB, EXPORT, NEAREST, MODULE, UNLOADED, NONE = "pdb", "export", "nearest", "module", "unloaded", "none"
PCLNTAB = "pclntab"
SOURCES: Words = {
    PDB: "the last symbol before the address in a symbol table of Volatility; the function table, the next "
    "symbol or the end of the section bounds its function",
    EXPORT: "the function table shows that the address is in the function that this export starts",
    PCLNTAB: "the table of functions that Go's linker writes into each program",
    NEAREST: "the last export, or symbol of a PDB with few symbols, before the address in the same "
    "section; the end of its function is unknown. `~` before the name: it is more than a page below, and "
    "the address almost certainly in another function",
    MODULE: "the module is known, the function's name is not",
    UNLOADED: "an unloaded module was there",
    NONE: "no name is known",
}
"""Sources of the name of an address: the words of Source."""

IMAGE, MAPPED, PRIVATE, UNMAPPED, UNKNOWN = "image", "mapped", "private", "unmapped", "unknown"
BACKINGS: Words = {
    IMAGE: "a module",
    MAPPED: "a mapped file that is in no loader list",
    PRIVATE: "memory of the process that belongs to no file",
    UNMAPPED: "no memory",
    NONE: "an address in no module: of the kernel, or of a dump that does not list its memory",
    UNLOADED: "an unloaded module was there",
    USER: "a user address in a stack of the kernel",
    UNKNOWN: "unknown: the dump has no list of modules",
}
"""Kinds of memory at the address of a frame: the words of Backing."""
UNBACKED = frozenset((PRIVATE, UNMAPPED, NONE, UNLOADED))
"""The words of Backing that --unbacked selects."""
NAMELESS = frozenset(("<private>", "<unmapped>", "<no-module>", "<rom>", "<user>", "<unknown>"))
"""Values of Symbol that name no module and no file: pages, --brief and text show the address behind them."""

EXACT, PARTIAL, GUESSED = "exact", "partial", "guessed"
KEY_QUALITIES: Words = {
    EXACT: "the keys have all frames, with complete data",
    PARTIAL: "the stack is incomplete, or a module is known only by name or contradicted by its headers",
    GUESSED: "the walk had to guess; frames that a scan of the stack found are left out",
}
"""Grades of keys: the words of KeyQuality; if two apply, the later one is used."""

OPEN, CLOSE, BAD_REFERENCE, CREATE = "open", "close", "badref", "create"
REFERENCE, DEREFERENCE = "reference", "dereference"
EVENTS: Words = {
    OPEN: "",
    CLOSE: "",
    BAD_REFERENCE: "a handle that was not open",
    CREATE: "the creation of the handle or object",
    REFERENCE: "",
    DEREFERENCE: "",
}
"""Operations on a handle or object: the words of Event."""

PRODUCTS: Dict[int, str] = {1: "workstation", 2: "domain controller", 3: "server"}
"""The words of Product, by NtProductType."""

MEMORY_IMAGE, PROCESS_DUMP, SMALL_DUMP = "image", "process dump", "small kernel dump"
INPUT_KINDS: Words = {
    MEMORY_IMAGE: "the memory of a machine",
    PROCESS_DUMP: "a dump of one process",
    SMALL_DUMP: "the file that Windows writes for a crash into `C:\\Windows\\Minidump`",
}
"""Kinds of inputs: the words of InputKind."""
ALL, SOME, TRUNCATED = "all", "some", "truncated"
KERNEL_PAGES, ACTIVE_PAGES = "kernel pages", "active pages"
COMPLETENESSES: Words = {
    ALL: "written with the whole memory of the process",
    SOME: "written without the whole memory: heaps, locks and databases may be missing; a small kernel "
    "dump has little more than the stack of the thread that crashed",
    TRUNCATED: "the file is shorter than its headers say",
    KERNEL_PAGES: "a kernel dump (type 6, or 8 of a running system): pages of processes are absent",
    ACTIVE_PAGES: "an automatic or active dump (type 7): pages of processes are absent or incomplete",
}
"""Parts of memory that a dump has: the words of Completeness."""
PARTIAL_DUMPS = {6: KERNEL_PAGES, 7: ACTIVE_PAGES, 8: KERNEL_PAGES}
"""Completeness of the crash dumps of a kernel that Windows writes without some pages, by DumpType."""

BOOT_TIME, INTERRUPT_TIME, SYSTEM_UP_TIME = "KeBootTime", "InterruptTime", "SystemUpTime"
BOOT_TIMES: Words = {
    BOOT_TIME: "the kernel's variable",
    INTERRUPT_TIME: "the kernel's clock minus its running time",
    SYSTEM_UP_TIME: "the time of the crash minus the uptime, from the header of a small dump",
}
"""Sources of BootTime: the words of BootTimeSource."""

BY_SYMBOL, BY_SEARCH = "symbol", "search"
LOCATIONS: Words = {
    BY_SYMBOL: "symbols of the kernel or of ntdll lead to it",
    BY_SEARCH: "a pointer in ntdll's data leads to a valid database",
}
"""Ways to find a database: the words of LocatedBy."""

LOG, INLINE = "log", "inline"
TRACE_KINDS: Words = {LOG: "the heap's trace log", STD: "a stack trace database", INLINE: "the block itself"}
"""Stores of the traces of heap blocks: the words of TraceKind."""

HEAP_SEGMENT, SEGMENT_HEAP, PAGE_HEAP = "heap segment", "segment heap", "page heap"
CONTAINER, BLOCK, LFH, VIRTUAL = "lfh container", "block", "lfh", "virtual"
LIGHT, PAGE, LARGE, SEGMENT = "lightpage", "page", "large", "segment"
BLOCK_KINDS: Words = {
    HEAP: "an NT heap",
    HEAP_SEGMENT: "of an NT heap",
    SEGMENT_HEAP: "",
    PAGE_HEAP: "",
    CONTAINER: "holds blocks of the low-fragmentation heap",
    BLOCK: "of an NT heap",
    LFH: "of the low-fragmentation heap",
    VIRTUAL: "with its own pages",
    LIGHT: "of light page heap",
    PAGE: "of full page heap",
    LARGE: "of a segment heap, with its own pages",
    SEGMENT: "of a segment heap",
}
"""Kinds of heaps, their parts, and blocks: the words of BlockKind."""

THREAD, TOP, STACK, PROCESSOR, SAVED = "thread", "top", "stack", "processor", "saved"
SWITCHED = "switched"
ORIGINS: Words = {
    THREAD: "KTHREAD.TrapFrame, and the earlier frames that service frames lead to",
    TOP: "the fixed place at the top of a kernel stack",
    STACK: "found by scanning",
    PROCESSOR: "KPRCB.Context, or KPRCB.ProcessorState",
    WOW64: "the 32-bit context in the WoW64 CPU area",
    SAVED: "the input file has them",
    SWITCHED: "KTHREAD.SwitchFrame of ARM64: where the thread goes on after a switch",
}
"""Sources of registers: the words of Origin."""

SYSCALL, SERVICE, INTERRUPT, EXCEPTION = "syscall", "service", "interrupt", "exception"
WRITTEN = "written"
TRAP_KINDS: Words = {
    SYSCALL: "a system call from user mode",
    SERVICE: "a Zw call from kernel mode",
    INTERRUPT: "",
    EXCEPTION: "a fault or trap",
    WRITTEN: "no entry: the kernel wrote the frame from a CONTEXT, for a thread that never ran in user mode",
}
"""Causes of an entry into the kernel: the words of TrapKind."""

MODES: Words = {USER: "includes virtual-8086 mode", KERNEL: ""}
"""The modes of a processor: the words of Mode."""

RESOURCE, FAST_RESOURCE, CRITICAL_SECTION = "resource", "fast resource", "critical section"
LOCK_TYPES: Words = {
    RESOURCE: "ERESOURCE; in a process, RTL_RESOURCE",
    FAST_RESOURCE: "an ERESOURCE with a list of owners, since 17763",
    CRITICAL_SECTION: "RTL_CRITICAL_SECTION",
}
"""Kinds of locks: the words of LockType."""

EXCLUSIVE, SHARED, WAITING = "exclusive owner", "shared owner", "waiter"
"""Roles of a thread for a lock."""

HIGH, MEDIUM, LOW = "high", "medium", "low"
SEVERITIES = (HIGH, MEDIUM, LOW)
"""Severities of findings, the worst first: the words of Severity."""

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
CONFIDENCES = (CERTAIN, LIKELY, POSSIBLE)
"""Degrees of certainty that Evidence is true, the surest first: the words of Confidence."""

SRW_LOCK, CONDITION_VARIABLE, ON_ADDRESS = "SRW lock", "condition variable", "WaitOnAddress"
RUN_ONCE, USER_RESOURCE, KEYED_EVENT, ALERT = "run once", "RTL_RESOURCE", "keyed event", "alert"
MUTANT, EVENT, SEMAPHORE, TIMER = "mutant", "event", "semaphore", "timer"
OBJECTS = "several objects"
JOINED_THREAD, JOINED_PROCESS, FILE, QUEUE, GATE = "thread", "process", "file object", "queue", "gate"
ALPC_REPLY, PORT, SLEEP, INPUT, IO = "ALPC reply", "port", "sleep", "input", "I/O"
KERNEL_RESOURCE, FAST_MUTEX, GUARDED_MUTEX, PUSH_LOCK = (
    "ERESOURCE",
    "fast mutex",
    "guarded mutex",
    "push lock",
)
OTHER_WAIT, DEADLOCK = "unknown", "deadlock"
WAIT_KINDS: Words = {
    DEADLOCK: "threads that wait for each other in a circle: Evidence has the sentence",
    CRITICAL_SECTION: "RTL_CRITICAL_SECTION",
    SRW_LOCK: "RTL_SRWLOCK",
    CONDITION_VARIABLE: "RTL_CONDITION_VARIABLE",
    ON_ADDRESS: "until the content of an address changes (WaitOnAddress)",
    RUN_ONCE: "RTL_RUN_ONCE: another thread initialises something",
    USER_RESOURCE: "",
    KEYED_EVENT: "a keyed event that belongs to no known lock",
    ALERT: "NtWaitForAlertByThreadId, and no known lock has the thread",
    MUTANT: "a mutex object",
    EVENT: "",
    SEMAPHORE: "",
    TIMER: "",
    OBJECTS: "several objects: a row below for each",
    JOINED_THREAD: "until a thread ends",
    JOINED_PROCESS: "until a process ends",
    FILE: "a file object: input or output",
    QUEUE: "work for a thread pool, a completion port or a kernel queue",
    GATE: "",
    ALPC_REPLY: "the answer to a message",
    PORT: "messages at a port",
    SLEEP: "a time",
    INPUT: "messages of a window",
    IO: "a request to a driver",
    KERNEL_RESOURCE: "",
    FAST_MUTEX: "",
    GUARDED_MUTEX: "",
    PUSH_LOCK: "",
    OTHER_WAIT: "an object or reason without a word here",
}
"""Kinds of things that threads wait for: the words of WaitsFor."""

ROLES: Words = {
    EXCLUSIVE: "",
    SHARED: "",
    WAITING: "TID is the waiting thread",
    DEADLOCK: "no thread: Evidence has the sentence about the threads that wait in a circle",
}
"""Subjects of the rows below a lock: the words of OwnerRole."""

FOR_EXCLUSIVE, FOR_SHARED, FOR_ANY, FOR_ALL = "exclusive", "shared", "any", "all"
WAIT_MODES: Words = {
    FOR_EXCLUSIVE: "",
    FOR_SHARED: "",
    FOR_ANY: "one of the objects ends the wait",
    FOR_ALL: "all objects together end the wait",
}
"""How a thread wants it: the words of WaitMode."""

BY_TABLE, BY_CHAIN, BY_ARGUMENT, BY_HANDLE = "table", "chain", "argument", "handle"
BY_KEY, BY_REGISTER, ON_STACK, BY_LIST = "key", "kept register", "on stack", "list"
BY_EXCLUSION, BY_MESSAGE, BY_CALL = "exclusion", "message", "call"
KNOWN: Words = {
    BY_TABLE: "the table of waiting threads in the PEB, on 8.1 in ntdll, has the thread",
    BY_CHAIN: "the word of the lock leads through wait blocks to one on the thread's stack",
    BY_LIST: "the object's list of waiting threads has the thread's wait block",
    BY_HANDLE: "the handle for which the thread waits is the lock's, or the process's handle of the object",
    BY_KEY: "the key of the keyed event is the lock",
    BY_ARGUMENT: "the first argument of the system call, and a wait block on the stack",
    BY_MESSAGE: "the thread's ALPC message",
    BY_REGISTER: "a register that ntdll keeps for the lock, and members of the lock that agree",
    ON_STACK: "inferred: the stack of the thread has the address",
    BY_EXCLUSION: "inferred: of all locks, only this one is held by another thread and has a waiter",
    BY_CALL: "only the system call or the kernel's reason says why the thread waits",
}
"""How it is known what a thread waits for, the surest first: the words of Known."""

BY_THREAD, BY_PROCESS, NOBODY = "thread", "process", "free"
NO_OWNER_KEPT, OWNER_UNKNOWN = "no owner kept", "unknown"
OWNERSHIPS: Words = {
    BY_THREAD: "a thread owns it, or has to act",
    BY_PROCESS: "a process has to act; its thread is unknown",
    NOBODY: "nobody owns it now: it was released, and its next owner did not run yet",
    NO_OWNER_KEPT: "Windows keeps no owner of such locks and objects",
    OWNER_UNKNOWN: "nothing that was read names the owner",
}
"""Owners of the things that threads wait for: the words of Ownership."""

ENDS_RUNNING, ENDS_INPUT, ENDS_ASLEEP = "running", "waits for input", "sleeps"
ENDS_EXITED, ENDS_ABSENT, ENDS_IDLE = "exited while owner", "not in the image", "idle"
ENDS_UNKNOWN, ENDS_IO, ENDS_LEFT_OUT = "not known", "waits for I/O", "left out"
ENDS_PROCESS = "another process"
CHAIN_ENDS: Words = {
    DEADLOCK: "the chain comes back to a thread that it has passed",
    ENDS_EXITED: "the owner ended without releasing the lock",
    ENDS_RUNNING: "the last thread runs, or does not wait",
    ENDS_INPUT: "the last thread waits for messages of a window",
    ENDS_ASLEEP: "the last thread waits for a time",
    ENDS_IO: "the last thread waits for a driver or a file",
    ENDS_PROCESS: "a process has to end or to answer, and its thread is unknown",
    NOBODY: "nobody owns what the last thread waits for",
    NO_OWNER_KEPT: "Windows keeps no owner of what the last thread waits for",
    ENDS_ABSENT: "the last thread, or a part of it, is not in the image, or nothing that was read names it",
    ENDS_LEFT_OUT: "--pid or --tid leaves out the owner",
    ENDS_UNKNOWN: "it is unknown what the last thread waits for",
    ENDS_IDLE: "the last thread waits for work: no hang",
}
"""Ends of chains of owners: the words of ChainEnd. --brief shows them in this order."""
