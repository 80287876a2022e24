# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The parts of an answer beside its rows: the stacks behind them, what was searched, and what could not be
read."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Optional

from winstacks.columns import jsoncells
from winstacks.columns.dictionary import SCHEMA
from winstacks.columns.words import ALL, KINDS

from . import agent_forms
from .agent_forms import Row
from .database import Database
from .lake import Contents
from .layout import FINDINGS, IMAGE, MANIFESTS, TABLES
from .manifests import DONE
from .sqltext import chosen, one_of, quoted, sql_list

MOST_NAMED = 5
"""The most failed or damaged images that are named; the others are counted."""
OTHER = "in other words"
"""The name under which structures are counted whose words are no words of Status."""
MOST_IMAGES = 16
"""The most images of rows whose completeness stands in an answer."""

_KEYS = {"TraceId": "TraceId", "CrashTraceId": "TraceId", "StackKey": "StackKey", "ShapeKey": "ShapeKey"}
"""Columns by which the stack of a row is found, the best first, and their names in the table of stacks."""

_HEADER = """\
SELECT Number, t.ImageId, t.TraceId, Kind, KeyQuality, Incomplete, Unbacked, Guessed, Status, Frames, How
FROM (
    SELECT Number, min(struct_pack(ImageId := t.ImageId, TraceId := t.TraceId)) AS Chosen
    FROM traces AS t JOIN {wanted} ON t.{column} = Sought
    WHERE {images} AND (len(Ids) = 0 OR list_contains(Ids, t.ImageId)) GROUP BY Number
) JOIN traces AS t ON t.ImageId = Chosen.ImageId AND t.TraceId = Chosen.TraceId
LEFT JOIN (
    SELECT ImageId, TraceId, count(*) AS Frames, list(How ORDER BY Frame)[1:32] AS How FROM frames
    WHERE {images} GROUP BY ImageId, TraceId
) AS f ON f.ImageId = Chosen.ImageId AND f.TraceId = Chosen.TraceId"""


def stacks_of(
    database: Database, rows: Sequence[Mapping[str, Any]], searched: Optional[Sequence[str]]
) -> dict[int, Row]:
    """Returns one of the stacks behind each row, by the number of the row.

    Args:
        searched: ImageIds that were searched; None for all
    """
    wanted: dict[str, list[tuple[int, str, list[str]]]] = collections.defaultdict(list)
    for number, row in enumerate(rows):
        name = next((name for name in _KEYS if row.get(name)), None)
        if name is not None:
            ids = row.get("ImageIds") or ([row["ImageId"]] if row.get("ImageId") else list(searched or ()))
            wanted[_KEYS[name]].append((number, row[name], ids))
    found = {}
    for column, sought in wanted.items():
        values = ", ".join(
            f"({number}, {quoted(key)}, {sql_list(ids)}::VARCHAR[])" for number, key, ids in sought
        )
        every = [image_id for _, _, ids in sought for image_id in ids]
        every_row = all(ids for _, _, ids in sought)
        sql = _HEADER.format(
            column=column,
            wanted=f"(VALUES {values}) AS wanted(Number, Sought, Ids)",
            images=chosen("ImageId", dict.fromkeys(every) if every_row else None),
        )
        for row in database.rows(sql):
            number = row.pop("Number")
            found[number] = agent_forms.row_of(row)
    return found


class Completeness:
    """The parts of images that an answer had, and those that it lacked.

    Args:
        kinds: kinds of stacks that the answer is about; empty for all
        searched: ImageIds that were searched; None for all
    """

    def __init__(self, database: Database, kinds: Sequence[str], searched: Optional[Sequence[str]]) -> None:
        self._database = database
        self._kinds = kinds or list(KINDS)
        self._where = chosen("ImageId", searched)
        self._done = bool(database.images)

    def searched(self, table: str) -> Row:
        """Returns how many images and rows of a table were searched."""
        if table == MANIFESTS:
            return {"table": table, "rows": self._database.value(f"SELECT count(*) FROM {MANIFESTS}")}
        found: Row = {"images": self._count(IMAGE)}
        return {**found, "table": table, "rows": self._count(table)} if table in TABLES else found

    def unread(self, contents: Contents) -> Row:
        """Returns what could not be read of the images that were searched."""
        totals: collections.Counter[str] = collections.Counter()
        known: collections.Counter[str] = collections.Counter()
        read: collections.Counter[str] = collections.Counter()
        absent: collections.Counter[str] = collections.Counter()
        for row in self._images(self._where):
            facts = self._facts(row)
            for kind, numbers in facts["stacks"].items():
                known[kind] += numbers["known"]
                read[kind] += numbers["read"]
            absent.update(facts["absent"])
            totals["truncated_images"] += row["Truncated"] is True
            totals["partial_dumps"] += row["Completeness"] not in (None, ALL)
            totals["unreadable_processes"] += row["ProcessesUnreadable"]
            totals["other_versions"] += row["Schema"] != SCHEMA
        if self._done:
            totals["checks_not_run"] = self._database.value(
                f"SELECT count(*) FROM {FINDINGS} WHERE Severity IS NULL AND {self._where}"
            )
        failed = f"FROM {MANIFESTS} WHERE status NOT IN ({quoted(DONE)}, 'damaged')"
        totals["failed_images"] = self._database.value(f"SELECT count(*) {failed}")
        totals["damaged_images"] = len(contents.damaged)
        named = [
            {"Path": row["path"], "Reason": row["reason"]}
            for row in self._database.rows(
                f"SELECT path, reason {failed} ORDER BY path, image_id LIMIT {MOST_NAMED}"
            )
        ]
        named += [{"Path": item.called, "Reason": item.reason} for item in contents.damaged[:MOST_NAMED]]
        return {
            **totals,
            "stacks": _both(known, read, lambda kind: read[kind] < known[kind]),
            "structures_absent": dict(absent),
            "named": list(map(agent_forms.row_of, named)),
        }

    def of_images(self, image_ids: Collection[str]) -> list[Row]:
        """Returns the completeness of images, the first MOST_IMAGES of them."""
        found = []
        for row in self._images(one_of("ImageId", sorted(image_ids)[:MOST_IMAGES])):
            shown = {
                name: value
                for name, value in row.items()
                if name not in ("StacksKnown", "StacksRead", "StructuresAbsent")
            }
            found.append({**agent_forms.row_of(shown), **self._facts(row)})
        return found

    def _count(self, table: str) -> int:
        sql = f"SELECT count(*) FROM {table} WHERE {self._where}"
        return int(self._database.value(sql)) if self._done else 0

    def _images(self, where: str) -> list[Row]:
        if not self._done:
            return []
        sql = (
            "SELECT ImageId, Schema, ComputerName, InputKind, Completeness, Truncated, MissingShare, "
            f"ProcessesUnreadable, StacksKnown, StacksRead, StructuresAbsent, Warnings, Status FROM {IMAGE} "
            f"WHERE {where} ORDER BY ImageId"
        )
        return list(self._database.rows(sql))

    def _facts(self, row: Mapping[str, Any]) -> Row:
        """Returns how many stacks of each kind an image has and how many were read, and what is absent."""
        known, read = (jsoncells.counts(row[name]) or {} for name in ("StacksKnown", "StacksRead"))
        kinds = {kind: known[kind] for kind in self._kinds if known.get(kind)}
        absent: collections.Counter[str] = collections.Counter()
        for word, count in (jsoncells.counts(row["StructuresAbsent"]) or {}).items():
            absent[word if agent_forms.is_own("Status", word) else OTHER] += count
        return {"stacks": _both(kinds, read, lambda kind: True), "absent": dict(absent)}


def _both(known: Mapping[str, int], read: Mapping[str, int], wanted: Any) -> Row:
    return {kind: {"known": known[kind], "read": read.get(kind, 0)} for kind in known if wanted(kind)}
