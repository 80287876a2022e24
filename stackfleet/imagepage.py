# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The page of one image of a lake, from its tables. It needs the plugins, which define its format."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Optional

from winstacks.columns import tables, words
from winstacks.findings.loststacks import LOST_STACKS, LostProcessStacks
from winstacks.findings.registry import check_named
from winstacks.html.htmlpage import flame_data
from winstacks.html.lists import MAX_FINDINGS, Frames, PageLists, image_part
from winstacks.html.prefixes import CUT, MAX_NAMES, REST, PrefixTree
from winstacks.html.report import check_texts
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.decode.text import process_label, short_of, with_address
from winstacks.options import CHECKS

from .database import Database
from .manifests import Manifest
from .sqltext import one_of, quoted

_SAME = "Shown, Module, Function, Backing, Unread"
_FRAMES = f"""\
of_frames AS (
    SELECT TraceId, Frame,
           coalesce(CASE WHEN {one_of("Symbol", sorted(words.NAMELESS))} THEN Symbol || ' ' || Address END,
                    Symbol, '<' || string_split(Status, ', ')[1] || '>') AS Shown, Module,
           Function, Backing, Symbol IS NULL AS Unread,
           How = {quoted(words.SCAN)}
           OR list_contains(string_split(Status, ', '), {quoted(StatusCode.UNSURE.value)}) AS Guess
    FROM frames
), numbered AS (
    SELECT row_number() OVER (ORDER BY {_SAME}) - 1 AS Number, *
    FROM (SELECT DISTINCT {_SAME} FROM of_frames)
)"""
_DISTINCT = f"WITH {_FRAMES} SELECT * FROM numbered ORDER BY Number LIMIT {MAX_NAMES}"
"""The distinct frames of an image. The address stands behind a Symbol that names no module and no file. For
an address that cannot be read its Status is shown."""

_EQUAL = " AND ".join(f"n.{name} IS NOT DISTINCT FROM f.{name}" for name in _SAME.split(", "))
_STACKS = f"""\
WITH {_FRAMES}, of_trace AS (
    SELECT f.TraceId, list(2 * Number + Guess::BIGINT ORDER BY Frame) AS Frames
    FROM of_frames f JOIN numbered n ON {_EQUAL}
    GROUP BY f.TraceId
)
SELECT Kind, PID, Process, TID, Owner, Count, Bytes, Unbacked, Status, TraceId, Frames
FROM traces LEFT JOIN of_trace USING (TraceId)
ORDER BY Kind, Process, PID, TID, TraceId"""
"""Each stack with its frames, innermost first: twice the number of the distinct frame, plus 1 for a guess."""


_FINDINGS = "SELECT * FROM findings WHERE Severity"


class ImagePage:
    """The content of an image's page.

    Args:
        database: views of this image alone
        manifest: the manifest of the image
    """

    def __init__(self, database: Database, manifest: Manifest) -> None:
        self._database = database
        self._manifest = manifest
        self._lists = PageLists()
        self._tree = PrefixTree()
        self._kept: dict[str, Frames] = {}

    def data(self, stack_keys: Collection[str] = ()) -> dict[str, Any]:
        """Returns the parts of the page.

        Args:
            stack_keys: TraceIds of stacks that `stack` will return later
        """
        arch = self._database.value("SELECT Arch FROM image LIMIT 1")
        # The table has the order of windows.tracefindings.
        rows = list(self._database.rows(f"{_FINDINGS} IS NOT NULL LIMIT {MAX_FINDINGS}"))
        self._read_stacks({*stack_keys, *(row["TraceId"] for row in rows)})
        for row in rows:
            frames = self._kept.get(row["TraceId"], ())
            finding_card = card({**row, "Address": canonical(row["Address"], arch)}, frames)
            self._lists.finding(finding_card, of_check(row["Finding"]))
        for row in self._database.rows(f"{_FINDINGS} IS NULL LIMIT {MAX_FINDINGS}"):
            self._lists.unchecked(row["Finding"], _whose(row) + (row["Evidence"] or ""))
        total = self._database.value("SELECT count(Severity) FROM findings")
        return {
            "image": self._image(),
            "findings": self._lists.findings(total),
            "flame": flame_data(self._tree, "stacks"),
            **self._lists.data(),
        }

    def stack(self, trace_id: str) -> list[str]:
        """Returns the frames of a stack whose TraceId was passed to `data`, innermost first."""
        return self._lists.texts(self._kept.get(trace_id, ()))

    def _image(self) -> dict[str, Any]:
        (row,) = self._database.rows("SELECT * FROM image LIMIT 1")
        part = image_part([row[column.name] for column in tables.IMAGE])
        manifest = self._manifest
        custody = [
            ("Path", manifest["path"], "Where the image lay when it was read."),
            ("Case", manifest["case"], "What --case said."),
            ("Note", manifest["note"], "What --note said."),
            ("Read", manifest["ended"], "When the reading ended."),
        ]
        part["rows"] = [[name, text, meaning] for name, text, meaning in custody if text] + part["rows"]
        return part

    def _read_stacks(self, stack_keys: Collection[str]) -> None:
        """Reads all stacks, and keeps the frames of the requested ones by TraceId."""
        lists, tree = self._lists, self._tree
        frames = list(self._database.rows(_DISTINCT))
        names: dict[int, int] = {}
        for row in self._database.rows(_STACKS):
            places = row["Frames"] or []
            process = process_label(row["Process"], row["PID"])
            if row["Count"]:
                for place in places:
                    if place not in names:
                        names[place] = self._name(frames, place)
                tree.add_stack(
                    row["Kind"], process, [names[place] for place in reversed(places)], row["Count"]
                )
            shown: Optional[Frames] = None
            if row["Kind"] in words.THREAD_KINDS and row["Owner"] is not None:
                if lists.room_for_thread():
                    shown = self._shown(frames, places)
                    lists.thread(
                        row["PID"],
                        row["Process"],
                        row["TID"],
                        kind=row["Kind"],
                        state="",
                        unbacked=row["Unbacked"] or 0,
                        frames=shown,
                        status=row["Status"],
                    )
            elif row["Kind"] == words.HEAP and row["Bytes"]:
                shown = self._shown(frames, places)
                lists.heap(row["Bytes"], row["Count"] or 0, process, shown, row["Status"])
            if row["TraceId"] in stack_keys:
                self._kept[row["TraceId"]] = self._shown(frames, places) if shown is None else shown

    def _name(self, frames: list[dict[str, Any]], place: int) -> int:
        number, guessed = divmod(place, 2)
        if number >= len(frames):
            return self._tree.name(CUT, look=REST)
        frame = frames[number]
        return self._tree.frame(
            frame["Shown"],
            frame["Module"],
            frame["Function"],
            readable=not frame["Unread"],
            unloaded=frame["Backing"] == words.UNLOADED,
            unbacked=frame["Backing"] in words.UNBACKED,
            guessed=bool(guessed),
        )

    def _shown(self, frames: list[dict[str, Any]], places: list[int]) -> Frames:
        shown = []
        for place in places:
            number, guessed = divmod(place, 2)
            if number >= len(frames):
                shown.append((CUT, bool(guessed), False))
            else:
                frame = frames[number]
                shown.append((frame["Shown"], bool(guessed), frame["Backing"] in words.UNBACKED))
        return self._lists.frames(shown)


def _whose(row: Mapping[str, Any]) -> str:
    """Returns the process of lost stacks, as on an image's page; empty for a check that could not run."""
    if row["Finding"] != LOST_STACKS:
        return ""
    return LostProcessStacks(0, row["PID"], row["Process"]).words + ": "


def card(row: dict[str, Any], frames: Frames) -> dict[str, Any]:
    """Returns the card of a finding.

    Args:
        row: row of `questions.findings`; its Address is canonical
        frames: numbers of the frames on the page
    """
    return {
        "severity": row["Severity"],
        "confidence": row["Confidence"] or "",
        "check": row["Finding"],
        "process": process_label(row["Process"], row["PID"]),
        "tid": row["TID"],
        "kind": row["Kind"],
        "symbol": None if row["Symbol"] is None else short_of(with_address(row["Symbol"], row["Address"])),
        "evidence": row["Evidence"] or "",
        # The evidence of a finding in several stacks states their number.
        "stacks": 1,
        "innocent": row["Innocent"] or "",
        "technique": row["Technique"] or "",
        "frame": row["Frame"],
        "frames": frames,
        "status": row["Status"] or "",
    }


def canonical(address: Optional[int], arch: Optional[str]) -> Optional[int]:
    """Returns the canonical form of an address of the table of findings, which has Volatility's form.

    Args:
        address: the address; None if there is none
        arch: Arch of the image; the address is returned as it is if no machine is called so
    """
    found = next((machine for machine in Machine if machine.arch == arch), None)
    return address if address is None or found is None else found.canonical(address)


def of_check(name: str) -> Optional[dict[str, str]]:
    """Returns the texts of a check for pages; None for a check that these plugins lack."""
    return check_texts(check_named(name)) if name in CHECKS else None
