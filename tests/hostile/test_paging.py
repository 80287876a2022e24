# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pages that are taken away: each stack that this costs has a row that says so, and no name is false."""

from __future__ import annotations

import collections
from typing import Any, Counter, Iterator, List

import pytest

from tests.hostile.paging import PATTERNS, Paging, rows, shares
from tests.support.deep import rounds
from winstacks.locks.sectionlists import SectionLists
from winstacks.memory.image import AddressSpace


@pytest.fixture(scope="module")
def paging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paging]:
    yield Paging("win10-x64", tmp_path_factory.mktemp("paging"))


def test_a_lost_stack_has_a_row_that_says_so(paging: Paging) -> None:
    """Nothing knows that ntdll's list of locks is one, where all locks next to it are absent."""
    patterns = rounds(PATTERNS, 8)
    found = [paging.pattern(seed, share) for seed, share in enumerate(shares(patterns))]
    lost = [row for pattern in found for row in pattern.lost]
    silent = [row for pattern in found for row in pattern.silent]
    assert len(lost) > 5 * patterns
    assert [row for row in silent if row["Kind"] != "lock"] == []
    assert len(silent) <= len(lost) // 50


def test_the_lists_of_a_space_are_searched_once(paging: Paging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a process has lost its list, and others are asked where theirs begins."""
    searched: Counter[AddressSpace] = collections.Counter()
    requests: List[Any] = []
    search, usual_head = SectionLists._search, SectionLists._usual_head

    def count(lists: SectionLists, space: AddressSpace, *rest: Any) -> Any:
        searched[space] += 1
        return search(lists, space, *rest)

    def ask(lists: SectionLists, half: Any) -> int:
        requests.append(half)
        return usual_head(lists, half)

    monkeypatch.setattr(SectionLists, "_search", count)
    monkeypatch.setattr(SectionLists, "_usual_head", ask)
    for seed, share in enumerate(shares(PATTERNS)):
        searched.clear()
        paging.run("locks", paging.holes(seed, share))
        assert set(searched.values()) <= {1}
        if requests:
            break
    assert requests and len(searched) > 1


def test_0_is_never_unknown(paging: Paging) -> None:
    for seed, share in enumerate(shares(5)):
        for row in rows(paging.run("traces", paging.holes(seed, share))):
            assert (row["PID"] == 0) == (row["Process"] == "nt")
            assert row["TID"] != 0
            assert row["Process"] != ""


def test_a_name_that_changes_is_not_exact(paging: Paging) -> None:
    """Lists that are not whole give other names: KeyQuality and Status say so."""
    before = {row["TraceId"]: row for row in rows(paging.target.clean("traces"))}
    for seed, share in enumerate(shares(10)):
        for row in rows(paging.run("traces", paging.holes(seed, share))):
            known = before.get(row["TraceId"])
            if known is not None and row["KeyQuality"] == "exact":
                assert row["StackKey"] == known["StackKey"], row
                assert row["Unbacked"] == known["Unbacked"], row


def test_a_page_that_is_absent_makes_no_high_finding(paging: Paging) -> None:
    def found(holes: frozenset[int]) -> set[tuple[object, ...]]:
        found = rows(paging.run("tracefindings", holes))
        return {(row["Finding"], row["PID"]) for row in found if row["Severity"] == "high"}

    before = found(frozenset())
    for seed, share in enumerate(shares(6)):
        assert found(paging.holes(seed, share)) <= before


def test_an_unreadable_process_keeps_its_id(paging: Paging) -> None:
    """Its _EPROCESS is absent, and PspCidTable has it."""
    kernel = paging.target.kernel
    lost = kernel.processes[2]
    start, size = lost.eprocess.address, lost.eprocess.size
    pages = {kernel.space.physical(start + at) // 0x1000 for at in (0, size - 1)}
    shown = rows(paging.run("traces", frozenset(pages)))
    known = [row for row in shown if row["PID"] == lost.pid]
    assert {row["Process"] for row in known} == {None}
    kinds = {row["Kind"] for row in known if "process unreadable" in row["Status"]}
    assert kinds >= {"kernel", "std", "heaplog", "heap", "lock", "handle"}
