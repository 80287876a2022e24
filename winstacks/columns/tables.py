# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The columns of each table, and those that --brief keeps.

    TABLES["locks"]         # the columns of windows.locks, from left to right
    BRIEF["locks"]          # the names of those that --brief keeps

A table always has all its columns: values that an image or an option does not provide are absent.
"""

from __future__ import annotations

from typing import Container, Dict, FrozenSet, Tuple

from .dictionary import COLUMNS, HEXSTR, REGISTER, Column, names
from .registers import ARM64_REGISTERS, X64_REGISTERS


def _table(listed: str, *own: Column) -> Tuple[Column, ...]:
    """Returns the columns that a list names; `own` replaces columns of the dictionary."""
    found = {**COLUMNS, **{column.name: column for column in own}}
    return tuple(found[name] for name in names(listed))


def _canonical(name: str) -> Column:
    """Returns a column of addresses in canonical form, which keeps all bits."""
    column = COLUMNS[name]
    return column._replace(type=HEXSTR, meaning=f"{column.meaning} It is canonical.")


_SPACE = "PID, Process, Arch"
_FRAME = "Frame, Address, Symbol, Source, Backing"
_FAULT = X64_REGISTERS.index("FaultAddress") + 1

TRACES = _table(
    "ImageId, Schema, TraceId, Kind, PID, Process, ProcessOffset, ProcessCreateTime, TID, "
    "ThreadCreateTime, Arch, Owner, OwnerName, Event, Count, Bytes, Depth, BackTraceHash, StackKey, "
    "ShapeKey, KeyQuality, Unbacked, Guessed, Stack, Modules, Incomplete, Status"
)
"""One row for each stack."""

FRAMES = _table(
    "ImageId, Schema, TraceId, PID, Arch, Frame, Address, Sp, Module, ModulePath, ModuleStamp, ModuleSize, "
    "Rva, Function, Displacement, Symbol, Source, How, ReturnRegister, Backing, Protection, PageProtection, "
    "AllocationPrivateBytes, CallsiteLeadingBytes, CallsiteTrailingBytes, Status",
    _canonical("Address"),
    _canonical("Sp"),
)
"""One row for each frame of each stack."""

IMAGE = _table(
    "ImageId, Schema, Files, VolatilityVersion, PluginVersion, KernelBuild, BuildLab, Product, Arch, "
    "Processors, CaptureTime, BootTime, BootTimeSource, TimeZoneBias, ComputerName, Processes, "
    "ProcessesFoundOtherwise, ProcessesUnreadable, Threads, Stacks, StacksIncomplete, Databases, "
    "StacksKnown, StacksRead, StructuresAbsent, Warnings, WarningText, Status, InputKind, Completeness, "
    "BugCheckCode, BugCheck, BugCheckParameters, Truncated, MissingShare, CrashCode, CrashName, "
    "CrashParameters, CrashAddress, CrashSymbol, CrashModule, CrashDriver, CrashPID, CrashProcess, "
    "CrashTID, CrashTraceId, CrashKey, CrashStack",
    COLUMNS["Arch"]._replace(meaning="Bitness of the kernel."),
    COLUMNS["Stacks"]._replace(meaning="Number of stacks of threads that were walked; null as Threads."),
    COLUMNS["Status"]._replace(
        meaning="What is wrong with the image as a whole, in fixed words; empty if nothing is."
    ),
)
"""One row for the image."""

WAITS = _table(
    "ImageId, Schema, TraceId, PID, Process, ProcessOffset, ProcessCreateTime, TID, ThreadCreateTime, Arch, "
    "WaitsFor, WaitAddress, WaitName, WaitMode, Since, Known, Ownership, OwnerPID, OwnerProcess, OwnerTID, "
    "ChainEnd, Deadlock, Symbol, Evidence, Status",
    COLUMNS["TraceId"]._replace(
        meaning="TraceId of the stack that shows the wait, in windows.traces.", nullable=True
    ),
    COLUMNS["WaitAddress"]._replace(
        type=HEXSTR,
        meaning=f"{COLUMNS['WaitAddress'].meaning} It has the form of Volatility's columns, as Owner.",
    ),
    COLUMNS["WaitsFor"]._replace(nullable=False),
    COLUMNS["Symbol"]._replace(meaning="The code that asked for the wait: a frame outside Windows's waits."),
)
"""One row for each thing for which a thread waits, and for each deadlock."""

FLAT: Dict[str, Tuple[Column, ...]] = {
    "traces": TRACES,
    "traceframes": FRAMES,
    "tracewaits": WAITS,
    "traceimage": IMAGE,
}
"""The flat tables: all rows at top level, described by a JSON schema."""

_FILES = _table("File output, Kind, Stacks, Frames, Weight, Status")

TABLES: Dict[str, Tuple[Column, ...]] = {
    **FLAT,
    "gflags": _table(
        f"{_SPACE}, NtGlobalFlag, Flags, Kind, Database, LocatedBy, Layout, Indexed, Chained, Freed, "
        "Orphans, Unindexed, Mismatched, UnreadableBytes, Status"
    ),
    "stacktracedb": _table(
        f"{_SPACE}, Database, Index, EntryAddress, Count, Depth, BackTraceHash, Unbacked, {_FRAME}, Status, "
        "CommittedMemory, ReservedMemory, Lookups, BackTraces, File output, Stack"
    ),
    "trapframes": _table(
        "PID, Process, TID, Arch, Origin, TrapFrame, TrapKind, Mode, Rip, Symbol, Source, Backing, "
        f"{', '.join(X64_REGISTERS[1:_FAULT])}, Unsure, NotSaved, Status, "
        f"{', '.join(X64_REGISTERS[_FAULT:])}, State, Processor, Member, Value, {', '.join(ARM64_REGISTERS)}",
        COLUMNS["Sp"]._replace(type=REGISTER, meaning="ARM64: the stack pointer."),
    ),
    "callstacks": _table(
        "PID, Process, TID, Arch, Part, Depth, BackTraceHash, Unbacked, Frame, Sp, Address, Symbol, "
        "Source, Backing, How, Status, State, WaitReason, StartAddress, StartSymbol, Count, Stack"
    ),
    "locks": _table(
        f"{_SPACE}, TID, Lock, LockType, Index, OwningThread, OwnerRole, OwnerPID, OwnerProcess, OwnerTID, "
        "LockCount, ContentionCount, EntryCount, RecursionCount, NumberOfWaitingShared, "
        f"NumberOfWaitingExclusive, Waiters, Evidence, Unbacked, {_FRAME}, Status, File output, Stack",
        COLUMNS["TID"]._replace(
            meaning="ID of the waiting thread, in a row `waiter` and in the rows of its stack."
        ),
        COLUMNS["OwnerPID"]._replace(meaning="ID of the process of the thread in OwnerTID or TID."),
        COLUMNS["OwnerProcess"]._replace(meaning="Name of the process of the thread in OwnerTID or TID."),
    ),
    "waits": _table(
        "PID, Process, TID, Arch, WaitsFor, WaitAddress, WaitName, WaitMode, Since, Known, Ownership, "
        f"OwnerPID, OwnerProcess, OwnerTID, ChainEnd, Step, Evidence, Unbacked, {_FRAME}, Status, Stack"
    ),
    "handletraces": _table(
        f"{_SPACE}, Handle, Event, ByPID, ByTID, Sequence, Object, ObjectType, ObjectName, Unbacked, "
        f"{_FRAME}, Status, Stack"
    ),
    "objecttraces": _table(
        f"{_SPACE}, Object, ObjectType, ObjectName, ImageFileName, Event, Count, Tag, Sequence, Unbacked, "
        f"{_FRAME}, Status, Stack"
    ),
    "heaptraces": _table(
        f"{_SPACE}, Heap, Index, EntryAddress, TraceKind, Count, Bytes, Block, BlockKind, Size, "
        f"Unbacked, {_FRAME}, Status, CountGrowth, BytesGrowth, File output, Stack"
    ),
    "tracefindings": _table(
        "ImageId, Severity, Confidence, Finding, PID, Process, ProcessOffset, TID, Kind, Frame, Address, "
        "Symbol, How, Evidence, Innocent, Group, Next, Technique, StackKey, TraceId, Status",
    ),
    "minidump": _table(f"{_SPACE}, TID, Member, Value, Unsure, NotSaved, Status, File output"),
    "info": _table(f"PID, Process, TID, Member, Value, Part, {_FRAME}, How, Status"),
    "tracegraph": _FILES,
    "tracereport": _FILES,
}
"""The columns of each plugin, from left to right, by its name. Plugins for images and for dumps with the same
name have the same columns; only dumps have `info`."""

WRITERS = frozenset(("tracegraph", "tracereport"))
"""Plugins that write files: each row describes a file or a part of one."""

KEYS: FrozenSet[str] = frozenset(
    names(
        "PID, Process, TID, Arch, Database, Index, EntryAddress, Part, Origin, TrapFrame, Lock, LockType, "
        "Handle, Event, Sequence, Object, ObjectType, ObjectName, ImageFileName, Heap, Block"
    )
)
"""Key columns: the rows below a row repeat them. No other column repeats."""

BRIEF: Dict[str, Tuple[str, ...]] = {
    "gflags": names(f"{_SPACE}, Kind, Database, Flags, Status"),
    "stacktracedb": names(f"{_SPACE}, Database, Index, Count, Symbol, Status"),
    "trapframes": names("PID, Process, TID, TrapKind, Symbol, Rip, Rsp, FaultAddress, Status"),
    "callstacks": names("PID, Process, TID, Part, Symbol, Status"),
    "locks": names("PID, Lock, Waiters, OwnerRole, OwnerProcess, OwnerTID, TID, Symbol, Evidence, Status"),
    "waits": names("PID, TID, WaitsFor, WaitAddress, OwnerTID, ChainEnd, Evidence, Status"),
    "handletraces": names("PID, Handle, Event, ObjectType, ObjectName, Symbol, Status"),
    "objecttraces": names("Object, ObjectName, Event, Sequence, Symbol, Status"),
    "heaptraces": names(f"{_SPACE}, Bytes, Count, Heap, Symbol, Status"),
    "tracefindings": names(
        "Severity, Confidence, Finding, PID, Process, TID, Symbol, Evidence, Innocent, Status"
    ),
    "minidump": names("PID, Process, TID, Member, Value, Status"),
    "info": names("Member, Value, Status"),
    "traces": names("PID, Process, TID, Kind, Count, Stack, Status"),
    "traceframes": names("TraceId, Frame, Symbol, Status"),
    "tracewaits": names("PID, TID, WaitsFor, WaitAddress, OwnerTID, ChainEnd, Symbol, Status"),
    "traceimage": names("ComputerName, KernelBuild, CaptureTime, Stacks, StacksIncomplete, Warnings, Status"),
}
"""The columns that --brief shows: whose row it is, what answers the question that the plugin is asked, and
Status. --fold replaces Symbol by Stack."""

BRIEF_SPARE: Dict[str, Tuple[str, ...]] = {
    "callstacks": names("Part, Process"),
    "gflags": names("Arch, Database"),
    "handletraces": names("ObjectType"),
    "heaptraces": names("Arch, Heap, Process, BlockKind, Size"),
    "locks": names("OwnerRole, OwnerProcess, Waiters, PID"),
    "minidump": names("Process, TID"),
    "objecttraces": names("Sequence, Event"),
    "traceimage": names("StacksIncomplete, ComputerName"),
    "stacktracedb": names("Arch, Database, Process"),
    "tracefindings": names("TID, Innocent, Process, Confidence"),
    "traces": names("Process, Kind"),
    "tracewaits": names("PID, WaitAddress, OwnerTID"),
    "waits": names("PID, WaitAddress, OwnerTID"),
    "trapframes": names("Rsp, TrapKind, FaultAddress, Process, TrapFrame, PID"),
}
"""Columns of --brief that a narrow terminal leaves out first, in this order, until the others fit."""

BRIEF_WITH: Dict[str, Dict[str, Tuple[str, ...]]] = {
    "trapframes": {"members": names("PID, TID, TrapFrame, Symbol, Member, Value, Status")},
    "callstacks": {"unique": names("Count, Part, Symbol, Status")},
    "heaptraces": {
        "summary": names(f"{_SPACE}, Bytes, Count, BytesGrowth, CountGrowth, Status"),
        "blocks": names("PID, Process, Bytes, Count, Block, BlockKind, Size, Symbol, Status"),
        "baseline": names(f"{_SPACE}, BytesGrowth, CountGrowth, Bytes, Count, Symbol, Status"),
    },
    "minidump": {"dump": names("PID, Process, TID, Member, Value, Status, File output")},
}
"""The columns that --brief shows if another option is given, by its name: it asks another question."""


def brief_columns(plugin: str, options: Container[str]) -> Tuple[str, ...]:
    """Returns the columns that --brief shows."""
    ways = BRIEF_WITH.get(plugin, {})
    columns = next((ways[option] for option in ways if option in options), BRIEF.get(plugin, ()))
    return tuple("Stack" if name == "Symbol" and "fold" in options else name for name in columns)


def column_named(plugin: str, name: str) -> str:
    """Returns the name of a column of a plugin, as TABLES has it; case does not matter. Raises ValueError if
    the plugin has no such column; the text lists those that it has."""
    known = {column.name.lower(): column.name for column in TABLES[plugin]}
    if name.strip().lower() not in known:
        raise ValueError(f"there is no column {name.strip()!r}; choose from {', '.join(known.values())}")
    return known[name.strip().lower()]
