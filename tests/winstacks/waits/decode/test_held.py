# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Critical sections of an ntdll that keeps none of Windows's wait structures.

The members are those of Wine 10, in a dump of a program whose threads wait for each other: DebugInfo -1,
LockCount counted up from -1, LockSemaphore a word that is not a handle.
"""

from __future__ import annotations

import struct
from typing import List

import pytest

from tests.support import bare
from tests.winstacks.waits.decode.test_hostile import HEAP, NTDLL, Forged
from winstacks.waits.decode.processview import ProcessView
from winstacks.waits.decode.userwaits import UserWaits

SECTION = HEAP + 0x100
FIRST, SECOND = 100, 104


def held(forged: Forged) -> List[List[int]]:
    """Returns, for each thread, the sections on its stack that another thread holds."""
    image, machine = bare.image(8), bare.MACHINES[8]
    view = ProcessView(forged.read, 8, forged.threads, NTDLL)
    waits = UserWaits(view, image.process_types(machine), image.our_generations("waits", machine))
    assert not [answer for thread in forged.threads for answer in waits.find(thread)]
    return [[section.address for section in waits.held_on_stack(thread)] for thread in forged.threads]


def forge(owner: int, count: int, recursion: int = 1) -> Forged:
    """Two threads, both with the address of a section in the innermost part of their stacks."""
    forged = Forged(2)
    counts = int.from_bytes(struct.pack("<ii", count, recursion), "little")
    forged.put(SECTION, (1 << 64) - 1, counts, owner, 1, 0)
    for thread in forged.threads:
        forged.put((thread.sp or 0) + 0x80, SECTION)
    return forged


def test_a_section_of_another_thread_is_found() -> None:
    assert held(forge(SECOND, 1)) == [[SECTION], []]
    assert held(forge(FIRST, 2, 2)) == [[], [SECTION]]


@pytest.mark.parametrize(
    ("owner", "count", "recursion"),
    [(SECOND, 0, 1), (SECOND, -1, 0), (0, 1, 1), (SECOND + 4, 1, 1), (SECOND, 1, 0), (SECOND, 1 << 30, 1)],
    ids=["no waiter", "free", "no owner", "owner is no thread", "not taken", "too many waiters"],
)
def test_members_that_do_not_agree(owner: int, count: int, recursion: int) -> None:
    assert held(forge(owner, count, recursion)) == [[], []]
