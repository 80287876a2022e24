# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel stacks of threads, and what walking them tells of the trap frames on them."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from ..base.decode.record import Record
from ..base.decode.status import NOTHING, Status, Word, says, status
from ..base.image import Image
from ..names.symbolizer import Symbolizer
from ..threads import processors
from ..threads.kernelstacks import KernelStacks
from ..threads.lister import Thread
from ..traps.decode.frame import USER
from ..traps.lister import ThreadFrames
from ..traps.reader import TrapKernel, TrapReader
from ..traps.state import WOW64, State, TrapContexts
from .cpus import Range, Traps
from .decode.frames import StackWalk
from .decode.registers import Registers
from .walkers import StackWalkers

_NO_WALK = StackWalk(())


class KernelWalk(Record):
    """The walk up a kernel stack; `status` says why it could not begin where it should."""

    walk: StackWalk
    status: Status = NOTHING


class KernelWalks:
    """Walks the kernel stacks of threads.

    Args:
        image: the image
        symbolizer: knows the modules of every address space

    Attributes:
        walkers: walks other stacks of the image
        tells_registers: whether `registers` ever finds some
    """

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self._processors = {processor.number: processor for processor in image.part(processors.of)}
        self._kernel = TrapKernel(image, symbolizer)
        self._contexts = TrapContexts(image, False)
        self._frames = ThreadFrames(image, TrapReader(self._kernel, False), self._contexts)
        self._stacks = KernelStacks(image, self._kernel.bounds.kernel_start)
        self.walkers = StackWalkers(image, symbolizer)
        self._cpu = self.walkers.cpus.of(image.pointer_size)
        self._saved = self._cpu.saved(self._kernel.form.structure)
        self.tells_registers = self._cpu.tells_registers

    def states(self, thread: Thread, scan: bool = False) -> List[State]:
        """Returns the trap frames of a thread (and its 32-bit state), from the current one on."""
        return list(self._frames.of_thread(thread, scan))

    def context(self, thread: Thread) -> Optional[State]:
        """Returns the registers that the thread's processor saved when it was stopped, or None."""
        processor = self._processors.get(-1 if thread.processor is None else thread.processor)
        return None if processor is None else self._contexts.processor(processor, thread.space, thread.tid)

    def saved(self, state: State) -> int:
        """Returns the address by which a walk knows a trap frame: x64 that of the machine frame in it."""
        return state.address + self._saved

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
        found = {
            frame.trap - self._saved: frame.registers
            for frame in walk.frames
            if frame.trap and frame.sure and frame.registers is not None
        }
        if walk.border is not None and walk.border.sure and walk.border.registers is not None:
            found[walk.border.trap - self._saved] = walk.border.registers
        return found

    def _begin(self, thread: Thread, stacks: List[Range], traps: Traps) -> KernelWalk:
        if thread.running:
            context = self.context(thread)
            if context is None:
                return KernelWalk(_NO_WALK, status(Word.RUNNING))
            running = self._cpu.start(context)
            if context.mode == USER or running is None:
                return KernelWalk(_NO_WALK, status(Word.IN_USER_MODE))
            processor = self._processors[thread.processor or 0]
            stacks = stacks + [(stack.limit, stack.base) for stack in processor.stacks]
            return KernelWalk(self.walkers.walk(thread.space, running, stacks, traps))
        kernel_stack = thread.kernel_stack or 0
        memory = self.walkers.memory(thread.space)
        start = self._cpu.switched_out(memory, kernel_stack) if kernel_stack else None
        if start is None or not stacks:
            return KernelWalk(_NO_WALK, status(Word.UNREADABLE, None if stacks else Word.NO_SWITCH_FRAME))
        if self._is_kernel_code(start.registers.ip):
            return KernelWalk(self.walkers.walk(thread.space, start, stacks, traps))
        walk = self.walkers.search(thread.space, kernel_stack, Word.NO_SWITCH_FRAME, stacks, traps)
        return KernelWalk(walk)

    def _is_kernel_code(self, address: int) -> bool:
        """Tells whether an address is in the kernel itself, where every thread waits."""
        low, high = self._kernel.bounds.kernel_image
        return low < address < high

    def _traps(self, states: Iterable[State]) -> Iterator[Tuple[int, Optional[Registers]]]:
        """Yields (address, registers) of the trap frames that are in use."""
        for state in states:
            dead = says(
                state.status, Word.STALE, Word.UNREADABLE, Word.NOT_A_TRAP_FRAME, Word.OUTSIDE_THE_STACK
            )
            if state.origin != WOW64 and not dead and "Rip" in state.registers and "Rsp" in state.registers:
                yield self.saved(state), self._cpu.beside(state)
