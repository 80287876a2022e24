# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the rows of windows.waits and minidump.waits say of the threads of ../shared/waits."""

from __future__ import annotations

import collections
from typing import Any, Counter, Dict, List, Sequence, Tuple

from volatility3.framework import interfaces

from tests.conftest import SHARED
from tests.support import waitsets
from tests.support.waitsets import Snapshot

LABELS = (
    *("2600x86", "3790x64", "7601.17514", "9600.16384"),
    *("14393.2189", "16299x86", "17763.475", "19044.1766"),
)
SHARES = 10
"""Parts into which the snapshots of a set are divided."""

CASES = [(label, share) for share in range(SHARES) for label in LABELS]

Rows = Sequence[Tuple[int, Dict[str, Any]]]


def some(label: str, share: int) -> List[Snapshot]:
    """Returns one of SHARES parts of the snapshots of a set."""
    return list(waitsets.snapshots(SHARED / "waits" / f"{label}.jsonl.xz"))[share::SHARES]


def wrong(snapshot: Snapshot, rows: Rows) -> Counter[Tuple[str, str]]:
    """Returns what is wrong: kinds and addresses of threads, and owners of critical sections.

    A woken thread may be shown with its lock, or not at all.
    """
    mask = (1 << 48) - 1
    found: Dict[int, List[Tuple[str, int]]] = collections.defaultdict(list)
    owners: Dict[int, Any] = {}
    for _, row in rows:
        kind = waitsets.KINDS.get(row["WaitsFor"])
        if kind is not None:
            found[row["TID"]].append((kind, row["WaitAddress"]))
            absent = isinstance(row["OwnerTID"], interfaces.renderers.BaseAbsentValue)
            owners[row["TID"]] = [] if absent else [row["OwnerTID"]]
    counts = waitsets.measure(snapshot, found, mask)
    allowed = {"other": ("none",), "running running": ("none",)}
    bad = collections.Counter(
        {
            key: count
            for key, count in counts.items()
            if key[1] not in allowed.get(key[0], ("right", "none") if "woken" in key[0] else ("right",))
        }
    )
    locks = {lock["address"]: lock for lock in snapshot.truth["locks"]}
    for thread in snapshot.truth["threads"]:
        wait = thread["waits_for"] or {}
        if thread["state"] == "waiting" and wait.get("kind") == "cs":
            held = [owner["tid"] for owner in locks[wait["address"]]["owners"]]
            bad["owner", "WRONG"] += owners.get(thread["tid"]) != held
    return +bad
