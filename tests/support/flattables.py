# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The flat tables beside what the plugins of each source print."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Dict, Iterable, List, Tuple

from volatility3.plugins.windows import (
    callstacks,
    handletraces,
    heaptraces,
    locks,
    objecttraces,
    stacktracedb,
    traceframes,
    traces,
)

from tests.forge.context import Opened
from tests.support import grid

Row = Dict[str, Any]

SOURCES = {
    "thread": callstacks.CallStacks,
    "database": stacktracedb.StackTraceDb,
    "heap": heaptraces.HeapTraces,
    "lock": locks.Locks,
    "handle": handletraces.HandleTraces,
    "object": objecttraces.ObjectTraces,
}
"""The plugins of the sources."""

KINDS = {
    "thread": ("kernel", "user", "wow64"),
    "database": ("std", "heaplog"),
    **{name: (name,) for name in ("heap", "lock", "handle", "object")},
}
"""The kinds of each source."""

_STACK = ("PID", "Process", "Arch", "Unbacked", "Stack", "Status")
_FRAME = ("PID", "Arch", "Frame", "Symbol", "Source", "Backing", "Status")


def stacks(opened: Opened, **options: Any) -> List[Row]:
    """The rows of windows.traces."""
    return [node.row for node in grid.run(opened, traces.StackTraces, **options)]


def frames(opened: Opened, **options: Any) -> List[Row]:
    """The rows of windows.traceframes."""
    return [node.row for node in grid.run(opened, traceframes.TraceFrames, **options)]


def by_trace(rows: Iterable[Row]) -> Dict[str, List[Row]]:
    """Frames by the stack that they are of."""
    found: Dict[str, List[Row]] = {}
    for row in rows:
        found.setdefault(row["TraceId"], []).append(row)
    return found


def of_plugin(opened: Opened, source: str, **options: Any) -> List[Tuple[Any, ...]]:
    """Stacks and their frames as the plugin of a source prints them, those of its other rows left out."""
    plugin = SOURCES[source]
    folded, plain = (grid.run(opened, plugin, fold=fold, **options) for fold in (True, False))
    found = []
    for stack, node in zip(folded, plain):
        below = node.children
        if source == "lock":
            # A waiting thread is no owner, and its stack is one of another kind: each frame has its ID.
            below = [row for row in below if row["OwnerRole"] not in ("waiter", "deadlock")]
            below = [row for row in below if row["Frame"] is None or row["TID"] is None]
        own = [row for row in below if row["Frame"] is not None]
        # A database, and a lock or heap of which no stack was kept, is no stack.
        if source == "database" and stack.row["EntryAddress"] is None:
            continue
        if source == "lock" and stack.row["Index"] == 0 and not own:
            continue
        if source == "heap" and not (own or stack.row["Status"] or stack.row["Count"]):
            continue
        if source == "lock":
            stack.row["Status"] = _of_owners(stack.row["Status"], below)
        found.append((_cells(stack.row, _STACK), [_shown(row) for row in own]))
    return _ordered(found, source)


def _of_owners(text: str, rows: List[Row]) -> str:
    """What windows.traces says of a lock whose owners have rows in windows.locks."""
    owners = [row for row in rows if row["OwnerRole"] is not None]
    tids = {row["OwnerTID"]: None for row in owners if row["OwnerTID"]}
    words = [*text.split(", "), *(row["Status"] for row in owners)]
    if len(tids) > 1:
        words.append(f"owned by {' '.join(map(str, tids))}")
    return ", ".join(dict.fromkeys(filter(None, words)))


def of_tables(rows: List[Row], framed: List[Row], source: str) -> List[Tuple[Any, ...]]:
    """The same as the flat tables have it."""
    below = by_trace(framed)
    found = []
    for row in rows:
        # What stands for a whole database, or for one that cannot be found, is no stack.
        if row["Kind"] not in KINDS[source] or (source == "database" and row["Count"] is None):
            continue
        # Where stacks cannot be read, the tables have a row of each kind; windows.callstacks has only the
        # kernel's.
        if source == "thread" and row["Count"] is None and row["Kind"] != "kernel":
            continue
        found.append((_cells(row, _STACK), [_shown(frame) for frame in below.get(row["TraceId"], [])]))
    return _ordered(found, source)


def _ordered(found: List[Tuple[Any, ...]], source: str) -> List[Tuple[Any, ...]]:
    """Returns stacks in an order that both have: windows.heaptraces has traces before heaps."""
    return sorted(found, key=repr) if source == "heap" else found


def stack_key(rows: List[Row]) -> Any:
    """StackKey of a stack from its frames, by what docs/flat-tables.md says and no code of ours."""
    lines = []
    for row in rows:
        if row["How"] == "scan" or (row["Frame"] == 0 and row["How"] == "trap"):
            continue
        if row["Address"] is None:
            lines.append("<unreadable>")
        elif row["Backing"] is None:
            lines.append(row["Symbol"])
        elif row["Backing"] != "image":
            lines.append(f"<{row['Backing']}>")
        elif row["ModuleStamp"] is None or row["ModuleSize"] is None:
            lines.append(f"{row['Module'].lower()},,,{row['Rva']:08x}")
        else:
            numbers = [row[name] for name in ("ModuleStamp", "ModuleSize", "Rva")]
            lines.append(",".join([row["Module"].lower(), *(f"{number:08x}" for number in numbers)]))
    return _digest("".join(f"{line}\n" for line in lines)) if lines else None


def shape_key(rows: List[Row]) -> Any:
    """ShapeKey of a stack, in the same way."""
    text = modules([row for row in rows if row["How"] != "scan" and (row["Frame"] or row["How"] != "trap")])
    return None if text is None else _digest(text)


def modules(rows: List[Row]) -> Any:
    """Modules of a stack, in the same way: of all its frames."""
    names = []
    for row in rows:
        if row["Address"] is None:
            names.append("<unreadable>")
        elif row["Backing"] == "image":
            names.append(row["Module"].lower())
        else:
            names.append(row["Symbol"] if row["Backing"] is None else f"<{row['Backing']}>")
    return "; ".join(name for name, _ in itertools.groupby(names)) if names else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _cells(row: Row, names: Iterable[str]) -> Tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _shown(row: Row) -> Tuple[Any, ...]:
    """A frame, its address in the form of Volatility's columns."""
    address = row["Address"]
    if isinstance(address, str):
        address = grid.masked(int(address, 16))
    found: Tuple[Any, ...] = (address, *_cells(row, _FRAME))
    return found
