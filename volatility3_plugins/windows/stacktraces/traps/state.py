# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.trapframes` lists: register states, where they come from and how far they may be believed."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple

from ..base.spaces import AddressSpace
from .decode.frame import MemberValue

THREAD = "thread"
TOP = "top"
STACK = "stack"
PROCESSOR = "processor"
WOW64 = "wow64"

RUNNING = "running"
STALE = "stale"
UNREADABLE = "unreadable"
NO_FRAME = "not a trap frame"
OUTSIDE = "outside the stack"
NOT_CANONICAL = "not canonical"
LIMITS = "stack limits unusable"


class State(NamedTuple):
    """A register state. Addresses are canonical.

    `origin` is thread (KTHREAD.TrapFrame and the chain from it), top (the fixed place at the top of a kernel
    stack), stack (found by scanning), processor or wow64. `kind` and `mode` are those of a trap frame, empty
    where they are not known. `registers` holds what was saved and no more, by x64 names; of those in
    `unsure` it is not known whether they were. `thread_state` is the thread's scheduling state, or names the
    processor. `members` is empty unless it was asked for.
    """

    space: AddressSpace
    tid: Optional[int]
    arch: str
    origin: str
    address: int
    kind: str
    mode: str
    registers: Mapping[str, int]
    unsure: Tuple[str, ...]
    thread_state: str
    status: str
    members: Tuple[MemberValue, ...] = ()


def words(*parts: str) -> str:
    """Joins the words of a status, each once."""
    return ", ".join(dict.fromkeys(part for part in parts if part))
