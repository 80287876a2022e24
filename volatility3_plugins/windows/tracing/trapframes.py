# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every register state that an image holds: trap frames, processors' contexts, WoW64 CPU areas.

symbolizer = Symbolizer(context, kernel_module_name, config_path)
for state in TrapFrames.list_states(context, kernel_module_name, symbolizer, scan_stacks=True): ...
"""

from __future__ import annotations

import logging
from typing import Collection, Dict, Iterator, List, Optional

from volatility3.framework import interfaces

from . import memory
from .processors import IST, Processors
from .spaces import KERNEL_PID
from .symbolizer import Symbolizer
from .threadframes import ThreadFrames
from .threads import Thread, Threads
from .trapcontexts import TrapContexts
from .trapkernel import TrapKernel
from .trapreader import TrapReader
from .trapstate import STACK, State

vollog = logging.getLogger(__name__)


class TrapFrames(interfaces.configuration.VersionableInterface):
    """Lists the register states of an image."""

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
        members: bool = False,
    ) -> None:
        super().__init__()
        kernel = context.modules[kernel_module_name]
        self._context = context
        self._name = kernel_module_name
        self._layer_name = kernel.layer_name
        self._processors = list(Processors.list_processors(context, kernel_module_name))
        tops = frozenset(
            stack.base
            for processor in self._processors
            for stack in processor.stacks
            if stack.kind.startswith(IST)
        )
        self._kernel = TrapKernel(context, kernel_module_name, symbolizer, tops)
        self._contexts = TrapContexts(context, kernel_module_name, members)
        self._reader = TrapReader(context, kernel.layer_name, self._kernel, members)
        self._threads = ThreadFrames(context, kernel_module_name, self._reader, self._contexts)

    @classmethod
    def list_states(
        cls,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
        tids: Optional[Collection[int]] = None,
        scan_stacks: bool = False,
        processors: bool = False,
        scan_threads: bool = False,
        members: bool = False,
    ) -> Iterator[State]:
        """Yields the register states of threads, then those of processors.

        Args:
            context: the context that holds the image
            kernel_module_name: the name of the kernel's module in the context
            symbolizer: names for return addresses: they tell which handler a frame is of
            pids: the processes wanted, 0 for the stacks of processors; all when None or empty
            offset: an _EPROCESS that no list holds: only its threads
            tids: the threads wanted; all when None or empty
            scan_stacks: look for further frames on the kernel stacks of threads and processors
            processors: add the contexts that stopped processors saved
            scan_threads: add the threads that only a pool scan finds
            members: fill `State.members`
        """
        finder = cls(context, kernel_module_name, symbolizer, members)
        running: Dict[int, Thread] = {}
        listed = Threads.list_threads(context, kernel_module_name, pids, offset, tids, scan_threads)
        for thread in listed:
            if thread.processor is not None:
                running[thread.processor] = thread
            yield from finder._threads.of_thread(thread, scan_stacks)
        everything = not tids and offset is None and (not pids or KERNEL_PID in pids)
        if processors:
            yield from finder._of_processors(running, everything)
        if scan_stacks and everything:
            yield from finder._on_processor_stacks()

    def _of_processors(self, running: Dict[int, Thread], everything: bool) -> Iterator[State]:
        for processor in self._processors:
            thread = running.get(processor.number)
            if thread is not None:
                state = self._contexts.processor(processor, thread.space, thread.tid)
            elif everything:
                state = self._contexts.processor(processor, self._kernel.space, None)
            else:
                continue
            if state is not None:
                yield state
            else:
                vollog.info(f"Processor {processor.number} has no saved context")

    def _on_processor_stacks(self) -> Iterator[State]:
        """Yields the frames on the DPC, ISR and IST stacks."""
        taken: List[int] = []
        for processor in self._processors:
            for stack in processor.stacks:
                size = stack.base - stack.limit
                held = memory.read_extents(self._context, self._layer_name, stack.limit, size)
                for address in self._reader.scan(held, stack.limit, stack.base, taken):
                    reading = self._reader.read(address, held)
                    where = f"CPU {processor.number} {stack.kind}"
                    yield self._reader.state(self._kernel.space, None, STACK, address, reading, where)
