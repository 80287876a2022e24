# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a report of one image says: threads, heaps, findings, locks and what the image is, as plain data.

    report = Report()
    for stack in ...: report.add(stack)
    data = report.data(facts, outcomes, graph)
    for piece in html.page(title, data): file.write(piece)

`report.js` shows the parts of `data` that are there.
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ...base.decode.status import text
from ...findings.registry import Outcome
from ...flat.decode import schema
from ...flat.decode.schema import HEAP, SCAN, THREAD_KINDS
from ...flat.imagefacts import JOINED, ImageFacts
from ...flat.stack import FlatStack
from ...flat.tables import image_values
from ...flat.waits import LockKey, ThreadKey, WaitGraph
from ...locks.lock import Lock
from ...threads.lister import Thread
from ..drawn import Drawn
from ..html import flame_data

MAX_THREADS = 1 << 15
MAX_HEAPS = 1 << 14
MAX_FINDINGS = 1 << 12
MAX_SHOWN_LOCKS = 1 << 13
"""The most of each that a page has; it says how many more there are."""

_MARKS = {"guess": "? ", "unbacked": "! "}
"""Stand before frames that are a guess, and before those that nothing backs."""


class Texts:
    """Distinct texts with a number each: frames repeat."""

    def __init__(self) -> None:
        self.all: List[str] = []
        self._numbers: Dict[str, int] = {}

    def number(self, text: str) -> int:
        """Returns the number of a text."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.all)
            self.all.append(text)
        return found


class Report:
    """Takes the stacks of an image, and makes the data of its page.

    Attributes:
        drawn: the flame graph
        cut: how many threads and traces of heaps are left out
    """

    def __init__(self) -> None:
        self.drawn = Drawn()
        self.cut = 0
        self._texts = Texts()
        self._threads: List[Dict[str, Any]] = []
        self._heaps: List[Tuple[int, int, str, Tuple[int, ...], str]] = []

    def add(self, stack: FlatStack) -> None:
        """Takes a stack."""
        self.drawn.add(stack)
        if stack.kind in THREAD_KINDS and stack.thread is not None:
            if len(self._threads) < MAX_THREADS:
                self._threads.append(self._thread(stack, stack.thread))
            else:
                self.cut += 1
        elif stack.kind == HEAP and stack.size:
            process = f"{stack.space.process} ({stack.space.pid})"
            made = (stack.size, stack.counted or 0, process, self._frames(stack), text(stack.status))
            self._heaps.append(made)
            if len(self._heaps) > 2 * MAX_HEAPS:
                self._heaps.sort(key=_largest)
                del self._heaps[MAX_HEAPS:]
                self.cut += MAX_HEAPS

    def data(self, facts: ImageFacts, found: Sequence[Outcome], graph: WaitGraph) -> Dict[str, Any]:
        """Returns the parts of the page.

        Args:
            facts: what the image is
            found: findings, and why checks could not run
            graph: who waits for which lock
        """
        self._heaps.sort(key=_largest)
        heaps = self._heaps[:MAX_HEAPS]
        self.cut += len(self._heaps) - len(heaps)
        tree = self.drawn.tree
        return {
            "image": image_part(facts),
            "findings": self._findings(found),
            "flame": flame_data(tree, "stacks"),
            "threads": self._threads,
            "locks": locks_part(graph),
            "heaps": [list(each) for each in heaps],
            "cut": self.cut,
            "texts": self._texts.all,
        }

    def _frames(self, stack: FlatStack) -> Tuple[int, ...]:
        """Returns the numbers of the texts of a stack's frames, innermost first."""
        numbers = []
        for place, frame in enumerate(stack.frames):
            walked = stack.walked[place] if stack.walked else None
            guess = walked is not None and (walked.how == SCAN or not walked.sure)
            mark = (_MARKS["guess"] if guess else "") + (_MARKS["unbacked"] if frame.unbacked else "")
            numbers.append(self._texts.number(mark + frame.shown))
        return tuple(numbers)

    def _thread(self, stack: FlatStack, thread: Thread) -> Dict[str, Any]:
        return {
            "process": f"{stack.space.process} ({stack.space.pid})",
            "tid": -1 if thread.tid is None else thread.tid,
            "kind": stack.kind,
            "state": " ".join(filter(None, (thread.state_name, thread.wait_reason_name))),
            "unbacked": stack.unbacked or 0,
            "frames": self._frames(stack),
            "status": text(stack.status),
        }

    def _findings(self, found: Sequence[Outcome]) -> Dict[str, Any]:
        cards: List[Dict[str, Any]] = []
        unchecked: List[List[str]] = []
        checks: Dict[str, Dict[str, str]] = {}
        for each in found:
            if each.finding is None:
                unchecked.append([each.check.name, each.reason])
                continue
            finding, check = each.finding, each.check
            if len(cards) >= MAX_FINDINGS:
                continue
            checks[check.name] = {
                "meaning": check.meaning,
                "innocent": check.innocent,
                "next": check.next_steps,
            }
            cards.append(
                {
                    "severity": finding.severity,
                    "confidence": finding.confidence,
                    "check": check.name,
                    "process": f"{finding.space.process} ({finding.space.pid})",
                    "tid": finding.tid,
                    "kind": finding.kind,
                    "symbol": finding.symbol,
                    "evidence": finding.evidence,
                    "stacks": each.stacks,
                    "innocent": finding.innocent,
                    "technique": finding.technique or check.technique,
                    "frame": finding.frame,
                    "frames": () if finding.stack is None else self._frames(finding.stack),
                    "status": text(finding.status),
                }
            )
        total = sum(each.finding is not None for each in found)
        return {"cards": cards, "total": total, "unchecked": unchecked, "checks": checks}


def image_part(facts: ImageFacts) -> Dict[str, Any]:
    """Returns what the page says of the image.

    Args:
        facts: the row of windows.traceimage
    """
    rows = []
    for column, value in zip(schema.IMAGE, image_values(facts)):
        if column.name == "Files":
            value = _files(str(value))
        if column.name not in ("Schema", "Warnings", "WarningText") and value not in (None, ""):
            rows.append([column.name, _plain(value), column.description])
    warnings = facts.warning_text.split(JOINED) if facts.warning_text else []
    return {"rows": rows, "complete": completeness(facts), "warnings": warnings}


def completeness(facts: ImageFacts) -> List[List[Any]]:
    """Returns how complete the image is: what is counted, how much of it is missing, of how much."""
    counted: List[Tuple[str, Optional[int], Optional[int]]] = [
        ("pages that structures lead to are not in the image", facts.pages_missing, facts.pages_wanted),
        ("stacks of threads are incomplete", facts.stacks_incomplete, facts.stacks),
        ("processes cannot be read", facts.processes_unreadable, facts.processes),
        ("processes are not in the process list", facts.processes_found_otherwise, facts.processes),
    ]
    return [[said, part, whole] for said, part, whole in counted if part is not None and whole is not None]


def locks_part(graph: WaitGraph) -> Dict[str, Any]:
    """Returns the locks of the page, and who waits for whom, with a sentence for each deadlock."""
    threads: Dict[ThreadKey, int] = {}
    numbers: Dict[LockKey, int] = {}

    def thread(key: ThreadKey) -> int:
        return threads.setdefault(key, len(threads))

    waited = {wait.lock for wait in graph.waits if wait.lock is not None}
    # What somebody is known to wait for comes first.
    order = sorted(graph.locks, key=lambda key: key not in waited)
    locks: List[Dict[str, Any]] = []
    for key in order[:MAX_SHOWN_LOCKS]:
        numbers[key] = len(locks)
        each = graph.locks[key]
        locks.append(
            {
                "text": lock_text(each),
                "process": f"{each.space.process} ({each.space.pid})",
                "waiters": (each.waiting_shared or 0) + (each.waiting_exclusive or 0),
                "holders": [thread(holder) for holder in graph.holders[key]],
                "status": text(each.status),
            }
        )
    waits = []
    for wait in graph.waits:
        lock = -1 if wait.lock is None else numbers.get(wait.lock, -1)
        function = "" if wait.waiting is None else wait.waiting.function
        waits.append([thread(wait.key), lock, wait.how, wait.sure, function])
    sentences = [_sentence(graph, cycle) for cycle in graph.cycles]
    found = [
        {
            "text": said,
            "threads": [thread(step.thread) for step in cycle],
            "locks": [numbers.get(step.lock, -1) for step in cycle],
        }
        for said, cycle in zip(sentences, graph.cycles)
    ]
    return {
        "locks": locks,
        "more": len(order) - len(locks),
        "threads": [thread_text(key, graph.names) for key in threads],
        "waits": waits,
        "cycles": found,
        "gaps": graph.gaps,
        "cut": graph.cut,
    }


def lock_text(each: Lock) -> str:
    """Returns what a lock is, in words."""
    where = "" if each.space.kernel else f" of {each.space.process} ({each.space.pid})"
    return f"{each.type} {each.address or 0:#x}{where}"


def thread_text(key: ThreadKey, names: Dict[ThreadKey, str]) -> str:
    """Returns which thread it is, in words."""
    pid, tid = key
    return f"thread {tid} of {names.get(key) or '?'} ({'?' if pid is None else pid})"


def _sentence(graph: WaitGraph, cycle: Sequence[Any]) -> str:
    """Returns a deadlock in words."""
    known = {wait.key: wait for wait in graph.waits}
    steps = []
    for number, step in enumerate(cycle):
        following = cycle[(number + 1) % len(cycle)].thread
        held = "it holds itself" if len(cycle) == 1 else f"{thread_text(following, graph.names)} holds"
        lock = lock_text(graph.locks[step.lock])
        steps.append(f"{thread_text(step.thread, graph.names)} waits for {lock}, which {held}")
    sure = all(known[step.thread].sure for step in cycle)
    hows = "; ".join(sorted({known[step.thread].how for step in cycle}))
    begin = "Deadlock" if sure else "Deadlock, by inference"
    return f"{begin}: {'; '.join(steps)}. That each waits for this lock is known because: {hows}."


def _largest(heap: Tuple[int, int, str, Tuple[int, ...], str]) -> Tuple[int, int]:
    return -heap[0], -heap[1]


def _files(text: str) -> str:
    """Returns the column Files in words."""
    files = json.loads(text)
    said = (f"{file['path']} ({file['size']} bytes{_digest(file['sha256'])})" for file in files)
    return "; ".join(said)


def _digest(sha256: Optional[str]) -> str:
    return f", SHA-256 {sha256}" if sha256 else ""


def _plain(value: object) -> str:
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    return str(value)
