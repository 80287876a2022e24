# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stacks as documents of the Elastic Common Schema, with the fields of Elastic Defend for call stacks.

A document is a stack with its findings; a finding without a stack is a document of its own. A field that is
unknown is absent: docs/ecs.md has the list.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from winstacks.columns.words import ARCHES, IMAGE, KERNEL, MAPPED, SEVERITIES, UNBACKED
from winstacks.memory.decode.memo import Memo
from winstacks.memory.decode.text import counted, last_part
from winstacks.names.filefolders import last_component
from winstacks.names.modulefiles import GivenFiles, ModuleClaims
from winstacks.process.regions import PROTECTIONS, WINDOWS, is_beneath

from .database import Database
from .provenance import sha256

VERSION = "8.11.0"
"""The version of the Elastic Common Schema whose fields are used."""

NOBODY, UNKNOWN = "Unbacked", "Unknown"
"""Words of Elastic Defend in place of the name of a module."""
BETWEEN = "|"

_LETTERS = dict(zip(PROTECTIONS, ("---", "R--", "--X", "R-X", "RW-", "RC-", "RWX", "RCX")))
"""Elastic Defend's form of protections; C stands for copy on write."""

_ARCHITECTURES = dict(zip(ARCHES, ("x86_64", "x86", "arm64")))
_RISKS = dict(zip(SEVERITIES, (73, 47, 21)))
"""event.severity, in the numbers of Elastic's own alerts."""

WIN32 = frozenset(
    f"{name}.dll"
    for name in (
        *("ntdll", "win32u", "kernelbase", "kernel32", "user32", "gdi32", "gdi32full", "advapi32", "sechost"),
        *("rpcrt4", "combase", "ole32", "oleaut32", "shell32", "shcore", "shlwapi", "ws2_32", "mswsock"),
        *("msvcrt", "ucrtbase", "wow64", "wow64base", "wow64con", "wow64cpu", "wow64win"),
    )
)
"""Files that pass calls on: in Windows's folder, none of them is call_stack_final_user_module."""

_TECHNIQUE = re.compile(r"\b(T[0-9]{4})(\.[0-9]{3})?\b")
_FILE_OF_MAPPING = re.compile(r"<mapped:(.+)>\+0x[0-9a-f]+$", re.DOTALL)
_KERNEL_HALF, _NARROW_KERNEL_HALF = 1 << 63, 1 << 31
"""Lowest address of a kernel; with a kernel of 32 bits, unless Windows was started with /3GB."""

_FRAME = (
    *("Address", "Module", "ModulePath", "ModuleStamp", "ModuleSize", "Symbol", "Backing", "PageProtection"),
    *("AllocationPrivateBytes", "CallsiteLeadingBytes", "CallsiteTrailingBytes"),
)
_FINDING = ("Severity", "Confidence", "Finding", "Symbol", "Evidence", "Innocent", "Technique", "Status")


def _packed(names: Sequence[str], table: str) -> str:
    return f"struct_pack({', '.join(f'{name} := {table}.{name}' for name in names)})"


_HOST = """\
(SELECT ImageId, Host, ComputerName, CaptureTime, BootTime, BuildLab, Arch AS HostArch
 FROM image JOIN hosts USING (ImageId))"""

_STACKS = f"""\
SELECT s.* EXCLUDE (Stack, Modules, Place), h.* EXCLUDE (ImageId), Findings,
       CASE WHEN f.Frame IS NOT NULL THEN {_packed(_FRAME, "f")} END AS OfFrame
FROM (SELECT *, row_number() OVER (PARTITION BY ImageId, TraceId ORDER BY Row) AS Place
      FROM traces WHERE {{where}}) s JOIN {_HOST} h USING (ImageId)
LEFT JOIN (SELECT *, 1 AS Place FROM frames) f USING (ImageId, TraceId, Place)
LEFT JOIN (SELECT ImageId, TraceId, 1 AS Place, list({_packed(_FINDING, "findings")} ORDER BY Row) AS Findings
           FROM findings WHERE Severity IS NOT NULL GROUP BY ALL) USING (ImageId, TraceId, Place)
ORDER BY s.Row, f.Frame"""
"""A row for each frame of each stack, and one for a stack without frames. DuckDB sorts rows on the disk if
they do not fit into memory; lists of frames would have to fit. Of stacks that share a TraceId, which only a
forged lake has, the first has the frames and the findings."""

_LOOSE = f"""\
SELECT ImageId, TraceId, Kind, PID, Process, ProcessOffset, TID, StackKey, f.Status, Host, ComputerName,
       CaptureTime, BootTime, BuildLab, HostArch, [{_packed(_FINDING, "f")}] AS Findings, Row
FROM (SELECT * FROM findings WHERE Severity IS NOT NULL AND {{where}}) f JOIN {_HOST} USING (ImageId)
WHERE NOT EXISTS (SELECT 1 FROM traces t WHERE t.ImageId = f.ImageId AND t.TraceId = f.TraceId)
ORDER BY Row"""


MOST_HASHES = 1 << 14
"""Hashes of files of modules that are kept."""

_Build = tuple[str, int, int]
"""Name of a file, TimeDateStamp, SizeOfImage."""


class FileHashes:
    """Finds the file of a module by name and build; a file of another build is not used, and logged.

    Args:
        folders: folders as `--binaries` of the plugins takes them; empty: no module has a hash
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._files = GivenFiles(folders)
        self._known: Memo[_Build, Optional[str]] = Memo(self._hash, MOST_HASHES)

    def sha256(self, frame: dict[str, Any]) -> Optional[str]:
        """Returns the SHA-256 of the file of a frame's module; None if it was not given."""
        stamp, size = frame["ModuleStamp"], frame["ModuleSize"]
        name = last_component(frame["ModulePath"] or frame["Module"] or "")
        return self._known[name, stamp, size] if name and stamp and size else None

    def _hash(self, build: _Build) -> Optional[str]:
        name, stamp, size = build
        file = self._files.find_file(ModuleClaims((name,), ((stamp, size),)))
        with contextlib.suppress(OSError):
            return None if file is None else sha256(file.path)
        return None


class Documents:
    """The documents of a lake.

    Args:
        where: SQL condition for stacks, by columns that findings have, too
        binaries: folders with files of modules, whose hashes are wanted
    """

    def __init__(self, database: Database, where: str, binaries: Sequence[str] = ()) -> None:
        self._database, self._where = database, where
        self._hashes = FileHashes(binaries)
        self._timeless = self._unchecked = 0

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yields the documents, image by image: each image's stacks, then its findings without a stack."""
        database = self._database
        images = database.table("SELECT ImageId FROM hosts ORDER BY Host, ImageId").column(0).to_pylist()
        for image_id in images:
            database.narrow([image_id])
            for statement in (_STACKS, _LOOSE):
                rows = database.rows(statement.format(where=self._where))
                for _, of_stack in itertools.groupby(rows, operator.itemgetter("Row")):
                    row, *more = of_stack
                    frames = [each["OfFrame"] for each in (row, *more) if each.get("OfFrame")]
                    self._timeless += row["CaptureTime"] is None
                    yield self._document({**row, "Frames": frames})
            self._unchecked += database.value("SELECT count(*) FROM findings WHERE Severity IS NULL")

    def messages(self) -> list[str]:
        """Returns messages about documents without a time, and checks that could not run."""
        found = (
            (self._timeless, "document", "without @timestamp: the image shows no time of capture"),
            (self._unchecked, "check", "could not run: no finding there means nothing"),
        )
        return [f"{counted(number, what)} {text}" for number, what, text in found if number]

    def _document(self, row: dict[str, Any]) -> dict[str, Any]:
        findings = row.get("Findings") or []
        worst = max((_RISKS.get(finding["Severity"], 0) for finding in findings), default=None)
        document = {
            "@timestamp": row["CaptureTime"],
            "ecs": {"version": VERSION},
            "event": {
                "kind": "alert" if findings else "state",
                "category": ["process"],
                "type": ["info"],
                "module": "stackfleet",
                "dataset": "stackfleet.traces",
                "severity": worst,
                "reason": "\n".join(map(_reason, findings)),
            },
            "host": _host(row),
            "process": {
                "pid": row["PID"],
                "name": row["Process"],
                "entity_id": f"{row['ImageId']}:{row['ProcessOffset']}" if row["ProcessOffset"] else None,
                "start": row.get("ProcessCreateTime"),
                "thread": {"id": row["TID"], "Ext": self._call_stack(row)},
            },
            "threat": _threat(findings),
            "tags": list(dict.fromkeys(finding["Finding"] for finding in findings)),
            "Stackfleet": {
                **{name: row[name] for name in ("ImageId", "TraceId", "Kind", "StackKey")},
                **{name: row.get(name) for name in ("Count", "Incomplete", "Guessed")},
                "Status": row["Status"],
            },
        }
        return _known(document)

    def _call_stack(self, row: dict[str, Any]) -> dict[str, Any]:
        frames = row["Frames"]
        modules = [module_of(frame) for frame in frames]
        summary = [name for place, name in enumerate(modules) if not place or modules[place - 1] != name]
        if not frames and row.get("Incomplete"):
            summary = [UNKNOWN]
        unbacked: Optional[bool] = NOBODY in modules
        if not unbacked and (row.get("Unbacked") is None or row.get("Incomplete") or row.get("Guessed")):
            # A missing frame may be unbacked.
            unbacked = None
        return {
            "call_stack": list(map(_entry, frames)),
            "call_stack_summary": BETWEEN.join(summary),
            "call_stack_contains_unbacked": unbacked,
            "call_stack_final_user_module": self._final(row, frames, modules),
        }

    def _final(
        self, row: dict[str, Any], frames: Sequence[dict[str, Any]], modules: Sequence[str]
    ) -> dict[str, Any]:
        """Returns the innermost module in user mode that is not one of WIN32; empty if there is none."""
        if row["Kind"] == KERNEL or not row["PID"]:
            return {}
        kernel = _NARROW_KERNEL_HALF if row["HostArch"] == "x86" else _KERNEL_HALF
        for frame, name in zip(frames, modules):
            path = frame["ModulePath"] or ""
            if int(frame["Address"] or "0", 16) >= kernel:
                continue
            if name in WIN32 and (not path or is_beneath(path, WINDOWS)):
                continue
            listed = frame["Backing"] == IMAGE
            digest = self._hashes.sha256(frame) if listed else None
            return {"name": name, "path": path if listed else None, "hash": {"sha256": digest}}
        return {}


def module_of(frame: dict[str, Any]) -> str:
    """Returns the module of a frame as call_stack_summary names it."""
    if frame["Backing"] in UNBACKED:
        return NOBODY
    if frame["Backing"] == IMAGE:
        name = frame["ModulePath"] or frame["Module"] or ""
    else:
        mapped = _FILE_OF_MAPPING.match(frame["Symbol"] or "") if frame["Backing"] == MAPPED else None
        name = mapped.group(1) if mapped else ""
    # No file of Windows has the separator in its name, but a hostile image may.
    name = last_part(name).lower().replace(BETWEEN, "_")
    return name or UNKNOWN


def _entry(frame: dict[str, Any]) -> dict[str, Any]:
    protection, _, _ = (frame["PageProtection"] or "").partition(BETWEEN)
    return {
        "symbol_info": _symbol_info(frame),
        "protection": _LETTERS.get(protection),
        "allocation_private_bytes": frame["AllocationPrivateBytes"],
        "callsite_leading_bytes": frame["CallsiteLeadingBytes"],
        "callsite_trailing_bytes": frame["CallsiteTrailingBytes"],
    }


def _symbol_info(frame: dict[str, Any]) -> str:
    """Returns the path of the file and what stands in Symbol behind the name of the module."""
    module, symbol = frame["Module"], frame["Symbol"] or ""
    if module and frame["ModulePath"] and symbol.startswith(module):
        return frame["ModulePath"] + symbol[len(module) :]
    if frame["Backing"] == IMAGE:
        return symbol or UNKNOWN
    return symbol if _FILE_OF_MAPPING.match(symbol) else module_of(frame)


def _host(row: dict[str, Any]) -> dict[str, Any]:
    captured, booted = row["CaptureTime"], row["BootTime"]
    uptime = int((captured - booted).total_seconds()) if captured and booted else None
    return {
        "name": row["Host"] if row["ComputerName"] else None,
        "hostname": row["ComputerName"],
        "architecture": _ARCHITECTURES.get(row["HostArch"]),
        "os": {"type": "windows", "family": "windows", "kernel": row["BuildLab"]},
        "uptime": uptime if uptime is not None and uptime >= 0 else None,
    }


def _threat(findings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = [match for item in findings for match in _TECHNIQUE.finditer(item["Technique"] or "")]
    techniques = sorted({match.group(1) for match in found})
    below = sorted({match.group() for match in found if match.group(2)})
    if not techniques:
        return {}
    return {"framework": "MITRE ATT&CK", "technique": {"id": techniques, "subtechnique": {"id": below}}}


def _reason(finding: dict[str, Any]) -> str:
    """Returns a finding as a sentence, with all that makes it doubtful."""
    head = f"{finding['Severity']} finding {finding['Finding']} ({finding['Confidence']})"
    parts = [f"{head} at {finding['Symbol']}" if finding["Symbol"] else head, finding["Evidence"]]
    parts.append(finding["Innocent"] and f"harmless if: {finding['Innocent']}")
    parts.append(finding["Status"] and f"status: {finding['Status']}")
    return "; ".join(filter(None, parts))


def _known(value: dict[str, Any]) -> dict[str, Any]:
    """Returns an object without the members that have no value."""
    kept: dict[str, Any] = {}
    for name, member in value.items():
        if isinstance(member, list):
            member = [_known(item) if isinstance(item, dict) else item for item in member]
        elif isinstance(member, dict):
            member = _known(member)
        elif isinstance(member, datetime.datetime):
            member = member.isoformat().replace("+00:00", "Z")
        if member is not None and (member or not isinstance(member, (str, list, dict))):
            kept[name] = member
    return kept
