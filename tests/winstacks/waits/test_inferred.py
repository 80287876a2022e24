# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The section that is left if no other is held by another thread: among very many sections and threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Optional, Sequence

import pytest

from winstacks.columns import words
from winstacks.locks.lock import Lock
from winstacks.memory.decode.machine import Machine
from winstacks.memory.image import AddressSpace
from winstacks.process.threadids import ThreadOwner
from winstacks.waits.inferred import Inference

SPACE = AddressSpace(1000, "a.exe", Machine.AMD64, "process")
FRAMES = (SimpleNamespace(address=0x1000, returns=False),)
COUNT = 300


class Asked(Lock):
    """A section that counts how often its owner is asked for."""

    asked = 0

    @property
    def owner(self) -> Optional[ThreadOwner]:
        Asked.asked += 1
        return ThreadOwner(self.owning_thread or 0, 1000, "a.exe")


def inference(owners: Sequence[int]) -> Inference:
    """Returns the inference among sections with these owners; a thread waits for each."""
    locks = [
        Asked(
            SPACE,
            16 * place + 16,
            words.CRITICAL_SECTION,
            owning_thread=owner,
            held=True,
            waiting_exclusive=1,
        )
        for place, owner in enumerate(owners)
    ]
    return Inference(lambda *_: "ntdll!RtlEnterCriticalSection", lambda _: locks)


def found(inferred: Inference, tid: int) -> List[Any]:
    """Returns the address of the section for which a thread waits, and its owners."""
    thread: Any = SimpleNamespace(tid=tid)
    stack: Any = SimpleNamespace(space=SPACE, frames=FRAMES)
    awaited = inferred.section(thread, stack, {})
    assert awaited is not None
    return [awaited.address, *(owner.tid for owner in awaited.owners)]


@pytest.mark.parametrize(
    ("owners", "tid", "expected"),
    [
        ((8,), 4, [16, 8]),
        ((4, 8), 4, [32, 8]),
        ((8, 4, 4), 4, [16, 8]),
        ((8,), 8, [None]),
        ((8, 8), 4, [None]),
        ((8, 12), 4, [None]),
        ((4, 8, 12), 4, [None]),
        ((), 4, [None]),
    ],
)
def test_only_one_section_of_another_thread_is_inferred(
    owners: Sequence[int], tid: int, expected: List[Optional[int]]
) -> None:
    assert found(inference(owners), tid) == expected


@pytest.mark.parametrize("owners", [range(0, 4 * COUNT, 4), (4,) * COUNT])
def test_sections_are_looked_at_once_for_all_threads(owners: Sequence[int]) -> None:
    inferred, Asked.asked = inference(owners), 0
    assert {tuple(found(inferred, tid)) for tid in range(2, 4 * COUNT, 4)} == {(None,)}
    assert Asked.asked <= 3 * COUNT
