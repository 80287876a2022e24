# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The data of a report on one image: threads, heaps, findings, locks, and facts about the image.

    report = Report()
    for stack in ...: report.add(stack)
    data = report.data(facts, outcomes, graph)
    for piece in htmlpage.page(title, data): file.write(piece)

`report.js` shows the parts that `data` has.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..columns.commands import for_input
from ..columns.words import HEAP, SCAN, THREAD_KINDS
from ..findings.finding import Check
from ..findings.loststacks import LOST_STACKS
from ..findings.registry import Outcome
from ..locks.lock import Lock
from ..memory.decode.status import text
from ..memory.decode.text import short_of, with_address
from ..process.thread import Thread
from ..stacklist.imagefacts import ImageFacts
from ..stacklist.stack import StackRecord
from ..stacklist.tables import image_values
from ..stacklist.waits import LockKey, ThreadKey, WaitGraph
from .drawing import Drawing
from .htmlpage import flame_data
from .imagepart import image_part
from .lists import Frames, PageLists
from .readable import undecorate

MAX_SHOWN_LOCKS = 1 << 13
"""Greatest number of locks in a page; the page states how many more exist."""


class Report:
    """Collects the stacks of an image, and makes the data of its page."""

    def __init__(self) -> None:
        self.drawn = Drawing()
        self.lists = PageLists()

    def add(self, stack: StackRecord) -> None:
        """Adds a stack."""
        self.drawn.add(stack)
        space = stack.space
        if stack.kind in THREAD_KINDS and stack.thread is not None:
            if self.lists.room_for_thread():
                self._thread(stack, stack.thread)
        elif stack.kind == HEAP and stack.size:
            process = space.label
            self.lists.heap(stack.size, stack.counted or 0, process, self._frames(stack), text(stack.status))

    def data(
        self, facts: ImageFacts, found: Sequence[Outcome], graph: WaitGraph, made: Sequence[Tuple[str, str]]
    ) -> Dict[str, Any]:
        """Returns the parts of the page.

        Args:
            made: pairs of texts about this report, which the head of the page shows last
        """
        self._add_findings(found, facts.input_kind)
        image = image_part(image_values(facts))
        image["head"] += map(list, made)
        return {
            "image": image,
            "findings": self.lists.findings(),
            "flame": flame_data(self.drawn.tree, "stacks"),
            "locks": {**locks_part(graph), "command": for_input("windows.locks", facts.input_kind)},
            **self.lists.data(),
        }

    def _frames(self, stack: StackRecord) -> Frames:
        """Returns the numbers of the texts of a stack's frames, innermost first."""
        frames = []
        for place in stack.shown:
            frame = stack.frames[place]
            walked = stack.walked[place] if stack.walked else None
            guess = walked is not None and (walked.how == SCAN or not walked.sure)
            frames.append((short_of(frame.symbol()), guess, bool(frame.unbacked)))
        return self.lists.frames(frames)

    def _thread(self, stack: StackRecord, thread: Thread) -> None:
        self.lists.thread(
            stack.space.pid,
            stack.space.known_name,
            thread.tid,
            kind=stack.kind,
            state=" ".join(filter(None, (thread.state_name, thread.wait_reason_name))),
            unbacked=stack.unbacked if stack.frames else 0,
            frames=self._frames(stack),
            status=text(stack.status),
        )

    def _add_findings(self, found: Sequence[Outcome], input_kind: str) -> None:
        for outcome in found:
            finding, check = outcome.finding, outcome.check
            if finding is None or check is None:
                where = "" if outcome.process is None else f"{outcome.process.words}: "
                self.lists.unchecked(check.name if check else LOST_STACKS, where + outcome.reason)
                continue
            if not self.lists.room_for_finding():
                continue
            card = {
                "severity": finding.severity,
                "confidence": finding.confidence,
                "check": check.name,
                "process": finding.space.label,
                "tid": finding.tid,
                "kind": finding.kind,
                "symbol": _shown(finding.symbol, finding.address),
                "evidence": finding.evidence,
                "stacks": outcome.stacks,
                "innocent": finding.innocent,
                "technique": finding.technique or check.technique,
                "frame": finding.frame,
                "frames": () if finding.stack is None else self._frames(finding.stack),
                "status": text(finding.status),
            }
            self.lists.finding(card, check_texts(check, input_kind))


def _shown(symbol: Optional[str], address: Optional[int]) -> Optional[str]:
    """Returns the text of the page for the symbol of a finding, None without one."""
    return symbol and undecorate(short_of(with_address(symbol, address)))


def check_texts(check: Check, input_kind: str) -> Dict[str, str]:
    """Returns the texts of the page for a check on a kind of input."""
    next_steps = for_input(check.next_steps, input_kind)
    return {"meaning": check.meaning, "innocent": check.innocent, "next": next_steps}


def locks_part(graph: WaitGraph) -> Dict[str, Any]:
    """Returns the locks of the page, the waiting threads, and a sentence for each deadlock."""
    threads: Dict[ThreadKey, int] = {}
    numbers: Dict[LockKey, int] = {}

    def thread(key: ThreadKey) -> int:
        return threads.setdefault(key, len(threads))

    waited = {wait.lock for wait in graph.waits if wait.lock is not None}
    # Locks with known waiters come first.
    order = sorted(graph.locks, key=lambda key: key not in waited)
    locks: List[Dict[str, Any]] = []
    for key in order[:MAX_SHOWN_LOCKS]:
        numbers[key] = len(locks)
        listed_lock = graph.locks[key]
        locks.append(
            {
                "text": lock_text(listed_lock),
                "process": listed_lock.space.label,
                "waiters": "unknown" if listed_lock.waiters is None else listed_lock.waiters,
                "holders": [thread(holder) for holder in graph.holders[key]],
                "status": text(listed_lock.status),
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
            "text": sentence,
            "threads": [thread(step.thread) for step in cycle],
            "locks": [numbers.get(step.lock, -1) for step in cycle],
        }
        for sentence, cycle in zip(sentences, graph.cycles)
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


def lock_text(lock: Lock) -> str:
    """Returns the text for a lock."""
    where = "" if lock.space.kernel else f" of {lock.space.label}"
    return f"{lock.type} {lock.address or 0:#x}{where}"


def thread_text(key: ThreadKey, names: Dict[ThreadKey, str]) -> str:
    """Returns the text for a thread."""
    pid, tid = key
    return f"thread {tid} of {names.get(key) or '?'} ({'?' if pid is None else pid})"


def _sentence(graph: WaitGraph, cycle: Sequence[Any]) -> str:
    """Returns the sentence for a deadlock."""
    known = {wait.key: wait for wait in graph.waits}
    steps = []
    for number, step in enumerate(cycle):
        following = cycle[(number + 1) % len(cycle)].thread
        owner_text = "it holds itself" if len(cycle) == 1 else f"{thread_text(following, graph.names)} holds"
        lock = lock_text(graph.locks[step.lock])
        steps.append(f"{thread_text(step.thread, graph.names)} waits for {lock}, which {owner_text}")
    sure = all(known[step.thread].sure for step in cycle)
    hows = "; ".join(sorted({known[step.thread].how for step in cycle}))
    begin = "Deadlock" if sure else "Deadlock, by inference"
    return f"{begin}: {'; '.join(steps)}. Evidence of the waits: {hows}."
