# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The checks by name, and what they find in an image, worst first.

    findings = Findings(symbolizer)
    for stack in findings.examine(): ...        # progress
    for each in findings.found(): ...

A new check is a module of this room that has a `CHECK`, and its name in `options.CHECKS`.
"""

from __future__ import annotations

import importlib
from typing import (
    Collection,
    Dict,
    Hashable,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ..columns.words import CONFIDENCES, HIGH, LOW, MEDIUM, POSSIBLE, SHADOW
from ..flat.imagefacts import Totals
from ..flat.stack import FlatStack, FlatWanted
from ..flat.traces import FlatTraces
from ..memory.decode.status import Word, says
from ..memory.image import Image
from ..names.symbolizer import Symbolizer
from ..options import CHECKS, SEVERITIES
from .facts import CheckFacts, listed
from .finding import Check, Finding, OfStack
from .loststacks import LostIn
from .shadow_stack import confirmed

MAX_FINDINGS = 1 << 16
"""The most findings that are kept of one check."""

_NO_KERNEL = "a dump of one process has nothing of the kernel"
_SMALL_DUMP = "a small kernel dump has one kernel stack, and not what this check looks at"
_NOT_WHOLE = (Word.VADS_INCOMPLETE, Word.MODULE_LIST_INCOMPLETE, Word.FILE_NAME_UNREADABLE)
_MAY_BE_THERE = "the lists of what lies there are not whole: Status"

_CUT = f"more than {MAX_FINDINGS} findings: the rest is left out"


class Outcome(NamedTuple):
    """A finding and its check; or why a check, or a part of one, could not run.

    Attributes:
        check: the check; None where stacks of a process were lost, which several would have looked at
        finding: what it found, None where it could not run
        stacks: how many stacks show the same, or were lost
        reason: why it could not run
        process: whose stacks were lost
    """

    check: Optional[Check]
    finding: Optional[Finding]
    stacks: int = 0
    reason: str = ""
    process: Optional[LostIn] = None


class Standing(NamedTuple):
    """What orders a finding among others.

    Attributes:
        check: the name of the check
        rank: see `rank`
        process: its layer and _EPROCESS
        agrees: whether it counts for its process, as those above `low` do
    """

    check: str
    rank: Tuple[int, int]
    process: Tuple[str, int]
    agrees: bool


class _Gathering:
    """What one check finds: of each group the worst, and in how many stacks.

    Args:
        check: the check
    """

    def __init__(self, check: Check) -> None:
        self.check = check
        self.ran = not check.kinds or not check.needs
        self.cut = False
        self._worst: Dict[Hashable, Finding] = {}
        self._stacks: Dict[Hashable, Tuple[int, Optional[str]]] = {}

    def add(self, findings: Iterable[Finding]) -> None:
        """Takes findings."""
        for each in findings:
            before = self._worst.get(each.group)
            if before is None and len(self._worst) >= MAX_FINDINGS:
                self.cut = True
                continue
            if before is None or rank(each) < rank(before):
                self._worst[each.group] = each
            # Findings of no stack have no TraceId: they count as one.
            count, last = self._stacks.get(each.group, (0, None))
            if not count or last != each.trace_id:
                self._stacks[each.group] = count + 1, each.trace_id

    def found(self) -> Iterator[Outcome]:
        """Yields what was found."""
        for group, finding in self._worst.items():
            yield Outcome(self.check, finding, self._stacks[group][0])

    def reasons(self, facts: CheckFacts) -> Iterator[Outcome]:
        """Yields why the check, or a part of it, could not run."""
        reason = _impossible(self.check, facts.image)
        if reason:
            yield Outcome(self.check, None, reason=reason)
            return
        if not self.ran:
            yield Outcome(self.check, None, reason=self.check.needs)
        for reason in facts.image.possible((self.check.unchecked or self._left_out)(facts)):
            yield Outcome(self.check, None, reason=reason)
        if self.cut:
            yield Outcome(self.check, None, reason=_CUT)

    def _left_out(self, facts: CheckFacts) -> Iterator[str]:
        """Yields what the check told the facts that it left out."""
        return facts.left_out(self.check.name)


def _impossible(check: Check, image: Image) -> str:
    """Returns why a check cannot run on an input of this kind, empty if it can."""
    if image.threads_only:
        return "" if check.small_dump else _SMALL_DUMP
    return _NO_KERNEL if check.kernel and not image.table_name else ""


def _doubted(finding: Finding) -> Finding:
    """Returns a finding; where lists of what lies at its address are not whole it is not `high`."""
    if finding.severity != HIGH or not says(finding.status, *_NOT_WHOLE):
        return finding
    innocent = f"{_MAY_BE_THERE}; {finding.innocent}" if finding.innocent else _MAY_BE_THERE
    return finding._replace(severity=MEDIUM, confidence=POSSIBLE, innocent=innocent)


def check_named(name: str) -> Check:
    """Returns a check.

    Args:
        name: one of CHECKS
    """
    found: Check = importlib.import_module(f"{__package__}.{name}").CHECK
    return found


def rank(finding: Finding) -> Tuple[int, int]:
    """Returns the place of a finding among others: the worst and surest come first."""
    return SEVERITIES.index(finding.severity), CONFIDENCES.index(finding.confidence)


class Findings:
    """Runs checks on an image.

    Args:
        symbolizer: knows the modules of every address space
        checks: names of CHECKS; all when empty
        pids: the processes wanted, 0 for the kernel; all when empty
        scan: whether a pool scan adds threads; processes are added by `ProcessList.scan`
    """

    def __init__(
        self,
        symbolizer: Symbolizer,
        checks: Collection[str] = (),
        pids: Tuple[int, ...] = (),
        scan: bool = False,
    ) -> None:
        self._facts = CheckFacts(symbolizer, pids, scan)
        self._traces = FlatTraces(symbolizer)
        self._gathered = [_Gathering(check_named(each)) for each in CHECKS if not checks or each in checks]
        self._kernel = bool(symbolizer.image.table_name)
        self._running = [each for each in self._gathered if not _impossible(each.check, symbolizer.image)]

    def examine(self, totals: Optional[Totals] = None) -> Iterator[FlatStack]:
        """Runs the checks, and yields each stack that they have seen.

        Args:
            totals: counts threads, their stacks, and databases

        Raises:
            tables.MissingTableError: when one of our symbol tables is missing
        """
        facts = self._facts
        kinds = tuple({kind: None for each in self._running for kind in each.check.kinds})
        wanted = FlatWanted(kinds, facts.pids, scan_threads=facts.scan)
        for stack in self._traces.list_stacks(wanted, totals) if kinds else ():
            self.see(stack)
            yield stack
        self.end()

    def see(self, stack: FlatStack) -> None:
        """Runs the checks on a stack. Who lists the stacks for other ends calls this, and then `end`."""
        if stack.lost:
            self._facts.lost.add(stack)
        for each in self._running:
            if stack.kind in each.check.kinds:
                each.ran = each.ran or bool(stack.frames)
                if each.check.of_stack:
                    each.add(self._facts.image.possible(self._found_in(stack, each.check.of_stack)))

    def _found_in(self, stack: FlatStack, find: OfStack) -> Iterator[Finding]:
        """Yields what a check finds in a stack; How says where a shadow stack confirms the frame."""
        agreed: Optional[Set[int]] = None
        for finding in find(stack, self._facts):
            if finding.frame is not None:
                if agreed is None:
                    agreed = confirmed(stack, self._facts) if self._kernel else set()
                if finding.frame in agreed:
                    finding = finding._replace(how=SHADOW)
            yield _doubted(finding)

    def end(self) -> None:
        """Runs the checks that look at the image as a whole."""
        for each in self._running:
            if each.check.of_image:
                each.add(self._facts.image.possible(each.check.of_image(self._facts)))

    def _of_lost(self) -> Iterator[Outcome]:
        """Yields for each process which of its stacks were lost, and to which checks."""
        for process, known in self._facts.lost.by_process():
            kinds = {kind for kind, _ in known}
            checks = [each.check.name for each in self._running if kinds.intersection(each.check.kinds)]
            if checks:
                said = f"{listed([what for _, what in known])}; not looked at by {', '.join(checks)}"
                said += f"; {len(known)} stacks" if len(known) > 1 else ""
                yield Outcome(None, None, len(known), said, process)

    def found(self) -> List[Outcome]:
        """Returns what `examine` has found, worst first, and then why checks could not run."""
        found = [each for gathered in self._gathered for each in gathered.found()]
        unchecked = [each for gathered in self._gathered for each in gathered.reasons(self._facts)]
        return [*_worst_first(found), *unchecked, *self._of_lost()]


def agreement(found: Iterable[Outcome]) -> List[str]:
    """Returns the names of the checks that found something above `low`, in the order of the findings."""
    return list(dict.fromkeys(each.check.name for each in found if each.check and _standing(each).agrees))


def _worst_first(found: Sequence[Outcome]) -> List[Outcome]:
    """Returns findings by severity, then confidence, then how many checks agree on their process.

    Args:
        found: in the order of the checks, which decides among equals
    """
    placed = [(_standing(each), each) for each in found]
    checks: Dict[Hashable, Set[str]] = {}
    for each, _ in placed:
        if each.agrees:
            checks.setdefault(each.process, set()).add(each.check)
    placed.sort(key=lambda pair: (*pair[0].rank, -len(checks.get(pair[0].process, ()))))
    return [each for _, each in placed]


def _standing(found: Outcome) -> Standing:
    assert found.check is not None and found.finding is not None
    finding, space = found.finding, found.finding.space
    process = space.layer_name, space.eprocess
    return Standing(found.check.name, rank(finding), process, finding.severity != LOW)
