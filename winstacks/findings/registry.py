# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs the checks on an image and lists their findings, worst first.

    findings = Findings(symbolizer)
    for stack in findings.examine(): ...        # progress
    for each in findings.found(): ...

A new check is a module of `checks` with a `CHECK`, and an entry in `options.CHECKS`.
"""

from __future__ import annotations

import functools
import importlib
from operator import attrgetter
from typing import (
    Collection,
    Counter,
    Dict,
    Hashable,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ..columns.words import CALLBACK, CONFIDENCES, HIGH, LOW, MEDIUM, POSSIBLE, SHADOW
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.structure import MissingMemberError
from ..memory.decode.text import ShortText, counted
from ..memory.image import Image
from ..names.symbolizer import Symbolizer
from ..options import CHECKS, SEVERITIES
from ..stacklist.imagefacts import Totals
from ..stacklist.stack import StackFilter, StackRecord
from ..stacklist.traces import Portion, StackCollector, ThreadWatch, unwatched
from .facts import CheckFacts, CheckNotes, list_in_words
from .finding import Check, Finding, OfStack, doubts_of
from .loststacks import LostProcessStacks
from .shadowstacks import confirmed
from .stories import heads

MAX_FINDINGS = 1 << 16
"""The most findings of one check that are stored."""

_NO_KERNEL = "a dump of one process has no kernel data"
_SMALL_DUMP = "a small kernel dump has one kernel stack, and lacks the data that this check reads"
_ARM64 = "the check knows only the code and registers of Intel processors, and the input is of ARM64"
_NOT_WHOLE = words_that(Means.LOWERS_CONFIDENCE)
_MAY_BE_THERE = "the lists that cover the address are incomplete: Status"

_SELECTED = "in the selected processes, "
"""Begin of the reasons that are true of the selected processes and not of all."""

_CUT = f"more than {MAX_FINDINGS} findings: the rest is left out"

_backing = attrgetter("backing")


class Outcome(NamedTuple):
    """A finding and its check; or the reason why a check, or a part of one, could not run.

    Attributes:
        check: the check; None if stacks of a process were lost, which concerns several checks
        finding: the finding; None if the check could not run
        stacks: number of stacks, or threads, with the same finding, or of lost stacks
        story: head line of the findings to which this one belongs, see `stories`; "" of what is no finding
    """

    check: Optional[Check]
    finding: Optional[Finding]
    stacks: int = 0
    reason: str = ""
    process: Optional[LostProcessStacks] = None
    story: str = ""


class Examined(NamedTuple):
    """The extent of the examination: how many checks ran, and on how many stacks of how many processes."""

    checks: int
    stacks: int
    processes: int

    @property
    def in_words(self) -> str:
        stacks, processes = counted(self.stacks, "stack"), counted(self.processes, "process", "processes")
        return f"{counted(self.checks, 'check')} examined {stacks} of {processes}"


class FindingOrder(NamedTuple):
    """The order of a finding among others.

    Attributes:
        process: layer and _EPROCESS of the process
        agrees: whether the finding counts as agreement on its process: findings above `low` do
        explained: how far it is explained, if it is `low`; see `Finding.explained`
    """

    check: str
    rank: Tuple[int, int]
    process: Tuple[str, int]
    program: str
    agrees: bool
    explained: int


class _Counted(NamedTuple):
    """The stacks, or threads, with a finding: their number, and the first and the last of them."""

    number: int
    first: Optional[str]
    last: Optional[str]


class Gathered(NamedTuple):
    """The contents of a `_Gathering`; the members are named as there."""

    ran: bool
    cut: bool
    worst: Dict[Hashable, Finding]
    stacks: Dict[Hashable, _Counted]
    doubts: Dict[Hashable, Status]


class PartlyExamined(NamedTuple):
    """Findings of the checks in some stacks, and the notes of `CheckFacts`; members as in `Findings`."""

    gathered: List[Gathered]
    notes: CheckNotes
    stacks: int
    processes: Set[int]


class _Gathering:
    """The findings of one check: the worst of each group, and the number of stacks with it."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.ran = not check.kinds or not check.needs
        self.cut = False
        self._worst: Dict[Hashable, Finding] = {}
        self._stacks: Dict[Hashable, _Counted] = {}
        self._doubts: Dict[Hashable, Status] = {}

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            # A finding without a stack has no TraceId: all of a group count as one.
            counted = str(finding.tid) if finding.of_threads else finding.trace_id
            self._add(finding, _Counted(1, counted, counted), doubts_of(finding.status))

    def _add(self, finding: Finding, counted: _Counted, doubts: Status) -> None:
        """Adds the worst finding of a group in some stacks, the number of these, and their doubts."""
        group = finding.group
        before = self._worst.get(group)
        if before is None and len(self._worst) >= MAX_FINDINGS:
            self.cut = True
            return
        if before is None or rank(finding) < rank(before):
            self._worst[group] = finding.settled()
        if doubts:
            self._doubts[group] = status(self._doubts.get(group, NOTHING), doubts)
        known = self._stacks.get(group)
        if known is not None:
            # One stack may have several findings of a group.
            number = known.number + counted.number - (known.last == counted.first)
            counted = _Counted(number, known.first, counted.last)
        self._stacks[group] = counted

    def take(self) -> Gathered:
        """Returns what was gathered, and forgets it."""
        taken = Gathered(self.ran, self.cut, self._worst, self._stacks, self._doubts)
        self._worst, self._stacks, self._doubts = {}, {}, {}
        return taken

    def merge(self, other: Gathered) -> None:
        """Adds what was gathered of the stacks that follow."""
        self.ran, self.cut = self.ran or other.ran, self.cut or other.cut
        for group, finding in other.worst.items():
            self._add(finding, other.stacks[group], other.doubts.get(group, NOTHING))

    def found(self) -> Iterator[Outcome]:
        """Yields the findings. What is contradicted about one stack of a group, the finding has, too."""
        for group, finding in self._worst.items():
            doubts = self._doubts.get(group)
            shown = finding._replace(status=status(finding.status, doubts)) if doubts else finding
            yield Outcome(self.check, shown, self._stacks[group].number)

    def reasons(self, facts: CheckFacts) -> Iterator[Outcome]:
        """Yields why the check, or a part of it, could not run."""
        reason = _impossible(self.check, facts.image) or facts.nothing_selected
        if reason:
            yield Outcome(self.check, None, reason=reason)
            return
        if not self.ran:
            yield Outcome(
                self.check, None, reason=f"{_SELECTED if facts.pids is not None else ''}{self.check.needs}"
            )
        unchecked = self.check.unchecked
        left_out = facts.left_out(self.check.name) if unchecked is None else unchecked(facts)
        for reason in facts.image.possible(left_out):
            yield Outcome(self.check, None, reason=reason)
        if self.cut:
            yield Outcome(self.check, None, reason=_CUT)


def _impossible(check: Check, image: Image) -> str:
    """Returns why a check cannot run on an input of this kind, empty if it can."""
    if image.threads_only and not check.small_dump:
        return _SMALL_DUMP
    if check.intel and image.machine is Machine.ARM64:
        return _ARM64
    if image.threads_only:
        return ""
    return _NO_KERNEL if check.kernel and not image.table_name else ""


def _doubted(finding: Finding) -> Finding:
    """Returns a finding, lowered from `high` if lists of the memory at its address are incomplete.

    Memory of unknown protection may be data, or a mapped file: that code runs there is only possible.
    """
    unknown = has_status(finding.status, StatusCode.PROTECTION_UNKNOWN) and finding.severity != LOW
    if not unknown and (finding.severity != HIGH or not has_status(finding.status, *_NOT_WHOLE)):
        return finding
    innocent = f"{_MAY_BE_THERE}; {finding.innocent}" if finding.innocent else _MAY_BE_THERE
    return finding._replace(severity=MEDIUM, confidence=POSSIBLE, innocent=innocent)


def check_named(name: str) -> Check:
    check: Check = importlib.import_module(f"{__package__}.checks.{name}").CHECK
    return check


def rank(finding: Finding) -> Tuple[int, int]:
    """Returns the sort key of a finding: the worst and surest come first."""
    return SEVERITIES.index(finding.severity), CONFIDENCES.index(finding.confidence)


class Findings:
    """Runs checks on an image.

    Args:
        checks: names of CHECKS; None for all
        pids: PIDs to check, 0 for the kernel; None for all
        scan: whether a pool scan adds threads; processes are added by `process_list.scan`
        watch: called for each thread whose stacks the checks need, after these were yielded
        names: names of processes that gave the PIDs
    """

    def __init__(
        self,
        symbolizer: Symbolizer,
        checks: Optional[Collection[str]] = None,
        pids: Optional[Tuple[int, ...]] = None,
        scan: bool = False,
        watch: ThreadWatch = unwatched,
        names: Sequence[str] = (),
    ) -> None:
        self._facts = CheckFacts(symbolizer, pids, scan, names)
        self._traces = StackCollector(symbolizer, watch=watch)
        self._gathered = [
            _Gathering(check_named(check)) for check in CHECKS if checks is None or check in checks
        ]
        self._kernel = bool(symbolizer.image.table_name)
        self._stacks = 0
        self._processes: Set[int] = set()
        self._running = [item for item in self._gathered if not _impossible(item.check, symbolizer.image)]
        self._of_kind: Memo[str, List[_Gathering]] = Memo(self._checks_of)

    def examine(self, totals: Optional[Totals] = None) -> Iterator[StackRecord]:
        """Runs the checks, and yields each stack after they have examined it. `totals` counts threads, their
        stacks, and databases."""
        totals = totals or Totals()
        for portion in self.portions(totals):
            yield from self.examine_portion(portion, totals)
        self.finish()

    @functools.cached_property
    def _filter(self) -> StackFilter:
        """The filter of the stacks that the checks need."""
        kinds = tuple({kind: None for check in self._running for kind in check.check.kinds})
        return StackFilter(kinds, self._facts.pids, scan_threads=self._facts.scan)

    def portions(self, totals: Totals) -> Iterator[Portion]:
        """Yields the portions of the stacks that the checks need."""
        return self._traces.portions(self._filter, totals)

    def examine_portion(self, portion: Portion, totals: Totals) -> Iterator[StackRecord]:
        """Runs the checks on the stacks of a portion, and yields each stack."""
        for stack in self._traces.stacks_of(portion, self._filter, totals):
            self.check_stack(stack)
            yield stack

    def lose(self, portion: Portion, totals: Totals) -> Iterator[StackRecord]:
        """Counts the stacks of a portion that was not read to its end as lost, and yields their rows."""
        for stack in self._traces.lost(portion, self._filter, totals):
            self._facts.lost.add(stack)
            yield stack

    def take(self) -> PartlyExamined:
        """Returns what the checks found in stacks, and forgets it."""
        gathered = [gathering.take() for gathering in self._gathered]
        taken = PartlyExamined(gathered, self._facts.take_notes(), self._stacks, self._processes)
        self._stacks, self._processes = 0, set()
        return taken

    def merge(self, other: PartlyExamined) -> None:
        """Adds what the same checks found, in another process, in the stacks that follow."""
        for gathering, gathered in zip(self._gathered, other.gathered):
            gathering.merge(gathered)
        self._facts.merge_notes(other.notes)
        self._stacks += other.stacks
        self._processes |= other.processes

    def check_stack(self, stack: StackRecord) -> None:
        """Runs the checks on a stack.

        Callers that list the stacks themselves call this for each stack, and then `end` once.
        """
        if stack.frames:
            self._stacks += 1
            self._processes.add(stack.space.eprocess)
        if stack.is_lost or stack.hides_others:
            self._facts.lost.add(stack)
        stack = stack.by_actor()
        backings = set(map(_backing, stack.frames))
        for gathering in self._of_kind[stack.kind]:
            # A check of threads' stacks did not run if it saw callbacks alone.
            gathering.ran = gathering.ran or (bool(stack.frames) and stack.kind != CALLBACK)
            check = gathering.check
            if check.of_stack and (not check.backings or not backings.isdisjoint(check.backings)):
                self._examine(gathering, stack, check.of_stack)

    @property
    def examined(self) -> Examined:
        """The extent of the examination by the checks that could run."""
        ran = 0 if self._facts.nothing_selected else sum(each.ran for each in self._running)
        return Examined(ran, self._stacks, len(self._processes))

    def _checks_of(self, kind: str) -> List[_Gathering]:
        """Returns the checks that examine stacks of a kind."""
        return [gathering for gathering in self._running if kind in gathering.check.kinds]

    def _examine(self, gathering: _Gathering, stack: StackRecord, check: OfStack) -> None:
        # Most stacks have no finding: nothing is made for them beyond the check itself.
        try:
            for finding in check(stack, self._facts):
                gathering.add((_doubted(self._confirmed(stack, finding)),))
        except MissingMemberError as error:
            self._facts.image.rows_end(error)

    def _confirmed(self, stack: StackRecord, finding: Finding) -> Finding:
        """Returns a finding whose How notes if a shadow stack confirms its frame."""
        if finding.frame is None or not self._kernel:
            return finding
        find = functools.partial(confirmed, stack, self._facts)
        agreed = self._facts.find_once_of_stack(__name__, stack, find)
        return finding._replace(how=SHADOW) if finding.frame in agreed else finding

    def finish(self) -> None:
        """Runs the checks that examine the image as a whole."""
        for gathering in self._running:
            if gathering.check.of_image:
                gathering.add(self._facts.image.possible(gathering.check.of_image(self._facts)))

    def _of_lost(self) -> Iterator[Outcome]:
        """Yields for each process the stacks that were lost, and the checks that would need them."""
        for process, lost in self._facts.lost.by_process():
            kinds = {kind for kind, _ in lost}
            checks = [
                gathering.check.name
                for gathering in self._running
                if kinds.intersection(gathering.check.kinds)
            ]
            if checks:
                reason = f"{list_in_words([stack for _, stack in lost])}; not examined by {', '.join(checks)}"
                reason += f"; {len(lost)} stacks" if len(lost) > 1 else ""
                few = f"{len(lost)} lost stack{'s' * (len(lost) > 1)}: {', '.join(sorted(kinds))}"
                yield Outcome(None, None, len(lost), ShortText(reason, few), process)

    def found(self) -> List[Outcome]:
        """Returns the findings, worst first, followed by the reasons why checks could not run."""
        found = [outcome for gathered in self._gathered for outcome in gathered.found()]
        unchecked = [outcome for gathered in self._gathered for outcome in gathered.reasons(self._facts)]
        return [*self._told(_worst_first(found)), *unchecked, *self._of_lost()]

    def _told(self, found: Sequence[Outcome]) -> Iterator[Outcome]:
        told = [(each.check, each.finding) for each in found if each.check and each.finding]
        for outcome, head in zip(found, heads(told, self._facts)):
            yield outcome._replace(story=head)


def agreement(found: Iterable[Outcome]) -> List[str]:
    """Returns the names of the checks with a finding above `low`, in the order of the findings."""
    return list(dict.fromkeys(item.check.name for item in found if item.check and _standing(item).agrees))


def _worst_first(outcomes: Sequence[Outcome]) -> List[Outcome]:
    """Returns findings by severity, then confidence, then the number of checks that agree on their process.

    Findings that are `low` for want of certainty come before those that are `low` for an innocent reason, and
    between them those which something that is not in the image may explain: an analyst who reads the first
    rows would else read what is explained anyway. Between equals, the first of each program and check comes
    before the second of any: a browser of twenty processes would else fill the first rows. `outcomes` are
    findings in the order of the checks, which decides among equals.
    """
    placed = [(_standing(outcome), outcome) for outcome in outcomes]
    checks: Dict[Hashable, Set[str]] = {}
    for entry, _ in placed:
        if entry.agrees:
            checks.setdefault(entry.process, set()).add(entry.check)

    def key(entry: FindingOrder) -> Tuple[int, ...]:
        severity, confidence = entry.rank
        return severity, entry.explained, confidence, -len(checks.get(entry.process, ()))

    before: Counter[Hashable] = Counter()
    turns: List[Tuple[Tuple[int, ...], int, Outcome]] = []
    for entry, outcome in placed:
        place = key(entry)
        repeated = place, entry.check, entry.program
        turns.append((place, before[repeated], outcome))
        before[repeated] += 1
    turns.sort(key=lambda turn: turn[:2])
    return [outcome for *_, outcome in turns]


def _standing(outcome: Outcome) -> FindingOrder:
    assert outcome.check is not None and outcome.finding is not None
    finding, space = outcome.finding, outcome.finding.space
    process = space.layer_name, space.eprocess
    above = finding.severity != LOW
    explained = 0 if above else finding.explained
    return FindingOrder(outcome.check.name, rank(finding), process, space.process, above, explained)
