# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What became of an answer after a write: was it said, where, and what else changed.

A write is `said` if a word that names the damaged structure is new on a row of the process or thread to which
the structure belongs; of a structure that is shared, on any row. A warning counts where there is no such row,
where every row is the same as before, and where it names the process.
What is only said of something else, or somewhere else, is `said elsewhere`; it does not count.
"""

from __future__ import annotations

import collections
import re
from typing import Collection, Counter, Iterator, List, NamedTuple, Sequence, Set, Tuple

from winstacks.findings.loststacks import LOST_STACKS
from winstacks.rows.findings import NOTHING_FOUND

from .belonging import Owner
from .cases import Case
from .members import Member
from .target import Answer, Cells, Read, Target
from .tellings import COUNTS, Telling, makes_rows, matches, named_by, of_status, shown_of, warned_of

UNCHANGED, SAID, ELSEWHERE = "unchanged", "said", "silent: said elsewhere"
LOST, SHOWN = "silent: lost", "silent: shown"
EFFECTS = (UNCHANGED, SAID, ELSEWHERE, LOST, SHOWN)
SILENT = (ELSEWHERE, LOST, SHOWN)

IN_WORDS = frozenset({"Symbol", "Source", "Backing", "Unbacked", "Stack", "StartSymbol", "Status"})
"""Symbol and Source, and the columns that follow from these; and Status."""

_IN_BRACKETS = re.compile(r"\(([^()]*)\)")

NEUTRAL = "No symbols for "
"""Begins a warning that says nothing of the image."""

EVIDENCE = "Evidence"
"""The column of findings that names what a check saw, or why it did not run."""

PIDS = ("PID", "OwnerPID", "ByPID")
"""Columns that say whose a row is, or who has a part in it."""


class Effect(NamedTuple):
    """What became of an answer.

    Attributes:
        word: one of EFFECTS
        texts: what is said that does not count
        harmed: rows of others that are missing, or differ in what must be the same
    """

    word: str
    texts: Tuple[str, ...] = ()
    harmed: Tuple[Cells, ...] = ()


def judge(target: Target, case: Case, read: Read) -> Effect:
    """Runs a case, and tells what became of the answer."""
    clean = target.clean(case.plugin)
    answer = target.run(case.plugin, case.writes)
    owner = target.belonging.owner(case.members[0].place or 0)
    found = _effect(clean, answer, case, owner, read)
    return found._replace(harmed=tuple(_harmed(clean, answer, case, owner)))


def changed(clean: Answer, answer: Answer) -> bool:
    """Returns whether an answer differs from what the undamaged image gives."""
    return (
        collections.Counter(clean.rows) != collections.Counter(answer.rows)
        or _new_warnings(clean, answer) != []
    )


def words(rows: Counter[Cells], answer: Answer) -> Counter[Telling]:
    """Returns how often each word is in the column Status of some rows."""
    place, evidence = answer.columns.index("Status"), answer.place(EVIDENCE)
    found: Counter[Telling] = collections.Counter()
    for row, count in rows.items():
        texts = [row[place] or ""]
        if evidence is not None and LOST_STACKS in row:
            # What was lost stands there with the words of its own Status.
            texts += _IN_BRACKETS.findall(row[evidence] or "")
        for word in (word for text in texts for word in of_status(text)):
            found[word] += count
    return found


def _effect(clean: Answer, answer: Answer, case: Case, owner: Owner, read: Read) -> Effect:
    before, after = collections.Counter(clean.rows), collections.Counter(answer.rows)
    lost, new = before - after, after - before
    warnings = _new_warnings(clean, answer)
    if not lost and not new and not warnings:
        return Effect(UNCHANGED)
    concerned = _Concern(clean, case, owner)
    there = concerned.only(after)
    message = words(concerned.only(new), answer) - words(concerned.only(lost), clean)
    if any(named_by(telling, member, read.requests) for telling in message for member in case.members):
        return Effect(SAID)
    evidence = _evidence(concerned.only(new), answer) - _evidence(concerned.only(lost), clean)
    if any(shown_of(part, member) for part in evidence for member in case.members):
        return Effect(SAID)
    if any(_counted(clean, answer, column, member) for column in COUNTS for member in case.members):
        return Effect(SAID)
    same = not lost and not new
    alone = same or owner.pid is None or not any(is_of(answer.columns, row, owner) for row in there)
    heard = [warning for warning in warnings if alone or f"process {owner.pid} " in warning]
    if any(warned_of(warning, member) for warning in heard for member in case.members):
        return Effect(SAID)
    elsewhere = words(new, answer) - words(lost, clean)
    if warnings or elsewhere:
        return Effect(
            ELSEWHERE,
            (*warnings, *(f"{status_item.word.name} {status_item.members}" for status_item in elsewhere)),
        )
    return Effect(LOST if len(answer.rows) < len(clean.rows) else SHOWN)


def _evidence(rows: Counter[Cells], answer: Answer) -> Set[str]:
    """Returns the parts of the cells Evidence of some rows."""
    place = answer.place(EVIDENCE)
    cells = (row[place] or "" for row in rows) if place is not None else ()
    return {part for cell in cells for part in cell.split("; ")}


def _counted(clean: Answer, answer: Answer, column: str, member: Member) -> bool:
    """Returns whether a column that counts what is wrong with a structure has more."""
    if column not in clean.columns or not matches(member, COUNTS[column]):
        return False
    before, after = (sum(filter(None, output.column(column))) for output in (clean, answer))
    return bool(after > before)


class _Concern:
    """Which rows are about what was written to.

    Args:
        clean: what the plugin prints of the undamaged image
        case: what was written
        owner: whose memory it was
    """

    def __init__(self, clean: Answer, case: Case, owner: Owner) -> None:
        self._columns = clean.columns
        self._owner = owner
        written = {int.from_bytes(value, "little") for _, value in case.writes}
        self._pids = {row[clean.columns.index("PID")] for row in clean.rows} - written
        tids = clean.column("TID") if "TID" in clean.columns else []
        self._tids = set(tids) - written

    def only(self, rows: Counter[Cells]) -> Counter[Cells]:
        """Returns the rows that are about it."""
        return collections.Counter({row: count for row, count in rows.items() if self._about(row)})

    def _about(self, row: Cells) -> bool:
        """Returns whether a row is one of the owner, of the kernel, or of an ID that was written."""
        if self._owner.pid is None:
            return True
        pid = row[self._columns.index("PID")]
        if self._owner.tid is not None and "TID" in self._columns:
            tid = row[self._columns.index("TID")]
            if tid is not None:
                return tid == self._owner.tid or tid not in self._tids
        return is_of(self._columns, row, self._owner) or pid in (0, None) or pid not in self._pids


def is_of(columns: Sequence[str], row: Cells, owner: Owner) -> bool:
    """Returns whether a row names a process as its own, as the owner of a lock, or as who did something."""
    return owner.pid in [row[columns.index(name)] for name in PIDS if name in columns]


def _new_warnings(clean: Answer, answer: Answer) -> List[str]:
    new = collections.Counter(answer.warnings) - collections.Counter(clean.warnings)
    return [text for text in new if not text.startswith(NEUTRAL)]


def _harmed(clean: Answer, answer: Answer, case: Case, owner: Owner) -> Iterator[Cells]:
    """Yields the rows of others that a write changed beyond what it may.

    Of what belongs to one process the rows of all others are the same but for Status; of what is shared no
    row is missing, and only Status, Symbol and Source differ, but in rows that the structure itself makes.
    A row of no process (a check that did not run) is about all of them: its Evidence names each.
    """
    if owner.pid is None and any(makes_rows(case.plugin, member) for member in case.members):
        return
    free = {"Status"} if owner.pid is not None else IN_WORDS
    for row in _bare(clean, free) - _bare(answer, free):
        # That nothing was found is of no process: a finding takes its place.
        if NOTHING_FOUND not in row and (owner.pid is None or not is_of(clean.columns, row, owner)):
            yield row


def _bare(answer: Answer, free: Collection[str]) -> Counter[Cells]:
    """Returns the rows without some columns, those of no process also without Evidence."""
    kept = [place for place, name in enumerate(answer.columns) if name not in free]
    general = [place for place in kept if answer.columns[place] != EVIDENCE]
    pid = answer.columns.index("PID")
    everything = range(len(answer.columns))
    bare: Counter[Cells] = collections.Counter()
    for row in answer.rows:
        places = kept if row[pid] is not None else general
        bare[tuple(row[place] if place in places else None for place in everything)] += 1
    return bare
