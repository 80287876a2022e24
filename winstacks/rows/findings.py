# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rows of windows.tracefindings, and its explanations of the checks."""

from __future__ import annotations

from typing import Collection, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from volatility3.framework import interfaces

from ..columns.commands import for_input
from ..findings.finding import Check, Finding, brief_evidence
from ..findings.loststacks import LOST_STACKS
from ..findings.registry import Examined, Outcome, agreement, check_named
from ..memory.decode.status import Part, status, text
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import ShortText, counted, with_address
from ..memory.image import Image
from ..options import CHECKS, SEVERITIES
from ..stacklist.decode.keys import NO_KEYS
from ..stacklist.imagefacts import identity
from . import briefgrid
from .grid import Cells, Grid, Row
from .nextcommand import next_command
from .requested import check_words, input_kind

FINDINGS = Grid.for_plugin("tracefindings")
NOTHING_FOUND = "nothing_found"
"""The column Finding in the row that stands for no finding."""
SUMMARY = "summary"
"""The column Finding in the summary row of a process."""

_BETWEEN = "; "


def summary(image: Image, found: Iterable[Outcome], severity: Collection[str] = ()) -> Iterator[Row]:
    """Yields a row for each process with findings, the worst first.

    Args:
        found: the outcomes, in the order of their rows
        severity: the severities to count; empty for all
    """
    shown: Dict[Tuple[str, int], List[Outcome]] = {}
    for outcome in found:
        if outcome.finding is not None and (not severity or outcome.finding.severity in severity):
            shown.setdefault((outcome.finding.space.layer_name, outcome.finding.space.eprocess), []).append(
                outcome
            )
    for outcomes in shown.values():
        worst = outcomes[0].finding
        assert worst is not None
        space, above = worst.space, agreement(outcomes)
        evidence = f"{counted(len(outcomes), 'finding')}; "
        agree = counted(len(above), "check", "checks agree")
        evidence += f"{agree}: {', '.join(above)}" if above else "none above low"
        cells = {
            "Severity": worst.severity,
            "Confidence": worst.confidence,
            "Finding": SUMMARY,
            **_process(space.eprocess, space.pid, space.known_name),
            "Evidence": evidence,
            "Group": outcomes[0].story,
        }
        yield 0, _cells(image, cells)


def nothing_found(
    image: Image, found: Iterable[Outcome], severity: Collection[str], examined: Examined
) -> Iterator[Row]:
    """Yields a row that says what was examined, if no finding has one of the severities."""
    findings = [outcome.finding for outcome in found if outcome.finding is not None]
    if any(finding.severity in severity for finding in findings):
        return
    least = "" if len(severity) == len(SEVERITIES) else f" of severity {' or '.join(severity)}"
    text = f"no finding{least}: {examined.in_words}"
    if findings:
        text += f"; {len(findings)} {'is' if len(findings) == 1 else 'are'} of a lower severity"
    yield 0, _cells(image, {"Finding": NOTHING_FOUND, "Evidence": text})


def rows(
    image: Image, found: Iterable[Outcome], severity: Collection[str] = (), in_short: bool = False
) -> Iterator[Row]:
    """Yields a row for each finding, and for each check that could not run.

    Args:
        found: the outcomes, in the order of their rows
        severity: the severities to show; empty for all. Checks that could not run are always shown
        in_short: give each reason why something was not checked one row, with a count
    """
    reasons: Dict[str, List[Outcome]] = {}
    for outcome in found:
        if outcome.finding is None:
            reason = LOST_STACKS if outcome.check is None else outcome.reason
            reasons.setdefault(reason, []).append(outcome)
        elif not severity or outcome.finding.severity in severity:
            yield 0, _row(image, outcome)
    for outcomes in reasons.values():
        if in_short and len(outcomes) > 1:
            yield 0, _counted(image, outcomes)
        else:
            yield from ((0, _not_checked(image, outcome)) for outcome in outcomes)


def _counted(image: Image, outcomes: Sequence[Outcome]) -> Cells:
    """Returns the row of several outcomes with one reason: checks that did not run, or lost stacks."""
    first = outcomes[0]
    if first.check is None:
        stacks = sum(outcome.stacks for outcome in outcomes)
        processes = counted(len(outcomes), "process", "processes")
        evidence = f"{counted(stacks, 'lost stack')} of {processes}: --unchecked lists them"
        return _cells(image, {"Finding": LOST_STACKS, "Evidence": evidence}, StatusCode.NOT_CHECKED)
    names = ", ".join(outcome.check.name for outcome in outcomes if outcome.check is not None)
    checks = f"; {counted(len(outcomes), 'check')}: {names}"
    return _of_check(image, first.check, first.reason, checks)


def _of_check(image: Image, check: Check, reason: str, more: str = "") -> Cells:
    """Returns the row of a check that did not run; `more` follows the reason."""
    evidence = ShortText(reason + more, brief_evidence(reason) + more)
    cells: Dict[str, object] = {"Finding": check.name, "Evidence": evidence, "Technique": check.technique}
    return _cells(image, cells, StatusCode.NOT_CHECKED)


def _not_checked(image: Image, found: Outcome) -> Cells:
    if found.check is not None:
        return _of_check(image, found.check, found.reason)
    assert found.process is not None
    cells = {"Finding": LOST_STACKS, **_process(*found.process), "Evidence": found.reason}
    return _cells(image, cells, StatusCode.NOT_CHECKED)


def _row(image: Image, found: Outcome) -> Cells:
    finding = found.finding
    assert finding is not None and found.check is not None
    space, evidence = finding.space, finding.evidence
    keys = NO_KEYS if finding.stack is None else finding.stack.keys()
    cells = {
        "Severity": finding.severity,
        "Confidence": finding.confidence,
        "Finding": found.check.name,
        **_process(space.eprocess, space.pid, space.known_name),
        "TID": finding.tid,
        "Kind": finding.kind,
        "Frame": finding.frame,
        "Address": finding.address,
        "Symbol": _symbol(image, finding),
        "How": finding.how,
        "Evidence": ShortText(*(with_count(form, found) for form in (evidence, brief_evidence(evidence)))),
        "Innocent": finding.innocent,
        "Group": found.story,
        "Next": next_command(image, found),
        "Technique": finding.technique or found.check.technique,
        "StackKey": keys.stack,
        "TraceId": finding.trace_id,
    }
    return _cells(image, cells, finding.status)


def _cells(image: Image, cells: Dict[str, object], *faults: Part) -> Cells:
    """Returns a row; a fault that it has by its nature has the column Status."""
    own = {"ImageId": image.service(identity).image_id, **cells}
    if faults:
        own["Status"] = text(status(*faults))
    return FINDINGS.cells(own, ("PID", "Process"), image.machine.address_mask)


def _process(eprocess: int, pid: Optional[int], name: Optional[str]) -> Dict[str, object]:
    return {"PID": pid, "Process": name, "ProcessOffset": eprocess or None}


def with_count(evidence: str, found: Outcome) -> str:
    """Returns the column Evidence: the evidence, and the number of stacks, or threads, that show it."""
    if found.stacks < 2:
        return evidence
    of_threads = found.finding is not None and found.finding.of_threads
    return f"{evidence}{_BETWEEN}{found.stacks} {'threads' if of_threads else 'stacks'}"


def _symbol(image: Image, finding: Finding) -> Optional[str]:
    if finding.symbol is None or finding.address is None:
        return finding.symbol
    return with_address(finding.symbol, image.machine.masked(finding.address))


def chosen(
    plugin: interfaces.plugins.PluginInterface, option: str, choices: Collection[str]
) -> Tuple[str, ...]:
    """Returns the words that the user gave to an option. Raises RenderException if a word does not exist."""
    words = tuple(plugin.config.get(option) or ())
    check_words(option, words, choices)
    return words


def severities(plugin: interfaces.plugins.PluginInterface) -> Tuple[str, ...]:
    """Returns the severities that --severity selects: the named one and all above it. Raises RenderException
    if the severity does not exist."""
    least = plugin.config.get("severity")
    if least is None:
        return SEVERITIES
    check_words("severity", [least], SEVERITIES)
    return SEVERITIES[: SEVERITIES.index(least) + 1]


def explained(name: str, plugin: interfaces.plugins.PluginInterface) -> interfaces.renderers.TreeGrid:
    """Returns the grid that explains a check. `plugin` is the plugin that explains it: one for images, or one
    for dumps. No input is read. Raises RenderException if the check does not exist."""
    check_words("explain", [name], CHECKS)
    columns = [("Finding", str), ("What", str), ("Explanation", str)]
    rows = _explanation(check_named(name), input_kind(plugin))
    return briefgrid.tree(columns, [column for column, _ in columns], rows)


def explanation(check: Check) -> List[Tuple[str, str]]:
    """Returns the explanation of a check: (topic, text)."""
    return [
        ("meaning", check.meaning),
        ("severity", check.severities),
        ("false positives", check.innocent),
        ("what to do next", check.next_steps),
        ("ATT&CK", check.technique),
    ]


def _explanation(check: Check, kind: str) -> Iterator[Row]:
    for what, explained in explanation(check):
        yield 0, (check.name, what, for_input(explained, kind))
