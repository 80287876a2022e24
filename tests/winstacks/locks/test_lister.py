# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What stands for locks that are not known, and an image of which no kernel is known."""

from __future__ import annotations

from typing import Iterator

from tests.support import bare
from winstacks.columns.words import CRITICAL_SECTION, RESOURCE
from winstacks.html.waitpart import HeldLocks, waits_part
from winstacks.locks.decode import criticalsection
from winstacks.locks.lister import MAX_KEPT, KnownLocks, LockLister
from winstacks.locks.lock import Lock, damaged
from winstacks.memory.decode.status import status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import AddressSpace
from winstacks.names.moduleindex import ModuleIndexes
from winstacks.names.pdbsymbols import PdbSymbols
from winstacks.tracedb.finder import Databases
from winstacks.tracedb.gap import Gap
from winstacks.waits.chains import Chains


def lister() -> LockLister:
    image = bare.image(8)
    return LockLister(image, Databases(image, ModuleIndexes(image, PdbSymbols(image))))


def test_without_a_kernel_its_resources_are_a_gap() -> None:
    kernel = bare.image(8).kernel
    assert lister().list_created(kernel) == [Gap(kernel, status(StatusCode.LIST_NOT_FOUND))]


def test_a_space_that_cannot_be_read_is_a_gap() -> None:
    row_status = status(StatusCode.PAGE_TABLES_UNREADABLE)
    space = bare.image(8).kernel._replace(kernel=False, pid=4, layer_name="", status=row_status)
    assert lister().list_created(space) == [Gap(space, row_status)]


def test_a_gap_has_no_record() -> None:
    space = bare.image(8).kernel
    gap = Gap(space, status(StatusCode.LIST_BROKEN))
    known = Lock(space, 0x1000, CRITICAL_SECTION)
    records = criticalsection.decode(lister().buffer(space, [gap, known, gap]), 8)
    assert [record.address for record in records] == [0x1000]


def test_an_unknown_number_of_waiters_is_not_0() -> None:
    space = bare.image(8).kernel
    resource, section = Lock(space, 0x1000, RESOURCE), Lock(space, 0x2000, CRITICAL_SECTION)
    assert (resource.waiters, section.waiters) == (None, None)
    assert resource._replace(waiting_exclusive=2).waiters is None
    assert resource._replace(waiting_shared=0, waiting_exclusive=2).waiters == 2
    # A critical section has no shared waiters.
    assert section._replace(waiting_exclusive=2).waiters == 2


def test_the_report_has_no_number_for_unknown_waiters() -> None:
    held = HeldLocks()
    held.add([Lock(bare.image(8).kernel, 0x1000, RESOURCE, held=True)])
    part = waits_part([], Chains([]), held)
    assert [lock["waiters"] for lock in part["locks"]] == ["unknown"]


def test_the_most_locks_are_kept() -> None:
    image = bare.image(8)
    known, pids = KnownLocks(image), []

    def make(space: AddressSpace) -> Iterator[Lock]:
        pids.append(space.pid)
        return iter([Lock(space, 0x1000, RESOURCE)] * (MAX_KEPT if space.pid == 8 else 1))

    spaces = [image.kernel._replace(pid=pid) for pid in (4, 8)]
    for pid in (0, 0, 1, 1, 0):
        assert {lock.space for lock in known.of_space(spaces[pid], make)} == {spaces[pid]}
    assert pids == [4, 8, 4]


def test_a_wrong_link_is_said_after_the_rest() -> None:
    space = bare.image(8).kernel
    lock = Lock(space, 0x1000, CRITICAL_SECTION, status=status(StatusCode.UNREADABLE))
    assert text(damaged(lock).status) == "unreadable, list damaged"
    assert text(damaged(Gap(space, status(StatusCode.LIST_DAMAGED))).status) == "list damaged"
