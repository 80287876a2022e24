# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The data of a report on one image: threads, heaps, findings, locks, and facts about the image.

    report = Report()
    for stack in ...: report.add(stack)
    data = report.data(facts, outcomes, waits, made, examined)
    for piece in htmlpage.page(title, data): file.write(piece)

`report.js` shows the parts that `data` has.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence, Tuple

from ..columns.commands import for_input
from ..columns.words import HEAP, SCAN, THREAD_KINDS
from ..findings.finding import Check
from ..findings.loststacks import LOST_STACKS
from ..findings.registry import Outcome
from ..memory.decode.status import text
from ..memory.decode.text import short_of, with_address
from ..process.thread import Thread
from ..stacklist.imagefacts import Facts
from ..stacklist.stack import StackRecord
from ..stacklist.tables import image_values
from .drawing import Drawing
from .htmlpage import flame_data
from .imagepart import image_part
from .lists import Frames, PageLists
from .readable import undecorate


class Report:
    """Collects the stacks of an image, and makes the data of its page."""

    def __init__(self) -> None:
        self.drawn = Drawing()
        self.lists = PageLists()

    def add(self, stack: StackRecord) -> None:
        self.drawn.add(stack)
        space = stack.space
        if stack.kind in THREAD_KINDS and stack.thread is not None:
            if self.lists.room_for_thread():
                self._thread(stack, stack.thread)
        elif stack.kind == HEAP and stack.size:
            process = space.label
            self.lists.heap(stack.size, stack.counted or 0, process, self._frames(stack), text(stack.status))

    def take(self) -> Any:
        """Returns what was collected, and forgets it."""
        lists, self.lists = self.lists, PageLists()
        return lists, self.drawn.take()

    def merge(self, collected: Any) -> None:
        """Adds what another report collected of the stacks that follow."""
        lists, drawn = collected
        self.lists.merge(lists)
        self.drawn.merge(*drawn)

    def data(
        self,
        facts: Facts,
        found: Sequence[Outcome],
        waits: Dict[str, Any],
        made: Sequence[Tuple[str, str]],
        examined: str,
    ) -> Dict[str, Any]:
        """Returns the parts of the page.

        Args:
            waits: what `waitpart.waits_part` returns
            made: pairs of texts about this report, which the head of the page shows last
            examined: how many checks examined how many stacks, in words
        """
        self._add_findings(found, facts["InputKind"])
        image = image_part(image_values(facts))
        image["head"] += map(list, made)
        commands = {
            name: for_input(f"windows.{plugin}", facts["InputKind"])
            for name, plugin in (("command", "locks"), ("waitsCommand", "tracewaits"))
        }
        return {
            "image": image,
            "findings": {**self.lists.findings(), "examined": examined},
            "flame": flame_data(self.drawn.tree, "stacks"),
            "locks": {**waits, **commands},
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
            symbol = finding.symbol
            card = {
                "severity": finding.severity,
                "confidence": finding.confidence,
                "check": check.name,
                "process": finding.space.label,
                "tid": finding.tid,
                "kind": finding.kind,
                "symbol": symbol and undecorate(short_of(with_address(symbol, finding.address))),
                "evidence": finding.evidence,
                "stacks": outcome.stacks,
                "innocent": finding.innocent,
                "technique": finding.technique or check.technique,
                "frame": finding.frame,
                "frames": () if finding.stack is None else self._frames(finding.stack),
                "status": text(finding.status),
            }
            self.lists.finding(card, check_texts(check, input_kind))


def check_texts(check: Check, input_kind: str) -> Dict[str, str]:
    """Returns the texts of the page for a check on a kind of input."""
    next_steps = for_input(check.next_steps, input_kind)
    return {"meaning": check.meaning, "innocent": check.innocent, "next": next_steps}
