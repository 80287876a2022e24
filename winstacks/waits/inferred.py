# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Infers the critical section of a thread, if no table, chain, handle or register shows it.

A function that takes critical sections is on the thread's stack. The innermost part of that stack has the
address of one section that another thread holds and for which threads wait: so in Wine, whose waits leave
none of Windows's structures. Else by exclusion: of all listed sections only one is held by another thread and
has a waiter. ntdll's list may lack sections, and a stack may have another lock, so both stay inferences.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Mapping, Optional

from ..columns import words
from ..locks.lock import Listed, Lock
from ..memory.decode.status import status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..process.thread import Thread
from ..stacks.lister import CallStack
from .records import Awaited, WaitOwner
from .userside import SymbolOf, UserSide

_FUNCTIONS = (
    "rtlentercriticalsection", "rtlpentercriticalsection", "rtlpwaitoncriticalsection",
    "rtlpwaitforcriticalsection",
)  # fmt: skip
"""Prefixes of the functions that take critical sections, in lower case."""

_MOST_FRAMES = 8
"""Frames of a stack that are named, from the innermost on: ntdll needs at most six (measured)."""


class Inference:
    """Infers critical sections."""

    def __init__(self, symbol: SymbolOf, sections: Callable[[AddressSpace], Iterable[Listed]]) -> None:
        self._symbol = symbol
        self._list = sections
        self._known: Dict[AddressSpace, Dict[Optional[int], List[Lock]]] = {}

    def section(
        self, thread: Thread, stack: Optional[CallStack], sides: Mapping[AddressSpace, UserSide]
    ) -> Optional[Awaited]:
        """Returns the section for which a thread waits in a stack of user mode, None if it is unknown."""
        if stack is None or not self._takes_section(stack):
            return None
        side = sides.get(stack.space)
        held = [] if side is None else side.held_on_stack(thread.tid)
        if len(held) == 1:
            space, tid = stack.space, held[0].members.owning_thread
            holder = WaitOwner(space.pid, space.known_name, tid, space.eprocess)
            evidence = f"{held[0].state}; no wait structure of Windows names the section"
            return _inferred(space, held[0].address, words.ON_STACK, evidence, holder)
        by_owner = self._contended(stack.space)
        # Sections of three owners are several of other threads, however many there are.
        others = [held for tid, held in by_owner.items() if tid != thread.tid] if len(by_owner) < 3 else []
        if [len(held) for held in others] != [1]:
            evidence = "no wait structure of Windows names the section"
            return Awaited(
                words.CRITICAL_SECTION, stack.space, evidence=evidence, ownership=words.OWNER_UNKNOWN
            )
        lock, owner = others[0][0], others[0][0].owner
        assert owner is not None
        evidence = "of all listed sections only this one is held by another thread and has a waiter"
        holder = WaitOwner(owner.pid, owner.process, owner.tid, stack.space.eprocess)
        return _inferred(stack.space, lock.address, words.BY_EXCLUSION, evidence, holder)

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

    def _contended(self, space: AddressSpace) -> Dict[Optional[int], List[Lock]]:
        """Returns the listed sections that a thread holds and for which threads wait, by its ID."""
        if space not in self._known:
            found = self._known[space] = {}
            for lock in self._list(space):
                if not isinstance(lock, Lock) or lock.type != words.CRITICAL_SECTION:
                    continue
                if lock.waiters and lock.held and lock.address and lock.owner is not None:
                    found.setdefault(lock.owner.tid, []).append(lock)
        return self._known[space]


def _inferred(
    space: AddressSpace, address: Optional[int], known: str, evidence: str, owner: WaitOwner
) -> Awaited:
    return Awaited(
        words.CRITICAL_SECTION,
        space,
        address,
        "",
        words.FOR_EXCLUSIVE,
        known,
        evidence,
        words.BY_THREAD,
        (owner,),
        status(StatusCode.UNSURE),
    )
