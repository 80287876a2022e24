# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The checks by name, and what they find in an image, worst first.

    findings = Findings(symbolizer)
    for stack in findings.examine(): ...        # progress
    for each in findings.found(): ...

A new check is a package of this room whose `__init__.py` has a `CHECK`, and its name in CHECKS. It is a
package because Volatility imports every module below a plugin folder at every command, but no package:
a check is imported when it runs.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Collection, Dict, Hashable, Iterable, Iterator, List, Optional, Tuple

from volatility3.framework import interfaces

from ..base.decode.record import Record
from ..flat.decode.schema import KERNEL, SHADOW, USER
from ..flat.imagefacts import Totals
from ..flat.recorded import Around
from ..flat.stack import FlatStack, FlatWanted
from ..flat.traces import FlatTraces
from ..names.symbolizer import Symbolizer
from .finding import CONFIDENCES, SEVERITIES, Check, Finding, OfStack

if TYPE_CHECKING:
    from .facts import CheckFacts

CHECKS = (
    "unbacked",
    "history_unbacked",
    "kernel_no_module",
    "kernel_unloaded",
    "hidden",
    "not_executable",
    "foreign_handle",
    "context_on_stack",
    "start_mismatch",
    "debug_registers",
    "syscall_outside",
    "truncated",
    "wait_in_dispatcher",
    "no_call",
    "gadget",
    "modified_code",
    "module_mismatch",
    "shadow_stack",
)
"""The names of all checks, which are the names of their packages. Of findings that are equally severe and
sure those of an earlier check come first."""

MAX_FINDINGS = 1 << 16
"""The most findings that are kept of one check."""

_CUT = f"more than {MAX_FINDINGS} findings: the rest is left out"


class Outcome(Record):
    """A finding and its check; or why a check, or a part of one, could not run.

    Attributes:
        check: the check
        finding: what it found, None where it could not run
        stacks: how many stacks show the same
        reason: why it could not run
    """

    check: Check
    finding: Optional[Finding]
    stacks: int = 0
    reason: str = ""


class _Gathering:
    """What one check finds: of each group the worst, and in how many stacks.

    Args:
        check: the check
    """

    def __init__(self, check: Check) -> None:
        self.check = check
        self.ran = not check.kinds or not check.needs
        self._worst: Dict[Hashable, Finding] = {}
        self._stacks: Dict[Hashable, Tuple[int, Optional[str]]] = {}
        self._cut = False

    def add(self, findings: Iterable[Finding]) -> None:
        """Takes findings."""
        for each in findings:
            before = self._worst.get(each.group)
            if before is None and len(self._worst) >= MAX_FINDINGS:
                self._cut = True
                continue
            if before is None or rank(each) < rank(before):
                self._worst[each.group] = each
            count, last = self._stacks.get(each.group, (0, None))
            if not count or last != each.trace_id:
                self._stacks[each.group] = count + 1, each.trace_id

    def found(self) -> Iterator[Outcome]:
        """Yields what was found."""
        for group, finding in self._worst.items():
            yield Outcome(self.check, finding, self._stacks[group][0])

    def reasons(self, facts: CheckFacts) -> Iterator[Outcome]:
        """Yields why the check, or a part of it, could not run."""
        if not self.ran:
            yield Outcome(self.check, None, reason=self.check.needs)
        for reason in (self.check.unchecked or self._left_out)(facts):
            yield Outcome(self.check, None, reason=reason)
        if self._cut:
            yield Outcome(self.check, None, reason=_CUT)

    def _left_out(self, facts: CheckFacts) -> Iterator[str]:
        """Yields what the check told the facts that it left out."""
        return facts.left_out(self.check.name)


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


class Findings(interfaces.configuration.VersionableInterface):
    """Runs checks on an image.

    Args:
        symbolizer: knows the modules of every address space
        checks: names of CHECKS; all when empty
        pids: the processes wanted, 0 for the kernel; all when empty
        scan: whether a pool scan adds threads; processes are added by `ProcessList.scan`
        around: is entered around the traces of a database
    """

    _version = (2, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        symbolizer: Symbolizer,
        checks: Collection[str] = (),
        pids: Tuple[int, ...] = (),
        scan: bool = False,
        around: Around = nullcontext,
    ) -> None:
        from .facts import CheckFacts

        super().__init__()
        self._facts = CheckFacts(symbolizer, pids, scan)
        self._traces = FlatTraces(symbolizer, around)
        self._gathered = [_Gathering(check_named(each)) for each in CHECKS if not checks or each in checks]

    def examine(self, totals: Optional[Totals] = None) -> Iterator[FlatStack]:
        """Runs the checks, and yields each stack that they have seen.

        Args:
            totals: counts threads, their stacks, and databases

        Raises:
            tables.MissingTableError: when one of our symbol tables is missing
        """
        facts = self._facts
        kinds = tuple({kind: None for each in self._gathered for kind in each.check.kinds})
        wanted = FlatWanted(kinds, facts.pids, scan_threads=facts.scan)
        for stack in self._traces.list_stacks(wanted, totals) if kinds else ():
            self.see(stack)
            yield stack
        self.end()

    def see(self, stack: FlatStack) -> None:
        """Runs the checks on a stack. Who lists the stacks for other ends calls this, and then `end`."""
        for each in self._gathered:
            if stack.kind in each.check.kinds:
                each.ran = each.ran or bool(stack.frames)
                each.add(self._found_in(stack, each.check.of_stack) if each.check.of_stack else ())

    def _found_in(self, stack: FlatStack, find: OfStack) -> Iterator[Finding]:
        """Yields what a check finds in a stack; How says where a shadow stack confirms the frame."""
        for finding in find(stack, self._facts):
            if stack.kind in (KERNEL, USER) and finding.frame is not None:
                from .shadow_stack import confirmed

                if finding.frame in confirmed(stack, self._facts):
                    finding = finding._replace(how=SHADOW)
            yield finding

    def end(self) -> None:
        """Runs the checks that look at the image as a whole."""
        for each in self._gathered:
            each.add(each.check.of_image(self._facts) if each.check.of_image else ())

    def found(self) -> List[Outcome]:
        """Returns what `examine` has found, worst first, and then why checks could not run."""
        found = [each for gathered in self._gathered for each in gathered.found()]
        # The sort is stable: the order of the checks decides among equals.
        found.sort(key=_rank)
        return found + [each for gathered in self._gathered for each in gathered.reasons(self._facts)]


def _rank(found: Outcome) -> Tuple[int, int]:
    return (0, 0) if found.finding is None else rank(found.finding)
