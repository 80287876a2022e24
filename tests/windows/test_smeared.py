# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A process and a thread that end while the image is taken: some of their pages are older than others.

The rows say which witnesses disagree. They never say that somebody altered anything.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Callable, Dict, Iterator, List

import pytest

from tests.forge import sample
from tests.forge.kernel import Kernel
from tests.forge.obj import Obj
from tests.forge.thread import TERMINATED
from tests.hostile import undamaged
from tests.hostile.judging import words
from tests.hostile.target import Answer, Target, Write
from winstacks.memory.decode.statuscodes import StatusCode

EXITED = 0x01D9_0000_0000_0000
PLUGINS: Dict[str, Dict[str, Any]] = {
    "gflags": {},
    "stacktracedb": {},
    "trapframes": {"scan_stacks": True},
    "callstacks": {},
    "locks": {},
    "handletraces": {},
    "objecttraces": {},
    "heaptraces": {},
}
ACCUSING = re.compile(r"alter|tamper|forge|manipul|hidden|hides|attack|malicious|suspicious|rootkit", re.I)


IMAGES: Dict[str, Callable[[], Kernel]] = {
    "win10-x64": sample.build,
    "xp-x86": lambda: undamaged.traced("xp-x86"),
}
"""The second process of each is the one that ends."""


@pytest.fixture(scope="module", params=IMAGES)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield Target(IMAGES[request.param](), tmp_path_factory.mktemp("smeared"))


def put(target: Target, structure: Obj, **values: int) -> List[Write]:
    """Returns writes to members of a structure; two underscores stand for a dot."""
    found = []
    for name, value in values.items():
        path = name.replace("__", ".")
        if target.kernel.isf.has(structure.type_name, path):
            size = target.kernel.isf.place(structure.type_name, path).size
            found.append(target.at(structure.at(path), value, size))
    return found


def process_exited(target: Target) -> List[Write]:
    """Its _EPROCESS is of later than all that leads to it, and than its threads."""
    eprocess = target.kernel.processes[1].eprocess
    return put(target, eprocess, ExitTime__QuadPart=EXITED, ActiveThreads=0, ObjectTable=0, VadRoot__Root=0)


def process_alive(target: Target) -> List[Write]:
    """Its _EPROCESS is of earlier: its threads have ended, and PspCidTable has none of them."""
    updater, cid = target.kernel.processes[1], target.kernel.cid
    assert cid is not None
    writes = [target.at(cid.entry(updater.pid), 0)]
    for thread in updater.threads:
        writes += put(target, thread.ethread, Tcb__State=TERMINATED, Tcb__Header__SignalState=1)
        writes.append(target.at(cid.entry(thread.tid), 0))
    return writes


def thread_exited(target: Target) -> List[Write]:
    """Its _ETHREAD is of later than the list and PspCidTable that lead to it."""
    thread = target.kernel.processes[1].threads[0]
    ended = {"Tcb__State": TERMINATED, "Tcb__Header__SignalState": 1}
    return put(target, thread.ethread, **ended, Tcb__InitialStack=0, Tcb__Teb=0)


def thread_alive(target: Target) -> List[Write]:
    """Its _ETHREAD is of earlier: the process counts it no more, and PspCidTable has none."""
    updater, cid = target.kernel.processes[1], target.kernel.cid
    assert cid is not None
    count = len(updater.threads) - 1
    gone = target.at(cid.entry(updater.threads[0].tid), 0)
    return [gone, *put(target, updater.eprocess, ActiveThreads=count)]


CAPTURES: Dict[str, Callable[[Target], List[Write]]] = {
    function.__name__: function for function in (process_exited, process_alive, thread_exited, thread_alive)
}


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("name", CAPTURES)
def test_what_ends_meanwhile_is_said_to_disagree(target: Target, name: str, plugin: str) -> None:
    options = PLUGINS[plugin]
    clean = target.clean(plugin, **options)
    answer = target.run(plugin, CAPTURES[name](target), **options)
    assert _tells(clean, answer)
    statuses = [*filter(None, answer.column("Status")), *answer.warnings]
    assert not [status for status in statuses if ACCUSING.search(status)]
    pid = target.kernel.processes[1].pid
    assert _others(clean, pid) == _others(answer, pid)


@pytest.mark.parametrize("name", CAPTURES)
def test_some_row_of_it_says_so(target: Target, name: str) -> None:
    words = set()
    for plugin, options in PLUGINS.items():
        clean, answer = target.clean(plugin, **options), target.run(plugin, CAPTURES[name](target), **options)
        pid = target.kernel.processes[1].pid
        words |= set(_statuses(answer, pid)) - set(_statuses(clean, pid))
    assert words, "no plugin says anything"


def test_no_word_accuses() -> None:
    assert not [word for word in StatusCode if ACCUSING.search(word.value)]


def _statuses(answer: Answer, pid: int) -> List[str]:
    """Returns what is said of the process."""
    place, status_place = answer.columns.index("PID"), answer.columns.index("Status")
    return [row[status_place] for row in answer.rows if row[place] == pid and row[status_place]]


def _others(answer: Answer, pid: int) -> List[Any]:
    """Returns the rows of other processes, less those of the kernel, which names the processes of others."""
    place = answer.columns.index("PID")
    return [row for row in answer.rows if row[place] not in (0, pid)]


def _tells(clean: Answer, answer: Answer) -> bool:
    """Returns whether an answer is the same, or what differs in it says so: by a word or by a warning."""
    before, after = Counter(clean.rows), Counter(answer.rows)
    same = before == after
    warned = Counter(answer.warnings) - Counter(clean.warnings)
    return same or bool(warned or words(after - before, answer) - words(before - after, clean))
