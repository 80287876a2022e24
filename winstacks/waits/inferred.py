# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Infers the critical section of a thread by exclusion, if neither memory nor registers show it.

A function that takes critical sections is on the thread's stack. Of all listed sections only one is held by
another thread and has a waiter: the thread waits for that one. ntdll's list may lack sections, so this stays
an inference.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Optional

from ..columns import words
from ..locks.lock import Listed, Lock
from ..memory.decode.status import status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..process.thread import Thread
from ..stacks.lister import CallStack
from .records import Awaited, WaitOwner
from .userside import SymbolOf

_FUNCTIONS = (
    *("rtlentercriticalsection", "rtlpentercriticalsection", "rtlpwaitoncriticalsection"),
    "rtlpwaitforcriticalsection",
)
"""Prefixes of the functions that take critical sections, in lower case."""

_MOST_FRAMES = 8
"""Frames of a stack that are named, from the innermost on: ntdll needs at most six (measured)."""


class Inference:
    """Infers critical sections.

    Args:
        symbol: names addresses
        sections: lists the critical sections of one half of a process
    """

    def __init__(self, symbol: SymbolOf, sections: Callable[[AddressSpace], Iterable[Listed]]) -> None:
        self._symbol = symbol
        self._list = sections
        self._known: Dict[AddressSpace, List[Lock]] = {}

    def section(self, thread: Thread, stack: Optional[CallStack]) -> Optional[Awaited]:
        """Returns the section for which a thread waits in a stack of user mode, None if it is unknown."""
        if stack is None or not self._takes_section(stack):
            return None
        locks = [
            lock
            for lock in self._contended(stack.space)
            if lock.owner is not None and lock.owner.tid != thread.tid
        ]
        if len(locks) != 1:
            return Awaited(words.CRITICAL_SECTION, stack.space, ownership=words.OWNER_UNKNOWN)
        lock, owner = locks[0], locks[0].owner
        assert owner is not None
        return Awaited(
            words.CRITICAL_SECTION,
            stack.space,
            lock.address,
            "",
            words.FOR_EXCLUSIVE,
            words.BY_EXCLUSION,
            "of all listed sections only this one is held by another thread and has a waiter",
            words.BY_THREAD,
            (WaitOwner(owner.pid, owner.process, owner.tid, stack.space.eprocess),),
            status(StatusCode.UNSURE),
        )

    def _takes_section(self, stack: CallStack) -> bool:
        for frame in stack.frames[:_MOST_FRAMES]:
            name = self._symbol(stack.space, frame.address, frame.returns).lower()
            module, _, function = name.partition("!")
            if module != "ntdll":
                # Code outside ntdll made the system call: no function of ntdll waits here.
                return False
            if function.startswith(_FUNCTIONS):
                return True
        return False

    def _contended(self, space: AddressSpace) -> List[Lock]:
        if space not in self._known:
            found = (item for item in self._list(space) if isinstance(item, Lock))
            self._known[space] = [
                lock
                for lock in found
                if lock.type == words.CRITICAL_SECTION and lock.waiters and lock.held and lock.address
            ]
        return self._known[space]
