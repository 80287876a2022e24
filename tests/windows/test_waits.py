# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Who waits for whom: a deadlock of two critical sections and a resource is a cycle, near-misses are none."""

from __future__ import annotations

import collections
import pathlib
import random
import re
from typing import Any, Counter, Dict, List, Set, Tuple

import pytest
from volatility3.plugins.minidump import tracereport as dump_report
from volatility3.plugins.windows import locks as lock_plugin
from volatility3.plugins.windows import tracereport

from tests.forge import addresswaits, context, sample
from tests.forge.kernel import Kernel
from tests.support import deadlockimages, grid, pagedata
from tests.support.deadlockimages import (
    FIRST,
    PID,
    RESOURCE,
    SECOND,
    SECTION_ONE,
    SECTION_TWO,
    THIRD,
    Scenario,
)
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of
from winstacks.columns import words
from winstacks.locks import resources
from winstacks.locks.criticalsections import CriticalSections
from winstacks.memory.image import AddressSpace
from winstacks.waits.decode.waitgraph import cycles, ways_into
from winstacks.waits.lister import WaitLister

DEADLOCK = Scenario()


def locks(scenario: Scenario, folder: pathlib.Path) -> Tuple[Dict[str, Any], Dict[str, int]]:
    """What the report says of the locks of an image, and where they are."""
    image = deadlockimages.build(scenario)
    opened = context.open_image(image.image, folder)
    grid.rendered(opened, tracereport.TraceReport, folder)
    data = pagedata.data(folder / "tracereport.html")
    found: Dict[str, Any] = data["locks"]
    return found, image.places


def known(found: Dict[str, Any]) -> Dict[str, str]:
    """What each waiting thread waits for."""
    return {
        found["threads"][thread].split()[1]: found["locks"][lock]["text"].split(" of ")[0]
        if lock >= 0
        else ""
        for thread, lock, *_ in found["waits"]
    }


def test_a_deadlock_of_two_sections_and_a_resource_is_named(tmp_path: pathlib.Path) -> None:
    found, places = locks(DEADLOCK, tmp_path)
    names = {
        SECTION_ONE: f"critical section {places[SECTION_ONE]:#x}",
        SECTION_TWO: f"critical section {places[SECTION_TWO]:#x}",
        RESOURCE: f"ERESOURCE {places[RESOURCE]:#x}",
    }
    assert known(found) == {str(tid): names[lock] for tid, lock in DEADLOCK.waits.items() if lock}
    cycle = only(found["cycles"])
    assert [found["threads"][thread].split()[1] for thread in cycle["threads"]] in rotations(
        [FIRST, SECOND, THIRD]
    )
    assert len(set(cycle["locks"])) == 3
    for tid, lock in DEADLOCK.waits.items():
        said = rf"thread {tid}( of spooler.exe \({PID}\))? waits for {names[str(lock)]}"
        assert re.search(said, cycle["text"])
    assert cycle["evidence"] == [words.KNOWN[words.ON_STACK]]
    assert cycle["inferred"] and cycle["text"].startswith("Deadlock, by inference: ")


def test_what_follows_by_exclusion_says_so(tmp_path: pathlib.Path) -> None:
    """Two threads hold two sections; no stack has an address of these, and no table has the threads."""
    opened = context.open_image(without_table().image(), tmp_path)
    grid.rendered(opened, tracereport.TraceReport, tmp_path)
    found = pagedata.data(tmp_path / "tracereport.html")["locks"]
    cycle = only(found["cycles"])
    assert cycle["text"].startswith("Deadlock, by inference: thread 6204 of spooler.exe (6200) waits for ")
    assert cycle["evidence"] == [words.KNOWN[words.BY_EXCLUSION]]


def without_table() -> Kernel:
    """The sample, in which the PEB of spooler.exe has no waiting threads."""
    kernel = sample.build()
    addresswaits.clear(next(process for process in kernel.processes if process.pid == 6200))
    return kernel


def test_what_a_table_proves_is_no_inference(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    grid.rendered(opened, tracereport.TraceReport, tmp_path)
    cycle = only(pagedata.data(tmp_path / "tracereport.html")["locks"]["cycles"])
    assert cycle["text"].startswith("Deadlock: thread 6204 of spooler.exe (6200) waits for ")
    assert cycle["evidence"] == [words.KNOWN[words.BY_TABLE]] and not cycle["inferred"]


def waiting(opened: context.Opened, **options: Any) -> Dict[Tuple[int, int], List[Dict[str, Any]]]:
    """Returns the rows of windows.locks about each waiting thread, by address of the lock and TID."""
    found: Dict[Tuple[int, int], List[Dict[str, Any]]] = {}
    for node in grid.run(opened, lock_plugin.Locks, **options):
        thread = None
        for row in node.children:
            if row["OwnerRole"] == "waiter":
                thread = row["TID"]
                found[node.row["Lock"], thread] = [row]
            elif thread is not None and row["TID"] == thread:
                found[node.row["Lock"], thread].append(row)
    return found


def test_windows_locks_shows_the_stacks_of_the_threads_that_wait(tmp_path: pathlib.Path) -> None:
    image = deadlockimages.build(DEADLOCK)
    opened = context.open_image(image.image, tmp_path)
    found = waiting(opened)
    assert set(found) == {
        (grid.masked(image.places[str(lock)]), tid) for tid, lock in DEADLOCK.waits.items() if lock
    }
    for first, *frames in found.values():
        assert (first["OwnerPID"], first["OwnerProcess"], first["Status"]) == (PID, "spooler.exe", "unsure")
        assert [row["Frame"] for row in frames] == list(range(len(frames)))
        assert any("EnterCriticalSection" in row["Symbol"] or "Resource" in row["Symbol"] for row in frames)
    # The stack of a lock's creator comes after these, and is no part of them.
    assert all(
        row["TID"] == key[1] and row["OwnerTID"] is None
        for key, (_, *frames) in found.items()
        for row in frames
    )


def test_an_inferred_wait_is_unsure_and_a_folded_one_has_its_stack(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(without_table().image(), tmp_path)
    found = waiting(opened, fold=True, contended=True)
    assert {(tid, row["Status"]) for (_, tid), (row,) in found.items()} == {
        (6204, "unsure"),
        (6208, "unsure"),
    }
    stacks = {tid: row["Stack"].split("; ") for (_, tid), (row,) in found.items()}
    assert "spooler!write_log+0x26" in stacks[6204]
    assert "spooler!count_jobs+0x1d" in stacks[6208]


def test_no_stack_is_walked_if_no_lock_has_a_waiter(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    monkeypatch.setattr(WaitLister, "list_waits", None)
    rows = [node.row for node in grid.run(opened, lock_plugin.Locks, pid=[5120])]
    assert rows and not any(row["Waiters"] for row in rows)


def test_the_locks_of_a_space_are_listed_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second list would take each resource for one that overlaps another, and end after some of these."""
    monkeypatch.setattr(resources, "MAX_OVERLAPS", 0)
    listed: Counter[AddressSpace] = collections.Counter()

    def count(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def counted(lister: Any, space: AddressSpace) -> Any:
            listed[space] += 1
            return method(lister, space)

        monkeypatch.setattr(owner, name, counted)

    count(CriticalSections, "list_sections")
    count(resources.Resources, "list_resources")
    deadlock = deadlockimages.build(DEADLOCK)
    opened = context.open_image(deadlock.image, tmp_path)
    assert {tid for _, tid in waiting(opened)} == {tid for tid, lock in DEADLOCK.waits.items() if lock}
    assert set(listed.values()) == {1}
    listed.clear()
    grid.rendered(opened, tracereport.TraceReport, tmp_path)
    assert set(listed.values()) == {1}


def test_resources_are_the_same_in_a_second_list(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(deadlockimages.build(DEADLOCK).image, tmp_path)
    image = opened.image
    lister = resources.Resources(image)
    first, second = (list(lister.list_resources(image.kernel)) for _ in range(2))
    assert first
    assert first == second


def test_who_may_wait_for_one_of_two_locks_is_in_no_cycle(tmp_path: pathlib.Path) -> None:
    found, places = locks(DEADLOCK._replace(on_stack=False), tmp_path)
    assert known(found)[str(THIRD)] == ""
    assert known(found)[str(FIRST)] == f"critical section {places[SECTION_TWO]:#x}"
    assert found["cycles"] == []


def rotations(tids: List[int]) -> List[List[str]]:
    names = [str(tid) for tid in tids]
    return [names[turn:] + names[:turn] for turn in range(len(names))]


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            DEADLOCK._replace(waits={**DEADLOCK.waits, THIRD: None}), id="the last one waits for none"
        ),
        pytest.param(DEADLOCK._replace(waits={**DEADLOCK.waits, THIRD: RESOURCE}), id="it waits for its own"),
        pytest.param(
            DEADLOCK._replace(holds={**DEADLOCK.holds, RESOURCE: 0}), id="nobody holds the resource"
        ),
        pytest.param(
            DEADLOCK._replace(holds={**DEADLOCK.holds, SECTION_ONE: 9996}), id="a thread that is gone"
        ),
        pytest.param(DEADLOCK._replace(running=True), id="the last one is running"),
    ],
)
def test_a_near_miss_is_no_deadlock(scenario: Scenario, tmp_path: pathlib.Path) -> None:
    found, _ = locks(scenario, tmp_path)
    assert found["cycles"] == []
    assert len(found["waits"]) >= 2


@pytest.mark.parametrize(
    ("waits", "holders", "expected"),
    [
        ({1: "a", 2: "b"}, {"a": [2], "b": [1]}, [[1, 2]]),
        ({1: "a", 2: "b"}, {"a": [2], "b": [3]}, []),
        ({1: "a", 2: "b", 3: "c"}, {"a": [4, 2], "b": [3], "c": [9, 1]}, [[1, 2, 3]]),
        ({1: "a"}, {"a": [1]}, [[1]]),
        ({1: "a", 2: "a", 3: "b"}, {"a": [3], "b": [3]}, [[3]]),
        ({1: "a", 2: "b", 3: "c", 4: "d"}, {"a": [2], "b": [1], "c": [4], "d": [3]}, [[1, 2], [3, 4]]),
        ({}, {"a": [1]}, []),
        ({1: "a"}, {}, []),
    ],
)
def test_cycles(waits: Dict[int, str], holders: Dict[str, List[int]], expected: List[List[int]]) -> None:
    assert [[step.thread for step in cycle] for cycle in cycles(waits, holders)] == expected


def test_each_cycle_is_one() -> None:
    """Graphs at random: each step's lock is held by the next thread, and what has no cycle has no answer."""
    chance = random.Random(21)
    some = 0
    for _ in range(500):
        waits = {thread: chance.randrange(8) for thread in range(chance.randrange(9))}
        holders = {lock: chance.sample(range(12), chance.randrange(3)) for lock in range(8)}
        found = cycles(waits, holders)
        for cycle in found:
            for step, following in zip(cycle, (*cycle[1:], cycle[0])):
                assert waits[step.thread] == step.lock and following.thread in holders[step.lock]
        assert bool(found) == any(reaches(thread, waits, holders) for thread in waits)
        ways, members = ways_into(found, waits, holders), {step.thread for cycle in found for step in cycle}
        for thread, following in ways.items():
            assert following in ways and following in holders[waits[thread]]
        behind = {
            thread
            for thread in waits
            if members & {thread} or any(other in ways for other in holders.get(waits[thread], ()))
        }
        assert set(ways) == behind
        some += bool(found)
    assert 100 < some < 450


def reaches(start: int, waits: Dict[int, int], holders: Dict[int, List[int]]) -> bool:
    """Whether a thread waits for itself, however many others lie between."""
    seen: Set[int] = set()
    level = {start}
    while level:
        level = {other for thread in level if thread in waits for other in holders.get(waits[thread], ())}
        if start in level:
            return True
        level -= seen
        seen |= level
    return False


def test_a_long_chain_is_walked_without_recursion() -> None:
    size = 20000
    waits = {thread: thread for thread in range(size)}
    holders = {thread: [(thread + 1) % size] for thread in range(size)}
    cycle = only(cycles(waits, holders))
    assert len(cycle) == size


WAITS_FOR_NOTHING = {FIRST: SECTION_ONE, SECOND: None, THIRD: SECTION_ONE}


@pytest.mark.parametrize(
    "function",
    [
        "RtlAcquireSRWLockExclusive",
        "RtlAcquireSRWLockShared",
        "RtlSleepConditionVariableSRW",
        "RtlSleepConditionVariableCS",
    ],
)
def test_what_has_no_owner_is_no_section(function: str, tmp_path: pathlib.Path) -> None:
    """The section that is held is not taken for what these threads wait for."""
    scenario = Scenario(holds={SECTION_ONE: SECOND}, waits=WAITS_FOR_NOTHING, function=function)
    opened = context.open_image(deadlockimages.build(scenario).image, tmp_path)
    assert waiting(opened) == {}
    grid.rendered(opened, tracereport.TraceReport, tmp_path)
    found = pagedata.data(tmp_path / "tracereport.html")["locks"]
    assert {wait[1] for wait in found["waits"]} == {-1} and found["cycles"] == []


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(
            holds={SECTION_ONE: FIRST, SECTION_TWO: SECOND}, waits={FIRST: SECTION_TWO, SECOND: SECTION_ONE}
        ),
        Scenario(holds={}, waits=WAITS_FOR_NOTHING, function="RtlAcquireSRWLockShared", block_of=THIRD),
        Scenario(
            holds={}, waits=WAITS_FOR_NOTHING, function="RtlSleepConditionVariableCS", block_of=THIRD, bits=8
        ),
    ],
    ids=["sections", "SRW lock", "condition variable"],
)
def test_the_dump_of_the_process_says_the_same(scenario: Scenario, tmp_path: pathlib.Path) -> None:
    """A deadlock of two sections, whose owners are known by thread IDs; and waits for what has no owner."""
    opened = context.open_image(deadlockimages.build(scenario).image, tmp_path)
    (tmp_path / "app.dmp").write_bytes(dump_of(opened, PID))
    dump: Any = OpenedDump(tmp_path / "app.dmp")
    found = {}
    for name in ("image", "dump"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "dump":
            grid.rendered(dump, dump_report.TraceReport, folder)
        else:
            grid.rendered(opened, tracereport.TraceReport, folder, pid=[PID])
        found[name] = pagedata.data(folder / "tracereport.html")["locks"]
    commands = [(found[name].pop("command"), found[name].pop("waitsCommand")) for name in ("image", "dump")]
    assert commands == [("windows.locks", "windows.tracewaits"), ("minidump.locks", "minidump.tracewaits")]
    # The kernel also says of threads that they wait where the dump does not.
    held = {name: {tid: lock for tid, lock in known(found[name]).items() if lock} for name in found}
    assert held["dump"] == held["image"]
    for part in ("cycles", "gaps", "more"):
        assert [found["dump"][part]] == [found["image"][part]]
    assert [lock["text"] for lock in found["dump"]["locks"]] == [
        lock["text"] for lock in found["image"]["locks"]
    ]
    assert len(found["dump"]["cycles"]) == (scenario.block_of == 0)
