# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""windows.waits: the threads of ../shared/waits in forged images."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.windows import waits

from tests.conftest import SHARED
from tests.forge import context
from tests.support import waitimages, waitrows, waitsets
from tests.support.waitsets import Snapshot

pytestmark = pytest.mark.shared

OWNER = {8: 0x10, 4: 0xC}
"""Offset of OwningThread in a critical section."""


@pytest.mark.parametrize("label,share", waitrows.CASES)
def test_every_wait(label: str, share: int, tmp_path: pathlib.Path) -> None:
    for snapshot in waitrows.some(label, share):
        opened = context.open_image(waitimages.image_of(snapshot), tmp_path)
        rows = opened.rows(waits.WaitChains, fold=True)
        assert not waitrows.wrong(snapshot, rows), (snapshot.story, snapshot.number)


@pytest.mark.parametrize("share", range(waitrows.SHARES))
def test_the_lower_half_of_a_wow64_process(share: int, tmp_path: pathlib.Path) -> None:
    for snapshot in waitrows.some("16299x86", share):
        opened = context.open_image(waitimages.wow64_image_of(snapshot), tmp_path)
        rows = opened.rows(waits.WaitChains, fold=True)
        assert not waitrows.wrong(snapshot, rows), (snapshot.story, snapshot.number)
        found = {row["Arch"] for _, row in rows if row["WaitsFor"] in waitsets.KINDS}
        assert found <= {"x86"}


def _first(kind: str) -> Snapshot:
    """The first snapshot of a set in which a thread waits for a kind of lock that another thread holds."""
    for snapshot in waitsets.snapshots(SHARED / "waits" / "17763.475.jsonl.xz"):
        threads = snapshot.truth["threads"]
        held = any(lock["kind"] == kind and lock["owners"] for lock in snapshot.truth["locks"])
        waiting = [
            t for t in threads if t["state"] == "waiting" and (t["waits_for"] or {}).get("kind") == kind
        ]
        if waiting and held:
            return snapshot
    raise AssertionError(kind)


def _rows(snapshot: Snapshot, folder: pathlib.Path) -> List[Dict[str, Any]]:
    opened = context.open_image(waitimages.image_of(snapshot), folder)
    return [row for _, row in opened.rows(waits.WaitChains, fold=True)]


def _changed(snapshot: Snapshot, **of_waiters: Any) -> Snapshot:
    threads = [
        {**thread, **of_waiters} if (thread["waits_for"] or {}).get("address") else thread
        for thread in snapshot.truth["threads"]
    ]
    return snapshot._replace(truth={**snapshot.truth, "threads": threads})


def test_a_waiter_that_the_kernel_calls_ready_is_a_contradiction(tmp_path: pathlib.Path) -> None:
    rows = _rows(_changed(_first("cs"), state="ready"), tmp_path)
    found = [row for row in rows if row["WaitsFor"] == "critical section"]
    assert found and all("contradicted: KTHREAD.State" in row["Status"] for row in found)


def test_a_lock_of_another_reason_is_a_contradiction(tmp_path: pathlib.Path) -> None:
    """The kernel says that the thread sleeps: then the lock is not shown, and the difference is."""
    rows = _rows(_changed(_first("cs"), call="NtDelayExecution"), tmp_path)
    found = [row for row in rows if row["WaitsFor"] == "sleep"]
    assert found and all("contradicted: KTHREAD.WaitReason" in row["Status"] for row in found)


SUSPENDED = 5
"""KWAIT_REASON of a thread that another thread has suspended (public enumeration)."""


@pytest.mark.parametrize("kind", ["cs", "srw"])
def test_a_suspended_thread_still_waits_for_its_lock(kind: str, tmp_path: pathlib.Path) -> None:
    """The threads of a frozen app, and of a process whose debugger has it stopped. The kernel lets a thread
    break off its wait to be suspended, and take it up again when it is resumed."""
    rows = _rows(_first(kind), tmp_path)
    suspended = _rows(_changed(_first(kind), reason=SUSPENDED), tmp_path)
    shown = ("TID", "WaitsFor", "WaitAddress", "Known", "Ownership", "ChainEnd", "Status")
    assert [[row[name] for name in shown] for row in suspended] == [
        [row[name] for name in shown] for row in rows
    ]
    name = {"cs": "critical section", "srw": "SRW lock"}[kind]
    found = [row for row in suspended if row["WaitsFor"] == name]
    assert found and all(row["Evidence"].endswith(", Suspended") for row in found)


def test_a_deadlock_of_suspended_threads_is_one(tmp_path: pathlib.Path) -> None:
    """Each of the threads waits for a lock of the other, suspended or not."""
    snapshot = next(
        each
        for each in waitsets.snapshots(SHARED / "waits" / "17763.475.jsonl.xz")
        if each.truth["story"].startswith("cs cycle") and each.number == 0
    )
    owners = {lock["address"]: lock["owners"][0]["tid"] for lock in snapshot.truth["locks"] if lock["owners"]}
    wants = {each["tid"]: (each["waits_for"] or {}).get("address") for each in snapshot.truth["threads"]}
    first = next(tid for tid, wanted in wants.items() if wanted and wants.get(owners[wanted]))
    last = wants[owners[wants[first]]] or 0
    rows = _rows(_owned_by(_changed(snapshot, reason=SUSPENDED), last, first), tmp_path)
    assert rows[0]["WaitsFor"] == "deadlock"


def test_a_suspended_thread_of_no_lock_says_so(tmp_path: pathlib.Path) -> None:
    snapshot = _first("cs")
    threads = [{**each, "reason": SUSPENDED} for each in snapshot.truth["threads"]]
    rows = _rows(snapshot._replace(truth={**snapshot.truth, "threads": threads}), tmp_path)
    others = [row for row in rows if row["WaitsFor"] != "critical section"]
    assert others and all(row["Evidence"].startswith("Suspended, ") for row in others)
    assert not any("KTHREAD.WaitReason" in str(row["Status"]) for row in rows)


def test_an_owner_that_ended(tmp_path: pathlib.Path) -> None:
    snapshot = _first("cs")
    owners = {owner["tid"] for lock in snapshot.truth["locks"] for owner in lock["owners"]}
    threads = [thread for thread in snapshot.truth["threads"] if thread["tid"] not in owners]
    rows = _rows(snapshot._replace(truth={**snapshot.truth, "threads": threads}), tmp_path)
    found = {row["ChainEnd"] for row in rows if row["WaitsFor"] == "critical section"}
    assert found == {"exited while owner"}


def test_a_chain_ends_at_an_srw_lock(tmp_path: pathlib.Path) -> None:
    found = [row for row in _rows(_first("srw"), tmp_path) if row["WaitsFor"] == "SRW lock"]
    assert found and {(row["Ownership"], row["ChainEnd"]) for row in found} == {("no owner kept",) * 2}
    assert all(isinstance(row["OwnerTID"], interfaces.renderers.BaseAbsentValue) for row in found)


def _owned_by(snapshot: Snapshot, section: int, tid: int) -> Snapshot:
    """The snapshot with another OwningThread in a critical section."""
    width = snapshot.pointer_size
    regions = []
    for start, data in snapshot.regions:
        place = section + OWNER[width] - start
        if 0 <= place < len(data):
            data = data[:place] + tid.to_bytes(width, "little") + data[place + width :]
        regions.append((start, data))
    return snapshot._replace(regions=regions)


@pytest.mark.parametrize("label", ["2600x86", "7601.17514", "17763.475"])
def test_a_chain_of_two_sections_and_a_deadlock(label: str, tmp_path: pathlib.Path) -> None:
    """A story of the sets: one thread waits for a section whose owner waits for another section."""
    snapshot = next(
        each
        for each in waitsets.snapshots(SHARED / "waits" / f"{label}.jsonl.xz")
        if each.truth["story"].startswith("cs cycle") and each.number == 0
    )
    owner = {lock["address"]: lock["owners"][0]["tid"] for lock in snapshot.truth["locks"] if lock["owners"]}
    wants = {
        thread["tid"]: (thread["waits_for"] or {}).get("address") for thread in snapshot.truth["threads"]
    }
    first = next(tid for tid, wanted in wants.items() if wanted and wants.get(owner[wanted]))
    second = owner[wants[first]]
    last = wants[second] or 0
    opened = context.open_image(waitimages.image_of(snapshot), tmp_path)
    steps = [
        (row["TID"], row["Step"])
        for depth, row in opened.rows(waits.WaitChains, fold=True, chains=True, tid=[first])
        if depth
    ]
    assert steps == [(second, 1), (owner[last], 2)]
    (deadlock, *_) = _rows(_owned_by(snapshot, last, first), tmp_path)
    assert deadlock["WaitsFor"] == "deadlock" and "by inference" not in deadlock["Evidence"]
    assert all(f"thread {tid} " in deadlock["Evidence"] for tid in (first, second))
