# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The table of findings, from what checks found in the shares of an image, whichever process read each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from volatility3.framework import interfaces

from winstacks.findings.facts import Notes
from winstacks.findings.registry import (
    MAX_FINDINGS,
    Findings,
    FoundGroup,
    Gathered,
    Outcome,
    Standing,
    standing,
    worst_first,
)
from winstacks.memory.image import Image
from winstacks.rows import findings as finding_rows

_EVIDENCE = finding_rows.FINDINGS.names.index("Evidence")


@dataclasses.dataclass
class _Row:
    """Findings of one group: the worst of them with its values, in how many stacks, the last of these."""

    standing: Standing
    values: list[Any]
    stacks: int
    last: Optional[str]


def said(image: Image, findings: Findings) -> dict[str, Any]:
    """Returns what the checks found since the last call, in plain values as JSON has them."""
    gathered, notes = findings.part()
    return {"checks": [_check(image, each) for each in gathered], "notes": list(notes)}


def _check(image: Image, gathered: Gathered) -> dict[str, Any]:
    groups = [_group(image, gathered, each) for each in gathered.groups]
    return {"name": gathered.check.name, "ran": gathered.ran, "cut": gathered.cut, "groups": groups}


def _group(image: Image, gathered: Gathered, group: FoundGroup) -> dict[str, Any]:
    [values] = plain(finding_rows.rows(image, [Outcome(gathered.check, group.finding)]))
    return {
        "group": repr(group.group),
        "standing": standing(gathered.check.name, group.finding),
        "values": values,
        "stacks": group.stacks,
        "first": group.first,
        "last": group.last,
    }


class FoundRows:
    """Puts together what was found in the shares of an image, which come in their order."""

    def __init__(self) -> None:
        self._checks: dict[str, dict[str, _Row]] = {}
        self._ran: set[str] = set()
        self._cut: set[str] = set()
        self._notes: list[Notes] = []

    def add(self, share: dict[str, Any]) -> None:
        """Takes what `said` returned for a share."""
        for check in share["checks"]:
            name = check["name"]
            self._ran.update([name] if check["ran"] else ())
            self._cut.update([name] if check["cut"] else ())
            known = self._checks.setdefault(name, {})
            for group in check["groups"]:
                self._add(name, known, group)
        self._notes.append(Notes(*share["notes"]))

    def _add(self, name: str, known: dict[str, _Row], group: dict[str, Any]) -> None:
        row = known.get(group["group"])
        check, rank, process, agrees = group["standing"]
        found = Standing(check, tuple(rank), tuple(process), agrees)
        if row is None and len(known) >= MAX_FINDINGS:
            self._cut.add(name)
        elif row is None:
            known[group["group"]] = _Row(found, group["values"], group["stacks"], group["last"])
        else:
            # Findings of no stack have no TraceId: they count as one.
            row.stacks += group["stacks"] - (row.last == group["first"])
            row.last = group["last"]
            if found.rank < row.standing.rank:
                row.standing, row.values = found, group["values"]

    def rows(self, image: Image, findings: Findings) -> Iterator[list[Any]]:
        """Yields the rows of the table, worst first, and then why checks could not run."""
        found = [row for known in self._checks.values() for row in known.values()]
        for row in worst_first(found, lambda row: row.standing):
            values = list(row.values)
            values[_EVIDENCE] = finding_rows.counted(values[_EVIDENCE], row.stacks)
            yield values
        yield from plain(finding_rows.rows(image, findings.reasons(self._ran, self._cut, self._notes)))


def plain(rows: Iterable[tuple[int, tuple[object, ...]]]) -> Iterator[list[object]]:
    """Yields rows of a grid in plain values."""
    for _, cells in rows:
        yield values(cells)


def values(cells: Iterable[object]) -> list[object]:
    """Returns cells in plain values: what is absent is None."""
    return [None if isinstance(cell, interfaces.renderers.BaseAbsentValue) else cell for cell in cells]
