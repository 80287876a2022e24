# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel stacks of threads, and what walking them tells of the trap frames on them."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces

from ..names.symbolizer import Symbolizer
from ..threads.kernelstacks import KernelStacks
from ..threads.lister import Thread
from ..threads.processors import Processors
from ..traps.contexts import TrapContexts
from ..traps.decode.frame import USER
from ..traps.kernel import TrapKernel
from ..traps.of_thread import ThreadFrames
from ..traps.reader import TrapReader
from ..traps.state import NO_FRAME, OUTSIDE, RUNNING, STALE, UNREADABLE, WOW64, State, words
from . import starts
from .decode.frames import Walk
from .decode.registers_x64 import Registers
from .starts import Range, Start
from .walkers import StackWalkers

IN_USER_MODE = "in user mode"
NO_SWITCH_FRAME = "no switch frame"
_DEAD_STATES = (STALE, UNREADABLE, NO_FRAME, OUTSIDE)
_NOTHING = Walk(())


class KernelWalk(NamedTuple):
    """The walk up a kernel stack; `status` says why it could not begin where it should."""

    walk: Walk
    status: str


class KernelWalks:
    """Walks the kernel stacks of threads.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        symbolizer: knows the modules of every address space
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
    ) -> None:
        self._processors = {
            processor.number: processor
            for processor in Processors.list_processors(context, kernel_module_name)
        }
        self._kernel = TrapKernel(context, kernel_module_name, symbolizer)
        self._contexts = TrapContexts(context, kernel_module_name, False)
        reader = TrapReader(context, context.modules[kernel_module_name].layer_name, self._kernel, False)
        self._frames = ThreadFrames(context, kernel_module_name, reader, self._contexts)
        self._stacks = KernelStacks(context, kernel_module_name, self._kernel.bounds.kernel_start)
        self.walkers = StackWalkers(context, kernel_module_name, symbolizer)

    def states(self, thread: Thread, scan: bool = False) -> List[State]:
        """Returns the trap frames of a thread (and its 32-bit state), from the current one on."""
        return list(self._frames.of_thread(thread, scan))

    def context(self, thread: Thread) -> Optional[State]:
        """Returns the registers that the thread's processor saved when it was stopped, or None."""
        processor = self._processors.get(-1 if thread.processor is None else thread.processor)
        return None if processor is None else self._contexts.processor(processor, thread.space, thread.tid)

    def saved(self, state: State) -> int:
        """Returns the address by which a walk knows a trap frame: x64 that of the machine frame in it."""
        layout = self._kernel.layout
        return state.address + (layout.members["Rip"].offset if layout.arch == "x64" else 0)

    def walk(self, thread: Thread, states: Iterable[State]) -> KernelWalk:
        """Walks a thread's kernel stack.

        Args:
            thread: the thread
            states: its trap frames, as far as they are known
        """
        stacks = [(segment.limit, segment.base) for segment in self._stacks.segments(thread)]
        found = self._begin(thread, stacks, dict(self._traps(states)))
        if found.walk.gaps and not found.walk.border:
            # It had to guess, and may have gone past trap frames that only a search of the stack finds.
            traps = dict(self._traps(self.states(thread, True)))
            found = self._begin(thread, stacks, traps)
        return found

    def registers(self, thread: Thread) -> Dict[int, Registers]:
        """Returns what a walk tells of the registers at each trap frame of a thread, by its address."""
        walk = self.walk(thread, self.states(thread)).walk
        offset = self._kernel.layout.members["Rip"].offset if self._kernel.layout.arch == "x64" else 0
        found = {
            frame.trap - offset: frame.registers
            for frame in walk.frames
            if frame.trap and frame.sure and frame.registers is not None
        }
        if walk.border is not None and walk.border.sure and walk.border.registers is not None:
            found[walk.border.trap - offset] = walk.border.registers
        return found

    def _begin(
        self, thread: Thread, stacks: List[Range], traps: Dict[int, Optional[Registers]]
    ) -> KernelWalk:
        if thread.running:
            context = self.context(thread)
            if context is None:
                return KernelWalk(_NOTHING, RUNNING)
            start = starts.of_state(context)
            if context.mode == USER or start is None:
                return KernelWalk(_NOTHING, IN_USER_MODE)
            processor = self._processors[thread.processor or 0]
            stacks = stacks + [(stack.limit, stack.base) for stack in processor.stacks]
            return KernelWalk(self.walkers.walk(thread.space, start, stacks, traps), "")
        kernel_stack = thread.kernel_stack or 0
        peek = self.walkers.peek(thread.space)
        start = starts.of_switch_frame(peek, kernel_stack) if kernel_stack else None
        if start is None or not stacks:
            return KernelWalk(_NOTHING, UNREADABLE if stacks else words(UNREADABLE, NO_SWITCH_FRAME))
        if self._is_kernel_code(start):
            return KernelWalk(self.walkers.walk(thread.space, start, stacks, traps), "")
        walk = self.walkers.search(thread.space, kernel_stack, NO_SWITCH_FRAME, stacks, traps)
        return KernelWalk(walk, "")

    def _is_kernel_code(self, start: Start) -> bool:
        """Tells whether a state is in the kernel itself, where every thread waits."""
        registers = start.wide or start.narrow
        low, high = self._kernel.bounds.kernel_image
        return registers is not None and low < registers.ip < high

    def _traps(self, states: Iterable[State]) -> Iterator[Tuple[int, Optional[Registers]]]:
        """Yields (address, registers) of the trap frames that are in use."""
        for state in states:
            dead = any(word in state.status for word in _DEAD_STATES)
            if state.origin != WOW64 and not dead and starts.of_state(state) is not None:
                wide = state.arch == "x64"
                yield self.saved(state), starts.wide_registers(state) if wide else None
