# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What became of an answer after a write: was it said, where, and what else changed.

A write is `said` if a word that names the damaged structure is new on a row of the process or thread to which
the structure belongs; of a structure that is shared, on any row. A warning counts where there is no such row.
What is only said of something else, or somewhere else, is `said elsewhere`; it does not count.
"""

from __future__ import annotations

import collections
from typing import Any, Collection, Counter, Iterator, List, Set

from .belonging import Owner
from .cases import Case
from .members import Member
from .target import Answer, Cells, Read, Target
from .tellings import Telling, named_by, of_status, warned_of

UNCHANGED, SAID, ELSEWHERE = "unchanged", "said", "silent: said elsewhere"
LOST, SHOWN = "silent: lost", "silent: shown"
VERDICTS = (UNCHANGED, SAID, ELSEWHERE, LOST, SHOWN)
SILENT = (ELSEWHERE, LOST, SHOWN)

IN_WORDS = frozenset({"Symbol", "Source", "Backing", "Unbacked", "Stack", "StartSymbol", "Status"})
"""Symbol and Source, and the columns that follow from these; and Status."""

PIDS = ("PID", "OwnerPID", "ByPID")
"""Columns that say whose a row is, or who has a part in it."""


class Verdict:
    """What became of an answer.

    Attributes:
        word: one of VERDICTS
        harmed: rows of others that are missing, or differ in what must be the same
    """

    def __init__(self, word: str, harmed: List[Cells]) -> None:
        self.word = word
        self.harmed = harmed


def judge(target: Target, case: Case, read: Read) -> Verdict:
    """Runs a case, and tells what became of the answer."""
    clean = target.clean(case.plugin)
    got = target.run(case.plugin, case.writes)
    owner = target.belonging.owner(case.members[0].place or 0)
    return Verdict(_word(clean, got, case.members, owner, read), list(_harmed(clean, got, case, owner)))


def changed(clean: Answer, got: Answer) -> bool:
    """Tells whether an answer differs from what the undamaged image gives."""
    return collections.Counter(clean.rows) != collections.Counter(got.rows) or _new_warnings(clean, got) != []


def words(rows: Counter[Cells], answer: Answer) -> Counter[Telling]:
    """Returns how often each word is in the column Status of some rows."""
    place = answer.columns.index("Status")
    found: Counter[Telling] = collections.Counter()
    for row, count in rows.items():
        for word in of_status(row[place] or ""):
            found[word] += count
    return found


def _word(clean: Answer, got: Answer, members: Collection[Member], owner: Owner, read: Read) -> str:
    before, after = collections.Counter(clean.rows), collections.Counter(got.rows)
    lost, new = before - after, after - before
    warnings = _new_warnings(clean, got)
    if not lost and not new and not warnings:
        return UNCHANGED
    pids = {row[clean.columns.index("PID")] for row in clean.rows}
    there = [row for row in got.rows if _concerns(got, row, owner, pids)]
    kept = collections.Counter(there)
    said = words(new & kept, got) - words(_only(lost, clean, owner, pids), clean)
    if any(named_by(each, member, read.asked) for each in said for member in members):
        return SAID
    alone = owner.pid is None or not there
    if alone and any(warned_of(each, member) for each in warnings for member in members):
        return SAID
    if warnings or words(new, got) - words(lost, clean):
        return ELSEWHERE
    return LOST if len(got.rows) < len(clean.rows) else SHOWN


def _only(rows: Counter[Cells], answer: Answer, owner: Owner, pids: Set[Any]) -> Counter[Cells]:
    """Returns the rows that concern an owner."""
    return collections.Counter(
        {row: count for row, count in rows.items() if _concerns(answer, row, owner, pids)}
    )


def _concerns(answer: Answer, row: Cells, owner: Owner, pids: Set[Any]) -> bool:
    """Tells whether a row is one of the owner, of the kernel, or of a process that there was not before."""
    if owner.pid is None:
        return True
    pid, place = row[answer.columns.index("PID")], answer.place("TID")
    if _is_of(answer, row, owner):
        return owner.tid is None or place is None or row[place] in (owner.tid, None)
    return pid in (0, None) or pid not in pids


def _is_of(answer: Answer, row: Cells, owner: Owner) -> bool:
    """Tells whether a row names a process as its own, as the owner of a lock, or as who did something."""
    places = [answer.columns.index(name) for name in PIDS if name in answer.columns]
    return owner.pid in [row[place] for place in places]


def _new_warnings(clean: Answer, got: Answer) -> List[str]:
    return list(collections.Counter(got.warnings) - collections.Counter(clean.warnings))


def _harmed(clean: Answer, got: Answer, case: Case, owner: Owner) -> Iterator[Cells]:
    """Yields the rows of others that a write changed beyond what it may.

    Of what belongs to one process the rows of all others are the same but for Status; of what is shared no
    row is missing, and only Status, Symbol and Source differ, but in rows that the structure itself makes.
    """
    free = {"Status"} if owner.pid is not None else IN_WORDS
    lost = _bare(clean, free) - _bare(got, free)
    starts = {member.start & 0xFFFFFFFFFFFF for member in case.members}
    for row in lost:
        if owner.pid is not None and _is_of(clean, row, owner):
            continue
        if owner.pid is None and starts & {each for each in row if isinstance(each, int)}:
            continue
        yield row


def _bare(answer: Answer, free: Collection[str]) -> Counter[Cells]:
    """Returns the rows without some columns."""
    kept = [place for place, name in enumerate(answer.columns) if name not in free]
    everything = range(len(answer.columns))
    return collections.Counter(
        tuple(row[place] if place in kept else None for place in everything) for row in answer.rows
    )
