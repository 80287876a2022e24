# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Asks `windows.tracefindings` about a machine as it is, and about one in which techniques were planted.

A machine is built once; each question is asked in a process of its own that has it in memory (Linux). All
techniques are planted at once, each in processes of its own: so one run answers for all. A technique's
place is that among the rows which the machine has without the other techniques. The processes of techniques
lose pages as all others do.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import pathlib
import tempfile
from multiprocessing.connection import Connection
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from volatility3.plugins.windows import tracefindings

from tests.forge import context
from tests.forge.phys import PAGE
from tests.forge.process import Process
from tests.forge.space import Space
from tests.support import grid
from tests.support.clean.host86 import Host
from winstacks.columns.words import LOW

from . import machines, missing
from .techniques import Technique

Row = Dict[str, object]
FIRST_ROWS = 10
"""What an analyst reads first."""


class Draw(NamedTuple):
    """What is asked: a machine, the share of its pages that is missing, and the seed of the choice."""

    machine: str
    kernel: str
    share: float
    seed: int


class Question(NamedTuple):
    """A draw, and what to plant in its machine, all at once; nothing: the machine as it is."""

    draw: Draw
    techniques: Sequence[Technique] = ()


class Shown(NamedTuple):
    """What a technique gives.

    Attributes:
        name: of the technique
        place: of its first row among all of the machine, from 1 on; None if there is no row
        rows: its rows, the worst first
        in_image: whether the stacks of its newest thread are in the image: the evidence of most techniques
    """

    name: str
    place: Optional[int]
    rows: List[Row]
    in_image: bool = True

    @property
    def above_low(self) -> bool:
        """Whether a row is above `low`."""
        return any(row["Severity"] != LOW for row in self.rows)

    @property
    def among_first(self) -> bool:
        """Whether a row is among those that an analyst reads first."""
        return self.place is not None and self.place <= FIRST_ROWS


class Answer(NamedTuple):
    """What was found in a machine.

    Attributes:
        draw: what was asked
        processes: how many the machine has
        missing: how many pages are not in the image
        above: the innocent rows above `low`; of a machine with techniques, none
        shown: what each technique gives
    """

    draw: Draw
    processes: int
    missing: int
    above: List[Row]
    shown: List[Shown]


class _Owned(NamedTuple):
    """What a technique added to a machine: its process, and all new processes and threads of the kernel."""

    technique: Technique
    planted: Process
    pids: Set[int]
    tids: Set[int]

    def has(self, row: Row) -> bool:
        """Whether a row is about what was added."""
        return row["PID"] in self.pids or row["TID"] in self.tids

    def shows(self, row: Row) -> bool:
        """Whether a row is about the process in which the technique is to be found, or the thread."""
        return row["TID"] in self.tids or (row["PID"] in self.pids and row["PID"] == self.planted.pid)


_hosts: Dict[Tuple[str, str], Host] = {}
"""The machines, in the processes that answer: a fork has them without a copy."""


def ask(questions: Sequence[Question], jobs: int) -> Iterator[Answer]:
    """Yields what is found in machines, in the order of the questions; `jobs` are asked at a time."""
    forking = multiprocessing.get_context("fork")
    runs: List[Tuple[multiprocessing.process.BaseProcess, Connection]] = []
    for question in questions:
        if len(runs) == jobs:
            yield _received(*runs.pop(0))
        key = question.draw.machine, question.draw.kernel
        if key not in _hosts:
            _hosts[key] = machines.build(*key)
        ours, theirs = forking.Pipe(duplex=False)
        run = forking.Process(target=_answer, args=(theirs, *question))
        run.start()
        theirs.close()
        runs.append((run, ours))
    for each in runs:
        yield _received(*each)


def _received(run: multiprocessing.process.BaseProcess, pipe: Connection) -> Answer:
    """Returns the answer of a process, which then ends."""
    answer: Answer = pipe.recv()
    run.join()
    return answer


def _answer(pipe: Connection, draw: Draw, techniques: Sequence[Technique]) -> None:
    """Answers one question, in a process of its own."""
    host = _hosts[draw.machine, draw.kernel]
    owned = [_planted(host, technique) for technique in techniques]
    # Last: no address of what is drawn from depends on them.
    machines.ordinary_callbacks(host)
    image = host.kernel.image()
    for each in owned:
        each.technique.change(each.planted)
    stacks = [_stack_pages(host, each) for each in owned]
    lost = missing.lose(host, draw.seed, draw.share) if draw.share else 0
    whole = [all(space.holds(page) for space, page in pages) for pages in stacks]
    with tempfile.TemporaryDirectory() as folder:
        opened = context.open_image(image, pathlib.Path(folder))
        rows = [node.row for node in grid.run(opened, tracefindings.TraceFindings)]
    rows = [row for row in rows if row["Severity"] is not None]
    above = [] if techniques else [row for row in rows if row["Severity"] != LOW]
    shown = [_shown(each, owned, rows)._replace(in_image=in_image) for each, in_image in zip(owned, whole)]
    pipe.send(Answer(draw, len(host.kernel.processes), lost, above, shown))
    pipe.close()


def _planted(host: Host, technique: Technique) -> _Owned:
    """Plants a technique, and notes what is new."""
    system = host.kernel.system
    known = {process.pid for process in host.kernel.processes}
    threads = {thread.tid for thread in system.threads}
    planted = technique.plant(host)
    pids = {process.pid for process in host.kernel.processes} - known
    tids = {thread.tid for thread in system.threads} - threads
    return _Owned(technique, planted, pids, tids)


def _stack_pages(host: Host, own: _Owned) -> List[Tuple[Space, int]]:
    """Returns the page in use of each stack of a technique's newest thread, with its address space."""
    threads = [thread for thread in own.planted.threads if not own.tids or thread.tid in own.tids]
    pages: List[Tuple[Space, int]] = []
    for thread in threads[-1:]:
        pages.append((host.kernel.space, thread.stack_base - PAGE))
        if own.planted.space is not host.kernel.space:
            pages.append((own.planted.space, thread.user_stack_base - PAGE))
    return [(space, page) for space, page in pages if space.holds(page)]


def _shown(own: _Owned, owned: Sequence[_Owned], rows: Sequence[Row]) -> Shown:
    """What a technique gives, among the rows that no other technique has."""
    others = [each for each in owned if each is not own]
    left = [row for row in rows if not any(each.has(row) for each in others)]
    mine = [(place, row) for place, row in enumerate(left, 1) if own.shows(row)]
    return Shown(own.technique.name, mine[0][0] if mine else None, [row for _, row in mine])
