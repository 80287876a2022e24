# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pages of images of a lake, from its tables. They need the plugins, which define their format."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

from winstacks.columns import tables, words
from winstacks.findings.loststacks import LOST_STACKS, LostProcessStacks
from winstacks.findings.registry import check_named
from winstacks.html.htmlpage import flame_data
from winstacks.html.imagepart import image_part
from winstacks.html.lists import MAX_FINDINGS, Frames, PageLists
from winstacks.html.prefixes import CUT, MAX_NAMES, REST, PrefixTree
from winstacks.html.report import check_texts
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.decode.text import process_label, short_of, with_address
from winstacks.options import CHECKS

from .database import Database
from .sqltext import one_of, quoted

_SAME = "Shown, Module, Function, Backing, Unread"
OF_FRAMES = f"""\
of_frames AS (
    SELECT ImageId, TraceId, Frame,
           coalesce(CASE WHEN {one_of("Symbol", sorted(words.NAMELESS))} THEN Symbol || ' ' || Address END,
                    Symbol, '<' || string_split(Status, ', ')[1] || '>') AS Shown,
           Module, Function, Backing, Symbol IS NULL AS Unread,
           coalesce(
               How = {quoted(words.SCAN)}
               OR list_contains(string_split(Status, ', '), {quoted(StatusCode.UNSURE.value)}), true
           ) AS Guess
    FROM frames
)"""
"""Frames as pages show them: the address behind a Symbol that names no module and no file, and the Status in
the place of a name that cannot be read."""

_FRAMES = f"""\
{OF_FRAMES}, numbered AS (
    SELECT row_number() OVER (PARTITION BY ImageId ORDER BY {_SAME}) - 1 AS Number, *
    FROM (SELECT DISTINCT ImageId, {_SAME} FROM of_frames)
)"""
_DISTINCT = f"WITH {_FRAMES} SELECT * FROM numbered WHERE Number < {MAX_NAMES} ORDER BY ImageId, Number"
"""The distinct frames of each image."""

_EQUAL = " AND ".join(f"n.{name} IS NOT DISTINCT FROM f.{name}" for name in _SAME.split(", "))
_STACKS = f"""\
WITH {_FRAMES}, of_trace AS (
    SELECT f.ImageId, f.TraceId, list(2 * Number + Guess::BIGINT ORDER BY Frame) AS Frames
    FROM of_frames f JOIN numbered n ON n.ImageId = f.ImageId AND {_EQUAL}
    GROUP BY f.ImageId, f.TraceId
)
SELECT ImageId, Kind, PID, Process, TID, Owner, Count, Bytes, Unbacked, Status, TraceId, Frames
FROM traces LEFT JOIN of_trace USING (ImageId, TraceId)
ORDER BY ImageId, Kind, Process, PID, TID, TraceId"""
"""Each stack with its frames, innermost first: twice the number of the distinct frame, plus 1 for a guess."""

MOST_ROWS = 1 << 17
"""The most stacks and frames of images that are read together, unless one image has more."""

Row = dict[str, Any]
Manifest = Row
"""A row of the view of manifests."""


def together(manifests: Iterable[Manifest]) -> Iterator[list[Manifest]]:
    """Yields images that are read together: many small images cost one query, as a large one does."""
    chunk: list[Manifest] = []
    rows = 0
    for manifest in manifests:
        more = manifest["rows"]
        if chunk and rows + more > MOST_ROWS:
            yield chunk
            chunk, rows = [], 0
        chunk.append(manifest)
        rows += more
    if chunk:
        yield chunk


def image_pages(database: Database, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest, Row]]:
    """Yields each image with the parts of its page.

    Args:
        database: views of these images alone
    """
    by_id = {manifest["image_id"]: _ImageRows() for manifest in manifests}
    # A file may have rows of an image that is not among these, or of none.
    other = _ImageRows()
    for row in database.rows("SELECT * FROM image"):
        by_id.get(row["ImageId"], other).image = row
    # Rows have the order of windows.tracefindings.
    for row in database.rows("SELECT * FROM findings ORDER BY ImageId, Row"):
        by_id.get(row["ImageId"], other).add_finding(row)
    for row in database.rows(_DISTINCT):
        by_id.get(row["ImageId"], other).frames.append(row)
    stacks = itertools.groupby(database.rows(_STACKS), key=operator.itemgetter("ImageId"))
    image_id, rows = next(stacks, _NO_STACKS)
    for manifest in sorted(manifests, key=operator.itemgetter("image_id")):
        while image_id is not None and image_id < manifest["image_id"]:
            image_id, rows = next(stacks, _NO_STACKS)
        own = rows if image_id == manifest["image_id"] else ()
        yield manifest, _ImagePage(manifest, by_id.pop(manifest["image_id"])).data(own)


_NO_STACKS: tuple[Optional[str], Iterable[Row]] = (None, ())


@dataclasses.dataclass
class _ImageRows:
    """The rows of an image, without its stacks.

    Attributes:
        findings, unchecked: first findings, and first checks that could not run, in the order of the table
        total: number of findings
        frames: distinct frames
    """

    image: Row = dataclasses.field(default_factory=dict)
    findings: list[Row] = dataclasses.field(default_factory=list)
    unchecked: list[Row] = dataclasses.field(default_factory=list)
    total: int = 0
    frames: list[Row] = dataclasses.field(default_factory=list)

    def add_finding(self, row: Row) -> None:
        """Adds a row of the table `findings`."""
        checked = row["Severity"] is not None
        self.total += checked
        rows = self.findings if checked else self.unchecked
        if len(rows) < MAX_FINDINGS:
            rows.append(row)


class _ImagePage:
    """The content of an image's page."""

    def __init__(self, manifest: Manifest, rows: _ImageRows) -> None:
        self._manifest, self._rows = manifest, rows
        self._lists = PageLists()
        self._tree = PrefixTree()
        self._kept: dict[str, Frames] = {}

    def data(self, stacks: Iterable[Row]) -> Row:
        """Returns the parts of the page."""
        rows = self._rows
        self._read_stacks(stacks, {row["TraceId"] for row in rows.findings})
        input_kind = rows.image.get("InputKind") or words.MEMORY_IMAGE
        for row in rows.findings:
            frames = self._kept.get(row["TraceId"], ())
            self._lists.finding(card(row, frames), of_check(row["Finding"], input_kind))
        for row in rows.unchecked:
            self._lists.unchecked(row["Finding"], _whose(row) + (row["Evidence"] or ""))
        return {
            "image": self._image(),
            "findings": self._lists.findings(rows.total),
            "flame": flame_data(self._tree, "stacks"),
            **self._lists.data(),
        }

    def _image(self) -> Row:
        row, manifest = self._rows.image, self._manifest
        # Somebody else's lake may have a table without the image.
        part = image_part([row[column.name] for column in tables.IMAGE]) if row else dict(_NOTHING)
        custody = [
            ("Path", manifest["path"], "Path of the image when it was read.", "Path"),
            ("Case", manifest["case"], "Value of --case.", "Case"),
            ("Note", manifest["note"], "Value of --note.", "Note"),
            ("Read", manifest["ended"], "Time at which reading ended.", "Time of reading"),
        ]
        part["rows"] = [[name, *texts] for name, *texts in custody if texts[0]] + part["rows"]
        return part

    def _read_stacks(self, stacks: Iterable[Row], stack_keys: Collection[str]) -> None:
        """Reads all stacks, and keeps the frames of the requested ones by TraceId."""
        lists, tree, frames = self._lists, self._tree, self._rows.frames
        names: dict[int, int] = {}
        for row in stacks:
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

    def _name(self, frames: list[Row], place: int) -> int:
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

    def _shown(self, frames: list[Row], places: list[int]) -> Frames:
        shown = []
        for place in places:
            number, guessed = divmod(place, 2)
            if number >= len(frames):
                shown.append((CUT, bool(guessed), False))
            else:
                frame = frames[number]
                shown.append((frame["Shown"], bool(guessed), frame["Backing"] in words.UNBACKED))
        return self._lists.frames(shown)


_NOTHING: Row = {"head": [], "rows": [], "complete": [], "warnings": [], "warned": 0}


def _whose(row: Mapping[str, Any]) -> str:
    """Returns the process of lost stacks, as on an image's page; empty for a check that could not run."""
    if row["Finding"] != LOST_STACKS:
        return ""
    return LostProcessStacks(0, row["PID"], row["Process"]).words + ": "


def card(row: dict[str, Any], frames: Frames) -> dict[str, Any]:
    """Returns the card of a finding.

    Args:
        row: row of `findings.findings`
    """
    return {
        "severity": row["Severity"],
        "confidence": row["Confidence"] or "",
        "check": row["Finding"],
        "process": process_label(row["Process"], row["PID"]),
        "tid": row["TID"],
        "kind": row["Kind"],
        "symbol": None
        if row["Symbol"] is None
        else short_of(with_address(row["Symbol"], _number(row["Address"]))),
        "evidence": row["Evidence"] or "",
        # The evidence of a finding in several stacks states their number.
        "stacks": 1,
        "innocent": row["Innocent"] or "",
        "technique": row["Technique"] or "",
        "frame": row["Frame"],
        "frames": frames,
        "status": row["Status"] or "",
    }


def _number(address: Optional[str]) -> Optional[int]:
    """Returns the number of a hexadecimal text; None for any other text."""
    return int(address, 16) if address and re.fullmatch("0x[0-9a-f]{1,16}", address) else None


def of_check(name: str, input_kind: str = words.MEMORY_IMAGE) -> Optional[dict[str, str]]:
    """Returns the texts of a check for pages on a kind of input; None for a check that these plugins lack."""
    return check_texts(check_named(name), input_kind) if name in CHECKS else None
