# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The decoders say what every thread of ../shared/waits waits for, and nothing about ordinary waits."""

from __future__ import annotations

import collections
import pathlib
from typing import Any, Counter, Dict, List, Tuple

import pytest

from tests.conftest import SHARED
from tests.support import waitsets
from tests.support.only import only
from tests.support.waitsets import Snapshot
from winstacks.columns import words
from winstacks.waits.decode.answer import Answer
from winstacks.waits.decode.processview import ProcessView, ThreadView
from winstacks.waits.decode.userwaits import UserWaits

pytestmark = pytest.mark.shared

LABELS = (
    *("2600x86", "3790x64", "7601.17514", "9600.16384"),
    *("14393.2189", "16299x86", "17763.475", "19044.1766"),
)
NATIVE_X86 = ("16299x86", "2600x86")
EXACT = {words.BY_TABLE, words.BY_CHAIN, words.BY_HANDLE, words.BY_KEY}


def path_of(label: str) -> pathlib.Path:
    return SHARED / "waits" / f"{label}.jsonl.xz"


def answers_of(snapshot: Snapshot, arguments: bool) -> Dict[int, List[Answer]]:
    view, waits = waitsets.waits_of(snapshot, arguments)
    return {thread.tid: waits.find(thread) for thread in view.threads}


def wrong(counts: Counter[Tuple[str, str]]) -> Dict[Tuple[str, str], int]:
    """What is wrong of a measure. A woken thread may be shown with its lock, or not at all."""
    allowed = ("right", "none")
    return {
        (kind, result): count
        for (kind, result), count in counts.items()
        if result
        not in (allowed if kind.startswith("woken") else ("none",) if _ordinary(kind) else ("right",))
    }


def _ordinary(kind: str) -> bool:
    return kind in ("other", "running running")


@pytest.mark.parametrize("arguments", [True, False])
@pytest.mark.parametrize("label", LABELS)
def test_every_wait(label: str, arguments: bool) -> None:
    counts: Counter[Tuple[str, str]] = collections.Counter()
    owners: Counter[bool] = collections.Counter()
    modes: Counter[bool] = collections.Counter()
    for snapshot in waitsets.snapshots(path_of(label)):
        answers = answers_of(snapshot, arguments)
        counts += waitsets.score(snapshot, answers)
        locks = {lock["address"]: lock for lock in snapshot.truth["locks"]}
        for thread in snapshot.truth["threads"]:
            wait, found = thread["waits_for"] or {}, answers[thread["tid"]]
            if thread["state"] != "waiting" or not found:
                continue
            if wait["kind"] == "cs":
                held = [owner["tid"] for owner in locks[wait["address"]]["owners"]] or [0]
                owners[[found[0].owner] == held] += 1
            elif found[0].kind != words.USER_RESOURCE:
                assert found[0].owner is None
            if wait.get("mode") and found[0].mode:
                modes[found[0].mode == wait["mode"]] += 1
            if arguments and thread["call"] != "NtWaitForKeyedEvent":
                assert found[0].known in EXACT
    assert wrong(counts) == {}
    assert not owners[False] and not modes[False]
    assert owners[True] and modes[True]


@pytest.mark.parametrize("label", LABELS)
def test_a_chain_names_the_lock_of_a_sleeper(label: str) -> None:
    found = 0
    for snapshot in waitsets.snapshots(path_of(label)):
        answers = answers_of(snapshot, False)
        for thread in snapshot.truth["threads"]:
            wait = thread["waits_for"] or {}
            if wait.get("kind") == "cv" and thread["state"] == "waiting":
                answer = only(answers[thread["tid"]])
                assert answer.lock == (wait["lock"] if wait["lock_kind"] == "srw" else 0)
                found += 1
    assert bool(found) == (label not in ("2600x86", "3790x64"))


def _as_wow64(snapshot: Snapshot) -> Snapshot:
    """The same threads as WoW64 keeps them: Esp at the return address of the stub, not in the stub."""
    threads = []
    for thread in snapshot.truth["threads"]:
        regs = dict(thread["regs"])
        if thread["call"]:
            regs["esp"] += 4
        threads.append({**thread, "regs": regs})
    return snapshot._replace(truth={**snapshot.truth, "threads": threads})


@pytest.mark.parametrize("label", NATIVE_X86)
def test_a_stub_of_wow64(label: str) -> None:
    counts: Counter[Tuple[str, str]] = collections.Counter()
    for snapshot in waitsets.snapshots(path_of(label)):
        moved = _as_wow64(snapshot)
        counts += waitsets.score(moved, answers_of(moved, False))
    assert wrong(counts) == {}


@pytest.mark.parametrize("label", ["14393.2189", "16299x86", "19044.1766"])
def test_a_table_that_moved_within_the_peb(label: str) -> None:
    """A build that moves the table: the blocks on the stacks lead to it."""
    counts: Counter[Tuple[str, str]] = collections.Counter()
    moved_tables = 0
    for snapshot in waitsets.snapshots(path_of(label)):
        view, _ = waitsets.waits_of(snapshot, True)
        moved = UserWaits(
            view,
            waitsets.types_of(snapshot),
            waitsets.layouts_of(snapshot),
            snapshot.truth["peb"],
            0xB00,
            lambda: (),
        )
        counts += waitsets.score(snapshot, {thread.tid: moved.find(thread) for thread in view.threads})
        moved_tables += moved.table.in_use
    assert wrong(counts) == {} and moved_tables


@pytest.mark.parametrize("label", ["14393.2189", "16299x86", "19044.1766"])
def test_without_the_peb(label: str) -> None:
    """A dump without the PEB's page: the blocks on the stacks answer; a woken thread has one, too."""
    counts: Counter[Tuple[str, str]] = collections.Counter()
    for snapshot in waitsets.snapshots(path_of(label)):
        view, _ = waitsets.waits_of(snapshot, True)
        without = UserWaits(view, waitsets.types_of(snapshot), waitsets.layouts_of(snapshot))
        answers = {thread.tid: without.find(thread) for thread in view.threads}
        counts += waitsets.score(snapshot, answers)
        tables = [answer for found in answers.values() for answer in found if answer.known == words.BY_TABLE]
        assert not tables
    assert not [key for key in wrong(counts) if not key[0].startswith("woken")]


def test_a_thread_without_a_stack() -> None:
    """Nothing is known of a thread whose registers are not in the input."""
    snapshot = next(waitsets.snapshots(path_of("17763.475")))
    view, _ = waitsets.waits_of(snapshot, True)
    bare = [ThreadView(thread.tid, thread.stacks) for thread in view.threads]
    read: Any = view.read
    empty = ProcessView(read, 8, bare, view.ntdll)
    waits = UserWaits(empty, waitsets.types_of(snapshot), waitsets.layouts_of(snapshot))
    assert not any(waits.find(thread) for thread in bare)
