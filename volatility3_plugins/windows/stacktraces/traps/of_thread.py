# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The trap frames of one thread: where it points, the fixed places of its stack, what a scan finds."""

from __future__ import annotations

from typing import Iterator, List, Optional

from volatility3.framework import interfaces

from ..base import bulk
from ..threads import lister
from ..threads.kernelstacks import KernelStacks, Segment
from ..threads.lister import Thread
from .contexts import TrapContexts
from .decode.frame import USER
from .reader import Reading, TrapReader
from .state import LIMITS, NO_FRAME, OUTSIDE, RUNNING, STACK, STALE, THREAD, TOP, UNREADABLE, State, words

MAX_CHAIN = 64

# Where x86 entries from user mode begin: below a save area for the floating-point unit in the kernels
# that keep it on the stack, else right at InitialStack.
_TOPS_X86 = (0x29C, 0x8C)
_DEAD = (lister.UNREADABLE, lister.NOT_A_THREAD, lister.LIST_DAMAGED)


class ThreadFrames:
    """Lists the register states of threads.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        reader: reads the frames
        contexts: reads WoW64 CPU areas

    `unread` counts the bytes of scanned stacks that are not in the image.
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        reader: TrapReader,
        contexts: TrapContexts,
    ) -> None:
        self._context = context
        self._layer_name = context.modules[kernel_module_name].layer_name
        self._reader = reader
        self._contexts = contexts
        self.unread = 0
        self._stacks = KernelStacks(context, kernel_module_name, reader.kernel.bounds.kernel_start)

    def of_thread(self, thread: Thread, scan: bool = False) -> Iterator[State]:
        """Yields the register states of one thread, in the order: chain, top, stack, wow64."""
        if thread.status in _DEAD:
            yield self._state(thread, THREAD, 0, Reading(None, True), thread.status)
            return
        segments = list(self._stacks.segments(thread))
        taken: List[int] = []
        user_cs: Optional[int] = None
        found = (*self._chain(thread, segments, taken), *self._tops(thread, segments, taken))
        for state in found:
            if user_cs is None and state.mode == USER:
                user_cs = state.registers.get("SegCs")
            yield state
        if scan:
            for segment in segments:
                yield from self._scan(thread, segment, taken)
        context = self._contexts.wow64(thread, user_cs)
        if context is not None:
            yield context

    def _chain(self, thread: Thread, segments: List[Segment], taken: List[int]) -> Iterator[State]:
        """Yields KTHREAD.TrapFrame and the frames before it, each of which lies above the one after."""
        address = thread.trap_frame or 0
        while address and len(taken) < MAX_CHAIN:
            segment = _segment_of(segments, address, self._reader.kernel.layout.size)
            if segments and segment is None:
                yield self._state(thread, THREAD, address, Reading(None, True), OUTSIDE)
                return
            held = self._reader.window(address)
            reading = self._reader.read(address, held, False, thread.debug_active or 0)
            yield self._thread_state(thread, THREAD, address, reading, segment)
            taken.append(address)
            address = reading.previous
            if address in taken:
                return

    def _tops(self, thread: Thread, segments: List[Segment], taken: List[int]) -> Iterator[State]:
        """Yields what entries from user mode left at the top of each segment."""
        kernel, debug_active = self._reader.kernel, thread.debug_active or 0
        distances = (kernel.layout.size,) if kernel.wide else _TOPS_X86
        for segment in segments:
            places = [segment.initial - distance for distance in distances]
            readings = [
                (address, self._reader.read(address, self._reader.window(address), True, debug_active))
                for address in places
                if address >= segment.limit and address not in taken
            ]
            for address, reading in readings:
                if reading.frame is not None and reading.frame.mode == USER:
                    taken.append(address)
                    yield self._thread_state(thread, TOP, address, reading, segment)
            # Every thread with a TEB came from user mode.
            if thread.teb and len(readings) == len(places) and not any(each.readable for _, each in readings):
                yield self._thread_state(thread, TOP, *readings[0], segment)

    def _scan(self, thread: Thread, segment: Segment, taken: List[int]) -> Iterator[State]:
        size = segment.base - segment.limit
        held = bulk.read_extents(self._context, self._layer_name, segment.limit, size)
        self.unread += held.missing(segment.limit, segment.base)
        for address in self._reader.scan(held, segment.limit, segment.base, taken):
            reading = self._reader.read(address, held, True, thread.debug_active or 0)
            yield self._thread_state(thread, STACK, address, reading, segment)

    def _thread_state(
        self, thread: Thread, origin: str, address: int, reading: Reading, segment: Optional[Segment]
    ) -> State:
        broken = ""
        if reading.frame is None:
            broken = NO_FRAME if reading.readable else UNREADABLE
        dead = segment is not None and not thread.running and address < segment.kernel_stack
        status = words(STALE if dead else "", LIMITS if segment is None else "", broken)
        return self._state(thread, origin, address, reading, status)

    def _state(self, thread: Thread, origin: str, address: int, reading: Reading, status: str) -> State:
        status = words(thread.status, RUNNING if thread.running else "", status)
        name = thread.state_name
        return self._reader.state(thread.space, thread.tid, origin, address, reading, name, status)


def _segment_of(segments: List[Segment], address: int, size: int) -> Optional[Segment]:
    """Returns the segment that holds a frame wholly."""
    return next((each for each in segments if each.limit <= address <= each.base - size), None)
