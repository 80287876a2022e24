# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The queries for single stacks and crashes, in SQL."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Optional

from winstacks.columns.words import THREAD_KINDS
from winstacks.memory.decode.text import symbol_globs

from .layout import FRAMES, IMAGE, TRACES
from .questions import Question
from .sqltext import chosen, quoted

ORDERS = {"unbacked": "Unbacked", "bytes": "Bytes", "count": "Count"}
"""Columns by which stacks can be sorted, the most first."""


def stacks(
    find: str,
    process: str,
    kinds: Sequence[str],
    unbacked: bool,
    order: str,
    image_ids: Optional[Sequence[str]],
) -> Question:
    """Returns stacks of all images.

    Args:
        find: glob for the Symbol of a frame, as `--find` of windows.traces; empty for all
        process: glob for the name of the process, or its PID; empty for all
        kinds: kinds of the stacks; all when empty
        unbacked: whether only stacks with a frame outside any file are listed
        order: one of ORDERS
        image_ids: images whose stacks are listed; None for all
    """
    conditions, found = [chosen("Kind", kinds or None), chosen("ImageId", image_ids)], ""
    if find:
        globs = itertools.chain(*symbol_globs(find.lower()))
        symbols = " OR ".join(f"lower(Symbol) GLOB {quoted(glob)}" for glob in globs)
        found = f" SEMI JOIN (SELECT ImageId, TraceId FROM frames WHERE {symbols}) USING (ImageId, TraceId)"
    if process:
        conditions.append(
            f"PID = {int(process)}"
            if process.isdecimal() and len(process) < 10
            else f"lower(Process) GLOB {quoted(process.lower())}"
        )
    if unbacked:
        conditions.append("Unbacked > 0")
    return Question(
        f"""\
SELECT ImageId, TraceId, Kind, PID, Process, TID, Arch, OwnerName, Event, Count, Bytes, Depth, Unbacked,
       Guessed, Incomplete, KeyQuality, StackKey, ShapeKey, Status, Stack
FROM traces{found}
WHERE {" AND ".join(conditions)}
ORDER BY coalesce({ORDERS[order]}, 0) DESC, ImageId, TraceId""",
        TRACES,
        kinds=kinds,
        images=image_ids,
    )


def stack(trace_id: str, image_ids: Optional[Sequence[str]]) -> Question:
    """Returns the frames of a stack, the innermost first, in each image that has the TraceId."""
    return Question(
        f"""\
SELECT ImageId, TraceId, Frame, Symbol, How, Source, Backing, Protection, Status, Address, ModulePath,
       ReturnRegister
FROM frames WHERE TraceId = {quoted(trace_id)} AND {chosen("ImageId", image_ids)}
ORDER BY ImageId, Frame""",
        FRAMES,
        images=image_ids,
    )


def crashes(image_ids: Optional[Sequence[str]]) -> Question:
    """Returns the crashes of dumps: a row for each image that is one of a crash."""
    return Question(
        f"""\
SELECT ImageId, HostText AS Host, InputKind, Completeness, CaptureTime, CrashCode, CrashName, CrashParameters,
       CrashAddress, CrashSymbol, CrashModule, CrashDriver, CrashPID, CrashProcess, CrashTID, CrashTraceId,
       CrashKey, CrashStack, Status
FROM image JOIN hosts USING (ImageId)
WHERE CrashCode IS NOT NULL AND {chosen("ImageId", image_ids)}
ORDER BY CaptureTime DESC NULLS LAST, ImageId""",
        IMAGE,
        kinds=THREAD_KINDS,
        images=image_ids,
    )
