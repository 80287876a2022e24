# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks of threads: what RtlCaptureStackBackTrace would have seen, in kernel, user and 32-bit mode.

symbolizer = Symbolizer(context, kernel_module_name, config_path)
for stack in CallStacks.list_stacks(context, kernel_module_name, symbolizer, pids=[1000]): ...
"""

from __future__ import annotations

from typing import Collection, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from volatility3.framework import interfaces

from ..base.spaces import AddressSpace
from ..names.symbolizer import Symbolizer
from ..threads import lister
from ..threads.lister import Thread, Threads
from ..traps.decode.frame import USER as USER_MODE
from ..traps.state import THREAD, TOP, WOW64, State, words
from . import starts
from .decode.frames import Border, Frame, Walk
from .kernel import KernelWalks
from .starts import Range, UserStacks

KERNEL, USER = "kernel", "user"
UNSURE = "unsure"

IN_32_BIT_CODE = "in 32-bit code"
NO_STATE = "no saved registers"
NO_LIMITS = "stack limits unknown"

_CODE_32 = 0x23
_NOT_THREADS = (lister.UNREADABLE, lister.NOT_A_THREAD, lister.LIST_DAMAGED)


class CallStack(NamedTuple):
    """One stack of a thread. Addresses are canonical.

    `part` is kernel, user or wow64; `space` the address space that names its frames; `status` is empty, or
    says in fixed words why the stack is not there, not complete or not sure.
    """

    thread: Thread
    part: str
    space: AddressSpace
    frames: Tuple[Frame, ...]
    status: str

    @property
    def return_addresses(self) -> Tuple[int, ...]:
        """What RtlCaptureStackBackTrace counts: all but the address at which the thread was interrupted."""
        counted = self.frames[1:] if self.frames and not self.frames[0].returns else self.frames
        return tuple(frame.address for frame in counted)


class CallStacks(interfaces.configuration.VersionableInterface):
    """Walks the stacks of threads.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        symbolizer: knows the modules of every address space
    """

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
    ) -> None:
        super().__init__()
        self._kernel = KernelWalks(context, kernel_module_name, symbolizer)
        self._user_stacks = UserStacks(context, kernel_module_name)

    @classmethod
    def list_stacks(
        cls,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
        tids: Optional[Collection[int]] = None,
    ) -> Iterator[CallStack]:
        """Yields the stacks of threads: of each its kernel part, its user part, its 32-bit part.

        Args:
            context: the context that holds the image
            kernel_module_name: the name of the kernel's module in the context
            symbolizer: knows the modules of every address space
            pids: the processes wanted; all when None or empty
            offset: an _EPROCESS that no list holds: only its threads
            tids: the threads wanted; all when None or empty

        Yields:
            The stacks. One that could not be walked has no frames, or those up to where it broke off, and a
            `status`. Threads without a user half have no user part.
        """
        finder = cls(context, kernel_module_name, symbolizer)
        for thread in Threads.list_threads(context, kernel_module_name, pids, offset, tids):
            yield from finder.of_thread(thread)

    def of_thread(self, thread: Thread) -> Iterator[CallStack]:
        """Yields the stacks of one thread."""
        if thread.status in _NOT_THREADS:
            yield CallStack(thread, KERNEL, thread.space, (), thread.status)
            return
        states = self._kernel.states(thread)
        found = self._kernel.walk(thread, states)
        status = words(thread.status, found.status, *_remarks(found.walk))
        yield CallStack(thread, KERNEL, thread.space, found.walk.frames, status)
        if not thread.teb and all(state.mode != USER_MODE for state in states):
            return
        entered = self._entered(thread, states)
        narrow = entered is not None and entered.registers.get("SegCs") == _CODE_32
        if narrow:
            yield CallStack(thread, USER, thread.space, (), words(thread.status, IN_32_BIT_CODE))
        else:
            yield self._user(thread, entered, found.walk.border)
        if thread.wow64 is not None:
            area = next((state for state in states if state.origin == WOW64), None)
            yield self._wow64(thread, thread.wow64, entered if narrow else area)

    def _entered(self, thread: Thread, states: Sequence[State]) -> Optional[State]:
        """Returns the registers with which the thread left user mode last, or with which it runs there."""
        if thread.running:
            context = self._kernel.context(thread)
            if context is not None and context.mode == USER_MODE:
                return context
        found = (state for state in states if state.origin in (THREAD, TOP))
        return next((state for state in found if state.mode == USER_MODE or not state.registers), None)

    def _user(self, thread: Thread, state: Optional[State], border: Optional[Border]) -> CallStack:
        start = None if state is None else starts.of_state(state)
        if state is None or start is None:
            status = words(thread.status, NO_STATE if state is None else state.status or NO_STATE)
            return CallStack(thread, USER, thread.space, (), status)
        if start.wide is not None and border is not None and border.trap == self._kernel.saved(state):
            start = start._replace(wide=starts.with_kept(start.wide, border))
        sp = state.registers["Rsp"]
        stacks = self._user_stacks.native(thread, sp)
        walk = self._kernel.walkers.walk(thread.space, start, stacks)
        return self._stack(thread, USER, thread.space, walk, state, stacks)

    def _wow64(self, thread: Thread, space: AddressSpace, state: Optional[State]) -> CallStack:
        narrow = None if state is None else state._replace(arch="x86")
        start = None if narrow is None else starts.of_state(narrow)
        if state is None or start is None:
            status = words(thread.status, NO_STATE if state is None else state.status or NO_STATE)
            return CallStack(thread, WOW64, space, (), status)
        stacks = self._user_stacks.narrow(thread, state.registers["Rsp"])
        walk = self._kernel.walkers.walk(space, start, stacks)
        return self._stack(thread, WOW64, space, walk, state, stacks)

    def _stack(
        self,
        thread: Thread,
        part: str,
        space: AddressSpace,
        walk: Walk,
        state: State,
        stacks: Sequence[Range],
    ) -> CallStack:
        status = words(thread.status, state.status, "" if stacks else NO_LIMITS, *_remarks(walk))
        return CallStack(thread, part, space, walk.frames, status)


def _remarks(walk: Walk) -> List[str]:
    """Returns what is not in order with a walk, in fixed words."""
    return [*walk.gaps, walk.end]
