# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Asks `windows.tracefindings` about a machine as it is, and about one with a technique planted.

A machine is built once; each question is asked in a process of its own that has it in memory (Linux).
"""

from __future__ import annotations

import multiprocessing
import pathlib
import tempfile
from multiprocessing.connection import Connection
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from volatility3.plugins.windows import tracefindings

from tests.forge import context
from tests.support import grid
from tests.support.clean.host64 import Host64
from winstacks.columns.words import LOW

from . import machines
from .techniques import Technique

Row = Dict[str, object]
_KERNEL = (0, 4)


class Answer(NamedTuple):
    """What was found above `low`, the worst first: of a machine, or of the process with a technique.

    Attributes:
        name: of the machine, or of the technique
        rows: of windows.tracefindings
        processes: how many the machine has
        missing: how many pages are not in the image
        low: the checks that found something of `low` only
    """

    name: str
    rows: List[Row]
    processes: int
    missing: int
    low: List[str]


_host: Optional[Host64] = None
"""The machine, in the processes that answer: a fork has it without a copy."""


def ask(machine: str, seed: int, techniques: Sequence[Technique], jobs: int) -> Iterator[Answer]:
    """Yields what is found in a machine as it is (unless there are techniques), or with each technique.

    Args:
        machine: of `machines.MACHINES`
        seed: which pages are missing; 0: none are
        techniques: to plant, one at a time
        jobs: processes at a time
    """
    global _host
    _host = machines.build(machine)
    forking = multiprocessing.get_context("fork")
    chosen: Sequence[Optional[Technique]] = techniques or (None,)
    for first in range(0, len(chosen), jobs):
        runs = []
        for technique in chosen[first : first + jobs]:
            ours, theirs = forking.Pipe(duplex=False)
            run = forking.Process(target=_answer, args=(theirs, machine, seed, technique))
            run.start()
            theirs.close()
            runs.append((run, ours))
        for run, ours in runs:
            yield ours.recv()
            run.join()


def _answer(pipe: Connection, machine: str, seed: int, technique: Optional[Technique]) -> None:
    """Answers one question, in a process of its own."""
    assert _host is not None
    planted = None if technique is None else technique.plant(_host)
    image = _host.kernel.image()
    if technique is not None and planted is not None:
        technique.change(planted)
    missing = machines.lose(_host, seed, spared=[planted] if planted else ()) if seed else 0
    pids = () if planted is None else (*_KERNEL, planted.pid)
    with tempfile.TemporaryDirectory() as folder:
        opened = context.open_image(image, pathlib.Path(folder))
        options = {"pid": list(pids)} if pids else {}
        rows = [node.row for node in grid.run(opened, tracefindings.TraceFindings, **options)]
    found = [row for row in rows if row["Severity"] not in (LOW, None)]
    low = sorted({str(row["Finding"]) for row in rows if row["Severity"] == LOW})
    name = machine if technique is None else technique.name
    pipe.send(Answer(name, found, len(_host.kernel.processes), missing, low))
    pipe.close()
