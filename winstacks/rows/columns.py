# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The dictionary of columns: what each name means in every plugin, and which columns each plugin has.

    kind, form, meaning = COLUMNS["Address"]        # Hex, ADDRESS, "Address of the frame: ..."
    PLUGINS["locks"]                                # the columns of windows.locks, from left to right

The grids of all plugins are made from it, so that a name has one type and one meaning. Names follow
Microsoft's where there are any. A plugin always has all its columns: whatever an image or an option does not
have is absent.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Tuple

from volatility3.framework.renderers import format_hints

from ..traps.decode.frame import COLUMNS as REGISTERS

Hex = format_hints.Hex

ADDRESS = "address"
"""The form of a column that joins with the columns of Volatility: an address as Volatility masks it."""
REGISTER = "register"
"""The form of a column with the value of a register, bit for bit as it was saved."""
PLAIN = ""
"""The form of all others. One that is Hex holds an identifier, bits or bytes."""

Column = Tuple[type, str, str]
"""Type in Volatility, form, and meaning in one sentence."""

_GENERAL = ("Rsp", "Rbp", "Rax", "Rcx", "Rdx", "Rbx", "Rsi", "Rdi")
_EXTENDED = ("R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15")
_SEGMENTS = ("SegCs", "SegSs", "SegDs", "SegEs", "SegFs", "SegGs")
_DEBUG = ("Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7")


def _registers(names: Tuple[str, ...], meaning: str) -> Dict[str, Column]:
    return {name: (Hex, REGISTER, meaning.format(name)) for name in names}


COLUMNS: Dict[str, Column] = {
    # Where a row belongs.
    "PID": (int, PLAIN, "ID of the process to which the row belongs, 0 for the kernel."),
    "Process": (str, PLAIN, "Name of the process that has the PID, `nt` for the kernel."),
    "TID": (int, PLAIN, "ID of the thread to which the row belongs."),
    "Arch": (str, PLAIN, "Bitness of what the row shows, `x64` or `x86`; a WoW64 process has both."),
    # A stack.
    "Count": (
        int,
        PLAIN,
        "How often the stack is there: captures, equal events, blocks in use or equal stacks.",
    ),
    "Depth": (int, PLAIN, "Number of return addresses that the stack consists of."),
    "BackTraceHash": (
        Hex,
        PLAIN,
        "Sum of the low 32 bits of the return addresses: what RtlCaptureStackBackTrace returns.",
    ),
    "Unbacked": (int, PLAIN, "Number of frames whose Backing is neither `image` nor `mapped` nor `user`."),
    "Stack": (
        str,
        PLAIN,
        "With --fold the stack in one text, innermost frame first, with `; ` between Symbols.",
    ),
    # A frame.
    "Frame": (int, PLAIN, "Number of the frame in its stack, 0 for the innermost."),
    "Address": (Hex, ADDRESS, "Address at which the code of the frame goes on: a return address as a rule."),
    "Symbol": (str, PLAIN, "The address in words: module, function and offset, or what else lies there."),
    "Source": (
        str,
        PLAIN,
        "What Symbol is taken from: `pdb`, `export`, `nearest`, `module`, `unloaded` or `none`.",
    ),
    "Backing": (
        str,
        PLAIN,
        "What lies at the address: `image`, `mapped`, `private`, `unmapped`, `none` (a kernel address in no "
        "module), `unloaded` or `user` (a user address in a kernel stack).",
    ),
    "Status": (str, PLAIN, "What is wrong with the row, in fixed words; empty if nothing is."),
    "File output": (str, PLAIN, "Name of the file that the plugin wrote."),
    "Stacks": (int, PLAIN, "Number of rows of windows.traces that are in the file, or in a part of it."),
    "Frames": (int, PLAIN, "Number of their frames."),
    "Weight": (
        int,
        PLAIN,
        "Sum of the weights of the stacks: their Count, or what `--weight` of windows.tracegraph asks for.",
    ),
    # A trace that Windows keeps.
    "Database": (Hex, ADDRESS, "Address of the stack trace database, or of the heap's trace log."),
    "Index": (
        int,
        PLAIN,
        "Index of the trace in the stack trace database of its address space; 0 where a lock has none.",
    ),
    "EntryAddress": (Hex, ADDRESS, "Address of the record that holds the trace."),
    "TraceKind": (
        str,
        PLAIN,
        "Where the trace of heap blocks is kept: `log` (the heap's trace log), `std` (a stack trace "
        "database) or `inline` (the block itself).",
    ),
    # A database.
    "Kind": (str, PLAIN, "What keeps the stacks, such as `std` (a stack trace database) or `heaplog`."),
    "CommittedMemory": (Hex, PLAIN, "Bytes that the database has committed, as its header says."),
    "ReservedMemory": (Hex, PLAIN, "Bytes that the database has reserved, as its header says."),
    "Lookups": (int, PLAIN, "Number of captures that looked for their trace in the database."),
    "BackTraces": (int, PLAIN, "Number of traces in the database, as its header says."),
    "NtGlobalFlag": (Hex, PLAIN, "NtGlobalFlag of the kernel or of the process."),
    "Flags": (str, PLAIN, "The bits of NtGlobalFlag by the abbreviations of gflags."),
    "LocatedBy": (str, PLAIN, "How the database was found: `symbol` or `search`."),
    "Layout": (str, PLAIN, "Name of the layout that the database has."),
    "Indexed": (int, PLAIN, "Number of live traces with an index."),
    "Chained": (int, PLAIN, "Number of live traces that a hash chain leads to."),
    "Freed": (int, PLAIN, "Number of released traces whose block is still there."),
    "Orphans": (int, PLAIN, "Number of blocks in use that neither the index array nor a chain leads to."),
    "Unindexed": (
        int,
        PLAIN,
        "Number of live traces for which nobody asked for an index; only chains lead to them.",
    ),
    "Mismatched": (
        int,
        PLAIN,
        "Number of traces that contradict the index array, their chain or their depth.",
    ),
    "UnreadableBytes": (int, PLAIN, "Bytes of the used parts of the database that are not in the image."),
    # A thread.
    "Part": (
        str,
        PLAIN,
        "The part of the thread's execution that the stack shows: `kernel`, `user` or `wow64`; before a "
        "callback to user mode `kernel 2`, `user 2` and so on.",
    ),
    "Sp": (Hex, ADDRESS, "Address of the frame on the stack: the stack pointer when the code goes on."),
    "How": (
        str,
        PLAIN,
        "How the address was found: `trap`, `unwind`, `leaf`, `framepointer`, `scan` (a guess) "
        "or `recorded`. Of a finding `shadow` where the thread's shadow stack has the address, too.",
    ),
    "State": (str, PLAIN, "Scheduling state of the thread."),
    "WaitReason": (str, PLAIN, "Why the thread waits."),
    "StartAddress": (Hex, ADDRESS, "Where the thread was started: Win32StartAddress, else StartAddress."),
    "StartSymbol": (str, PLAIN, "StartAddress in words, as in Symbol."),
    # A register state.
    "Origin": (
        str,
        PLAIN,
        "How the registers were found: `thread`, `top`, `stack`, `processor` or `wow64`.",
    ),
    "TrapFrame": (Hex, ADDRESS, "Address of the trap frame or context in which the registers were saved."),
    "TrapKind": (
        str,
        PLAIN,
        "What led into the kernel: `syscall`, `service`, `interrupt` or `exception`.",
    ),
    "Mode": (str, PLAIN, "The mode that was interrupted, `user` or `kernel`."),
    "Processor": (
        str,
        PLAIN,
        "The processor that saved the registers, or on whose own stack they are (`CPU 0 dpc`).",
    ),
    "Unsure": (str, PLAIN, "Names of the registers of which it is not known whether they were saved."),
    "NotSaved": (
        str,
        PLAIN,
        "Names of the registers that were not saved, whose columns are therefore absent.",
    ),
    "Member": (str, PLAIN, "Name of a member of the structure."),
    "Value": (str, PLAIN, "Value of the member, and what it is worth."),
    "Rip": (Hex, REGISTER, "Rip (Eip): the address at which the interrupted code goes on; Symbol names it."),
    **_registers(_GENERAL, "Register {0}; of 32 bits in an x86 row."),
    **_registers(_EXTENDED, "Register {0}; x86 has none."),
    "EFlags": (Hex, REGISTER, "The flags register."),
    "ErrorCode": (Hex, REGISTER, "The error code of the exception."),
    "FaultAddress": (Hex, REGISTER, "The address that a page fault was about (Cr2); not in x86 trap frames."),
    **_registers(_SEGMENTS, "Segment register {0}."),
    "GsSwap": (Hex, REGISTER, "Value that the entry kept of the user's Gs base; x86 has none."),
    "PreviousMode": (int, REGISTER, "PreviousMode of the thread before the entry: 0 kernel, 1 user."),
    "PreviousIrql": (int, REGISTER, "Interrupt request level before the entry."),
    **_registers(_DEBUG, "Debug register {0}."),
    "MxCsr": (Hex, REGISTER, "Control and status of SSE."),
    # A lock.
    "Lock": (Hex, ADDRESS, "Address of the lock; of its debug information where only that is known."),
    "LockType": (str, PLAIN, "What the lock is: `resource`, `fast resource` or `critical section`."),
    "OwningThread": (
        Hex,
        ADDRESS,
        "The owner as the lock has it: address of an _ETHREAD, in a critical section a thread ID.",
    ),
    "OwnerRole": (
        str,
        PLAIN,
        "What the thread is to the lock: `exclusive owner`, `shared owner` or `waiter`.",
    ),
    "OwnerPID": (int, PLAIN, "ID of the owner's process."),
    "OwnerProcess": (str, PLAIN, "Name of the owner's process."),
    "OwnerTID": (int, PLAIN, "ID of the thread that owns the lock, or waits for it."),
    "LockCount": (int, PLAIN, "LockCount as a critical section holds it; how many owners a resource has."),
    "ContentionCount": (int, PLAIN, "How often a thread had to wait for the lock."),
    "EntryCount": (int, PLAIN, "EntryCount as the lock's debug information holds it."),
    "RecursionCount": (int, PLAIN, "How many times the owner has taken the lock."),
    "NumberOfWaitingShared": (int, PLAIN, "Number of threads that wait for shared ownership."),
    "NumberOfWaitingExclusive": (int, PLAIN, "Number of threads that wait for exclusive ownership."),
    # A handle or an object.
    "Handle": (Hex, PLAIN, "The handle, as the process has it."),
    "Event": (str, PLAIN, "What was done with the handle or object."),
    "Sequence": (int, PLAIN, "Number of the event, which says in which order events happened."),
    "ByPID": (int, PLAIN, "ID of the process that did it."),
    "ByTID": (int, PLAIN, "ID of the thread that did it."),
    "Object": (Hex, ADDRESS, "Address of the object's body."),
    "ObjectType": (str, PLAIN, "Name of the object's type."),
    "ObjectName": (str, PLAIN, "Name of the object."),
    "ImageFileName": (str, PLAIN, "Name of the process that made the object, as its trace keeps it."),
    "Tag": (str, PLAIN, "Tag under which the reference was taken or dropped."),
    # A heap.
    "Heap": (Hex, ADDRESS, "Address of the heap."),
    "Bytes": (int, PLAIN, "Bytes that the callers asked for in all blocks that Count counts."),
    "CountGrowth": (int, PLAIN, "How much more Count is than in the baseline."),
    "BytesGrowth": (int, PLAIN, "How many more Bytes there are than in the baseline."),
    "Block": (Hex, ADDRESS, "Address of the caller's bytes; of the heap, segment or container itself."),
    "BlockKind": (
        str,
        PLAIN,
        "What Block is: `heap`, `heap segment`, `segment heap`, `page heap` or `lfh container`; of blocks "
        "`block`, `lfh`, `virtual`, `lightpage`, `page`, `large` or `segment`.",
    ),
    "Size": (int, PLAIN, "Bytes of Block: those that the caller asked for, or all of a heap or segment."),
    # A finding.
    "ImageId": (str, PLAIN, "The image: the same for the same files, and it starts with a letter."),
    "Severity": (
        str,
        PLAIN,
        "How much a finding matters, `high`, `medium` or `low`: each check fixes it.",
    ),
    "Confidence": (
        str,
        PLAIN,
        "How sure it is that what Evidence says is so: `certain`, `likely` or `possible`.",
    ),
    "Finding": (str, PLAIN, "Name of the check."),
    "ProcessOffset": (Hex, ADDRESS, "Address of the _EPROCESS, as `Offset(V)` of windows.pslist has it."),
    "Evidence": (
        str,
        PLAIN,
        "What a second examiner can check: VAD, page table entry, bytes, lists; or why a check did not run.",
    ),
    "Innocent": (str, PLAIN, "What else explains the finding in this process."),
    "Technique": (str, PLAIN, "IDs of MITRE ATT&CK techniques that look like this."),
    "StackKey": (str, PLAIN, "Key of the code in the stack, equal on every machine and at every boot."),
    "TraceId": (str, PLAIN, "The stack: with ImageId the key of its row in windows.traces."),
}
"""Type, form and meaning of each column by its name."""

KEYS: FrozenSet[str] = frozenset(
    (
        *(
            "PID",
            "Process",
            "TID",
            "Arch",
            "Database",
            "Index",
            "EntryAddress",
            "Part",
            "Origin",
            "TrapFrame",
        ),
        *("Lock", "LockType", "Handle", "Event", "Sequence", "Object", "ObjectType", "ObjectName"),
        *("ImageFileName", "Heap", "Block"),
    )
)
"""The columns that say to what a row belongs: the rows below a row repeat them. No other column repeats."""

_SPACE = ("PID", "Process", "Arch")
_FRAME = ("Frame", "Address", "Symbol", "Source", "Backing")
_FAULT = REGISTERS.index("FaultAddress") + 1

PLUGINS: Dict[str, Tuple[str, ...]] = {
    "gflags": (
        *(*_SPACE, "NtGlobalFlag", "Flags", "Kind", "Database", "LocatedBy", "Layout", "Indexed", "Chained"),
        *("Freed", "Orphans", "Unindexed", "Mismatched", "UnreadableBytes", "Status"),
    ),
    "stacktracedb": (
        *(*_SPACE, "Database", "Index", "EntryAddress", "Count", "Depth", "BackTraceHash", "Unbacked"),
        *(*_FRAME, "Status", "Stack", "CommittedMemory", "ReservedMemory", "Lookups", "BackTraces"),
        "File output",
    ),
    "trapframes": (
        *("PID", "Process", "TID", "Arch", "Origin", "TrapFrame", "TrapKind", "Mode", "Rip", "Symbol"),
        *("Source", "Backing", *REGISTERS[1:_FAULT], "Unsure", "NotSaved", "Status", *REGISTERS[_FAULT:]),
        *("State", "Processor", "Member", "Value"),
    ),
    "callstacks": (
        *("PID", "Process", "TID", "Arch", "Part", "Depth", "BackTraceHash", "Unbacked", "Frame", "Sp"),
        *("Address", "Symbol", "Source", "Backing", "How", "Status", "State", "WaitReason", "StartAddress"),
        *("StartSymbol", "Count", "Stack"),
    ),
    "locks": (
        *(*_SPACE, "Lock", "LockType", "Index", "OwningThread", "OwnerRole", "OwnerPID", "OwnerProcess"),
        *(
            "OwnerTID",
            "LockCount",
            "ContentionCount",
            "EntryCount",
            "RecursionCount",
            "NumberOfWaitingShared",
        ),
        *("NumberOfWaitingExclusive", "Unbacked", *_FRAME, "Status", "File output", "Stack"),
    ),
    "handletraces": (
        *(*_SPACE, "Handle", "Event", "ByPID", "ByTID", "Sequence", "Object", "ObjectType", "ObjectName"),
        *("Unbacked", *_FRAME, "Status", "Stack"),
    ),
    "objecttraces": (
        *(
            *_SPACE,
            "Object",
            "ObjectType",
            "ObjectName",
            "ImageFileName",
            "Event",
            "Count",
            "Tag",
            "Sequence",
        ),
        *("Unbacked", *_FRAME, "Status", "Stack"),
    ),
    "heaptraces": (
        *(*_SPACE, "Heap", "Index", "EntryAddress", "TraceKind", "Count", "Bytes", "CountGrowth"),
        *("BytesGrowth", "Block", "BlockKind", "Size", "Unbacked", *_FRAME, "Status", "File output", "Stack"),
    ),
    "tracefindings": (
        *("ImageId", "Severity", "Confidence", "Finding", "PID", "Process", "ProcessOffset", "TID", "Kind"),
        *("Frame", "Address", "Symbol", "How", "Evidence", "Innocent", "Technique", "StackKey", "TraceId"),
        "Status",
    ),
    "tracegraph": ("File output", "Kind", "Stacks", "Frames", "Weight", "Status"),
    "tracereport": ("File output", "Kind", "Stacks", "Frames", "Weight", "Status"),
}
"""The columns of each plugin, from left to right."""

WRITERS = frozenset(("tracegraph", "tracereport"))
"""Plugins that write files: a row is of a file, or of a part of it, and of no process."""

_PROCESS = ("PID", "Process")
_SAID = ("Symbol", "Status")

BRIEF: Dict[str, Tuple[str, ...]] = {
    "gflags": (*_SPACE, "Kind", "Database", "Flags", "Status"),
    "stacktracedb": (*_SPACE, "Database", "Index", "EntryAddress", *_SAID),
    "trapframes": (*_PROCESS, "TID", "Arch", "Origin", "TrapFrame", *_SAID),
    "callstacks": (*_PROCESS, "TID", "Part", *_SAID),
    "locks": (*_PROCESS, "Lock", "OwningThread", "OwnerRole", *_SAID),
    "handletraces": (*_PROCESS, "Handle", "Event", "Sequence", *_SAID),
    "objecttraces": ("Object", "ImageFileName", "Event", "Sequence", *_SAID),
    "heaptraces": (*_PROCESS, "Arch", "Index", "EntryAddress", "Block", *_SAID),
    "tracefindings": ("Severity", "Finding", *_PROCESS, "TID", "Symbol", "Evidence", "Status"),
}
"""The columns that --brief leaves: those that tell rows apart, what the address is, and Status. --fold puts
Stack in the place of Symbol."""
BRIEF_MEMBERS = ("PID", "TID", "TrapFrame", "Symbol", "Member", "Value", "Status")
"""The columns that --brief leaves of windows.trapframes with --members."""
