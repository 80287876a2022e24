# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What stands for locks that are not known, and an image of which no kernel is known."""

from __future__ import annotations

from tests.support import bare
from winstacks.columns.words import CRITICAL_SECTION
from winstacks.locks.decode import criticalsection
from winstacks.locks.lister import LockLister
from winstacks.locks.lock import Lock, LockGap, damaged
from winstacks.memory.decode.status import status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.moduleindex import ModuleIndexes
from winstacks.names.pdbsymbols import PdbSymbols
from winstacks.tracedb.finder import Databases


def lister() -> LockLister:
    image = bare.image(8)
    return LockLister(image, Databases(image, ModuleIndexes(image, PdbSymbols(image))))


def test_without_a_kernel_its_resources_are_a_gap() -> None:
    kernel = bare.image(8).kernel
    assert lister().list_created(kernel) == [LockGap(kernel, status(StatusCode.LIST_NOT_FOUND))]


def test_a_space_that_cannot_be_read_is_a_gap() -> None:
    said = status(StatusCode.PAGE_TABLES_UNREADABLE)
    space = bare.image(8).kernel._replace(kernel=False, pid=4, layer_name="", status=said)
    assert lister().list_created(space) == [LockGap(space, said)]


def test_a_gap_has_no_record() -> None:
    space = bare.image(8).kernel
    gap = LockGap(space, status(StatusCode.LIST_BROKEN))
    known = Lock(space, 0x1000, CRITICAL_SECTION)
    records = criticalsection.decode(lister().buffer(space, [gap, known, gap]), 8)
    assert [each.address for each in records] == [0x1000]


def test_a_wrong_link_is_said_after_the_rest() -> None:
    space = bare.image(8).kernel
    lock = Lock(space, 0x1000, CRITICAL_SECTION, status=status(StatusCode.UNREADABLE))
    assert text(damaged(lock).status) == "unreadable, list damaged"
    assert text(damaged(LockGap(space, status(StatusCode.LIST_DAMAGED))).status) == "list damaged"
