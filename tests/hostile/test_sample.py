# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A fixed sample of the writes of `tests.hostile.tamper`: what is silent stands in docs/trust.md."""

from __future__ import annotations

import collections
import fnmatch
import functools
import itertools
import pathlib
import re
from typing import Callable, List

import pytest

import winstacks
from tests.hostile import cases, tamper, tellings, untold
from tests.hostile.cases import LISTED, UNLINKED, UNLISTED
from tests.hostile.judging import SAID, SILENT, UNCHANGED
from tests.hostile.members import READERS, WORDS
from tests.hostile.tamper import Attack, Result
from tests.hostile.target import BUILDERS
from winstacks.memory.decode.statuscodes import StatusCode

SLOW = "tracefindings"
"""The plugin that is no part of the sample, because each of its runs asks for all stacks."""

RUNS = 600
"""Writes of all images together."""

SEED = "1"

ALWAYS_READ = {"_EPROCESS", "_ETHREAD", "_HANDLE_TABLE", "_ERESOURCE", "_MMVAD_SHORT", "_PEB"}
"""Structures all of whose members that the code asks for it reads, in all of these images."""

NOT_READ = {
    *("_EPROCESS.Pcb.Header.Type", "_ERESOURCE.OwnerEntry", "_ERESOURCE.OwnerThreads"),
    *("_ETHREAD.NestedFaultCount", "_ETHREAD.ApcNeeded"),
    *("_ETHREAD.AlpcMessage", "_ETHREAD.Tcb.WaitTime"),
    *("_ERESOURCE.ExclusiveWaiters", "_ERESOURCE.SharedWaiters"),
}
"""What tells a process from other bytes where only a damaged list leads there, the place of an array, members
whose presence alone counts, and members of kernel waits, of which these images have none."""

IMAGES = list(BUILDERS)


class Sample:
    """The attack on an image, and what became of the chosen cases."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.attack = Attack(name, folder, without=(SLOW,))

    @functools.cached_property
    def results(self) -> List[Result]:
        return list(self.attack.results(self.attack.sample(SEED, tamper.share(RUNS, len(BUILDERS)))))


Samples = Callable[[str], Sample]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Returns the samples by the names of images: each image, which takes 50 MB, is opened once."""
    return functools.lru_cache(None)(lambda name: Sample(name, tmp_path_factory.mktemp(name)))


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_silent_cannot_be_told(name: str, samples: Samples) -> None:
    found = [result for result in samples(name).results if result.effect.word in SILENT]
    assert not [
        f"{result.effect.word}: {result.case.plugin} {result.case.name} {result.case.kind}"
        for result in found
        if not result.listed
    ]


@pytest.mark.parametrize("name", IMAGES)
def test_nobody_else_is_harmed(name: str, samples: Samples) -> None:
    """Whose memory is written to loses or changes rows, nobody else."""
    found = [
        (result.case.plugin, result.case.name, result.case.kind, result.effect.harmed)
        for result in samples(name).results
    ]
    assert not [result for result in found if result[-1]]


@pytest.mark.parametrize("name", IMAGES)
def test_the_sample_tries_what_matters(name: str, samples: Samples) -> None:
    """It reaches every plugin, pairs as well as single members, and what is said as well as what is not."""
    found = samples(name).results
    assert len(found) == tamper.share(RUNS, len(BUILDERS))
    # XP has no traces of objects: windows.objecttraces ends at once there, and has four members of thousands.
    cases = samples(name).attack.cases
    known = collections.Counter(case.plugin for case in cases)
    assert set(known) == set(samples(name).attack.target.names) - {SLOW}
    often = {plugin for plugin, count in known.items() if count > len(cases) / len(found)}
    assert often <= {result.case.plugin for result in found}
    assert len(often) >= len(known) - 1
    assert any(len(result.case.members) > 1 for result in found)
    assert {SAID, UNCHANGED} <= {result.effect.word for result in found}


@pytest.mark.parametrize("name", IMAGES)
def test_every_list_is_tried_in_pairs(name: str, samples: Samples) -> None:
    attack = samples(name).attack
    # A node of which no more is known than that it is one may be the last that leads anywhere.
    links = {
        member.name
        for read in attack.read.values()
        for member in read.members
        if member.path.endswith("Flink") and not cases.is_empty(attack.target, member)
    } - {"_LIST_ENTRY.Flink"}
    assert links
    assert links <= {case.name for case in attack.cases if case.kind == UNLINKED}


@pytest.mark.parametrize("name", IMAGES)
def test_processes_and_threads_are_taken_out_of_list_and_table(name: str, samples: Samples) -> None:
    assert set(LISTED) <= {case.name for case in samples(name).attack.cases if case.kind == UNLISTED}


@pytest.mark.parametrize("name", IMAGES)
def test_every_member_that_is_asked_for_is_written_to(name: str, samples: Samples) -> None:
    """What the code asks a structure for, and this image has, is among the cases by itself."""
    attack = samples(name).attack
    requests = {
        ".".join(request)
        for read in attack.read.values()
        for request in read.requests
        if request[0] in ALWAYS_READ
    }
    tried = {name for case in attack.cases for member in case.members for name in member.names}
    places = {text.partition("[")[0] for text in tried} | {
        re.sub(r"\.[FB]link$", "", member_name) for member_name in tried
    }
    left = sorted(requests - tried - places - NOT_READ)
    assert not left, left


WAYS = (
    *("_ETHREAD.Tcb.State", "_RTL_CRITICAL_SECTION.LockCount", "_STACK_TRACE_DATABASE.CommitBase"),
    *("_EPROCESS.UniqueProcessId", "_PEB.Ldr", "_KPROCESS.DirectoryTableBase", "_KTRAP_FRAME.Rip"),
    *("_EPROCESS.ActiveProcessLinks.Flink", "nt.PsActiveProcessHead.Blink", "nt.PspCidTable"),
    *("_LDR_DATA_TABLE_ENTRY.InLoadOrderLinks.Flink", "_RTLP_HEAP_STACK_TRACE_RECORD.Frames[0]"),
)
"""Of each way in which the library reads a member one: a view, a reader, a packer, a member of memory, an
address, an object of Volatility, a slice, links, a variable, a node, an array."""


def test_each_way_of_reading_is_noted(samples: Samples) -> None:
    read = samples("win10-x64").attack.read.values()
    assert set(WAYS) <= {name for notes in read for member in notes.members for name in member.names}


def test_what_cannot_be_told_is_read(samples: Samples) -> None:
    """An entry of docs/trust.md names a member that some plugin reads, and what was looked for."""
    members = [
        member
        for name in ("win10-x64", "xp-x86")
        for read in samples(name).attack.read.values()
        for member in read.members
    ]
    known = untold.known()
    assert known
    assert not untold.unread(known, members)
    assert all(finding.reason for finding in known)


def test_every_word_names_its_structures() -> None:
    assert set(tellings.NAMES) == set(StatusCode)


def test_what_reads_words_by_address_is_a_module() -> None:
    library = pathlib.Path(winstacks.__file__).parent
    modules = [path.relative_to(library).as_posix() for path in library.rglob("*.py")]
    assert set(READERS) <= set(modules)
    tables = (
        tellings.NAMES.values(),
        tellings.CONTRADICTS.values(),
        (names for _, names in tellings.WARNINGS),
    )
    named = {name for names in itertools.chain(*tables) for name in names if name.startswith(f"{WORDS}.")}
    words = [f"{WORDS}.{path[: -len('.py')]}" for path in modules]
    assert named
    assert not [name for name in named if not fnmatch.filter(words, name)]


def test_each_word_is_found_in_a_status() -> None:
    for word in StatusCode:
        text = word.value.format(3, members="One Two")
        assert tellings.of_status(f"{text}, {text}") == 2 * (
            tellings.Telling(word, ("One", "Two") if "{members}" in word.value else ()),
        )
