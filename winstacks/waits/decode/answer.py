# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The answer of a decoder of user mode: what a thread waits for."""

from __future__ import annotations

from typing import Optional, Tuple

from ...memory.decode.records import NamedTuple


class Answer(NamedTuple):
    """The thing that a thread waits for. Addresses are of its process.

    Attributes:
        kind: a word of `words.WAIT_KINDS`
        mode: a word of `words.WAIT_MODES`, empty if there is none
        known: a word of `words.KNOWN`: where Windows keeps that this thread waits for it
        block: address of the thread's wait block, 0 if the answer needs none
        owner: TID of its owner; 0 if nobody owns it, None if Windows keeps none
        lock: address of the SRW lock or section that a sleeper on a condition variable takes again, 0 if
            unknown
        others: addresses of the other locks that fit equally well
        moved: whether the thread slept on a condition variable, and waits for its lock now
        wrong: members that contradict the answer
    """

    tid: int
    kind: str
    address: int
    mode: str
    known: str
    evidence: str
    block: int = 0
    owner: Optional[int] = None
    lock: int = 0
    others: Tuple[int, ...] = ()
    moved: bool = False
    wrong: Tuple[str, ...] = ()
