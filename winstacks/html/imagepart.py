# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The part of a page about its image: the examiner's head, what is missing, and all facts in words.

    part = image_part(values)           # the row of windows.traceimage
    part["head"] += [["Report made", "2026-01-31 12:00:00 UTC"]]

This module does not need Volatility.
"""

from __future__ import annotations

import datetime
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from ..columns import jsoncells, words
from ..columns.dictionary import WARNING_SEPARATOR
from ..columns.tables import IMAGE
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import process_label

LABELS: Dict[str, str] = {
    "ImageId": "Identity of the image",
    "Files": "Files",
    "VolatilityVersion": "Version of Volatility",
    "PluginVersion": "Version of the plugins",
    "KernelBuild": "Windows build",
    "BuildLab": "Windows build, complete",
    "Product": "Product",
    "Arch": "Architecture",
    "Processors": "Processors",
    "CaptureTime": "Time of capture",
    "BootTime": "Time of the start of Windows",
    "BootTimeSource": "Source of the time of the start",
    "TimeZoneBias": "Local time is behind UTC by",
    "ComputerName": "Computer",
    "Processes": "Processes",
    "ProcessesFoundOtherwise": "Processes that the process list lacks",
    "ProcessesUnreadable": "Processes that cannot be read",
    "Threads": "Threads",
    "Stacks": "Stacks of threads",
    "StacksIncomplete": "Stacks of threads that are incomplete",
    "Databases": "Stack trace databases and trace logs",
    "StacksKnown": "Stacks that exist, by kind",
    "StacksRead": "Stacks that were read, by kind",
    "StructuresAbsent": "Structures that are missing, by reason",
    "Status": "Problems of the image",
    "InputKind": "Kind of the input",
    "Completeness": "Content of the input",
    "BugCheckCode": "Bug check, code",
    "BugCheck": "Bug check, name",
    "BugCheckParameters": "Bug check, parameters",
    "Truncated": "The file is cut",
    "MissingShare": "Missing part of the file",
    "CrashCode": "Crash, code",
    "CrashName": "Crash, name",
    "CrashParameters": "Crash, parameters",
    "CrashAddress": "Crash, address",
    "CrashSymbol": "Crash, code at the address",
    "CrashModule": "Crash, module",
    "CrashDriver": "Crash, innermost driver that is not Microsoft's",
    "CrashPID": "Crash, process ID",
    "CrashProcess": "Crash, process",
    "CrashTID": "Crash, thread ID",
    "CrashTraceId": "Crash, identity of the stack",
    "CrashKey": "Crash, key of the stack",
    "CrashStack": "Crash, stack",
}
"""The page's names of the columns of windows.traceimage. Schema and warnings have places of their own."""

_CLOCKS = {
    words.MEMORY_IMAGE: "the kernel's clock, KUSER_SHARED_DATA.SystemTime",
    words.PROCESS_DUMP: "the header of the dump, TimeDateStamp",
    words.SMALL_DUMP: "the header of the dump, SystemTime",
}
_UNKNOWN = "unknown"
_WITHOUT_FORM = "the value does not have the form of this column"
_COUNTS = ("StacksKnown", "StacksRead", "StructuresAbsent")
_CODES = ("BugCheckCode", "CrashCode")
_UNITS = {"TimeZoneBias": "minutes", "MissingShare": "%"}
_SAID = {"InputKind": words.INPUT_KINDS, "Completeness": words.COMPLETENESSES}

Row = Mapping[str, Any]
"""A row of windows.traceimage by column."""


def image_part(values: Sequence[object]) -> Dict[str, Any]:
    """Returns the part of the page about the image.

    Args:
        values: the row of windows.traceimage, in the order of IMAGE

    Returns:
        `head`: pairs of texts; `rows`: for each fact its column, its value and meaning in words, and its name
        in words; `complete`: see `completeness`; `warnings`: their texts, each once; `warned`: their number
    """
    row: Dict[str, Any] = {column.name: value for column, value in zip(IMAGE, values)}
    rows = []
    for column in IMAGE:
        value = row[column.name]
        if column.name in LABELS and value not in (None, ""):
            rows.append([column.name, _plain(column.name, value), column.meaning, LABELS[column.name]])
    warnings = str(row["WarningText"]).split(WARNING_SEPARATOR) if row["WarningText"] else []
    return {
        "head": [list(pair) for pair in _head(row)],
        "rows": rows,
        "complete": completeness(row),
        "warnings": warnings,
        "warned": max(row["Warnings"] or 0, len(warnings)),
    }


def _head(row: Row) -> Iterator[Sequence[str]]:
    """Yields the facts that an examiner's report names first. The text of an unknown fact says so."""
    files = jsoncells.files(row["Files"])
    if files is None:
        yield "File", _WITHOUT_FORM if row["Files"] else _UNKNOWN
    for file in files or ():
        yield "File", file.path
        yield "Size", f"{file.size:,} bytes" if file.size is not None else _UNKNOWN
        yield "SHA-256", file.sha256 or _no_digest(row)
    clock = _CLOCKS.get(row["InputKind"] or words.MEMORY_IMAGE, "")
    captured = row["CaptureTime"]
    yield "Captured", _UNKNOWN if captured is None else f"{_moment(captured)} ({clock})"
    yield "Computer", row["ComputerName"] or _UNKNOWN
    yield "Windows", _windows(row)
    if row["BugCheckCode"] is not None:
        yield "Bug check", _crash(row, "BugCheck", "BugCheckCode", "BugCheckParameters")
    elif row["CrashCode"] is not None:
        yield "Crash", _crash(row, "CrashName", "CrashCode", "CrashParameters")
    if row["CrashSymbol"]:
        thread = "" if row["CrashTID"] is None else f", thread {row['CrashTID']}"
        owner = process_label(row["CrashProcess"], row["CrashPID"])
        yield "Crashed at", f"{row['CrashSymbol']}, in {owner}{thread}"
    yield (
        "Made by",
        f"volatility3-stacktraces {row['PluginVersion']} on Volatility {row['VolatilityVersion']}",
    )


def _no_digest(row: Row) -> str:
    failed = StatusCode.FILE_NOT_HASHED.value.replace("{} ", "") in (row["Status"] or "")
    return "asked for, but the file could not be read" if failed else "not asked for; --sha256 computes it"


def _windows(row: Row) -> str:
    build = row["BuildLab"] or row["KernelBuild"]
    known = [f"build {build}" if build else "build unknown", row["Arch"], row["Product"]]
    return ", ".join(filter(None, known))


def _crash(row: Row, name: str, code: str, parameters: str) -> str:
    """Returns a bug check or an exception by its name."""
    called = row[name] or "a code without a known name"
    more = f", parameters {row[parameters]}" if row[parameters] else ""
    return f"{called} ({row[code]:#x}){more}"


_COUNTED = (
    ("stacks of threads are incomplete", "StacksIncomplete", "Stacks"),
    ("processes cannot be read", "ProcessesUnreadable", "Processes"),
    ("processes are not in the process list", "ProcessesFoundOtherwise", "Processes"),
)


def completeness(figures: Row) -> List[List[Any]]:
    """Returns what the image lacks: for each count that is not 0 its name, the missing number, and the total.

    The numbers are from windows.traceimage: StacksKnown without StacksRead for each kind of stacks.
    """
    counted = ((text, figures[part], figures[whole]) for text, part, whole in _COUNTED)
    known, read = (jsoncells.counts(figures[name]) or {} for name in ("StacksKnown", "StacksRead"))
    # Stacks of different kinds count different things, and are never added.
    by_kind = (
        (f"stacks of kind {kind} are not in the image", whole - read.get(kind, 0), whole)
        for kind, whole in known.items()
    )
    return [[text, part, whole] for text, part, whole in (*by_kind, *counted) if part and whole is not None]


def _plain(name: str, value: Any) -> str:
    """Returns the value of a column in words."""
    if name == "Files":
        files = jsoncells.files(value)
        if files is None:
            return _WITHOUT_FORM
        return "; ".join(f"{file.path} ({_described(file)})" for file in files)
    if name in _COUNTS:
        counts = jsoncells.counts(value)
        if counts is None:
            return _WITHOUT_FORM
        return ", ".join(f"{word}: {number:,}" for word, number in counts.items()) or "none"
    if name in _CODES:
        return f"{value:#x}"
    if name in _SAID:
        meaning = _SAID[name].get(value)
        return f"{value}: {meaning}" if meaning else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime.datetime):
        return _moment(value)
    return f"{value} {_UNITS[name]}" if name in _UNITS else str(value)


def _described(file: jsoncells.FileCell) -> str:
    size = "size unknown" if file.size is None else f"{file.size} bytes"
    return f"{size}, SHA-256 {file.sha256}" if file.sha256 else size


def _moment(value: datetime.datetime) -> str:
    return value.strftime("%Y-%m-%d %H:%M:%S UTC")
